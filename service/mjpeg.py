"""Motion JPEG over HTTP: RFC 2046 parts, the newest picture for each viewer, and a deadline for each send."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kernels.errors import PinholeError
from service.connection import Connection, connection_of
from service.live import REPEAT_S, Hub, Viewer
from service.picture import Picture, Variant
from service.problems import problem_of

log = logging.getLogger("pinhole.live")

BOUNDARY = b"pinhole-7c1e5a0b93d84f26"
CLOSE_S = 0.5  # how long an aborted connection may take to say that it is gone

_DELIMITER = b"--" + BOUNDARY + b"\r\n"
_HEADERS = [
    (b"content-type", b"multipart/x-mixed-replace; boundary=" + BOUNDARY),
    (b"cache-control", b"no-store, no-cache, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"expires", b"0"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
]


class MjpegResponse(Response):
    """A live stream of one variant, until the client goes, the camera is removed, or the service stops.

    The body begins with a delimiter, and each part is followed by the next one's at once: browsers show a part when
    the next begins. A viewer that has not taken a part ``deadline_s`` after it was offered is cut off.
    """

    media_type = "multipart/x-mixed-replace"

    def __init__(self, hub: Hub, variant: Variant, *, fps: float | None, deadline_s: float) -> None:
        super().__init__()
        self._hub = hub
        self._variant = variant
        self._fps = fps
        self._deadline_s = deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            viewer = self._hub.open(self._variant, "mjpeg", fps=self._fps)
        except PinholeError as error:
            await problem_of(error).response()(scope, receive, send)
            return
        try:
            if scope["method"] == "HEAD":
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await send({"type": "http.response.body", "body": b""})
                return
            await _Stream(viewer, self._deadline_s, connection_of(scope), send).run(receive)
        finally:
            viewer.release()


class _Stream:
    """One viewer's response body."""

    def __init__(self, viewer: Viewer, deadline_s: float, connection: Connection | None, send: Send) -> None:
        self._viewer = viewer
        self._deadline_s = deadline_s
        self._connection = connection
        self._send = send
        self._task: asyncio.Task[None] | None = None
        self._complete = False

    async def run(self, receive: Receive) -> None:
        """Send until one side ends it; nothing of it runs on afterwards."""
        loop = asyncio.get_running_loop()
        self._viewer.on_abort = self._cut
        self._task = loop.create_task(self._body())
        gone = loop.create_task(_disconnected(receive))
        try:
            await asyncio.wait((self._task, gone), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done() and not self._complete and self._connection is not None:
                # Cut off in the middle: once the connection says so, the server expects no end of the response.
                self._connection.abort()
                await asyncio.wait((gone,), timeout=CLOSE_S)
            if self._task.done() and not self._task.cancelled():
                self._task.result()
        finally:
            for task in (self._task, gone):
                task.cancel()
            await asyncio.gather(self._task, gone, return_exceptions=True)

    def _cut(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _too_slow(self) -> None:
        feed = self._viewer.feed
        feed.tally.cut_off += 1
        log.info("a viewer of %s did not read for %g s and was cut off", feed.variant.camera, self._deadline_s)
        self._cut()

    async def _body(self) -> None:
        if self._connection is not None:
            self._connection.end_with_connection()
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._send(_chunk(_DELIMITER))
        viewer = self._viewer
        period_s = 0.0 if viewer.fps is None else 1.0 / viewer.fps
        loop = asyncio.get_running_loop()
        due = sent_at = loop.time()
        last: Picture | None = None
        while not viewer.stopping:
            with self._deadline():
                await self._send(_chunk(b""))  # returns once everything before it is with the kernel
            await viewer.pause(due - loop.time())
            picture = await viewer.next(max(0.0, sent_at + REPEAT_S - loop.time()))
            picture = picture or last
            if viewer.stopping or picture is None:
                sent_at = loop.time()
                continue
            with self._deadline():
                await self._part(picture)
            viewer.delivered(picture)
            last, sent_at = picture, loop.time()
            due = max(due + period_s, sent_at)
        if self._connection is not None:
            self._connection.finished()
        self._complete = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _part(self, picture: Picture) -> None:
        fields = [("Content-Type", picture.media_type), ("Content-Length", str(len(picture.data))), *picture.headers()]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        await self._send(_chunk(head.encode("latin-1") + b"\r\n"))
        await self._send(_chunk(picture.data))
        await self._send(_chunk(b"\r\n" + _DELIMITER))

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        timer = asyncio.get_running_loop().call_later(self._deadline_s, self._too_slow)
        try:
            yield
        finally:
            timer.cancel()


def _chunk(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
