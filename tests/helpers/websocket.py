"""Messages of a live WebSocket, taken apart by what the reference says, by a client that is not the service's code."""

from __future__ import annotations

import json
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
