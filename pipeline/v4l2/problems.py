"""What an error of a camera means to whoever has to do something about it."""

from __future__ import annotations

import errno
from pathlib import Path

from pipeline.sources._capture_problem import device_problem, users_text
from pipeline.sources._files import os_error_text
from pipeline.v4l2.device import GONE, RequestError


def open_problem(path: str, error: OSError) -> str:
    """Why a node did not open: absent, forbidden (with the group to join), busy."""
    node = Path(path)
    if error.errno == errno.EBUSY:
        return f"{path} is busy{users_text(node)}; end the program that uses it"
    if isinstance(error, PermissionError):
        return os_error_text(node, error)
    return device_problem(node)


def request_problem(path: str, error: RequestError) -> str:
    """Why a request failed, and what to do."""
    number, at = error.number, f"{path}: {error}"
    if number in GONE:
        return f"{path} has gone: the camera was unplugged, or its driver gave up ({error})"
    if number == errno.ENOSPC:
        return (
            f"{path}: no USB bandwidth is left for this stream beside the others on the same bus ({error}); ask for a "
            "smaller size, a lower fps or format=MJPG, or plug one of the cameras into another USB controller"
        )
    if number == errno.EBUSY:
        return f"{path} is busy{users_text(Path(path))}; another program captures from it: end that one ({error})"
    if number in (errno.EACCES, errno.EPERM):
        return f"{at}; give the process access to the device (group video; docker: --device {path} --group-add video)"
    if number == errno.ENOMEM:
        return f"{at}; the driver finds no memory for its buffers: ask for a smaller size or fewer buffers (queue=2)"
    if number == errno.EPROTO:
        return f"{at}; the camera's answers are not understood: a bad cable or hub, or a fault of its driver"
    return at
