"""What can be said of a path before its content is read: why it cannot be used, and what to do about it."""

from __future__ import annotations

import errno
import grp
import os
import stat
from pathlib import Path
from typing import Literal

Wanted = Literal["file", "file or folder"]


def path_problem(path: Path, wanted: Wanted = "file") -> str | None:
    """Why ``path`` cannot be read as what is wanted, and the remedy, or None. Opens nothing; a dead disk may block."""
    try:
        status = path.stat()
    except OSError as error:
        return os_error_text(path, error)
    if stat.S_ISDIR(status.st_mode):
        if wanted == "file":
            return f"{path} is a folder; give a video file (image:// takes a folder of pictures)"
        needed = os.R_OK | os.X_OK
    elif stat.S_ISREG(status.st_mode):
        needed = os.R_OK
    else:
        return f"{path} is not a regular {wanted} but a device, pipe or socket; give a regular {wanted}"
    return None if os.access(path, needed) else _permission_text(path, status)


def os_error_text(path: Path, error: OSError) -> str:
    """What an operating system's error on ``path`` means, and what to do."""
    if isinstance(error, PermissionError):
        try:
            return _permission_text(path, path.stat())
        except OSError:
            return (
                f"{path}: a folder on the way may not be entered by {_who()}; give execute permission on each of them"
            )
    if isinstance(error, FileNotFoundError):
        return f"{path} does not exist; check the path (as seen from inside the container, if there is one)"
    if error.errno == errno.ENOTDIR:
        return f"{path}: a part of the path is a file, not a folder"
    return f"{path} cannot be read: {error.strerror or error}"


def _permission_text(path: Path, status: os.stat_result) -> str:
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return (
        f"{path} may not be read by {_who()}: its mode is {stat.S_IMODE(status.st_mode):03o}, owner uid "
        f"{status.st_uid}, group {group} (gid {status.st_gid}); run as its owner, join that group "
        f"(docker: --group-add {status.st_gid}) or chmod it"
    )


def _who() -> str:
    return f"uid {os.geteuid()}, gid {os.getegid()}"
