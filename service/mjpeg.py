"""Motion JPEG over HTTP: RFC 2046 parts, the newest picture for each viewer, and a deadline for each send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kernels.errors import PinholeError
from service.connection import Connection, connection_of
from service.live import Hub, Viewer
from service.picture import Picture, Variant
from service.problems import Problem, problem_of
from service.sender import Framing, Sender

BOUNDARY = b"pinhole-7c1e5a0b93d84f26"

DELIMITER = b"--" + BOUNDARY + b"\r\n"
_END = b"\r\n" + DELIMITER
_HEADERS = [
    (b"content-type", b"multipart/x-mixed-replace; boundary=" + BOUNDARY),
    (b"cache-control", b"no-store, no-cache, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"expires", b"0"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
]


class MultipartFraming(Framing, Protocol):
    """A framing of parts; ``opening`` is what the body begins with."""

    @property
    def opening(self) -> bytes: ...


class Parts:
    """The framing: each part is followed by the next one's delimiter at once, as browsers then show it."""

    shared = True
    answered = False
    opening = DELIMITER

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        return (part_head(picture, stale, now_ns), picture.data, _END)


def part_head(picture: Picture, stale: str, now_ns: int, more: Sequence[tuple[str, str]] = ()) -> bytes:
    """The header fields of a part, with those of its frame, and the empty line."""
    fields = [("Content-Type", picture.media_type), ("Content-Length", str(len(picture.data)))]
    fields += [*picture.headers(now_ns), *more]
    if stale:
        fields.append(("X-Pinhole-Stale", stale))
    return "".join(f"{name}: {value}\r\n" for name, value in fields).encode("latin-1") + b"\r\n"


PARTS = Parts()


class MjpegResponse(Response):
    """A live stream of one variant, until the client goes, the camera is removed, or the service stops.

    A viewer that has not taken a part ``deadline_s`` after it was offered is cut off. ``asked`` is what else the client
    asked for, as its statistics show it.
    """

    media_type = "multipart/x-mixed-replace"

    def __init__(
        self, hub: Hub, variant: Variant, *, fps: float | None, deadline_s: float,
        framing: MultipartFraming = PARTS, asked: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._framing = framing
        self._asked = dict(asked or {})
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
        viewer.asked = self._asked
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
        await send({"type": "http.response.body", "body": self._framing.opening, "more_body": True})
        Sender(viewer, connection, self._framing, self._deadline_s).start()
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
