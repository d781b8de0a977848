"""Pinhole, an OpenCV + Flask script as people write it, and OpenCV alone: what do 1, 2 and 5 viewers get on two cores?

Source for all: one network camera (``network_camera.py``, a process of its own), 1280x720 at 30 fps as MJPEG over HTTP,
opened by ``cv2.VideoCapture``: by the scripts themselves, by Pinhole through ``opencv://``. Same chain for all: blur
5x5, gamma 1.2, gain 1.1 + offset 5, sobel; JPEG at quality 80. Camera, server and viewers share two cores.

Cases: ``pinhole serve --memory MEMORY`` and ``baselines/opencv_flask.py`` with 1, 2 and 5 MJPEG viewers;
``baselines/opencv_alone.py`` with none: read, process, encode, no network. Each case starts anew, warms up for
WARM_UP_S and is watched for SECONDS; the median of the runs counts.

Figures: distinct frames per second at each viewer (mean over the viewers, and the worst one); the age of each frame
when its last byte had arrived (alone: when its JPEG was ready), counted from the moment the camera took it, by the
sequence code in the picture, which survives the chain (a frame that is repeated counts by its first arrival); pictures
whose code cannot be read; CPU time of the server for a second of watching, in cores; its memory (RSS) at the end. The
viewers only keep the bytes, and look at the pictures when the time is over.

Budget: with each number of viewers Pinhole gives every viewer at least 29 distinct frames a second of 30, and no
picture is unreadable.

``--memory``: where Pinhole processes: ``host`` (OpenCV on the same two cores; the default) or ``zero_copy`` (the GPU).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
import psutil

from kernels.device import MEMORY_STRATEGIES
from tests.benchmarks.baselines.opencv_alone import RECORD
from tests.benchmarks.bench_host import free_port
from tests.benchmarks.harness import ROOT, Load, LoadMeter, arguments, median, percentile, publish, table
from tests.benchmarks.time_code import read_edges

CORES = 2
VIEWERS = (1, 2, 5)
START_S = 60.0  # a GPU's kernels may have to be compiled first
WARM_UP_S = 3.0
SECONDS = 10.0
FPS_BUDGET = 29.0
CHAIN = "gaussian_blur(ksize=5)|gamma(gamma=1.2)|gain_offset(gain=1.1, offset=5)|sobel"

Arrival = tuple[float, bytes]
"""Wall-clock time of a JPEG's last byte, and the JPEG."""


