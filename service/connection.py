"""What a live stream needs of its connection and ASGI does not say: how full it is, how to end it, how it is framed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "pinhole.connection"

NOTSENT_LOWAT_BYTES = 16 * 1024
USER_TIMEOUT_MS = 5000
BACKLOG = 512

# Before a request can be refused it has to be read: not for ever, and not without end.
MAX_HEAD_BYTES = 64 * 1024
PING_BYTES = 8  # of our pings; uvicorn's have 4
_MIN_RTT_AT, _WINDOW_AT = 148, 228  # tcpi_min_rtt (microseconds) and tcpi_snd_wnd in Linux's struct tcp_info
_U32 = struct.Struct("I")
MAX_MESSAGE_BYTES = 4096  # of what a client sends over a WebSocket
HEAD_DEADLINE_S = 10.0
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Line:
    """The shortest way to the client's kernel and back, and how many bytes it would take; 0 and None: not known."""

    round_trip_s: float = 0.0
    window_bytes: int | None = None


UNKNOWN_LINE = Line()


class Connection(Protocol):
    """Offered to the application as ``scope["extensions"]["pinhole.connection"]``. Event loop only."""

    @property
    def drained(self) -> bool:
        """True if everything that was written is with the kernel."""

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Call it whenever the kernel has taken the last byte of what it did not take at once."""

    def write(self, chunks: Sequence[bytes]) -> None:
        """Hand over part of the body, past the server: what the kernel takes goes in one call, the rest is not copied.

        Does nothing on a connection that is closing.
        """

    def on_pong(self, callback: Callable[[bytes], None]) -> None:
        """Call it with what comes back of each ping (WebSockets only): the client has read all that was before it."""

    def line(self) -> Line:
        """What our kernel knows of the way to the client's."""

    def abort(self) -> None:
        """Drop the connection and what it has not sent."""

    def end_with_connection(self) -> None:
        """Frame the response that is about to start by the end of the connection instead of in chunks."""

    def finished(self) -> None:
        """The response is complete; call before the last, empty message."""


class LiveProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with no buffer of its own behind the kernel's and with the extension above.

    uvicorn lets 64 KiB pile up before a send waits: several small pictures, each of them late. Here a send waits
    until everything before it is with the kernel, and the kernel takes no more than it can send
    (``TCP_NOTSENT_LOWAT``): a viewer that reads slowly gets the newest picture next, not an old one.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self.drained = True
        self.on_drained: Callable[[], None] = _nothing
        # A client that connects and says nothing is as idle as one between two requests.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

        self._head_bytes = 0  # of a request whose headers are not complete; -1 once they are
        self._head_timer: asyncio.TimerHandle | None = None
        self._completed = False

    def data_received(self, data: bytes) -> None:
        self._completed = False
        super().data_received(data)
        # Bytes that ended a request are not those of the next one's head.
        if self._head_bytes < 0 or self._completed or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self.transport.abort)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0
        self._completed = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def _end_head(self) -> None:
        self._head_bytes = -1
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._connection = _HttpConnection(self)
        self.scope["extensions"] = {EXTENSION: self._connection}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self._connection.cycle = self.cycle

    def pause_writing(self) -> None:
        super().pause_writing()
        self.drained = False

    def resume_writing(self) -> None:
        super().resume_writing()
        self.drained = True
        self.on_drained()


class LiveWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with the extension above; what is written there are whole frames.

    The transport is that of the request which asked for it, with its high-water mark.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.on_pong: Callable[[bytes], None] = _ignored
        self.drained = True
        self.on_drained: Callable[[], None] = _nothing

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # else it was refused
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = _WebSocketConnection(self)

    def handle_pong(self, event: Any) -> None:
        data = bytes(event.data)
        if len(data) == PING_BYTES:
            self.on_pong(data)
        else:
            super().handle_pong(event)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # refused; else it is logged as an application's fault

    def pause_writing(self) -> None:
        super().pause_writing()
        self.drained = False

    def resume_writing(self) -> None:
        super().resume_writing()
        self.drained = True
        self.on_drained()


def _nothing() -> None:
    pass


def _ignored(data: bytes) -> None:
    pass


class _Connection:
    """What both kinds have in common."""

    def __init__(self, protocol: LiveProtocol | LiveWebSocketProtocol) -> None:
        self._protocol = protocol

    @property
    def drained(self) -> bool:
        return self._protocol.drained

    def on_drained(self, callback: Callable[[], None]) -> None:
        self._protocol.on_drained = callback

    def on_pong(self, callback: Callable[[bytes], None]) -> None:
        pass

    def line(self) -> Line:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # not Linux; gone already
            known: bytes = self._protocol.transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _WINDOW_AT + 4
            )
            if len(known) == _WINDOW_AT + 4:  # Linux 5.4 or newer
                (window,), (round_trip,) = _U32.unpack_from(known, _WINDOW_AT), _U32.unpack_from(known, _MIN_RTT_AT)
                return Line(round_trip / 1e6, window)
        return UNKNOWN_LINE

    def write(self, chunks: Sequence[bytes]) -> None:
        transport = self._protocol.transport
        if not transport.is_closing():
            transport.writelines(chunks)

    def abort(self) -> None:
        transport = self._protocol.transport
        with contextlib.suppress(OSError, ValueError):  # it is gone already; uvloop then has descriptor -1
            # Reset: nothing of what was not sent stays with the kernel.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


class _HttpConnection(_Connection):
    """One request's view of its connection; ``cycle`` is uvicorn's state of the response to it."""

    def __init__(self, protocol: LiveProtocol) -> None:
        super().__init__(protocol)
        self.cycle: Any = None

    def write(self, chunks: Sequence[bytes]) -> None:
        if getattr(self.cycle, "chunked_encoding", False):
            chunks = [b"%x\r\n" % sum(map(len, chunks)), *chunks, b"\r\n"]
        super().write(chunks)

    def end_with_connection(self) -> None:
        # uvicorn has no switch for this. Without these attributes (another version) the response is chunked, which is
        # as correct, but not understood by clients that speak HTTP/1.0 or read the socket themselves.
        if hasattr(self.cycle, "chunked_encoding") and hasattr(self.cycle, "expected_content_length"):
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = 1 << 62
            self.cycle.keep_alive = False

    def finished(self) -> None:
        if hasattr(self.cycle, "expected_content_length"):
            self.cycle.expected_content_length = 0


class _WebSocketConnection(_Connection):
    """A WebSocket's; frames delimit themselves."""

    def on_pong(self, callback: Callable[[bytes], None]) -> None:
        self._protocol.on_pong = callback  # type: ignore[union-attr]

    def write(self, chunks: Sequence[bytes]) -> None:
        if not self._protocol.close_sent:  # type: ignore[union-attr]
            super().write(chunks)

    def end_with_connection(self) -> None:
        pass

    def finished(self) -> None:
        pass


def connection_of(scope: Scope) -> Connection | None:
    """The connection that a request came on; None under another server, or in a test without one."""
    connection: Connection | None = (scope.get("extensions") or {}).get(EXTENSION)
    return connection


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket whose connections keep little unsent and do not outlive a client that is gone.

    The port is free again at once after the process ends.

    Raises:
        OSError: the address is not ours, or the port is taken.
    """
    name = host.strip("[]")
    family, kind, protocol, _, address = socket.getaddrinfo(
        name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Both are inherited by accepted connections.
        for option, value in (("TCP_NOTSENT_LOWAT", NOTSENT_LOWAT_BYTES), ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
            if hasattr(socket, option):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
