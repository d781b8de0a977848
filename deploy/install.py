"""Installs Pinhole with extras into a virtual environment; does nothing, quickly, when that is done already.

    python deploy/install.py [--venv .venv] [--cuda none|fit|any] [EXTRA ...]

Extras add up: what an earlier run installed stays, so `make serve` and `make test` share one environment. Done means:
the same pyproject.toml, the same folder, and every extra that is asked for. ``--cuda fit`` adds the extra that suits
the driver if there is a GPU; ``--cuda any`` adds cuda13 where there is none, since CUDA code compiles without a GPU.
The standard library alone: this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cuda_extra

ROOT = Path(__file__).resolve().parent.parent
CUPY = {"cuda12": "cupy-cuda12x", "cuda13": "cupy-cuda13x"}
FETCHED = re.compile(r"\s*(?:Downloading|Using cached) ([^\s-]+)-([^\s-]+)\S* (\(.*\))")


def read_stamp(venv: Path) -> dict[str, Any]:
    """What an earlier run recorded as installed; empty where nothing is known."""
    try:
        stamp: dict[str, Any] = json.loads((venv / "pinhole-installed.json").read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def choose(wanted: set[str], cuda: str, installed: set[str]) -> set[str]:
    """The extras that must be there: those wanted, those installed, and one CUDA extra at most."""
    fitting = cuda_extra.detect() if cuda in ("fit", "any") else None
    present = installed & set(CUPY)
    if fitting is not None:
        wanted = wanted | {fitting}
    elif cuda == "any" and not present:
        wanted = wanted | {"cuda13"}
    if wanted & set(CUPY):
        installed = installed - set(CUPY)  # both CuPys fill the same folder: only one may be there
    return wanted | installed


def make_venv(venv: Path, stamp: dict[str, Any]) -> None:
    """Make the environment unless a working one is there that belongs to this folder."""
    python = venv / "bin" / "python"
    moved = stamp.get("root") not in (None, str(ROOT))
    if not moved and python.exists():
        works = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
        if works.returncode == 0:
            return
    print(f"making {venv.name} with Python {sys.version.split()[0]} ({sys.executable})", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)


def pip(venv: Path, *arguments: str) -> None:
    """Run pip, showing a line for each thing it fetches, and all of its output if it fails."""
    command = [str(venv / "bin" / "python"), "-m", "pip", *arguments]
    command += ["--disable-pip-version-check", "--no-input"]
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if match := FETCHED.match(line):
                print("  " + " ".join(match.groups()), flush=True)
            elif line.startswith("Installing collected packages"):
                print(f"  installing {line.count(',') + 1} packages", flush=True)
    if process.returncode != 0:
        print("".join(output), file=sys.stderr)
        sys.exit(f"pip failed ({process.returncode}): {' '.join(command)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--cuda", choices=("none", "fit", "any"), default="none")
    arguments = parser.parse_args()
    venv = ROOT / arguments.venv
    pyproject = ROOT / "pyproject.toml"
    with pyproject.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a second run waits for the first instead of installing into it
        digest = hashlib.sha256(file.read()).hexdigest()
        stamp = read_stamp(venv)
        installed = set(stamp.get("extras", ()))
        extras = choose(set(arguments.extras), arguments.cuda, installed)
        wanted = {"root": str(ROOT), "pyproject": digest, "extras": sorted(extras)}
        if stamp == wanted and (venv / "bin" / "python").exists():
            return
        make_venv(venv, stamp)
        for extra in sorted(installed & set(CUPY) - extras):
            pip(venv, "uninstall", "--yes", CUPY[extra])
        names = ",".join(sorted(extras))
        print(f"installing Pinhole[{names}] into {venv.name} (a few minutes the first time)", flush=True)
        pip(venv, "install", "--progress-bar", "off", "--editable", f"{ROOT}[{names}]" if names else str(ROOT))
        (venv / "pinhole-installed.json").write_text(json.dumps(wanted))


if __name__ == "__main__":
    main()
