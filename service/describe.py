"""The engine's and the hub's snapshots as the JSON of version 1. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.chain import Chain
from kernels.image import ImageSpec
from pipeline.latency import HistogramSnapshot, bucket_range_ns
from pipeline.state import CameraState
from pipeline.stats import CameraHealth, CameraStatistics
from service.tally import LiveStatistics

STAGES = ("capture", "queue", "process", "gpu", "encode", "deliver", "total")


def camera_json(
    statistics: CameraStatistics, health: CameraHealth, chain: Chain, live: LiveStatistics
) -> dict[str, Any]:
    """One camera as ``GET /api/v1/cameras/{camera}`` shows it; what is not known yet is null.

    One that has ended makes no frames a second, and is as ready as it will ever be: nothing more is expected of it.
    """
    source, ended = statistics.source, statistics.state is CameraState.ENDED
    return {
        "name": statistics.name,
        "uri": statistics.uri,
        "state": statistics.state.value,
        "cause": statistics.cause,
        "ready": health.ready,
        "reasons": list(health.reasons),
        "source": None
        if source is None
        else {
            **image_json(source.image), "nominal_fps": source.fps, "live": source.live, "details": dict(source.details),
        },
        "result": None if statistics.result is None else image_json(statistics.result),
        "chain": chain_json(chain),
        "fps": 0.0 if ended else rounded(statistics.fps),
        "capture_fps": 0.0 if ended else rounded(statistics.capture_fps),
        "age_ms": milliseconds(statistics.age_ns),
        "sequence": statistics.sequence,
        "reconnects": statistics.reconnects,
        "frames": {
            "captured": statistics.captured,
            "processed": statistics.processed,
            "dropped": dict(statistics.dropped),
            "encoded": dict(live.encoded),
            "encode_errors": live.encode_errors,
            "warmup": statistics.warmup_frames,
        },
        "memory": {"strategy": statistics.memory, "choice": statistics.choice},
        "copied_bytes": dict(statistics.copied_bytes),
        "copied_bytes_per_frame": statistics.copied_bytes_per_frame,
        "link_bytes": {"in": statistics.link_bytes_in, "out": statistics.link_bytes_out},
        "ring": None if statistics.ring is None else ring_json(statistics),
        "viewers": {
            "live": sum(count for kind, count in live.viewers.items() if kind != "snapshot"),
            "variants": live.variants,
            "sent": live.sent,
            "sent_bytes": live.sent_bytes,
            "skipped": live.skipped,
            "cut_off": live.cut_off,
            "connections": [
                {
                    "name": v.name, "kind": v.kind, "view": v.view, "quality": v.quality, "width": v.width,
                    "fps": v.fps, "paused": v.paused, "sent": v.sent, "sent_bytes": v.sent_bytes,
                    "repeated": v.repeated, "skipped": v.skipped, "age_ms": milliseconds(v.age_ns),
                    "bits_per_s": rounded(v.bits_per_s), "frames_per_s": rounded(v.frames_per_s),
                }
                for v in live.connections
            ],
        },
        "links": {
            "stream": f"/cameras/{statistics.name}/stream",
            "websocket": f"/cameras/{statistics.name}/ws",
            "whep": f"/cameras/{statistics.name}/whep",
            "snapshot": f"/cameras/{statistics.name}/snapshot",
            "chain": f"/api/v1/cameras/{statistics.name}/chain",
            "latency": f"/api/v1/cameras/{statistics.name}/latency",
            "trace": f"/api/v1/cameras/{statistics.name}/trace",
            **(
                {"controls": f"/api/v1/cameras/{statistics.name}/controls"}
                if source is not None and "device" in source.details
                else {}
            ),
        },
    }  # fmt: skip


def ring_json(statistics: CameraStatistics) -> dict[str, int]:
    """Where the slots are."""
    ring = statistics.ring
    assert ring is not None
    names = (
        "generation", "slots", "free", "writing", "ready", "processing", "finishing", "done", "pending", "released",
        "write_leases", "process_leases", "read_leases", "nbytes",
    )  # fmt: skip
    return {name: getattr(ring, name) for name in names}


def image_json(spec: ImageSpec) -> dict[str, Any]:
    """Format and size; matrix and range where they mean something."""
    shown: dict[str, Any] = {"format": spec.format.name, "width": spec.width, "height": spec.height}
    if spec.format.is_yuv:
        shown |= {"matrix": spec.matrix.value, "range": spec.range.value}
    return shown


def chain_json(chain: Chain) -> dict[str, Any]:
    """As ``PUT …/chain`` takes it, with its version and its form on a command line."""
    return {"version": chain.version, "ops": chain.to_json(), "text": str(chain)}


def latency_json(statistics: CameraStatistics, live: LiveStatistics, *, buckets: bool = False) -> dict[str, Any]:
    """Percentiles of each stage in milliseconds since the start; null where nothing was measured.

    With ``buckets``, the histograms too: [middle in ms, count] of each bucket that holds something, in order.
    """
    histograms: Mapping[str, HistogramSnapshot] = {
        **statistics.latency,
        "encode": live.encode,
        "deliver": live.deliver,
    }
    return {
        "camera": statistics.name,
        "chain_version": statistics.chain_version,
        "warmup_frames": statistics.warmup_frames,
        "stages": {stage: stage_json(histograms.get(stage, HistogramSnapshot()), buckets=buckets) for stage in STAGES},
    }


def stage_json(histogram: HistogramSnapshot, *, buckets: bool = False) -> dict[str, Any]:
    """One stage's durations in milliseconds."""
    listed = [[milliseconds(sum(bucket_range_ns(index)) / 2), count] for index, count in histogram.buckets]
    return {
        "count": histogram.count,
        "mean_ms": milliseconds(histogram.mean_ns),
        "min_ms": milliseconds(histogram.min_ns),
        **{f"p{q}_ms": milliseconds(histogram.quantile(q / 100)) for q in (50, 90, 95, 99)},
        "max_ms": milliseconds(histogram.max_ns),
        **({"buckets": listed} if buckets else {}),
    }


def milliseconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns / 1e6, 4)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
