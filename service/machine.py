"""What the doctor sees of the machine without touching CUDA: system, limits, shared memory, cameras, permissions."""

from __future__ import annotations

import getpass
import grp
import os
import platform
import resource
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Literal

from kernels.compiler import cache_folder
from kernels.memory import available_host_bytes, host_memory_bytes, sensible_slot_bytes
from pipeline.sources import all_sources

Status = Literal["ok", "missing", "todo"]

SMALL_SHM_BYTES = 64 << 20  # what container engines give unasked
SMALL_MEMLOCK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's: what was looked at and what was found.

    ``status`` is ``ok``; ``missing``, this machine lacks it and Pinhole does without; or ``todo``, something is to be
    mended, and ``remedy`` is how. Pinhole cannot run where a ``required`` one is not ``ok``.
    """

    group: str
    name: str
    status: Status
    found: str
    remedy: str = ""
    required: bool = False


def in_container() -> bool:
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()


def system_checks() -> Iterator[Check]:
    """The system, the board, Python, processors, memory."""
    release = _read("/etc/os-release")
    pretty = next(
        (v.strip('"') for k, _, v in (x.partition("=") for x in release.splitlines()) if k == "PRETTY_NAME"), ""
    )
    where = ", in a container" if in_container() else ""
    text = f"{pretty or platform.system()}, Linux {platform.release()}, {platform.machine()}{where}"
    yield Check("machine", "system", "ok", text)
    board = _read("/proc/device-tree/model").strip("\0 \n")
    if board:
        jetpack = _read("/etc/nv_tegra_release").splitlines()
        yield Check("machine", "board", "ok", f"{board}{'; L4T ' + jetpack[0].strip('# ') if jetpack else ''}")
    recent = sys.version_info >= (3, 10)
    remedy = "" if recent else "install Python 3.10 or newer"
    status: Status = "ok" if recent else "todo"
    yield Check("machine", "python", status, f"{platform.python_version()} ({sys.executable})", remedy, required=True)
    yield Check("machine", "processors", "ok", f"{len(os.sched_getaffinity(0))} cores for this process")
    total, free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), available_host_bytes()
    unknown = "an unknown amount" if free is None else size(free)
    yield Check("machine", "memory", "ok", f"{size(total)}, {unknown} available")
    yield _package("OpenCV", ("opencv-python-headless", "opencv-python", "opencv-contrib-python"), "", required=True)
    for scheme, source in all_sources().items():
        if (reason := source.unavailable()) is not None:
            yield Check("machine", f"{scheme}://", "missing", "cannot be used here", reason)


def _package(name: str, distributions: tuple[str, ...], remedy: str, required: bool = False) -> Check:
    for distribution in distributions:
        try:
            return Check("machine", name, "ok", package_version(distribution), required=required)
        except PackageNotFoundError:
            continue
    try:
        import cv2
    except ImportError as error:
        return Check("machine", name, "todo", str(error), "pip install opencv-python-headless", required)
    return Check("machine", name, "ok", f"{cv2.__version__}, not from a package", required=required)


def limit_checks() -> Iterator[Check]:
    """How much memory may be pinned, locked and shared, and whether threads may be given real-time priority."""
    yield Check("memory", "pinned", "ok", _pinned_text())
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    enough = locked == resource.RLIM_INFINITY or locked >= SMALL_MEMLOCK_BYTES
    yield Check(
        "memory", "memlock", "ok" if enough else "missing",
        "unlimited" if locked == resource.RLIM_INFINITY else f"{size(locked)} may be locked; CUDA pins beside it",
        "" if enough else "for real time only: docker run --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity",
    )  # fmt: skip
    priority = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
    may = priority > 0 or priority == resource.RLIM_INFINITY or os.geteuid() == 0
    yield Check(
        "memory", "rtprio", "ok" if may else "missing",
        "real-time priorities may be used" if may else "real-time priorities may not be used",
        "" if may else "for real time only: docker run --ulimit rtprio=99; systemd: LimitRTPRIO=99",
    )  # fmt: skip
    yield shm_check()


def _pinned_text() -> str:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    of = "the container's limit" if host_memory_bytes() < total else "this machine's memory"
    return f"up to {size(sensible_slot_bytes())} for slots is sensible: a quarter of {of} (limits.max_memory_bytes)"


def shm_check(folder: str = "/dev/shm") -> Check:
    """POSIX shared memory: there, writable and not tiny. Pinhole's own slots do not lie there."""
    enlarge = (
        "docker run --shm-size=256m, or in a compose file shm_size: 256m"
        if in_container()
        else f"sudo mount -o remount,size=256m {folder}"
    )
    try:
        space = os.statvfs(folder)
    except OSError as error:
        return Check("memory", "shm", "missing", f"{folder}: {error.strerror}", f"sudo mount -t tmpfs shm {folder}")
    total, free = space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail
    text = f"{folder}: {size(total)}, {size(free)} free"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("memory", "shm", "todo", f"{text}, not writable by {who()}", f"sudo chmod 1777 {folder}")
    # A file system without a limit says that it has 0 blocks.
    if total and min(total, free) < SMALL_SHM_BYTES:
        return Check("memory", "shm", "todo", f"{text}: small; slots lie elsewhere", enlarge)
    return Check("memory", "shm", "ok", text)


