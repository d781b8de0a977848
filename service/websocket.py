"""Live pictures over a WebSocket: one binary message a frame, the newest one for each viewer.

A message is the length of its header (4 bytes, little endian), the header (JSON in UTF-8), and the encoded picture. A
client may send text messages, JSON objects: ``{"pause": true}`` (a hidden tab) gives the claim back until
``{"pause": false}``; ``view``, ``quality``, ``width`` and ``fps`` change what comes from then on, null meaning the
default.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from kernels.errors import PinholeError
from service.connection import PING_BYTES, connection_of
from service.inputs import allowed_by
from service.live import Hub, TooManyVariantsError, Viewer
from service.picture import Picture, Variant
from service.problems import Problem, problem_of, validation_error
from service.queries import StreamQuery
from service.sender import Sender

# RFC 6455, 7.4.1, and its registry of codes.
GOING_AWAY, POLICY_VIOLATION, TRY_AGAIN_LATER = 1001, 1008, 1013

_FINAL_BINARY = 0x82
_PING = bytes((0x89, PING_BYTES))

# The reference has the same words.
HEADER_MEANINGS = {
    "camera": "the camera's name",
    "view": "`result` or `source`",
    "type": "media type of the picture",
    "width": "of the picture that follows, px",
    "height": "of the picture that follows, px",
    "sequence": "number of the frame; the same again is the same frame",
    "timestamp": "wall clock of its capture, seconds",
    "age_ms": "since its capture, when this was sent (to a millisecond)",
    "encoded_ms": "from its capture until it was encoded",
    "chain_version": "of the chain that made it",
    "stale": "why it is not what is there now; absent for a live one",
    "placeholder": "why there is no frame; then none of the frame's fields is there",
}


class Messages:
    """The framing: one unmasked binary frame (RFC 6455, 5.2) for each picture, and a ping.

    Its pong says that the client has read the picture: no other way to know shows what kernels and proxies still hold.
    """

    shared = True
    answered = True

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        text = json.dumps(header_of(picture, viewer.feed.variant, stale, now_ns), separators=(",", ":")).encode()
        nbytes = 4 + len(text) + len(picture.data)
        if nbytes < 126:
            opening = struct.pack("!BB", _FINAL_BINARY, nbytes)
        elif nbytes < 1 << 16:
            opening = struct.pack("!BBH", _FINAL_BINARY, 126, nbytes)
        else:
            opening = struct.pack("!BBQ", _FINAL_BINARY, 127, nbytes)
        return (opening + struct.pack("<I", len(text)) + text, picture.data, _PING + now_ns.to_bytes(PING_BYTES, "big"))


MESSAGES = Messages()


def header_of(picture: Picture, variant: Variant, stale: str, now_ns: int) -> dict[str, Any]:
    """What a message says of its picture. Clocks as in HTTP's frame headers; ``encoded_ms`` since the capture."""
    header: dict[str, Any] = {
        "camera": variant.camera, "view": variant.view.value, "type": picture.media_type, "width": picture.width,
        "height": picture.height,
    }  # fmt: skip
    if picture.placeholder:
        header["placeholder"] = picture.placeholder
    else:
        header |= {
            "sequence": picture.sequence,
            "timestamp": round(picture.wall_ns / 1e9, 6),
            "age_ms": round(max(0, now_ns - picture.captured_ns) / 1e6, 1),
            "encoded_ms": round(max(0, picture.encoded_ns - picture.captured_ns) / 1e6, 2),
            "chain_version": picture.chain_version,
        }
    if stale:
        header["stale"] = stale
    return header


class BadMessageError(PinholeError):
    """A client sent what is no message of ours."""


def read_message(text: str | None, wishes: StreamQuery) -> tuple[StreamQuery, bool | None]:
    """What a message makes of ``wishes``, and whether it pauses (None: it says nothing of that).

    Raises:
        BadMessageError: it is not a JSON object, or a key or value is not one of those allowed.
    """
    try:
        message = json.loads(text or "")
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise BadMessageError("a message is text, a JSON object")
    pause = message.pop("pause", None)
    if pause is not None and not isinstance(pause, bool):
        raise BadMessageError("pause: true or false")
    model = StreamQuery
    for key in message:
        if key not in model.model_fields:
            raise BadMessageError(f"{key[:30]!r} is not one of pause, {', '.join(model.model_fields)}")
    merged = {**wishes.model_dump(), **message}
    try:
        return model.model_validate({key: value for key, value in merged.items() if value is not None}), pause
    except ValidationError as error:
        first = error.errors()[0]
        wrong = validation_error(first, allowed_by(model, str(first["loc"][0])))
        raise BadMessageError(f"{wrong['field']}: {wrong['reason']} ({wrong['allowed']})") from None


class LiveSocket:
    """One client's WebSocket, from its request to its end; it begins with ``wishes``."""

    def __init__(self, hub: Hub, camera: str, wishes: StreamQuery, *, deadline_s: float) -> None:
        self._hub = hub
        self._camera = camera
        self._wishes = wishes
        self._deadline_s = deadline_s
        self._paused = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses with an HTTP status before it accepts. Returns once the client is gone or was told why it ends."""
        try:
            viewer = self._hub.open(self._wishes.variant(self._camera), "websocket", fps=self._wishes.fps)
        except PinholeError as error:
            await problem_of(error).response()(scope, receive, send)
            return
        try:
            connection = connection_of(scope)
            if connection is None:
                await Problem(501, "this server gives no access to its connections").response()(scope, receive, send)
                return
            viewer.on_abort = connection.abort
            await receive()  # websocket.connect
            await send({"type": "websocket.accept", "headers": [(b"cache-control", b"no-store")]})
            sender = Sender(viewer, connection, MESSAGES, self._deadline_s)
            sender.start()
            code, reason = await self._until_end(viewer, sender, receive)
            if reason:
                sender.stop()
                await send({"type": "websocket.close", "code": code, "reason": reason[:120]})
        finally:
            viewer.release()

    async def _until_end(self, viewer: Viewer, sender: Sender, receive: Receive) -> tuple[int, str]:
        """Do what the client says until one side ends it; with which code and why, "" if it is gone."""
        stopped = asyncio.ensure_future(viewer.stopped())
        try:
            while True:
                message = asyncio.ensure_future(receive())
                try:
                    await asyncio.wait((message, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    message.cancel()
                if stopped.done():
                    return GOING_AWAY, "the camera was removed or the service stops"
                if message.result()["type"] == "websocket.disconnect":
                    return GOING_AWAY, ""
                try:
                    self._follow(message.result().get("text"), viewer, sender)
                except BadMessageError as error:
                    return POLICY_VIOLATION, str(error)
                except TooManyVariantsError as error:
                    return TRY_AGAIN_LATER, str(error)
                except PinholeError as error:
                    return POLICY_VIOLATION, str(error)
        finally:
            stopped.cancel()

    def _follow(self, text: str | None, viewer: Viewer, sender: Sender) -> None:
        self._wishes, pause = read_message(text, self._wishes)
        self._paused = self._paused if pause is None else pause
        sender.stop()
        viewer.fps = self._wishes.fps
        if self._paused:
            self._hub.park(viewer)
        else:
            self._hub.move(viewer, self._wishes.variant(self._camera))
            sender.start()
