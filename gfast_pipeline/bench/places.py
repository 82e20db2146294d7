"""Where the runners of a session live: private folders, compile caches by candidate, the bench as one readable zip."""

from __future__ import annotations

import os
import zipfile
from typing import Any

from gfast_pipeline.bench import isolation


class Places:
    """Where runners of a session live: a folder for each, a compile cache for each candidate, the bench as one zip."""

    def __init__(self, root: str, python_path: str, rung: str) -> None:
        self.root, self.python_path, self.rung = root, python_path, rung
        self._uids: dict[str, int] = {}

    def uid(self, key: str) -> int:
        """A uid for a candidate; runners of one candidate share it, and so the compile cache."""
        return self._uids.setdefault(key, isolation.FIRST_UID + len(self._uids))

    def folder(self, *names: str, uid: int) -> str:
        """A private folder, owned by `uid` on the namespace rung."""
        path = os.path.join(self.root, *names)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o700)
        if self.rung == "namespace":
            os.chown(path, uid, uid)
        return path


def bench_zip(root: str) -> str:
    """The bench as one zip that every runner may read, wherever this package lies. Returns its path."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(root, "bench.zip")
    loader: Any = globals().get("__loader__")
    with zipfile.ZipFile(path, "w") as target:
        if hasattr(loader, "archive"):  # we run from a bundle
            with zipfile.ZipFile(loader.archive) as source:
                for name in source.namelist():
                    if name.startswith("gfast_pipeline/"):
                        target.writestr(name, source.read(name))
        else:
            target.write(os.path.join(os.path.dirname(here), "__init__.py"), "gfast_pipeline/__init__.py")
            for name in sorted(os.listdir(here)):
                if name.endswith(".py"):
                    target.write(os.path.join(here, name), f"gfast_pipeline/bench/{name}")
    os.chmod(path, 0o644)
    return path