def camera_checks(folder: str = "/dev") -> Iterator[Check]:
    """Every V4L2 device: its name, and whether this user may open it."""
    devices = sorted(Path(folder).glob("video*"), key=lambda path: (len(path.name), path.name))
    for device in devices:
        yield camera_check(device)
    if not devices:
        remedy = (
            "docker run --device /dev/video0 --group-add $(stat -c %g /dev/video0), or deploy/compose.camera.yml"
            if in_container()
            else "connect one, if you want one: test card, files and streams need none"
        )
        yield Check("cameras", f"{folder}/video*", "missing", "no camera device", remedy)


def camera_check(device: Path) -> Check:
    """Opens it and closes it again, without waiting for anything: permission bits alone do not tell in a container."""
    label = _read(f"/sys/class/video4linux/{device.name}/name").strip() or "a video device"
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except PermissionError as error:
        found, remedy = _not_permitted(device, error)
        return Check("cameras", str(device), "todo", f"{label}: {found}", remedy)
    except OSError as error:
        return Check("cameras", str(device), "todo", f"{label}: {error.strerror}", f"fuser -v {device}   (who has it?)")
    os.close(descriptor)
    return Check("cameras", str(device), "ok", label)


def _not_permitted(device: Path, error: OSError) -> tuple[str, str]:
    try:
        status = device.stat()
    except OSError:
        return f"{error.strerror} for {who()}", f"ls -l {device}"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    mode = stat.S_IMODE(status.st_mode)
    found = (
        f"{device} may not be opened by {who()}: mode {mode:03o}, owner uid {status.st_uid}, "
        f"group {group} (gid {status.st_gid})"
    )
    if mode & 0o060 != 0o060:
        return found, f"sudo chmod g+rw {device}"
    if status.st_gid in {os.getegid(), *os.getgroups()}:
        return found, f"let the container have the device: docker run --device {device}"
    if in_container():
        return found, f"docker run --device {device} --group-add {status.st_gid}   (compose: VIDEO_GID={status.st_gid})"
    return found, f"sudo usermod -aG {group} {user_name()}   (then log in again)"


def permission_checks() -> Iterator[Check]:
    """Who we are, and whether compiled kernels can be kept."""
    yield Check("permissions", "user", "ok", f"{user_name()}, {who()}, groups {_groups()}")
    yield cache_check(cache_folder())


def cache_check(folder: Path | None) -> Check:
    """The folder of compiled kernels: without it every start compiles them anew."""
    remedy = "set PINHOLE_CACHE_DIR to a folder that this user may write"
    name = "kernel cache"
    if folder is None:
        return Check("permissions", name, "todo", f"{who()} has no home folder to keep compiled kernels in", remedy)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check("permissions", name, "todo", f"{folder} cannot be written by {who()}: {error.strerror}", remedy)
    kept = sum(1 for path in folder.glob("*.cubin"))
    return Check("permissions", name, "ok", f"{folder} is writable, {kept} compiled kernels in it")


def who() -> str:
    return f"uid {os.geteuid()}, gid {os.getegid()}"


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that no password file knows
        return str(os.geteuid())


def _groups() -> str:
    names = []
    for gid in sorted({os.getegid(), *os.getgroups()}):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            names.append(str(gid))
    return ", ".join(names)


def size(nbytes: int) -> str:
    """``64 MiB``, ``1.5 GiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}" if nbytes < 1000 * factor else f"{nbytes / factor:.0f} {unit}"
    return f"{nbytes} bytes"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
