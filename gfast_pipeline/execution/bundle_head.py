"""The code at the head of every bundle: checks its seal, then unpacks the bench and runs the job. Plain Python 3.10."""

HEADER = '''\
#!/usr/bin/env python3
"""A sealed measuring job of gfast. It needs Linux, Python 3.10 or newer and torch 2.6 or newer, and nothing of gfast.

    python BUNDLE info                      what it would measure
    python BUNDLE run OUT [--minutes M]     measure, and write one sealed session to OUT, a file or a folder

The comment lines below the code are a zip in base64: the bench, and the job with reference and candidates. `run`
unpacks them into a temporary folder, which goes when it ends. Exit codes: 0 whole, 3 partial, 4 void, 2 not started.
"""
try:  # all in one statement: a cut that leaves no check here leaves no Python either
    import hashlib
    import sys

    with open(__file__, "rb") as file:
        sealed, mark, seal = file.read().rpartition(b"\\n# sha256 ")
    if not mark or len(seal) < 65:
        raise ValueError("it is cut short")
    if hashlib.sha256(sealed).hexdigest().encode() + b"\\n" != seal:
        raise ValueError("it was edited or damaged on the way")
except (OSError, ValueError) as error:
    (
        print(f"{__file__}: {error}; copy it again in binary, or make it anew: gfast bundle create", file=sys.stderr),
        sys.exit(2),
    )

import argparse
import base64
import io
import json
import os
import shutil
import tempfile
import zipfile


def refuse(what, remedy):
    print(f"{__file__}: {what}; {remedy}", file=sys.stderr)
    sys.exit(2)


def info(job):
    print(f"kind          {job['kind']}" + (f", what session {job['rest_of']} left" if job["rest_of"] else ""))
    print(f"contract      {job['workload']}/{job['contract_name']}")
    print(f"hash          {job['contract_hash']}")
    print("participants  " + ", ".join(f"{plan['name']} ({plan['role']})" for plan in job["plans"]))
    print("cases         " + ", ".join(str(case) for case in job["cases"]))
    print(f"generations   {job['generations']} of {job['blocks']} blocks, {', '.join(job['modes'])}")
    if job["cells"] is not None:
        print("cells         " + ", ".join(f"generation {g} case {c}" for g, c in job["cells"]))
    print(f"protocol      {job['protocol']}")


def target(out, kind, job_hash):
    """Where the session will lie, settled before an hour is spent on it. Nothing is ever overwritten."""
    path = os.path.abspath(out)
    if os.path.isdir(path):
        stem = os.path.join(path, f"{kind}-{job_hash[:12]}")
        path, count = stem + ".json.gz", 1
        while os.path.exists(path):
            count += 1
            path = f"{stem}-{count}.json.gz"
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        refuse(f"there is no folder {folder} to write to", "make it, or name another")
    if not os.access(folder, os.W_OK):
        refuse(f"the folder {folder} cannot be written to", "name another")
    if os.path.exists(path):
        refuse(f"{path} exists already", "name another file, or a folder")
    return path


def need_torch():
    try:
        import torch

        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    except Exception as error:
        refuse(
            f"torch cannot be imported by {sys.executable} ({type(error).__name__}: {error})",
            "run this with a Python that has torch 2.6 or newer",
        )
    if version < (2, 6):
        refuse(f"torch {torch.__version__} is too old", "install torch 2.6 or newer")


def run(archive, content, options):
    job = json.loads(content)
    path = target(options.out, job["kind"], hashlib.sha256(content).hexdigest())
    need_torch()
    folder = tempfile.mkdtemp(prefix="gfast-bundle-")
    try:
        archive.extractall(folder)
        sys.path.insert(0, folder)
        from gfast_pipeline.bench.__main__ import read_job, run_job

        work = read_job(job)
        work.unsafe = work.unsafe or options.unsafe
        code = run_job(work, path, options.minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code in (0, 3, 4):
        print(f"next, where this bundle was made: gfast bundle ingest {os.path.basename(path)}")
    if code == 3:
        print("then, for what is missing: gfast bundle create --rest SESSION, with the id that ingest shows")
    return code


def main():
    if sys.version_info < (3, 10):
        refuse(f"this is Python {sys.version.split()[0]}", "run it with Python 3.10 or newer")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("info", help="what it would measure")
    runner = verbs.add_parser("run", help="measure")
    runner.add_argument("out", help="where the session goes: a new file (.gz: compressed), or an existing folder")
    runner.add_argument("--minutes", type=float, help="stop cleanly at a case boundary before this many are over")
    runner.add_argument("--unsafe", action="store_true", help="run without isolation where none is to be had")
    options = parser.parse_args()
    lines = (line[2:] for line in sealed.splitlines() if line.startswith(b"#|"))
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(b"".join(lines))))
    content = archive.read("job.json")
    if options.verb == "info":
        return info(json.loads(content))
    return run(archive, content, options)


if __name__ == "__main__":
    sys.exit(main())

# --- the bench and the job: a zip in base64 -------------------------------------------------------------------------
'''
