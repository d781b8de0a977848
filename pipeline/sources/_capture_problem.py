"""Why OpenCV did not open something, and what to do: it says nothing itself, so the system is asked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.sources._files import os_error_text, path_problem

_BY_NUMBER = "/dev/video"


def device_path(number: int) -> Path:
    """The device that Linux gives a camera's number."""
    return Path(f"{_BY_NUMBER}{number}")


def is_device(path: Path) -> bool:
    """True for a character device, and for a path under /dev where nothing is now."""
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return path.is_relative_to("/dev")


def device_problem(path: Path) -> str:
    """Why a camera did not open: absent, forbidden, busy or unsuited. May look at every process of this machine."""
    try:
        status = path.stat()
        if not stat.S_ISCHR(status.st_mode):
            return path_problem(path) or f"{path} is neither a camera nor a video that OpenCV can read"
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        return (
            f"{path} does not exist: {_present()}; plug the camera in, or hand it to the container (docker: --device)"
        )
    except OSError as error:
        if error.errno == errno.EBUSY:
            return f"{path} is busy{users_text(path)}; end the program that uses it"
        if error.errno in (errno.ENODEV, errno.ENXIO):
            return f"{path} has no camera behind it any more; plug it in again"
        return os_error_text(path, error)
    if users := users_text(path):
        return f"{path} is busy{users}; end the program that uses it"
    return (
        f"{path} may be used but does not deliver: another program may have it, it may be a camera's metadata alone "
        f"({_present()}), or it does not know the size, fps or fourcc that is asked for"
    )


def file_problem(path: Path) -> str:
    """Why a file did not open."""
    if "%" in path.name and not path.exists():
        return f"no pictures are named like {path}, or OpenCV cannot read them"
    return path_problem(path) or f"{path} is not a video that OpenCV can read"


def name_problem(name: str, took_s: float, limit_s: float) -> str:
    """Why something else did not open; of a URL only scheme, host and port are said.

    Whether it gave no answer for ``limit_s`` or was refused at once, by how long it took.
    """
    try:
        parts = urlsplit(name)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None:
        return "OpenCV cannot open what name= says; check it, and that this OpenCV has the backend it needs"
    place = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    how = f"within {limit_s:g} s" if took_s >= 0.9 * limit_s else "(refused or unreachable, not a time-out)"
    return (
        f"{place} did not open {how}: check that it can be reached from here, that path and credentials "
        "are right, and that it serves video"
    )


def _present() -> str:
    """The video devices there are, with their names."""
    found = []
    for path in sorted(Path("/dev").glob("video*")):
        try:
            label = Path("/sys/class/video4linux", path.name, "name").read_text().strip()
        except OSError:
            label = ""
        found.append(f"{path} ({label})" if label else str(path))
    return "there are " + ", ".join(found) if found else f"there is no {_BY_NUMBER}* here"


def users_text(path: Path) -> str:
    """`` (process 123, ffmpeg)`` for each other process that has a device open, as far as they may be seen."""
    users = []
    try:
        device = path.stat().st_rdev
        processes = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    except OSError:
        return ""
    for process in processes:
        if process != os.getpid() and _has_open(process, device):
            try:
                users.append(f"process {process}, {Path(f'/proc/{process}/comm').read_text().strip()}")
            except OSError:
                continue
    return f" ({'; '.join(users)})" if users else ""


def _has_open(process: int, device: int) -> bool:
    folder = f"/proc/{process}/fd"
    try:
        return any(_device_of(f"{folder}/{entry}") == device for entry in os.listdir(folder))
    except OSError:  # it ended, or is another user's
        return False


def _device_of(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_rdev if stat.S_ISCHR(status.st_mode) else None
