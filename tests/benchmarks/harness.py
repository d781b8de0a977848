"""What every benchmark shares: where it ran, what else ran there, and how its figures are shown.

A benchmark is a module ``bench_<name>.py`` whose docstring states question, cases and budget, with a ``main()`` that
takes ``--out FOLDER`` and writes ``bench_<name>.json`` and ``bench_<name>.md`` there by :func:`publish`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
RUNS = 5
PACKAGES = (
    "numpy",
    "opencv-python-headless",
    "simplejpeg",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "av",
    "fastapi",
    "uvicorn",
    "flask",
)


def arguments(
    description: str | None, argv: Sequence[str] | None = None, *, memory: Sequence[str] = ()
) -> argparse.Namespace:
    """The command line of a benchmark: ``out`` (a folder) and ``runs``; ``memory``, where it has the choice."""
    text = (description or "").strip()
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "benchmarks", help="folder for JSON and table")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs; the median of them is reported")
    if memory:
        parser.add_argument("--memory", choices=memory, default="host", help="memory strategy of Pinhole")
    return parser.parse_args(argv)


def environment() -> dict[str, Any]:
    """Where and how this process runs: hardware, driver, versions, commit, command, date; None for what is unknown."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": shlex.join(["python", *_command()]),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": _gpu(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def describe(record: dict[str, Any]) -> str:
    """An environment in two lines, for people."""
    gpu = record["gpu"]
    hardware = f"{gpu['name']} (driver {gpu['driver']}, CUDA {gpu['cuda']}), " if gpu else ""
    versions = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    return (
        f"{hardware}{record['cpu']}, {record['cores']} cores; Linux {record['kernel']} {record['machine']}\n"
        f"commit {record['commit'] or 'unknown'}, {record['date']}, `{record['command']}`; "
        f"Python {record['python']}, {versions}"
    )


def _command() -> list[str]:
    """The command line as a reader would type it: ``-m tests.benchmarks.bench_host --out …``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None)
    return ["-m", str(name), *sys.argv[1:]] if name else sys.argv


def _commit() -> str | None:
    if said := os.environ.get("PINHOLE_COMMIT"):
        return said
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _gpu() -> dict[str, str] | None:
    """Name, driver and CUDA version of the first GPU; asked of nvidia-smi, so that no CUDA context is made here."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return None
    if done.returncode != 0 or "," not in done.stdout:
        return None
    name, driver = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    try:
        from cupy.cuda import runtime

        major, minor = divmod(runtime.runtimeGetVersion() // 10, 100)
        cuda = f"{major}.{minor}"
    except ImportError:
        cuda = "unknown"
    return {"name": name, "driver": driver, "cuda": cuda}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine did between two moments; ``others_cpu_s`` is CPU time of processes not the benchmark's own."""

    seconds: float
    loadavg_before: tuple[float, float, float]
    loadavg_after: tuple[float, float, float]
    cpu_s: dict[str, float]
    others_cpu_s: float


class LoadMeter:
    """Records the load from its making to :meth:`stop`, and the CPU time of the named processes."""

    def __init__(self, **pids: int) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._loadavg = os.getloadavg()
        self._start_s = time.monotonic()
        self._before = self._read()

    def _read(self) -> tuple[dict[str, float], float]:
        own = {}
        for name, process in self._processes.items():
            times = process.cpu_times()
            own[name] = times.user + times.system
        machine = psutil.cpu_times()
        busy = sum(machine) - machine.idle - machine.iowait - machine.guest - machine.guest_nice
        return own, busy

    def stop(self) -> Load:
        own, busy = self._read()
        cpu_s = {name: round(own[name] - self._before[0][name], 3) for name in own}
        others = max(0.0, busy - self._before[1] - sum(cpu_s.values()))
        seconds = time.monotonic() - self._start_s
        return Load(round(seconds, 3), self._loadavg, os.getloadavg(), cpu_s, round(others, 3))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below or at which ``percent`` of ``values`` lie (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that reads well as it is: the first column to the left, the others to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.ljust(w) if i == 0 else value.rjust(w)
            for i, (value, w) in enumerate(zip(values, widths, strict=True))
        ]
        return "| " + " | ".join(parts) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def publish(name: str, question: str, result: str, data: dict[str, Any], out: Path) -> None:
    """Print ``result`` (tables and remarks, Markdown) and write it and ``data`` with the environment under ``out``."""
    record = environment()
    out.mkdir(parents=True, exist_ok=True)
    text = f"# {name}\n\n{question.strip()}\n\n{describe(record)}\n\n{result.strip()}\n"
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"environment": record, **data}, indent=1) + "\n")
    print(f"\n{text}", flush=True)
