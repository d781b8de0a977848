"""What does a delivered frame cost in Pinhole, and what in ustreamer, on the same machine with the same picture?

Both are given the picture of ``bench_viewers`` (1280x720, about 100 kB as a JPEG of quality 80) 30 times a second and
encode each frame once on the CPU. ustreamer is Debian's, and sees a V4L2 camera that is a file (``file_camera.c``, by
LD_PRELOAD: YUYV by MMAP, one copy a frame); Pinhole's source is ``image://`` (BGR, one copy a frame), its chain empty.
Viewers: one process with one epoll loop (``viewer_load.py``) over the loopback, MJPEG, 1, 20 and 100 of them.

Figures: CPU time of the server for each frame that a viewer got; frames a second of the worst viewer; the age of the
frame when it was sent, as each says itself (Pinhole: since the source took it; ustreamer: since it was grabbed).

Not run where ``ustreamer`` or a C compiler is missing. What an OpenCV + Flask script does is in ``bench_compare``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np

from tests.benchmarks.bench_compare import child
from tests.benchmarks.bench_host import free_port
from tests.benchmarks.bench_viewers import CORES, draw_picture, served
from tests.benchmarks.harness import ROOT, Load, LoadMeter, arguments, publish, table
from tests.helpers.server import Client
from tests.programs import program

VIEWERS = (1, 20, 100)
WARM_UP_S = 3.0
SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Result:
    """One case; times in milliseconds, CPU time in microseconds for a delivered frame."""

    server: str
    viewers: int
    fps_min: float
    cpu_us: float
    server_cores: float
    age_p50_ms: float
    age_p99_ms: float
    frame_bytes: float
    load: Load


@contextlib.contextmanager
def ustreamer(folder: Path, log: Path) -> Iterator[tuple[int, int]]:
    """ustreamer on the picture, ready: its process and port."""
    picture = cv2.cvtColor(draw_picture(), cv2.COLOR_BGR2YUV_YUY2)
    (folder / "picture.yuyv").write_bytes(np.ascontiguousarray(picture).tobytes())
    source = Path(__file__).with_name("file_camera.c")
    subprocess.run([program("cc"), "-O2", "-shared", "-fPIC", "-o", folder / "camera.so", source, "-ldl"], check=True)
    port = free_port()
    camera = [f"CAMERA_FILE={folder}/picture.yuyv", "CAMERA_FOURCC=YUYV", f"LD_PRELOAD={folder}/camera.so"]
    capture = ["-d", "/dev/video0", "-r", "1280x720", "-f", "30", "-m", "YUYV"]
    options = [*capture, "-c", "CPU", "-q", "80", "-w", "2", "-s", "127.0.0.1"]
    with child(["env", *camera, program("ustreamer"), *options, "-p", str(port)], log) as process:
        client = Client(f"http://127.0.0.1:{port}")
        until = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                if client.get("/state").json()["result"]["source"]["captured_fps"] >= 29:
                    break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"ustreamer did not start; see {log}")
            time.sleep(0.1)
        yield process.pid, port


def watch(server: str, kind: str, pid: int, port: int, count: int, log: Path) -> Result:
    """One case."""
    command = [sys.executable, "-m", "tests.benchmarks.viewer_load", str(port), kind, str(count)]
    with child([*command, str(WARM_UP_S), str(SECONDS)], log, subprocess.PIPE) as load:
        assert load.stdout is not None
        if not load.stdout.readline():
            raise RuntimeError(f"the viewers did not start; see {log}")
        meter = LoadMeter(server=pid, load=load.pid)
        found = json.loads(load.stdout.readline())
        ran = meter.stop()
    return Result(
        server, count, found["fps_min"], ran.cpu_s["server"] / max(1, found["frames"]) * 1e6,
        ran.cpu_s["server"] / ran.seconds, found["age_p50_ms"], found["age_p99_ms"],
        found["bytes"] / max(1, found["frames"]), ran,
    )  # fmt: skip


def main() -> int:
    options = arguments(__doc__)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    log = ROOT / "build" / "benchmarks" / "bench_beside.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cv2.imwrite(str(folder / "picture.png"), draw_picture())
        for count in VIEWERS:
            with served(folder / "picture.png", log) as (pid, client):
                results.append(watch("Pinhole", "mjpeg", pid, client.port, count, log))
            with ustreamer(folder, log) as (pid, port):
                results.append(watch("ustreamer", "ustreamer", pid, port, count, log))
            print(results[-2:], file=sys.stderr, flush=True)
    rows = [
        [f"{r.viewers}, {r.server}", f"{r.cpu_us:.0f}", f"{r.server_cores:.2f}", f"{r.fps_min:.1f}",
         f"{r.age_p50_ms:.1f}", f"{r.age_p99_ms:.1f}", f"{r.frame_bytes / 1e3:.0f}",
         f"{r.load.others_cpu_s / r.load.seconds:.2f}"]
        for r in results
    ]  # fmt: skip
    heads = [
        "viewers, server", "CPU µs a delivered frame", "server cores", "fps, worst viewer", "age when sent p50 ms",
        "p99 ms", "kB a frame", "cores of others",
    ]  # fmt: skip
    version = subprocess.run([program("ustreamer"), "--version"], capture_output=True, text=True, check=True).stdout
    text = f"ustreamer {version.strip()}\n\n{table(heads, rows)}"
    publish("bench_beside", __doc__ or "", text, {"cases": [asdict(r) for r in results]}, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
