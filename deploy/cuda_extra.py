"""Says which extra, ``cuda12`` or ``cuda13``, fits this machine's NVIDIA driver; nothing where there is no GPU.

Asked in this order: nvidia-smi, the kernel module's version file, and on boards (which may have neither) the driver
library itself. A driver that is older than CUDA 12 is named on standard error, and nothing is chosen. The environment
variable ``PINHOLE_CUDA_EXTRA`` (none, cuda12, cuda13) decides instead where it is set, as in an image's build.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

# The first driver branch of each CUDA major version (CUDA Toolkit release notes, "CUDA Toolkit and Corresponding
# Driver Versions", Linux).
FIRST_DRIVER = {13: 580, 12: 525}


def from_cuda_major(major: int) -> str | None:
    """The extra for a driver that supports CUDA up to ``major``; a newer driver runs older toolkits too."""
    if major >= 13:
        return "cuda13"
    return "cuda12" if major == 12 else None


def from_driver_major(major: int) -> str | None:
    """The extra for a driver branch (580 → cuda13)."""
    for cuda, first in FIRST_DRIVER.items():
        if major >= first:
            return f"cuda{cuda}"
    return None


def from_nvidia_smi(text: str) -> tuple[bool, str | None]:
    """(a GPU is listed, its extra) from nvidia-smi's table.

    The version is that of the table's head; where it says N/A, as some boards do, the driver's own version decides.
    """
    if cuda := re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.\d+", text):
        return True, from_cuda_major(int(cuda[1]))
    if driver := re.search(r"Driver Version\s*:\s*(\d+)\.\d+", text):
        return True, from_driver_major(int(driver[1]))
    return False, None


def from_module_version(text: str) -> tuple[bool, str | None]:
    """(a driver is loaded, its extra) from /proc/driver/nvidia/version."""
    if driver := re.search(r"^NVRM version:.*?\s(\d{3,})\.\d+", text, re.MULTILINE):
        return True, from_driver_major(int(driver[1]))
    return False, None


def from_library(version: int) -> tuple[bool, str | None]:
    """(a driver answers, its extra) from what cuDriverGetVersion says (12060 is CUDA 12.6)."""
    return version > 0, from_cuda_major(version // 1000)


def run_nvidia_smi() -> str:
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def read_module_version() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""


def ask_library() -> int:
    """CUDA's version by the driver library, 0 without one or without a device (the library may lie on a disk alone)."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    ok = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    return version.value if ok and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 else 0


def detect() -> str | None:
    """The extra for this machine, or None."""
    if said := os.environ.get("PINHOLE_CUDA_EXTRA"):
        if said not in ("none", "cuda12", "cuda13"):
            sys.exit(f"PINHOLE_CUDA_EXTRA is {said!r}; allowed: none, cuda12, cuda13")
        return None if said == "none" else said
    for found, extra in (
        from_nvidia_smi(run_nvidia_smi()),
        from_module_version(read_module_version()),
        from_library(ask_library()),
    ):
        if found:
            if extra is None:
                print("the NVIDIA driver is older than CUDA 12: Pinhole will use the CPU", file=sys.stderr)
            return extra
    return None


if __name__ == "__main__":
    print(detect() or "")
