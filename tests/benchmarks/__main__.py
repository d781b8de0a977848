"""Runs all benchmarks, or those named: ``python -m tests.benchmarks [bench_host …]``; results in build/benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    known = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    names = sys.argv[1:] or known
    if unknown := [name for name in names if name not in known]:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    codes = []
    for name in names:
        print(f"== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=False).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
