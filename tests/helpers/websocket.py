"""Messages of a live WebSocket, taken apart by what the reference says, by a client that is not the service's code."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection, connect


@dataclass(frozen=True, slots=True)
class Shown:
    """One message: its header and its picture."""

    header: dict[str, Any]
    picture: bytes


def shown(message: str | bytes) -> Shown:
    """A message taken apart; AssertionError if it is not one."""
    assert isinstance(message, bytes), "a text message"
    length = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + length].decode("utf-8"))
    assert isinstance(header, dict)
    picture = message[4 + length :]
    assert picture[:2] == b"\xff\xd8", "a JPEG begins"
    assert picture[-2:] == b"\xff\xd9", "and ends"
    return Shown(header, picture)


@contextmanager
def watching(port: int, path: str, **options: Any) -> Iterator[ClientConnection]:
    """A viewer of ``path``; it asks for compression, as browsers do."""
    with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, close_timeout=1, **options) as socket:
        yield socket


def received(socket: ClientConnection, timeout_s: float = 10) -> Shown:
    """The next message."""
    return shown(socket.recv(timeout=timeout_s))


def silent_viewer(port: int, path: str, rcvbuf: int | None = None) -> socket.socket:
    """A bare socket that has asked for a live WebSocket and reads nothing by itself."""
    viewer = socket.socket()
    if rcvbuf is not None:
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    viewer.settimeout(10)
    try:
        viewer.connect(("127.0.0.1", port))
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n"
        )
        viewer.sendall(request.encode())
    except BaseException:
        viewer.close()
        raise
    return viewer


def reset(viewer: socket.socket) -> None:
    """Go away with RST, as a client that crashed."""
    viewer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    viewer.close()


def messages_read(viewer: socket.socket) -> Iterator[Shown]:
    """The messages of a :func:`silent_viewer`; only what is asked for is read, and only what was read is answered."""
    with viewer.makefile("rb", buffering=0) as stream:

        def exactly(count: int) -> bytes:
            data = b""
            while len(data) < count:
                chunk = stream.read(count - len(data))
                if not chunk:
                    raise EOFError
                data += chunk
            return data

        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += exactly(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        while True:
            kind, short = exactly(2)
            length = short if short < 126 else int.from_bytes(exactly({126: 2, 127: 8}[short]), "big")
            data = exactly(length)
            if kind == 0x89:
                viewer.sendall(bytes((0x8A, 0x80 | length)) + b"\0\0\0\0" + data)  # masked by zeros
            elif kind == 0x88:
                return
            else:
                assert kind == 0x82
                yield shown(data)
