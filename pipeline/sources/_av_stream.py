"""Reads a video stream of the network with PyAV, in a thread of its own. Import only where PyAV is known to be there.

FFmpeg cannot be woken out of a read, it can only give up: so whoever waits for frames does that here, on a condition,
and a reader that nobody wants any more ends by itself.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av

from pipeline.sources._av_picture import Damage
from pipeline.sources.base import SourceError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

log = logging.getLogger("pinhole.source")

# Below the limits that a camera has for its source: the reason should be FFmpeg's, not that nothing came.
OPEN_TIMEOUT_S = 8.0
READ_TIMEOUT_S = 2.5
CLOSE_WAIT_S = 0.1  # for a reader that is in no read
MOST_WAITING = 4  # decoded frames of a recording that wait for the chain
_MAX_RATE = 1000
_MAX_THREADS = 4
_MAX_ERRORS = 100  # in a row


@dataclass(frozen=True, slots=True)
class Arrived:
    """A decoded frame, or where one should be, and when its data had come."""

    item: VideoFrame | Damage
    captured_ns: int
    wall_ns: int


class NetworkReader:
    """One connection to ``url``. :meth:`next` from one thread, the others from any.

    ``live`` is what the stream is, once it is open, unless it is given: without an end, so that only the newest frame
    waits to be taken; or a recording, of which none is lost and whose server waits.
    """

    def __init__(self, url: str, shown: str, options: dict[str, str], live: bool | None) -> None:
        """``shown`` is the URL without credentials, for errors. Returns at once."""
        self._url, self._shown, self._options = url, shown, options
        self.live = live
        self.fps: float | None = None
        self._changed = threading.Condition()
        self._frames: deque[Arrived] = deque()
        self._opened = self._over = self._closed = False
        self._error: BaseException | None = None
        self.skipped = 0  # frames that a newer one replaced before they were taken
        self._thread = threading.Thread(target=self._run, name="network-reader", daemon=True)
        self._thread.start()

    def next(self, interrupted: threading.Event) -> Arrived | None:
        """The next frame, or for a live stream the newest; None at the end of a recording. Blocks.

        Raises:
            SourceError: the connection was refused, broke or gave nothing in time; or ``interrupted`` is set.
        """
        with self._changed:
            while not self._frames:
                if interrupted.is_set():
                    raise SourceError("interrupted")
                if self._error is not None:
                    raise self._error
                if self._over:
                    return None
                self._changed.wait()
            if self.live:
                while len(self._frames) > 1:
                    self._frames.popleft()
                    self.skipped += 1
            arrived = self._frames.popleft()
            self._changed.notify_all()
            return arrived

    def wake(self) -> None:
        """Let :meth:`next` look at its ``interrupted``."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let the connection go; a reader that is in a read ends after that, in seconds at most. Idempotent."""
        with self._changed:
            self._closed = True
            self._frames.clear()
            self._changed.notify_all()
        self._thread.join(CLOSE_WAIT_S)

    # ---- the reader's thread

    def _run(self) -> None:
        try:
            container = av.open(self._url, options=self._options, timeout=(OPEN_TIMEOUT_S, READ_TIMEOUT_S))
            with container:
                self._read(container)
            with self._changed:
                self._over = True
                self._changed.notify_all()
        except BaseException as error:  # the thread's border: whoever waits for frames is told
            with self._changed:
                self._error = error if isinstance(error, SourceError) else SourceError(self._explain(error))
                self._changed.notify_all()

    def _read(self, container: InputContainer) -> None:
        stream = container.streams.best("video")
        if not isinstance(stream, av.VideoStream) or stream.codec_context is None:
            raise SourceError(f"{self._shown} has no video in it that FFmpeg decodes")
        decoder = stream.codec_context
        # Frame threads would each hold a frame back.
        decoder.thread_type = "SLICE"
        decoder.thread_count = _MAX_THREADS
        rate = stream.average_rate or stream.guessed_rate
        self.fps = float(rate) if rate is not None and 0 < rate <= _MAX_RATE else None
        if self.live is None:
            self.live = container.duration is None
        for item in self._items(container, stream):
            if not self._put(Arrived(item, time.monotonic_ns(), time.time_ns())):
                return
        if self.live:
            raise SourceError(f"{self._shown} ended the stream")

    def _items(self, container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame | Damage]:
        errors = 0
        for packet in container.demux(stream):
            if self._closed:
                return
            try:
                for frame in packet.decode():
                    if isinstance(frame, av.VideoFrame):
                        errors = 0
                        yield Damage("a frame is damaged") if frame.is_corrupt else frame
            except EOFError:
                return
            except av.error.InvalidDataError as error:
                errors += 1
                if errors > _MAX_ERRORS:
                    raise
                yield Damage(f"a frame cannot be decoded: {error.strerror}")

    def _put(self, arrived: Arrived) -> bool:
        """Queue a frame; False once nobody wants it. Waits for room only where none may be lost."""
        with self._changed:
            if self.live:
                while len(self._frames) >= MOST_WAITING:
                    self._frames.popleft()
                    self.skipped += 1
            else:
                self._changed.wait_for(lambda: self._closed or len(self._frames) < MOST_WAITING)
            if self._closed:
                return False
            self._frames.append(arrived)
            self._changed.notify_all()
            return True

    def _explain(self, error: BaseException) -> str:
        return explain(error, self._shown)


def explain(error: BaseException, shown: str) -> str:
    """What an error of FFmpeg's means for a person, and what to do. ``shown``: the URL without credentials."""
    known: Any = av.error
    if isinstance(error, getattr(known, "HTTPUnauthorizedError", ())):
        return f"{shown} refuses the user or the password (401): write them as scheme://USER:PASSWORD@host/…"
    if isinstance(error, getattr(known, "HTTPForbiddenError", ())):
        return f"{shown} forbids it (403): this user may not see the stream, or the server does not admit this address"
    if isinstance(error, getattr(known, "HTTPNotFoundError", ())):
        return f"{shown} is not there (404): look up the stream's path in the camera's manual"
    if isinstance(error, (getattr(known, "HTTPClientError", ()), getattr(known, "HTTPServerError", ()))):
        return f"{shown}: the server answers with an error ({getattr(error, 'strerror', error)})"
    if isinstance(error, ConnectionRefusedError):
        return f"{shown}: nothing listens there (connection refused): is the server running, and is the port right?"
    if isinstance(error, (TimeoutError, getattr(known, "ExitError", ()))):
        return f"{shown} gave nothing in time: is it on, and reachable from here?"
    if isinstance(error, getattr(known, "ProtocolNotFoundError", ())):
        return f"{shown}: this FFmpeg does not speak that protocol, or the stream leads to one that is not allowed"
    if isinstance(error, OSError) and error.errno == errno.EIO:  # FFmpeg's answer to much
        return f"{shown}: the connection broke off, or that host is not known here (input/output error)"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{shown}: {text}"
