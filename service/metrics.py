"""Prometheus text from snapshots: made when it is asked for, nothing is observed on the frame path."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from kernels.device import Device
from pipeline.latency import HistogramSnapshot
from pipeline.state import CameraState
from pipeline.stats import CameraStatistics
from service.tally import LiveStatistics
from service.version import version

CONTENT_TYPE = CONTENT_TYPE_LATEST

# Upper bounds in microseconds: dense where frames spend their time, from a kernel launch to a stalled viewer.
BOUNDS_US = (
    20, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3000, 5000, 7500, 10_000, 15_000, 20_000, 33_000, 50_000,
    75_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
)  # fmt: skip


# The page has the same words.
STAGE_MEANINGS = {
    "capture": "taken → in the ring",
    "queue": "→ picked up",
    "process": "→ result ready",
    "gpu": "within process, by the GPU’s clock",
    "encode": "one JPEG for all who look",
    "deliver": "→ with each viewer’s socket",
    "total": "capture, queue and process together",
}
_STAGES = "; ".join(f"{stage} ({meaning})" for stage, meaning in STAGE_MEANINGS.items())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that metrics are made of, at one moment."""

    device: Device
    cameras: tuple[tuple[CameraStatistics, LiveStatistics], ...]


def render_metrics(snapshot: Snapshot) -> bytes:
    """The Prometheus text format, with the process's own metrics. Takes milliseconds; any thread."""
    registry = CollectorRegistry()
    registry.register(PinholeCollector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class PinholeCollector(Collector):
    """The metric families of one snapshot. A series that has no value is absent."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield self._stages()
        yield from self._machine()

    def _counters(self) -> Iterator[Metric]:
        cameras = self._snapshot.cameras
        yield counter(
            "frames_captured", "Frames that sources published.", (), ((s.name, s.captured) for s, _ in cameras)
        )
        yield counter(
            "frames_processed", "Frames whose result was ready.", (), ((s.name, s.processed) for s, _ in cameras)
        )
        yield counter(
            "frames_dropped", "Frames that came to no result, by reason.", ("reason",),
            ((s.name, reason, count) for s, _ in cameras for reason, count in s.dropped.items()),
        )  # fmt: skip
        yield counter(
            "frames_encoded", "Pictures encoded, each once for all viewers of a rendition.", ("encoder",),
            ((s.name, name, n) for s, live in cameras for name, n in ({"jpeg_cpu": 0} | dict(live.encoded)).items()),
        )  # fmt: skip
        yield counter(
            "encode_errors", "Pictures that could not be encoded.", (), ((s.name, v.encode_errors) for s, v in cameras)
        )
        yield counter(
            "viewer_frames_sent", "Frames handed to viewers' sockets.", (), ((s.name, v.sent) for s, v in cameras)
        )
        yield counter(
            "viewer_frames_skipped",
            "Frames between two that a viewer was sent.",
            (),
            ((s.name, v.skipped) for s, v in cameras),
        )
        yield counter(
            "viewer_sent_bytes", "Bytes of pictures handed to viewers' sockets.", (),
            ((s.name, v.sent_bytes) for s, v in cameras),
        )  # fmt: skip
        yield counter(
            "viewers_cut_off", "Viewers that did not read in time.", (), ((s.name, v.cut_off) for s, v in cameras)
        )
        yield counter(
            "copied_bytes", "Bytes of frames copied, by a CPU (capture) or by copy engines, by path.", ("path",),
            ((s.name, path, count) for s, _ in cameras for path, count in s.copied_bytes.items()),
        )  # fmt: skip
        yield counter(
            "link_bytes", "Bytes of frames over the link between host and device, by the plan.", ("direction",),
            (
                row
                for s, _ in cameras
                if s.linked
                for row in ((s.name, "in", s.link_bytes_in), (s.name, "out", s.link_bytes_out))
            ),
        )  # fmt: skip
        yield counter(
            "reconnects", "Times that a source was opened again.", (), ((s.name, s.reconnects) for s, _ in cameras)
        )

    def _gauges(self) -> Iterator[Metric]:
        cameras = self._snapshot.cameras
        yield gauge(
            "frame_age_seconds", "Time since the newest result's picture was taken.", ("camera",),
            ((s.name, s.age_ns / 1e9) for s, _ in cameras if s.age_ns is not None),
        )  # fmt: skip
        yield gauge(
            "viewers", "Live viewers now.", ("camera", "kind"),
            (
                (s.name, kind, count)
                for s, live in cameras
                for kind, count in ({"mjpeg": 0, "websocket": 0, "webrtc": 0} | dict(live.viewers)).items()
                if kind != "snapshot"
            ),
        )  # fmt: skip
        yield gauge(
            "viewer_age_seconds", "Age of the last frame that the worst-off viewer was sent, when it was.", ("camera",),
            (
                (s.name, max(ages) / 1e9)
                for s, live in cameras
                if (ages := [v.age_ns for v in live.connections if v.age_ns is not None and not v.paused])
            ),
        )  # fmt: skip
        yield gauge(
            "camera_state", "1 for the state that the camera is in.", ("camera", "state"),
            ((s.name, state.value, int(s.state is state)) for s, _ in cameras for state in CameraState),
        )  # fmt: skip

    def _stages(self) -> Metric:
        family = HistogramMetricFamily(
            "pinhole_stage_seconds", f"Time that frames spend in each stage: {_STAGES}.", labels=("camera", "stage")
        )
        for statistics, live in self._snapshot.cameras:
            stages = {**statistics.latency, "encode": live.encode, "deliver": live.deliver}
            for stage, histogram in stages.items():
                if histogram.count:
                    family.add_metric((statistics.name, stage), buckets(histogram), histogram.sum_ns / 1e9)
        return family

    def _machine(self) -> Iterator[Metric]:
        device = self._snapshot.device
        yield gauge("pinned_bytes", "Pinned host memory held.", (), ((device.ledger.held("pinned"),),))
        held = ((device.name, device.ledger.held("device")),) if device.backend == "cuda" else ()
        yield gauge("device_bytes", "Device memory held.", ("device",), held)
        labels = ("version", "backend", "memory", "device", "python")
        values = (version(), device.backend, device.memory, device.name, platform.python_version())
        yield gauge("build_info", "What runs, and on what; always 1.", labels, ((*values, 1),))


def counter(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[str | int, ...]]) -> Metric:
    """``pinhole_NAME_total`` by camera and ``labels``; each row is the label values and the count."""
    family = CounterMetricFamily(f"pinhole_{name}", help, labels=("camera", *labels))
    for *values, count in rows:
        family.add_metric([str(value) for value in values], float(count))
    return family


def gauge(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[str | float, ...]]) -> Metric:
    """``pinhole_NAME`` by ``labels``; each row is the label values and the value."""
    family = GaugeMetricFamily(f"pinhole_{name}", help, labels=labels)
    for *values, number in rows:
        family.add_metric([str(value) for value in values], float(number))
    return family


def buckets(histogram: HistogramSnapshot) -> list[tuple[str, float]]:
    """Cumulative counts as Prometheus has them."""
    counts = histogram.cumulative(bound * 1000 for bound in BOUNDS_US)
    named = [(f"{bound / 1e6:g}", float(count)) for bound, count in zip(BOUNDS_US, counts, strict=True)]
    return [*named, ("+Inf", float(histogram.count))]
