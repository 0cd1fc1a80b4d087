"""Injects each fault into a copy of the tree and shows that a test catches it: `make mutants`.

Exit 0 when all are caught, 1 when one survives, 2 when the list no longer fits the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600
CAUGHT, NO_TEST_FAILED = 1, 0  # pytest's exit codes; others say that it could not run


def main() -> int:
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or sys.argv[1] in fault.name]
    if not chosen:
        print(f"no fault has {sys.argv[1]!r} in its name; see faults.py", file=sys.stderr)
        return 2
    for fault in chosen:
        found = (ROOT / "speculation" / fault.path).read_text().count(fault.old)
        if found != 1:
            print(
                f"{fault.name}: found {found} times in {fault.path}, wanted once", file=sys.stderr
            )
            return 2
    union = tuple(sorted({test for fault in chosen for test in fault.tests}))
    code, _, told = _tried(Fault("none", "engine.py", "", "", union))
    if code != NO_TEST_FAILED:
        print(f"without any fault pytest exits with {code}:\n{told}", file=sys.stderr)
        return 2
    survivors = []
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1))) as pool:
        for fault, (code, seconds, told) in zip(chosen, pool.map(_tried, chosen), strict=True):
            word = {CAUGHT: "caught", NO_TEST_FAILED: "SURVIVED"}.get(code, f"pytest exit {code}")
            print(f"{word:10} {seconds:5.0f} s  {fault.name}", flush=True)
            if code != CAUGHT:
                survivors.append(fault.name)
                print(told, file=sys.stderr)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} injected faults were caught by a test")
    return 1 if survivors else 0


def _tried(fault: Fault) -> tuple[int, float, str]:
    """Pytest's exit code over a copy with the fault in it, the time it took, its last lines."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("speculation", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "pyproject.toml", copy)
        path = copy / "speculation" / fault.path
        if fault.old:
            path.write_text(path.read_text().replace(fault.old, fault.new))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
            + [f"tests/speculation/{test}" for test in fault.tests],
            cwd=copy,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        # A fault that breaks the import would fail every test and show nothing.
        assert "ImportError" not in done.stdout, done.stdout
    return done.returncode, time.monotonic() - began, done.stdout[-2000:]


if __name__ == "__main__":
    sys.exit(main())
