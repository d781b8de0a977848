"""Does the CPU backend keep a 720p camera at 30 fps on two cores, and how old are the frames that a viewer gets?

Case: ``pinhole serve --memory host`` with one test card, 1280x720 NV12 at 30 fps, the chain blur 5x5, gamma 1.2,
gain 1.1 + offset 5, sobel, and one MJPEG viewer; server and viewer share two CPU cores. Each run starts the service
anew, waits until it is ready, lets WARM_UP_S pass and looks at every frame of the next SECONDS. The median of five runs
counts.

Figures: distinct frames per second at the viewer; frames whose number the viewer never saw; the age of each frame at
the moment its last byte was read (wall clock against X-Timestamp, both of this machine), and as the service put it into
X-Frame-Age-Ms when it sent the frame; CPU cores' worth of work by server, viewer, and everything else that ran.

Budget: 30 fps (at least 29.7 distinct frames a second: one in a hundred may fall to the two clocks' edges), and an age
at the last byte of less than 100 ms in 99 of 100 frames.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tests.benchmarks.harness import ROOT, Load, LoadMeter, arguments, median, percentile, publish, table

CORES = 2
WARM_UP_S = 3.0
SECONDS = 15.0
FPS_BUDGET = 29.7
AGE_P99_BUDGET_MS = 100.0
CAMERA = "card=testcard://?size=1280x720&fps=30&format=NV12"
CHAIN = "card=gaussian_blur(ksize=5)|gamma(gamma=1.2)|gain_offset(gain=1.1, offset=5)|sobel"


@dataclass(frozen=True, slots=True)
class Seen:
    """One frame at the viewer: its number, its age in milliseconds by the header and at the last byte, its size."""

    sequence: int
    sent_age_ms: float
    age_ms: float
    jpeg_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run's figures; ages in milliseconds, CPU in cores."""

    fps: float
    missed: int
    age_p50_ms: float
    age_p99_ms: float
    age_max_ms: float
    sent_age_p50_ms: float
    sent_age_p99_ms: float
    jpeg_kb: float
    server_cores: float
    viewer_cores: float
    others_cores: float
    load: Load
    latency: Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def service(port: int, cores: set[int], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The service on ``port``, on ``cores`` alone, logging to ``log``; stopped as its users stop it."""
    command = [sys.executable, "-m", "service", "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--memory", "host", "--camera", CAMERA, "--chain", CHAIN]
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited; the viewer stays on the same cores
    with log.open("ab") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    try:
        wait_until_ready(process, port)
        yield process
    finally:
        process.terminate()
        code = process.wait(timeout=10)
        os.sched_setaffinity(0, mine)
    if code != 0:
        raise RuntimeError(f"the service ended with code {code}; see {log}")


def wait_until_ready(process: subprocess.Popen[bytes], port: int, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with code {process.returncode}")
        try:
            if get(port, "/health/ready")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"the service was not ready after {timeout_s} s")


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def parts(stream: IO[bytes]) -> Iterator[tuple[dict[str, str], int, float]]:
    """Each part of a multipart stream: headers, length of the body, wall-clock time at its last byte."""
    while line := stream.readline():
        if not line.startswith(b"--"):
            continue  # the empty line after a part's body
        headers = {}
        while line := stream.readline().strip():
            key, _, value = line.decode("latin-1").partition(":")
            headers[key.strip().lower()] = value.strip()
        body = stream.read(int(headers["content-length"]))
        yield headers, len(body), time.time()


def watch(port: int, server: subprocess.Popen[bytes]) -> tuple[list[Seen], float, Load]:
    """What one viewer sees for SECONDS, how long that was exactly, and what the machine did meanwhile."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/cameras/card/stream")
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"the stream answers {response.status}: {response.read(500)!r}")
        frames = parts(response)
        warm_at = time.monotonic() + WARM_UP_S
        next(frame for frame in frames if time.monotonic() >= warm_at)
        meter = LoadMeter(server=server.pid, viewer=os.getpid())
        start_s = time.monotonic()
        seen = []
        for headers, length, now_s in frames:
            age_ms = (now_s - float(headers["x-timestamp"])) * 1e3
            sent_age_ms = float(headers["x-frame-age-ms"])
            seen.append(Seen(int(headers["x-frame-sequence"]), sent_age_ms, age_ms, length))
            if time.monotonic() - start_s >= SECONDS:
                break
        return seen, time.monotonic() - start_s, meter.stop()
    finally:
        connection.close()