@dataclass(frozen=True, slots=True)
class Camera:
    """The network camera: where it is, and when it took its frames."""

    url: str
    start_s: float
    frames: int
    fps: int

    def age_s(self, number: int, now_s: float) -> float:
        """How old frame ``number`` (modulo ``frames``) is, taking the newest that it can be."""
        return (now_s - self.start_s - number / self.fps) % (self.frames / self.fps)


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one case; ages in milliseconds, CPU in cores."""

    program: str
    viewers: int
    fps: float
    worst_fps: float
    age_p50_ms: float
    age_p99_ms: float
    unreadable: int
    server_cores: float
    memory_mb: float
    load: Load


@contextlib.contextmanager
def child(command: Sequence[str], log: Path, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process of this benchmark, ended at exit."""
    with log.open("a") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file if stdout is None else stdout, stderr=file, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def network_camera(log: Path) -> Iterator[Camera]:
    command = [sys.executable, "-m", "tests.benchmarks.network_camera"]
    with child(command, log, subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the camera did not start; see {log}")
        yield Camera(**json.loads(line))


def pinhole(memory: str, camera: Camera, port: int) -> list[str]:
    uri = f"opencv://?name={quote(camera.url, safe='')}"
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--memory", memory]
    return [*command, "--camera", f"cam={uri}", "--chain", f"cam={CHAIN}"]


def opencv_flask(camera: Camera, port: int) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.baselines.opencv_flask", camera.url, str(port)]


class Viewer:
    """Reads an MJPEG stream in a thread, and keeps what arrives."""

    def __init__(self, port: int) -> None:
        self.arrivals: list[Arrival] = []
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=START_S)
        self._socket.sendall(f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for arrival in jpegs(self._socket.recv):
                self.arrivals.append(arrival)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()


def jpegs(receive: Callable[[int], bytes]) -> Iterator[Arrival]:
    """The JPEGs of a multipart stream, with and without Content-Length; without, up to the end marker before a CRLF."""
    data = bytearray()
    start, length = -1, None  # of the JPEG; -1 while its header is not complete
    while chunk := receive(1 << 18):
        looked = max(0, len(data) - 3)
        data += chunk
        while True:
            if start < 0:
                start = data.find(b"\xff\xd8")
                if start < 0:
                    break
                _, named, rest = bytes(data[:start]).lower().partition(b"content-length:")
                length = int(rest.split(b"\r\n", 1)[0]) if named else None
                looked = max(looked, start)
            end = start + length if length is not None else data.find(b"\xff\xd9\r\n", looked) + 2
            if end < start + 2 or end > len(data):
                break
            yield time.time(), bytes(data[start:end])
            del data[:end]
            start, looked = -1, 0


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not start (code {process.returncode}); see {log}")
        time.sleep(0.1)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def measure(process: subprocess.Popen[str]) -> tuple[float, float, Load, float]:
    """Warm up, then let it run: from when to when, what the machine did, and the process's memory in MB."""
    time.sleep(WARM_UP_S)
    meter = LoadMeter(server=process.pid)
    start_s = time.time()
    time.sleep(SECONDS)
    end_s = time.time()
    return start_s, end_s, meter.stop(), psutil.Process(process.pid).memory_info().rss / 1e6


def watched(program: str, command: list[str], port: int, viewers: int, camera: Camera, log: Path) -> Result:
    """Serve, let ``viewers`` look, and read what they saw."""
    with child(command, log) as server:
        wait_until(lambda: listens(port), server, log)
        watching = [Viewer(port) for _ in range(viewers)]
        try:
            wait_until(lambda: all(viewer.arrivals for viewer in watching), server, log)
            start_s, end_s, load, memory_mb = measure(server)
        finally:
            for viewer in watching:
                viewer.stop()
    return judge(program, [v.arrivals for v in watching], camera, (start_s, end_s), load, memory_mb)


def alone(camera: Camera, log: Path) -> Result:
    """The script without a network: what was ready when."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "frames"
        command = [sys.executable, "-m", "tests.benchmarks.baselines.opencv_alone", camera.url, str(out)]
        with child(command, log) as process:
            wait_until(lambda: out.exists() and out.stat().st_size > 0, process, log)
            start_s, end_s, load, memory_mb = measure(process)
        arrivals = list(records(out.read_bytes()))
    return judge("OpenCV alone", [arrivals], camera, (start_s, end_s), load, memory_mb, viewers=0)


def records(data: bytes) -> Iterator[Arrival]:
    """What ``opencv_alone`` wrote; a last record that is cut is left out."""
    at = 0
    while at + RECORD.size <= len(data):
        ready_s, length = RECORD.unpack_from(data, at)
        at += RECORD.size + length
        if at <= len(data):
            yield ready_s, data[at - length : at]


def judge(
    program: str, seen: Sequence[Sequence[Arrival]], camera: Camera, window: tuple[float, float], load: Load,
    memory_mb: float, viewers: int | None = None,
) -> Result:  # fmt: skip
    """What the viewers got within the window, by the code in each picture."""
    start_s, end_s = window
    numbers: dict[bytes, int | None] = {}
    rates: list[float] = []
    ages_ms: list[float] = []
    unreadable = 0
    for arrivals in seen:
        ages: dict[int, float] = {}
        for at_s, jpeg in arrivals:
            if not start_s <= at_s < end_s:
                continue
            if jpeg not in numbers:
                picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_GRAYSCALE)
                numbers[jpeg] = None if picture is None else read_edges(picture)
            number = numbers[jpeg]
            if number is None:
                unreadable += 1
            else:
                ages.setdefault(number, camera.age_s(number, at_s) * 1e3)
        rates.append(len(ages) / (end_s - start_s))
        ages_ms += ages.values()
    return Result(
        program=program,
        viewers=len(seen) if viewers is None else viewers,
        fps=sum(rates) / len(rates),
        worst_fps=min(rates),
        age_p50_ms=percentile(ages_ms, 50) if ages_ms else float("nan"),
        age_p99_ms=percentile(ages_ms, 99) if ages_ms else float("nan"),
        unreadable=unreadable,
        server_cores=load.cpu_s["server"] / load.seconds,
        memory_mb=memory_mb,
        load=load,
    )


COLUMNS = {
    "fps": "fps per viewer",
    "worst_fps": "worst viewer",
    "age_p50_ms": "age p50 ms",
    "age_p99_ms": "age p99 ms",
    "unreadable": "unreadable",
    "server_cores": "server cores",
    "memory_mb": "memory MB",
}


def one_run(memory: str, log: Path) -> list[Result]:
    results = []
    with network_camera(log) as camera:
        results.append(alone(camera, log))
        for viewers in VIEWERS:
            for program, command in (("OpenCV + Flask", opencv_flask), ("Pinhole", partial(pinhole, memory))):
                if program == "OpenCV + Flask" and importlib.util.find_spec("flask") is None:
                    continue
                port = free_port()
                results.append(watched(program, command(camera, port), port, viewers, camera, log))
    for result in results:
        print(
            f"  {result.program}, {result.viewers}: {result.fps:.1f} fps, age p99 {result.age_p99_ms:.0f} ms",
            flush=True,
        )
    return results


def main() -> int:
    options = arguments(__doc__, memory=MEMORY_STRATEGIES)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # inherited by all children
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "bench_compare.log"
    log.unlink(missing_ok=True)
    if importlib.util.find_spec("flask") is None:
        print("Flask is not installed (extra bench): its cases are left out", flush=True)
    runs = []
    for number in range(options.runs):
        print(f"run {number + 1}", flush=True)
        runs.append(one_run(options.memory, log))
    rows: list[list[object]] = []
    medians = []
    for cases in zip(*runs, strict=True):
        middle = {name: median([getattr(case, name) for case in cases]) for name in COLUMNS}
        rows.append([cases[0].program, cases[0].viewers or "none", *middle.values()])
        medians.append({"program": cases[0].program, "viewers": cases[0].viewers, **middle})
    rows.sort(key=lambda row: str(row[0]) == "Pinhole")  # stable: the baselines first
    own = [middle for middle in medians if middle["program"] == "Pinhole"]
    met = all(middle["worst_fps"] >= FPS_BUDGET and not middle["unreadable"] for middle in own)
    loads = ", ".join(f"{run[-1].load.loadavg_after[0]:.1f}" for run in runs)
    others = ", ".join(f"{max(case.load.others_cpu_s / case.load.seconds for case in run):.2f}" for run in runs)
    result = (
        f"{table(['', 'viewers', *COLUMNS.values()], rows)}\n\n"
        f"Budget (Pinhole: worst viewer ≥ {FPS_BUDGET:.0f} fps, none unreadable): {'met' if met else 'MISSED'}. "
        f"Median of {len(runs)} runs on {CORES} cores; one-minute load at the end of each: {loads}; cores that "
        f"all but the server (camera, viewers, other programs) used at most: {others}."
    )
    data = {
        "budget": {"worst_fps": FPS_BUDGET, "unreadable": 0, "met": met},
        "median": medians,
        "runs": [[asdict(case) for case in run] for run in runs],
    }
    publish("bench_compare", __doc__ or "", result, data, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
