"""Motion JPEG over HTTP: RFC 2046 parts, the newest picture for each viewer, and a deadline for each send."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kernels.errors import PinholeError
from service.connection import Connection, connection_of
from service.live import Hub, Viewer
from service.picture import Picture, Variant
from service.problems import Problem, problem_of
from service.sender import Sender

BOUNDARY = b"pinhole-7c1e5a0b93d84f26"

_DELIMITER = b"--" + BOUNDARY + b"\r\n"
_END = b"\r\n" + _DELIMITER
_HEADERS = [
    (b"content-type", b"multipart/x-mixed-replace; boundary=" + BOUNDARY),
    (b"cache-control", b"no-store, no-cache, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"expires", b"0"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
]


class Parts:
    """The framing: each part is followed by the next one's delimiter at once, as browsers then show it."""

    shared = True

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        fields = [
            ("Content-Type", picture.media_type),
            ("Content-Length", str(len(picture.data))),
            *picture.headers(now_ns),
        ]
        if stale:
            fields.append(("X-Pinhole-Stale", stale))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return (head.encode("latin-1") + b"\r\n", picture.data, _END)


PARTS = Parts()


class MjpegResponse(Response):
    """A live stream of one variant, until the client goes, the camera is removed, or the service stops.

    The body begins with a delimiter. A viewer that has not taken a part ``deadline_s`` after it was offered is cut off.
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
            elif (connection := connection_of(scope)) is None:
                await Problem(501, "this server gives no access to its connections").response()(scope, receive, send)
            else:
                await self._stream(viewer, connection, receive, send)
        finally:
            viewer.release()

    async def _stream(self, viewer: Viewer, connection: Connection, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        viewer.on_abort = connection.abort
        connection.end_with_connection()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _DELIMITER, "more_body": True})
        Sender(viewer, connection, PARTS, self._deadline_s).start()
        gone, stopped = loop.create_task(_disconnected(receive)), loop.create_task(viewer.stopped())
        try:
            await asyncio.wait((gone, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                connection.finished()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            stopped.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
