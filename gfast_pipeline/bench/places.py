"""Where the runners of a session live: private folders, compile caches by candidate, the bench as one readable zip."""

from __future__ import annotations

import os
import zipfile
from typing import Any

from gfast_pipeline.bench import isolation

_PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "CC", "LANG", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
)


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

    def variables(self, home: str, cache: str, threads: int) -> dict[str, str]:
        """The cleared environment of a runner: what it may know of ours, and where it may write."""
        ours = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return ours | {
            "HOME": home,
            "TMPDIR": home,
            "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
            "TORCH_EXTENSIONS_DIR": os.path.join(cache, "extensions"),
            "PYTHONPATH": self.python_path,
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(threads),
            # on a CPU: glibc gives large blocks back at every free, and the page faults of the next call are noise
            "MALLOC_MMAP_THRESHOLD_": "4000000000",
            "MALLOC_TRIM_THRESHOLD_": "8000000000",
            "USER": "gfast",  # torch asks for a user name, and an unnamed uid has none
        }


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
