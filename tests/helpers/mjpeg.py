"""A strict reader of multipart/x-mixed-replace (RFC 2046), fed in chunks of any size, and viewers over bare sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class MultipartError(AssertionError):
    """The stream is not what the RFC says."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part; header fields in lower case."""

    headers: dict[str, str]
    body: bytes


class MultipartReader:
    """Parts as soon as they are complete with the delimiter that follows them, as browsers show them.

    Strict: the first bytes are the delimiter, lines end in CRLF, every part has a Content-Type and an exact
    Content-Length, and the delimiter follows at once.
    """

    def __init__(self, content_type: str) -> None:
        kind, _, parameters = content_type.partition(";")
        name, _, boundary = parameters.strip().partition("=")
        if kind.strip() != "multipart/x-mixed-replace" or name != "boundary" or not 1 <= len(boundary) <= 70:
            raise MultipartError(f"content type {content_type!r}")
        if not all(c.isalnum() or c in "'()+_,-./:=?" for c in boundary):
            raise MultipartError(f"boundary {boundary!r} would need quotes")
        self._delimiter = f"--{boundary}\r\n".encode()
        self._data = b""
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Part]:
        self._data += chunk
        if not self._begun:
            if not self._delimiter.startswith(self._data[: len(self._delimiter)]):
                raise MultipartError(f"begins with {self._data[:40]!r}, not with the delimiter")
            if len(self._data) < len(self._delimiter):
                return
            self._data = self._data[len(self._delimiter) :]
            self._begun = True
        while (part := self._next()) is not None:
            yield part

    def _next(self) -> Part | None:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > 4096:
                raise MultipartError("no end of a part's header")
            return None
        headers: dict[str, str] = {}
        for line in self._data[:end].split(b"\r\n"):
            name, colon, value = line.decode("ascii").partition(":")
            if not colon or not name or name != name.strip() or "\n" in value or name.lower() in headers:
                raise MultipartError(f"header line {line!r}")
            headers[name.lower()] = value.strip()
        if "content-type" not in headers or not headers.get("content-length", "").isdigit():
            raise MultipartError(f"part header {headers}")
        start = end + 4
        stop = start + int(headers["content-length"])
        tail = b"\r\n" + self._delimiter
        if len(self._data) < stop + len(tail):
            return None
        if self._data[stop : stop + len(tail)] != tail:
            raise MultipartError(f"after the part: {self._data[stop : stop + 60]!r}")
        part = Part(headers, self._data[start:stop])
        self._data = self._data[stop + len(tail) :]
        return part


class StreamClient:
    """A viewer over a bare socket that reads as fast, as slowly and in as odd pieces as the test says."""

    def __init__(
        self, port: int, path: str, *, rcvbuf: int | None = None, chunks: Callable[[], int] = lambda: 1 << 16,
        version: str = "1.1", headers: str = "", timeout_s: float = 10,
    ) -> None:  # fmt: skip
        self.socket = socket.socket()
        if rcvbuf is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.settimeout(timeout_s)
        self._chunks = chunks
        try:
            self.socket.connect(("127.0.0.1", port))
            request = f"GET {path} HTTP/{version}\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n"
            self.socket.sendall(request.encode())
        except BaseException:
            self.socket.close()
            raise

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and header fields in lower case; what came after them is kept for :meth:`parts`."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, self._rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    def parts(self) -> Iterator[Part]:
        """The parts, for ever; ends when the server closes."""
        status, headers = self.head()
        if status != 200 or "transfer-encoding" in headers or "content-length" in headers:
            raise MultipartError(f"{status} {headers}")
        reader = MultipartReader(headers["content-type"])
        yield from reader.feed(self._rest)
        while True:
            try:
                chunk = self._receive()
            except (ConnectionError, EOFError):
                return
            yield from reader.feed(chunk)

    def _receive(self) -> bytes:
        chunk = self.socket.recv(self._chunks())
        if not chunk:
            raise EOFError
        return chunk

    def reset(self) -> None:
        """Go away with RST, as a client that crashed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> StreamClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()
