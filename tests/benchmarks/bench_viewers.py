"""How many viewers does one stream carry on two cores, and what do they notice of each other?

Source: a picture of 1280x720 whose JPEG at quality 80 has about 100 kB, shown 30 times a second (``image://``), no
chain, ``pinhole serve`` with all metrics on. Viewers are one process with one epoll loop (``viewer_load.py``) on the
same machine, over the loopback. Service, viewers and this script share two cores.

Cases: 400 MJPEG viewers; 150 over WebSockets; 20 of MJPEG, for the latency. Each starts the service anew, warms up for
WARM_UP_S, and is watched for ``--seconds``. Then, for HOSTILE_S, viewers that read a third of the rate, that never
read, and that connect and reset, beside one that is none of these (``hostile_viewers.py``).

Figures: distinct frames a second of the worst viewer and of the median one; gaps between frames at a viewer;
encodings for each frame that was captured; the rate of capture; ``/health/live``, asked every 50 ms over a connection
of its own, p99; growth of the service's resident memory from after the warm-up to the end; CPU time of the service and
of the load for a second of watching, in cores, and of whatever else ran. Result to socket: the median age of a frame
when it was sent (its header says it), less the median of the stage ``total`` (capture to result).

Budget: every viewer at least 28 fps, at most one encoding a frame, at least 29.5 frames captured a second, health p99
under 50 ms, growth under 64 MiB; result to socket p50 under 5 ms with 20 viewers. Who reads a third of the rate is
never more than 350 ms behind; who never reads is gone in 6 s; nothing is left of 500 who reset; the one beside them has
gaps under two periods (p99).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil

from tests.benchmarks.bench_compare import child
from tests.benchmarks.bench_host import free_port
from tests.benchmarks.harness import ROOT, Load, LoadMeter, arguments, percentile, publish, table
from tests.helpers.server import Client

CORES = 2
CASES = (("mjpeg", 400), ("websocket", 150), ("mjpeg", 20))
START_S = 30.0
WARM_UP_S = 5.0
SECONDS = 300.0
HOSTILE_S = 30.0
HEALTH_S = 0.05
BEHIND_BUDGET_MS, GONE_BUDGET_S, GAP_BUDGET_MS = 350.0, 6.0, 2 * 1000 / 30
FPS_BUDGET, CAPTURE_BUDGET, HEALTH_BUDGET_MS, GROWTH_BUDGET_MIB, SOCKET_BUDGET_MS = 28.0, 29.5, 50.0, 64.0, 5.0


@dataclass(frozen=True, slots=True)
class Hostile:
    """The last case; ``found`` is what ``hostile_viewers`` printed, the others what was left after it."""

    found: dict[str, float]
    viewers_left: float
    descriptors_more: int
    encoded_after: float
    load: Load

    @property
    def missed(self) -> list[str]:
        """Which bars are not held."""
        found = self.found
        bars = {
            f"{kind}: {found[f'{kind}_behind_max_ms']:.0f} ms behind": found[f"{kind}_behind_max_ms"] > BEHIND_BUDGET_MS
            for kind in ("mjpeg", "websocket")
        }
        bars |= {
            f"{found['cut_off']:.0f} of {found['deaf']:.0f} cut off, the last after {found['last_gone_s']:.1f} s": (
                found["cut_off"] < found["deaf"] or found["last_gone_s"] > GONE_BUDGET_S
            ),
            f"gaps p99 {found['gap_p99_ms']:.0f} ms": found["gap_p99_ms"] >= GAP_BUDGET_MS,
            f"left: {self.viewers_left:.0f} viewers, {self.descriptors_more} descriptors, "
            f"{self.encoded_after:.0f} encodings": (
                self.viewers_left > 0 or self.descriptors_more > 0 or self.encoded_after > 0
            ),
        }
        return [what for what, missed in bars.items() if missed]


@dataclass(frozen=True, slots=True)
class Result:
    """One case; times in milliseconds, CPU in cores, sizes in bytes or MiB."""

    kind: str
    viewers: int
    fps_min: float
    fps_p50: float
    gap_p99_ms: float
    encodes_per_frame: float
    capture_fps: float
    health_p99_ms: float
    growth_mib: float
    rss_mib: float
    socket_p50_ms: float
    age_p99_ms: float
    frame_bytes: float
    service_cores: float
    load_cores: float
    other_cores: float
    lost: int
    load: Load

    @property
    def missed(self) -> list[str]:
        """Which bars are not held."""
        bars = {
            f"{self.fps_min:.1f} fps at the worst viewer": self.fps_min < FPS_BUDGET or self.lost > 0,
            f"{self.encodes_per_frame:.3f} encodings a frame": self.encodes_per_frame > 1.005,
            f"{self.capture_fps:.1f} frames captured a second": self.capture_fps < CAPTURE_BUDGET,
            f"health p99 {self.health_p99_ms:.0f} ms": self.health_p99_ms >= HEALTH_BUDGET_MS,
            f"{self.growth_mib:.0f} MiB more": self.growth_mib >= GROWTH_BUDGET_MIB,
            f"result to socket {self.socket_p50_ms:.1f} ms": self.viewers <= 20
            and self.socket_p50_ms >= SOCKET_BUDGET_MS,
        }
        return [what for what, missed in bars.items() if missed]


def draw_picture() -> Any:
    """About 100 kB as a JPEG of quality 80: soft blots of colour, and a little noise."""
    random = np.random.default_rng(1)
    blots = random.integers(0, 255, (27, 48, 3), np.uint8)
    soft = cv2.resize(blots, (1280, 720), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    return np.clip(soft + random.normal(0, 0.5, (720, 1280, 1)), 0, 255).astype(np.uint8)


class Health(threading.Thread):
    """Asks ``/health/live`` over and over, and keeps how long each answer took."""

    def __init__(self, port: int) -> None:
        super().__init__(name="health", daemon=True)
        self.times_ms: list[float] = []
        self._port = port
        self._done = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(connection):
            while not self._done.wait(HEALTH_S):
                started = time.monotonic()
                connection.request("GET", "/health/live")
                connection.getresponse().read()
                self.times_ms.append((time.monotonic() - started) * 1e3)

    def end(self) -> list[float]:
        self._done.set()
        self.join()
        return self.times_ms


@contextlib.contextmanager
def served(picture: Path, log: Path) -> Iterator[tuple[int, Client]]:
    """The service, ready, and its process's number."""
    port = free_port()
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--max-viewers", "1000"]
    with child([*command, "--memory", "host", "--camera", f"cam=image://{picture}?fps=30"], log) as process:
        client = Client(f"http://127.0.0.1:{port}")
        until = time.monotonic() + START_S
        while True:
            try:
                if client.get("/health/ready").status == 200:
                    break
            except OSError:
                pass
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the service did not start; see {log}")
            time.sleep(0.1)
        yield process.pid, client