def one_run(cores: set[int], log: Path) -> Run:
    """Start the service, watch it, stop it."""
    port = free_port()
    with service(port, cores, log) as server:
        seen, seconds, load = watch(port, server)
        latency = json.loads(get(port, "/api/v1/cameras/card/latency")[1])
    first_seen = {
        frame.sequence: frame for frame in reversed(seen)
    }  # a repeated frame counts once, by its first arrival
    ages = [frame.age_ms for frame in first_seen.values()]
    sent_ages = [frame.sent_age_ms for frame in first_seen.values()]
    span = max(first_seen) - min(first_seen) + 1
    return Run(
        fps=len(first_seen) / seconds,
        missed=span - len(first_seen),
        age_p50_ms=percentile(ages, 50),
        age_p99_ms=percentile(ages, 99),
        age_max_ms=max(ages),
        sent_age_p50_ms=percentile(sent_ages, 50),
        sent_age_p99_ms=percentile(sent_ages, 99),
        jpeg_kb=sum(frame.jpeg_bytes for frame in first_seen.values()) / len(first_seen) / 1e3,
        server_cores=load.cpu_s["server"] / load.seconds,
        viewer_cores=load.cpu_s["viewer"] / load.seconds,
        others_cores=load.others_cpu_s / load.seconds,
        load=load,
        latency=latency,
    )


COLUMNS = {
    "fps": "fps",
    "missed": "missed",
    "age_p50_ms": "age p50 ms",
    "age_p99_ms": "age p99 ms",
    "age_max_ms": "age max ms",
    "sent_age_p50_ms": "sent p50 ms",
    "sent_age_p99_ms": "sent p99 ms",
    "jpeg_kb": "JPEG kB",
    "server_cores": "server cores",
    "viewer_cores": "viewer cores",
    "others_cores": "others' cores",
}


def main() -> int:
    options = arguments(__doc__)
    cores = set(sorted(os.sched_getaffinity(0))[:CORES])
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "bench_host.service.log"
    log.unlink(missing_ok=True)
    runs = []
    for number in range(options.runs):
        runs.append(run := one_run(cores, log))
        print(f"run {number + 1}: {run.fps:.2f} fps, age p99 {run.age_p99_ms:.1f} ms", flush=True)
    middle = {name: median([getattr(run, name) for run in runs]) for name in COLUMNS}
    rows: list[list[object]] = [
        [f"run {n + 1}", *(getattr(run, name) for name in COLUMNS)] for n, run in enumerate(runs)
    ]
    rows.append(["median", *middle.values()])
    met = middle["fps"] >= FPS_BUDGET and middle["age_p99_ms"] < AGE_P99_BUDGET_MS
    loads = ", ".join(f"{run.load.loadavg_after[0]:.1f}" for run in runs)
    result = (
        f"{table(['', *COLUMNS.values()], rows)}\n\n"
        f"Budget (fps ≥ {FPS_BUDGET}, age p99 < {AGE_P99_BUDGET_MS:.0f} ms): {'met' if met else 'MISSED'}. "
        f"Cores {sorted(cores)}; one-minute load after each run: {loads}."
    )
    data = {
        "cores": sorted(cores),
        "budget": {"fps": FPS_BUDGET, "age_p99_ms": AGE_P99_BUDGET_MS, "met": met},
        "median": middle,
        "runs": [asdict(run) for run in runs],
    }
    publish("bench_host", __doc__ or "", result, data, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
