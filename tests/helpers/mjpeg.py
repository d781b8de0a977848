"""A strict reader of multipart/x-mixed-replace (RFC 2046), fed in chunks of any size."""

from __future__ import annotations

from collections.abc import Iterator
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