def watch(kind: str, count: int, seconds: float, picture: Path, log: Path) -> Result:
    """One case."""
    with served(picture, log) as (pid, client):
        command = [sys.executable, "-m", "tests.benchmarks.viewer_load"]
        with child(
            [*command, str(client.port), kind, str(count), str(WARM_UP_S), str(seconds)], log, subprocess.PIPE
        ) as load:
            assert load.stdout is not None
            if not load.stdout.readline():
                raise RuntimeError(f"the viewers did not start; see {log}")
            process = psutil.Process(pid)
            rss, before, health = process.memory_info().rss, client.metrics(), Health(client.port)
            meter, started = LoadMeter(service=pid, load=load.pid, bench=os.getpid()), time.monotonic()
            health.start()
            found = json.loads(load.stdout.readline())
            took_s, ran = time.monotonic() - started, meter.stop()
            after, rss_after = client.metrics(), process.memory_info().rss
            times_ms = health.end()
            total = client.get("/api/v1/cameras/cam/latency").json()["stages"]["total"]

    def grown(name: str) -> float:
        return sum(after[key] - before.get(key, 0.0) for key in after if key.partition("{")[0] == name)

    captured = grown("pinhole_frames_captured_total")
    return Result(
        kind=kind, viewers=count, fps_min=found["fps_min"], fps_p50=found["fps_p50"], gap_p99_ms=found["gap_p99_ms"],
        encodes_per_frame=grown("pinhole_frames_encoded_total") / max(1.0, captured), capture_fps=captured / took_s,
        health_p99_ms=percentile(times_ms, 99), growth_mib=(rss_after - rss) / 2**20, rss_mib=rss_after / 2**20,
        socket_p50_ms=found["age_p50_ms"] - total["p50_ms"], age_p99_ms=found["age_p99_ms"],
        frame_bytes=found["bytes"] / max(1, found["frames"]), service_cores=ran.cpu_s["service"] / ran.seconds,
        load_cores=ran.cpu_s["load"] / ran.seconds, other_cores=ran.others_cpu_s / ran.seconds, lost=found["lost"],
        load=ran,
    )  # fmt: skip


