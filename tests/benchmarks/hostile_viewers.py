"""Viewers that are slow, deaf or gone, and one that is not: the second half of ``bench_viewers``.

    python -m tests.benchmarks.hostile_viewers PORT SECONDS

One viewer reads all there is; six read a third of the rate (three MJPEG, three WebSocket), one frame each 100 ms; six
never read; for the whole time others connect and reset, 500 in all. Prints one line of JSON: the gaps between the first
one's frames; how far the slow ones are behind (the age by the frame's own clock, of capture, when it had been read),
and after how many seconds the last of the deaf ones was cut off.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator

from tests.benchmarks.viewer_load import quantile
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import Client
from tests.helpers.websocket import messages_read, reset, silent_viewer

SLOW_S = 0.1
CONNECTS = 500
DEAF_FPS = 29.5


def frames_of(kind: str, port: int) -> Iterator[float]:
    """The wall-clock capture times of frames, each as it has been read."""
    if kind == "mjpeg":
        with StreamClient(port, "/cameras/cam/stream") as client:
            for part in client.parts():
                yield float(part.headers["x-timestamp"])
    else:
        with silent_viewer(port, "/cameras/cam/ws") as viewer:
            for message in messages_read(viewer):
                yield message.header["timestamp"]


def read_slowly(kind: str, port: int, until_s: float, behind_ms: list[float]) -> None:
    """A third of 30 frames a second, by the clock."""
    due_s = time.monotonic()
    for taken_s in frames_of(kind, port):
        behind_ms.append((time.time() - taken_s) * 1e3)
        due_s = max(due_s + SLOW_S, time.monotonic())
        if due_s > until_s:
            return
        time.sleep(max(0.0, due_s - time.monotonic()))


def connect_and_reset(port: int, until_s: float) -> None:
    pause_s = max(0.0, (until_s - time.monotonic()) / CONNECTS - 0.002)
    for number in range(CONNECTS):
        if number % 2:
            reset(silent_viewer(port, "/cameras/cam/ws"))
        else:
            StreamClient(port, "/cameras/cam/stream").reset()
        time.sleep(pause_s)


def wait_for_the_end(port: int, started_s: float, gone_s: list[float]) -> None:
    """When the service had none of the deaf any more: it tells them apart by their rate."""
    client = Client(f"http://127.0.0.1:{port}")
    seen = 0
    while time.monotonic() < started_s + 60:
        connections = client.get("/api/v1/cameras/cam").json()["viewers"]["connections"]
        deaf = sum(viewer["fps"] == DEAF_FPS for viewer in connections)
        gone_s += [time.monotonic() - started_s] * (seen - deaf)
        seen = deaf
        if gone_s and not deaf:
            return
        time.sleep(0.1)


def main(port: int, seconds: float) -> None:
    started_s = time.monotonic()
    until_s = started_s + seconds
    behind: dict[str, list[list[float]]] = {"mjpeg": [], "websocket": []}
    gone_s: list[float] = []
    deaf = [StreamClient(port, f"/cameras/cam/stream?fps={DEAF_FPS}").socket for _ in range(3)]
    deaf += [silent_viewer(port, f"/cameras/cam/ws?fps={DEAF_FPS}") for _ in range(3)]
    threads = [
        threading.Thread(target=connect_and_reset, args=(port, until_s)),
        threading.Thread(target=wait_for_the_end, args=(port, started_s, gone_s)),
    ]
    for kind, found in behind.items():
        for _ in range(3):
            found.append([])
            threads.append(threading.Thread(target=read_slowly, args=(kind, port, until_s, found[-1])))
    for thread in threads:
        thread.start()
    gaps_ms, last_s = [], 0.0
    for _ in frames_of("mjpeg", port):
        now_s = time.monotonic()
        if last_s:
            gaps_ms.append((now_s - last_s) * 1e3)
        last_s = now_s
        if now_s > until_s:
            break
    for thread in threads:
        thread.join()
    for viewer in deaf:
        viewer.close()
    late = {kind: [value for one in found for value in one[10:]] for kind, found in behind.items()}
    print(json.dumps({
        "gap_p50_ms": quantile(gaps_ms, 0.5), "gap_p99_ms": quantile(gaps_ms, 0.99), "gap_max_ms": max(gaps_ms),
        "deaf": len(deaf), "cut_off": len(gone_s), "last_gone_s": max(gone_s, default=0.0), "connects": CONNECTS,
        **{f"{kind}_behind_{name}_ms": quantile(values, q) for kind, values in late.items()
           for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
        **{f"{kind}_fps": len(values) / 3 / seconds for kind, values in late.items()},
    }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
