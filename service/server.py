"""uvicorn with the right end: viewers first, then the cameras, then the process, with exit code 0.

Measured: with one MJPEG viewer open plain uvicorn never exits on SIGTERM, and with a graceful time-out it runs the
lifespan's shutdown before the viewers have let go of their frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from kernels.errors import InputError
from service.connection import BACKLOG, MAX_MESSAGE_BYTES, LiveProtocol, LiveWebSocketProtocol

log = logging.getLogger("pinhole.server")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PING_S, PONG_S = 10.0, 10.0  # a WebSocket that is paused, and whose client is gone, has nothing else to show it by
REQUESTS_GRACE_S = 0.4  # for requests under way at the end; then their connections are dropped
REQUESTS_DEADLINE_S = 1  # then they are cancelled


class Server(uvicorn.Server):
    """Serves ``app`` on ``listener`` in this thread until SIGTERM or Ctrl-C; more of them change nothing.

    ``stop_viewers`` ends all live streams; it is awaited after the listener is closed and before the application's
    lifespan ends. ``started_at`` is called once with the URL as soon as connections are accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        stop_viewers: Callable[[], Awaitable[object]],
        started_at: Callable[[str], None] | None = None,
    ) -> None:
        self._listener = listener
        self._stop_viewers = stop_viewers
        self._started_at = started_at
        config = uvicorn.Config(
            app, http=LiveProtocol, ws=LiveWebSocketProtocol, ws_per_message_deflate=False,
            ws_max_size=MAX_MESSAGE_BYTES, ws_ping_interval=PING_S, ws_ping_timeout=PONG_S,
            lifespan="on", interface="asgi3", workers=1, log_config=None, access_log=False, server_header=False,
            backlog=BACKLOG, timeout_keep_alive=20, timeout_graceful_shutdown=REQUESTS_DEADLINE_S, proxy_headers=False,
        )  # fmt: skip
        super().__init__(config)
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """End as on SIGTERM, because of ``error``, which ``failure`` then is. Any thread."""
        self.failure = self.failure or error
        self.should_exit = True

    def serve_forever(self) -> None:
        """Blocks until the end. Raises SystemExit if the application did not start."""
        self.run(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._started_at is not None:
            self._started_at(url_of(self._listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        await self._stop_viewers()
        # A WebSocket that was asked for and not answered yet would make uvicorn's shutdown fail.
        for connection in list(self.server_state.connections):
            if isinstance(connection, LiveWebSocketProtocol) and not connection.handshake_complete:
                connection.transport.abort()
        await asyncio.sleep(0)
        ending = asyncio.get_running_loop().call_later(REQUESTS_GRACE_S, self._abort_connections)
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    def _abort_connections(self) -> None:
        """End requests that wait for their client: one that is half sent would otherwise be waited for."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Never force_exit, which would skip the cameras' end: every step has a deadline of its own.
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Not uvicorn's: it raises the signal again at the end, and the exit code would be that of a killed process.
        with handled_signals(self.handle_exit):
            yield


@contextlib.contextmanager
def handled_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM by ``handler`` meanwhile; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def url_of(listener: socket.socket) -> str:
    """Where a person on this machine opens it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def check_single_owner(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse an environment that asks for several processes: each would open the cameras.

    Raises:
        InputError: ``WEB_CONCURRENCY`` is set to more than 1.
    """
    workers = environment.get("WEB_CONCURRENCY", "").strip()
    if workers.isdigit() and int(workers) > 1:
        raise InputError(
            "WEB_CONCURRENCY",
            f"{workers} worker processes would each open the cameras; one process serves all viewers",
            "1, or not set",
        )
