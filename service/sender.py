"""One viewer's pictures on their way to its connection: the newest whenever all of the one before is with the kernel.

Nothing here is a task: a picture costs each viewer a call to hand it over and, where the kernel does not take all of it
at once, one more when it has. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from service.connection import Connection
from service.picture import Picture

if TYPE_CHECKING:
    from service.live import Viewer

log = logging.getLogger("pinhole.live")

REPEAT_S = 1.0  # a picture is sent again after this long, so that a client knows that the connection lives


class Framing(Protocol):
    """How a picture stands on the wire. ``shared``: the same bytes for all who are sent it within a millisecond."""

    @property
    def shared(self) -> bool: ...

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        """What is written for a picture, which is one of the pieces as it is; ``stale`` says why it is not live."""


class Sender:
    """Serves ``viewer`` on ``connection`` from :meth:`start` on; :meth:`stop` lets what is under way go out."""

    def __init__(self, viewer: Viewer, connection: Connection, framing: Framing, deadline_s: float) -> None:
        self.serial = 0
        self._viewer = viewer
        self._connection = connection
        self._framing = framing
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._running = False
        self._due = self._offered_at = self._loop.time()
        self._under_way: Picture | None = None  # the kernel does not have all of it yet
        self._timer: asyncio.TimerHandle | None = None
        connection.on_drained(self._drained)
        viewer.sender = self

    def start(self) -> None:
        """From now on, and again after :meth:`stop`; what the viewer had before is not known any more."""
        self._running = True
        self.serial = 0
        if self._under_way is None:
            self._ask()

    def stop(self) -> None:
        """No further picture. Idempotent."""
        self._running = False
        self._viewer.feed.unask(self)
        if self._timer is not None:
            self._timer.cancel()

    def take(self, picture: Picture, serial: int) -> None:
        """See :class:`service.feed.Taker`."""
        self.serial = serial
        self._write(picture)

    def tick(self, now: float) -> None:
        """Called a few times a second: the deadline, and the picture again where no newer one comes."""
        if self._under_way is not None:
            if now - self._offered_at > self._deadline_s:
                self._cut_off()
        elif self._running and now - self._offered_at >= REPEAT_S and now >= self._due:
            feed = self._viewer.feed
            picture = feed.again()
            if picture is not None:
                feed.unask(self)
                self.take(picture, feed.serial)

    def _ask(self) -> None:
        if not self._running:
            return
        wait_s = self._due - self._loop.time() if self._viewer.fps is not None else 0.0
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._ask)
        else:
            self._viewer.feed.ask(self)

    def _write(self, picture: Picture) -> None:
        fps = self._viewer.fps
        self._offered_at = now = self._loop.time()
        self._due = now if fps is None else max(self._due + 1.0 / fps, now)
        self._under_way = picture
        self._connection.write(self._viewer.feed.framed(self._framing, self._viewer, picture))
        if self._connection.drained:
            self._drained()

    def _drained(self) -> None:
        picture, self._under_way = self._under_way, None
        if picture is not None:
            self._viewer.delivered(picture)
            self._ask()

    def _cut_off(self) -> None:
        viewer = self._viewer
        viewer.feed.tally.cut_off += 1
        log.info("a viewer of %s did not read for %g s and was cut off", viewer.feed.variant.camera, self._deadline_s)
        self.stop()
        self._under_way = None
        self._connection.abort()
