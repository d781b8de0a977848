"""Many viewers in one process, by epoll: the load of ``bench_viewers``.

    python -m tests.benchmarks.viewer_load PORT KIND COUNT WARM_UP_S SECONDS

KIND is ``mjpeg``, ``websocket`` or ``ustreamer``. Each viewer reads as fast as it can and looks at nothing but the
header of each frame; bodies are read into one buffer for all. Prints one line of JSON: for each viewer how many frames
ended within the SECONDS after the WARM_UP_S, the same as numbers (each once), bytes, and the gaps between frames; and
the age that the header gave each. Times are of this process's monotonic clock.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

CHUNK = 1 << 18
_BUFFER = memoryview(bytearray(CHUNK))


@dataclass(slots=True)
class Viewer:
    """One connection and where it is in the stream: in a head, or with ``left`` bytes of a body to come."""

    socket: socket.socket
    head: bytes = b""
    left: int = 0
    opened: bool = False
    sequence: int = -1
    frames: int = 0
    distinct: int = 0
    nbytes: int = 0
    last_s: float = 0.0
    gaps_ms: list[float] = field(default_factory=list)


class Load:
    """All viewers; ``ages_ms`` are those that the headers said, of frames within the time that counts."""

    def __init__(self, port: int, kind: str, count: int) -> None:
        self.kind = kind
        self.viewers: dict[int, Viewer] = {}
        self.ages_ms: list[float] = []
        self.lost = 0
        self.counting = False
        self._poll = select.epoll()
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(self._request(port))
            connection.setblocking(False)
            self.viewers[connection.fileno()] = Viewer(connection)
            self._poll.register(connection.fileno(), select.EPOLLIN)

    def _request(self, port: int) -> bytes:
        if self.kind == "ustreamer":
            return f"GET /stream?extra_headers=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        if self.kind == "mjpeg":
            return f"GET /cameras/cam/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        return f"GET /cameras/cam/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{upgrade}{key}\r\n".encode()

    def run(self, seconds: float) -> None:
        """Read whatever comes for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.viewers:
            for number, _ in self._poll.poll(min(left, 0.5)):
                self._read(self.viewers[number])

    def _read(self, viewer: Viewer) -> None:
        try:
            count = viewer.socket.recv_into(_BUFFER)
        except BlockingIOError:
            return
        except ConnectionError:
            count = 0
        if count == 0:
            self.lost += 1
            self._poll.unregister(viewer.socket.fileno())
            del self.viewers[viewer.socket.fileno()]
            viewer.socket.close()
            return
        if self.counting:
            viewer.nbytes += count
        at = 0
        while at < count:
            if viewer.left:
                taken = min(viewer.left, count - at)
                viewer.left -= taken
                at += taken
                if viewer.left == 0:
                    self._ended(viewer)
            else:
                viewer.head += bytes(_BUFFER[at:count])
                size = self._begin(viewer)
                if size < 0:
                    return
                at = count - (len(viewer.head) - size)
                viewer.head = b""

    def _begin(self, viewer: Viewer) -> int:
        """How long the head is that is complete now, -1 if it is not; ``left`` is then that of its body."""
        head = viewer.head
        if not viewer.opened:
            end = head.find(b"\r\n\r\n")
            if end < 0:
                return -1
            if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200", b"HTTP/1.1 101")):
                raise SystemExit(f"refused: {head[:200]!r}")
            viewer.opened = True
            return end + 4
        return self._begin_message(viewer, head) if self.kind == "websocket" else self._begin_part(viewer, head)

    def _begin_part(self, viewer: Viewer, head: bytes) -> int:
        end = head.find(b"\r\n\r\n")
        if end < 0:
            return -1
        fields = dict(line.split(b": ", 1) for line in head[:end].split(b"\r\n") if b": " in line)
        viewer.left = int(fields[b"Content-Length"])
        if self.kind == "ustreamer":  # it numbers nothing
            age_ms = 1e3 * float(fields[b"X-UStreamer-Latency"])
            self._note(viewer, viewer.sequence + 1, age_ms)
        else:
            self._note(viewer, int(fields.get(b"X-Frame-Sequence", -1)), float(fields.get(b"X-Frame-Age-Ms", 0)))
        return end + 4

    def _begin_message(self, viewer: Viewer, head: bytes) -> int:
        if len(head) < 2:
            return -1
        short = head[1] & 127
        opening = 2 + {126: 2, 127: 8}.get(short, 0)
        if len(head) < opening + 4:
            return -1
        length = short if opening == 2 else int.from_bytes(head[2:opening], "big")
        if head[0] != 0x82:  # a ping
            viewer.socket.send(b"\x8a" + bytes([0x80 | length]) + b"\0\0\0\0" + head[opening : opening + length])
            return opening + length
        text = opening + 4 + int.from_bytes(head[opening : opening + 4], "little")
        if len(head) < text:
            return -1
        header = json.loads(head[opening + 4 : text])
        viewer.left = length - (text - opening)
        self._note(viewer, header.get("sequence", -1), header.get("age_ms", 0.0))
        return text

    def _note(self, viewer: Viewer, sequence: int, age_ms: float) -> None:
        if self.counting:
            self.ages_ms.append(age_ms)
            viewer.distinct += sequence > viewer.sequence
        viewer.sequence = sequence

    def _ended(self, viewer: Viewer) -> None:
        now = time.monotonic()
        if self.counting:
            viewer.frames += 1
            viewer.gaps_ms.append((now - viewer.last_s) * 1e3)
        viewer.last_s = now


def quantile(values: Sequence[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else 0.0


def main(port: int, kind: str, count: int, warm_up_s: float, seconds: float) -> None:
    load = Load(port, kind, count)
    load.run(warm_up_s)
    print(json.dumps({"counting": True}), flush=True)
    load.counting = True
    started, cpu_s = time.monotonic(), time.process_time()
    load.run(seconds)
    took_s, cores = time.monotonic() - started, (time.process_time() - cpu_s) / seconds
    rates = sorted(viewer.distinct / took_s for viewer in load.viewers.values())
    gaps = [gap for viewer in load.viewers.values() for gap in viewer.gaps_ms]
    found = {
        "viewers": len(rates), "lost": load.lost, "seconds": took_s, "load_cores": cores,
        "fps_min": rates[0] if rates else 0.0, "fps_p50": quantile(rates, 0.5),
        "frames": sum(viewer.frames for viewer in load.viewers.values()),
        "bytes": sum(viewer.nbytes for viewer in load.viewers.values()),
        "gap_p50_ms": quantile(gaps, 0.5), "gap_p99_ms": quantile(gaps, 0.99), "gap_max_ms": max(gaps, default=0.0),
        "age_p50_ms": quantile(load.ages_ms, 0.5), "age_p99_ms": quantile(load.ages_ms, 0.99),
    }  # fmt: skip
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
