"""What every benchmark shares: where it ran, what else ran there, and how its figures are shown.

A benchmark is a module ``bench_<name>.py`` whose docstring states question, cases and budget, with a ``main()`` that
takes ``--out FOLDER`` and writes ``bench_<name>.json`` and ``bench_<name>.md`` there by :func:`publish`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import service.environment
from kernels.bench import percentile
from service.bench import table
from service.environment import describe

ROOT = Path(__file__).parents[2]
RUNS = 5
PACKAGES = (*service.environment.PACKAGES, "av", "fastapi", "uvicorn", "flask")
__all__ = ["ROOT", "RUNS", "arguments", "describe", "environment", "median", "percentile", "publish", "table"]


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
    """As :func:`service.environment.environment`, with the packages that benchmarks compare with."""
    return service.environment.environment(packages=PACKAGES)


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


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def publish(name: str, question: str, result: str, data: dict[str, Any], out: Path) -> None:
    """Print ``result`` (tables and remarks, Markdown) and write it and ``data`` with the environment under ``out``."""
    record = environment()
    out.mkdir(parents=True, exist_ok=True)
    text = f"# {name}\n\n{question.strip()}\n\n{describe(record)}\n\n{result.strip()}\n"
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"environment": record, **data}, indent=1) + "\n")
    print(f"\n{text}", flush=True)