def watch_hostile(seconds: float, picture: Path, log: Path) -> Hostile:
    """The last case."""
    with served(picture, log) as (pid, client):
        process = psutil.Process(pid)
        client.get("/snapshot")
        time.sleep(2)  # and as here, no connection is open
        descriptors = process.num_fds()
        command = [sys.executable, "-m", "tests.benchmarks.hostile_viewers", str(client.port), str(seconds)]
        with child(command, log, subprocess.PIPE) as load:
            assert load.stdout is not None
            meter = LoadMeter(service=pid, load=load.pid, bench=os.getpid())
            line = load.stdout.readline()
            ran = meter.stop()
        if not line:
            raise RuntimeError(f"the viewers did not come through; see {log}")
        time.sleep(2)
        encoded = client.metric("pinhole_frames_encoded_total")
        time.sleep(1)
        encoded = client.metric("pinhole_frames_encoded_total") - encoded
        viewers = client.metric("pinhole_viewers")
        time.sleep(1)  # the connection of the last question is closed by then
        return Hostile(json.loads(line), viewers, process.num_fds() - descriptors, encoded, ran)


def hostile_table(result: Hostile) -> str:
    found = result.found
    rows = [
        [
            f"reads a third of the rate, {kind}",
            f"behind p50 {found[f'{kind}_behind_p50_ms']:.0f}, p99 {found[f'{kind}_behind_p99_ms']:.0f}, at most "
            f"{found[f'{kind}_behind_max_ms']:.0f} ms; {found[f'{kind}_fps']:.1f} fps",
        ]
        for kind in ("mjpeg", "websocket")
    ]
    rows += [
        ["never reads", f"{found['cut_off']:.0f} of {found['deaf']:.0f}, the last in {found['last_gone_s']:.1f} s"],
        [
            f"{found['connects']:.0f} connects and resets",
            f"left: {result.viewers_left:.0f} viewers, {result.descriptors_more} descriptors, "
            f"{result.encoded_after:.0f} encodings in a second",
        ],
        ["the one beside them", f"gaps p50 {found['gap_p50_ms']:.0f}, p99 {found['gap_p99_ms']:.0f}, at most "
                                f"{found['gap_max_ms']:.0f} ms"],
        ["budget", "; ".join(result.missed) or "held"],
        ["others on the machine", f"{result.load.others_cpu_s / result.load.seconds:.2f} cores"],
    ]  # fmt: skip
    return table(["viewer", "found"], rows)


def tables(results: list[Result]) -> str:
    rows = [
        [
            f"{r.viewers} {r.kind}", f"{r.fps_min:.1f}", f"{r.fps_p50:.1f}", f"{r.gap_p99_ms:.0f}",
            f"{r.encodes_per_frame:.3f}", f"{r.capture_fps:.1f}", f"{r.health_p99_ms:.1f}", f"{r.growth_mib:+.0f}",
            f"{r.socket_p50_ms:.1f}", f"{r.frame_bytes / 1e3:.0f}", f"{r.service_cores:.2f}", f"{r.load_cores:.2f}",
            f"{r.other_cores:.2f}", f"{r.load.loadavg_before[0]:.1f}", "; ".join(r.missed) or "held",
        ]
        for r in results
    ]  # fmt: skip
    heads = [
        "viewers", "fps, worst", "median", "gap p99 ms", "encodings a frame", "captured a second", "health p99 ms",
        "MiB more", "result to socket p50 ms", "kB a frame", "service cores", "load cores", "other cores",
        "load average before", "budget",
    ]  # fmt: skip
    return table(heads, rows)


def main() -> int:
    options = arguments(__doc__, [a for a in sys.argv[1:] if not a.startswith("--seconds")])
    seconds = next((float(a.partition("=")[2]) for a in sys.argv[1:] if a.startswith("--seconds=")), SECONDS)
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        picture, log = Path(folder) / "picture.png", ROOT / "build" / "benchmarks" / "bench_viewers.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(picture), draw_picture())
        for kind, count in CASES:
            results.append(watch(kind, count, seconds, picture, log))
            print(f"{kind} {count}: {'; '.join(results[-1].missed) or 'held'}", file=sys.stderr, flush=True)
        hostile = watch_hostile(min(HOSTILE_S, seconds), picture, log)
    text = f"Watched for {seconds:g} s each.\n\n{tables(results)}\n\n{hostile_table(hostile)}"
    data = {"seconds": seconds, "cases": [asdict(result) for result in results], "hostile": asdict(hostile)}
    publish("bench_viewers", __doc__ or "", text, data, options.out)
    return 1 if hostile.missed or any(result.missed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
