"""Where a measurement was made, and what else the machine did meanwhile: without which its figures say nothing."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.bench_cuda import runtime_version
from service.version import version

ROOT = Path(__file__).parents[1]
PACKAGES = ("numpy", "opencv-python-headless", "simplejpeg", "cupy-cuda13x", "cupy-cuda12x")
COMMIT_VARIABLE = "PINHOLE_COMMIT"  # names it where there is no git


def environment(command: str | None = None, packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """Hardware, driver, versions, commit, command (None: this process's), date; None for what is unknown."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "version": version(),
        "commit": _commit(),
        "command": command or shlex.join(["python", *_command()]),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "gpu": _gpu(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: found for name in packages if (found := _version(name)) is not None},
    }


def describe(record: dict[str, Any]) -> str:
    """An environment in two lines, for people."""
    gpu = record["gpu"]
    hardware = f"{gpu['name']} (driver {gpu['driver']}, CUDA {gpu['cuda']}), " if gpu else ""
    versions = ", ".join(f"{name} {found}" for name, found in record["packages"].items())
    return (
        f"{hardware}{record['cpu']}, {record['cores']} cores; Linux {record['kernel']} {record['machine']}\n"
        f"Pinhole {record['version']}, commit {record['commit'] or 'unknown'}, {record['date']}, "
        f"`{record['command']}`; Python {record['python']}, {versions}"
    )


def _command() -> list[str]:
    """The command line as a reader would type it: ``-m tests.benchmarks.bench_host --out …``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None)
    return ["-m", str(name), *sys.argv[1:]] if name else sys.argv


def _commit() -> str | None:
    """The commit of the tree that this file is in; None where it is none, as where it was installed."""
    if said := os.environ.get(COMMIT_VARIABLE):
        return said
    if not (ROOT / ".git").exists():
        return None  # or the commit of somebody else's repository around it
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return _said(command)


def _said(command: list[str]) -> str | None:
    """What a command answers, None where it is not there, fails or says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _gpu() -> dict[str, str] | None:
    """Name, driver and CUDA version of the first GPU; asked of nvidia-smi, so that no CUDA context is made here."""
    said = _said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"])
    if said is None or "," not in said:
        return None
    name, driver = (part.strip() for part in said.splitlines()[0].split(","))
    return {"name": name, "driver": driver, "cuda": runtime_version() or "unknown"}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine did meanwhile; CPU times in seconds, None where /proc does not tell."""

    seconds: float
    own_cpu_s: float
    others_cpu_s: float | None
    loadavg_before: tuple[float, float, float]
    loadavg_after: tuple[float, float, float]

    def __str__(self) -> str:
        others = "" if self.others_cpu_s is None else f", others {self.others_cpu_s / self.seconds:.2f}"
        return (
            f"{self.seconds:.0f} s; cores busy on average: this {self.own_cpu_s / self.seconds:.2f}{others}; "
            f"one-minute load {self.loadavg_before[0]:.1f} before, {self.loadavg_after[0]:.1f} after"
        )


class LoadMeter:
    """Records the load from its making to :meth:`stop`."""

    def __init__(self) -> None:
        self._before = os.getloadavg(), time.monotonic(), time.process_time(), _busy_s()

    def stop(self) -> Load:
        loadavg, start_s, own_s, busy_s = self._before
        own, busy = time.process_time() - own_s, _busy_s()
        others = None if busy is None or busy_s is None else round(max(0.0, busy - busy_s - own), 3)
        seconds = max(time.monotonic() - start_s, 1e-6)
        return Load(round(seconds, 6), round(own, 3), others, loadavg, os.getloadavg())


def _busy_s() -> float | None:
    """Seconds that all processors have worked since the machine started (proc(5), "/proc/stat")."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(value) for value in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
