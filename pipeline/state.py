"""A camera's states and the moves between them."""

from __future__ import annotations

from enum import Enum

from kernels.errors import PinholeError


class CameraState(Enum):
    """Where a camera is in its life. The value is what metrics and HTTP show."""

    STOPPED = "stopped"  # also before the first start
    STARTING = "starting"  # the source was not open yet
    RUNNING = "running"
    RECONNECTING = "reconnecting"  # no source now; trying again with back-off
    ENDED = "ended"  # the source is over; the last picture stays
    FAILED = "failed"  # nothing will come until it is stopped and started
    STOPPING = "stopping"


_S = CameraState
MOVES: dict[CameraState, frozenset[CameraState]] = {
    _S.STOPPED: frozenset({_S.STARTING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.RECONNECTING, _S.ENDED, _S.FAILED, _S.STOPPING}),
    _S.RUNNING: frozenset({_S.RECONNECTING, _S.ENDED, _S.FAILED, _S.STOPPING}),
    _S.RECONNECTING: frozenset({_S.RUNNING, _S.ENDED, _S.FAILED, _S.STOPPING}),
    _S.ENDED: frozenset({_S.FAILED, _S.STOPPING}),
    _S.FAILED: frozenset({_S.STOPPING}),
    _S.STOPPING: frozenset({_S.STOPPED}),
}


class StateError(PinholeError):
    """A camera was asked to go from ``old`` to ``new``, which is not a move."""

    def __init__(self, camera: str, old: CameraState, new: CameraState) -> None:
        self.camera = camera
        self.old = old
        self.new = new
        allowed = ", ".join(sorted(state.value for state in MOVES[old]))
        super().__init__(f"camera {camera}: {old.value} → {new.value} is not a move; from {old.value}: {allowed}")


def check_move(camera: str, old: CameraState, new: CameraState) -> None:
    """Raise StateError unless ``old`` → ``new`` is a move."""
    if new not in MOVES[old]:
        raise StateError(camera, old, new)
