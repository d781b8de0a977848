"""One viewer's pictures on their way to its connection: the newest whenever all of the one before is with the kernel.

Nothing here is a task: a picture costs each viewer a call to hand it over and, where the kernel does not take all of it
at once, one more when it has. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from service.connection import USER_TIMEOUT_MS, Connection
from service.picture import Picture

if TYPE_CHECKING:
    from service.live import Viewer

log = logging.getLogger("pinhole.live")

# Pictures that a client has not read, beside those that are on the way on a long line. Two, so that one can come while
# the other is read; each more is a picture that is late where somebody reads slowly.
UNREAD = 2
RATE = 30  # of pictures on a line whose round trip is known
MOST_ON_THE_WAY = 30
LOOK_S = 0.02  # how often a reader's window is looked at that is behind
CERTAIN_BYTES = 1 << 16  # below that a window may be narrower for what the kernel needs itself
PACE_S = 0.1  # between pictures to one that may be behind, as long as nothing is known of its rate
MOST_PACE_S = 0.2
BEHIND_S = 0.7  # after this long it gets a picture all the same
REPEAT_S = 1.0  # a picture is sent again after this long, so that a client knows that the connection lives


class Framing(Protocol):
    """How a picture stands on the wire.

    ``shared``: the same bytes for all who are sent it within a millisecond. ``answered``: each ends in a ping, whose
    pong says that the client has read it.
    """

    @property
    def shared(self) -> bool: ...

    @property
    def answered(self) -> bool: ...

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
        self._unread: deque[float] = deque()  # when what has not been answered was offered
        self._most_unread = UNREAD
        self._holding = False  # until an answer comes
        self._widest = 0  # that the client's window was
        self._behind_since: float | None = None
        self._last_seen: tuple[int, float] | None = None  # how much had been read, when the last picture was offered
        self._bytes_per_s = 0.0
        connection.on_drained(self._drained)
        connection.on_pong(self._answered)
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

    def ended(self) -> None:
        """The connection is gone, or about to be: no further picture, and counted if the client had stopped reading."""
        self.stop()
        if self._under_way is not None and self._loop.time() - self._offered_at > 0.9 * USER_TIMEOUT_MS / 1000:
            self._viewer.feed.tally.cut_off += 1  # by our kernel
        self._under_way = None

    def take(self, picture: Picture, serial: int) -> None:
        """See :class:`service.feed.Taker`."""
        if not self._framing.answered and self._is_behind(len(picture.data)):
            self._timer = self._loop.call_later(LOOK_S, self._ask)
            return
        self.serial = serial
        self._write(picture)

    def tick(self, now: float) -> None:
        """Called a few times a second: the deadline, and the picture again where no newer one comes."""
        if self._framing.answered:
            self._most_unread = UNREAD + min(MOST_ON_THE_WAY, int(self._connection.line().round_trip_s * RATE))
        if self._under_way is not None:
            if now - self._offered_at > self._deadline_s:
                self._cut_off()
        elif self._unread and now - self._unread[0] > self._deadline_s:
            self._cut_off()
        elif self._holding:
            pass
        elif self._running and now - self._offered_at >= REPEAT_S and now >= self._due:
            feed = self._viewer.feed
            picture = feed.again()
            if picture is not None:
                feed.unask(self)
                self.take(picture, feed.serial)

    def _ask(self) -> None:
        if not self._running:
            return
        self._holding = len(self._unread) >= self._most_unread
        if self._holding:
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
        if self._framing.answered:
            self._unread.append(now)
        self._connection.write(self._viewer.feed.framed(self._framing, self._viewer, picture))
        if self._connection.drained:
            self._drained()

    def _drained(self) -> None:
        picture, self._under_way = self._under_way, None
        if picture is not None:
            self._viewer.delivered(picture)
            self._ask()

    def _is_behind(self, nbytes: int) -> bool:
        """True if the client's kernel holds more than a picture and a quarter (of ``nbytes``) that was not read.

        Its window says so, as of its last answer: it was wider by that much. That a reader has caught up it tells of
        itself only where the window has doubled (Linux, ``tcp_cleanup_rbuf``). There we wait for that; else for as long
        as it needs by the rate at which it read between our last two pictures.
        """
        window = self._connection.line().window_bytes
        if window is None:
            return False
        self._widest = max(self._widest, window)
        unread = self._widest - window
        if unread <= max(1.25 * nbytes, CERTAIN_BYTES):
            self._behind_since = self._last_seen = None
            return False
        now = self._loop.time()
        if self._behind_since is None:
            self._behind_since = now
        pace_s = self._pace_s(self._viewer.sent_bytes - unread, unread - nbytes / 4)
        if now - self._behind_since >= BEHIND_S:
            self._widest, self._behind_since = window, None  # it may have narrowed for good
            return False
        if 2 * window > self._widest and now - self._offered_at >= pace_s:
            self._behind_since = None
            return False
        return True

    def _pace_s(self, read: int, unread: float) -> float:
        """How long it takes to read ``unread`` bytes, once ``read`` are, after the last picture was offered."""
        before, self._last_seen = self._last_seen, (read, self._offered_at)
        if before is not None and before[1] < self._offered_at:
            # A reader that had caught up seems to be slower than it is: a low figure counts little.
            seen = (read - before[0]) / (self._offered_at - before[1])
            self._bytes_per_s = max(1.0, seen, 0.8 * self._bytes_per_s)
        return min(MOST_PACE_S, unread / self._bytes_per_s) if self._bytes_per_s else PACE_S

    def _answered(self, data: bytes) -> None:
        """The client has read the picture that was written at ``data``; those before it too."""
        if self._unread:
            self._unread.popleft()
        if self._holding and self._under_way is None:
            self._ask()

    def _cut_off(self) -> None:
        viewer = self._viewer
        viewer.feed.tally.cut_off += 1
        log.info("a viewer of %s did not read for %g s and was cut off", viewer.feed.variant.camera, self._deadline_s)
        self.stop()
        self._under_way = None
        self._unread.clear()
        self._connection.abort()
