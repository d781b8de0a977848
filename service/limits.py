"""A limit on request bodies, before anything reads them. Pure ASGI, so that streams pass through untouched."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import Problem


class BodyLimit:
    """Answers 413 to a body of more than ``max_bytes``, whether its length was declared or not."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared[:20]) > self._max_bytes:
            await self._problem().response()(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._problem()  # inside whatever reads the body, and answered like any other problem
            return message

        await self._app(scope, limited, send)

    def _problem(self) -> Problem:
        detail = f"the body is larger than {self._max_bytes} bytes"
        return Problem(413, detail, type="urn:pinhole:body-too-large", headers={"Connection": "close"})
