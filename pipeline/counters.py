"""A camera's live counters and histograms. Each field is written by one thread only, which the comment names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.plan import Plan
from pipeline.frame import Frame
from pipeline.latency import HistogramSnapshot, LogHistogram
from pipeline.recent import Recent
from pipeline.stats import RateMeter, Tally

MOST_TRACED = 512  # frames that are remembered, some 0.2 MB a camera


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest result, for its age, and how much of it was copied."""

    sequence: int
    captured_ns: int
    copied_bytes: int


class Counters:
    """See the module. They live as long as the camera, through reconnects and restarts."""

    def __init__(self) -> None:
        self.dropped = Tally()  # any
        self.fetched = Tally()  # any: bytes by who took them from the device
        # capture
        self.next_sequence = 0
        self.captured = 0
        self.reconnects = 0
        self.copied_bytes = 0
        self.moved_bytes: dict[str, int] = {}  # by path; the stage's
        self.capture_rate = RateMeter()
        self.capture = LogHistogram()
        # stage
        self.processed = 0
        self.warmup_frames = 0
        self.link_bytes_in = 0
        self.link_bytes_out = 0
        self.newest: Newest | None = None
        self.rate = RateMeter()
        self.queue = LogHistogram()
        self.process = LogHistogram()
        self.gpu = LogHistogram()
        self.total = LogHistogram()
        self.recent: Recent[Frame] = Recent(MOST_TRACED)

    def count_fetched(self, nbytes: int) -> None:
        """Any thread: a result was copied from the device for a reader."""
        self.fetched.add("result", nbytes)

    def count_encoded(self, nbytes: int) -> None:
        """Any thread: a picture that the device encoded came from there."""
        self.fetched.add("encoded", nbytes)

    def count_processed(
        self, frame: Frame, plan: Plan | None, warmup: bool, copies: Mapping[str, int], stays: bool = False
    ) -> None:
        """Stage thread, when a frame is done. ``plan`` where its bytes crossed a link; ``copies`` as executors say.

        ``stays``: the result did not cross it.
        """
        times, captured_ns = frame.times, frame.capture.captured_ns
        self.processed += 1
        self.rate.tick(times.done_ns)
        self.newest = Newest(frame.sequence, captured_ns, frame.capture.copied_bytes + sum(copies.values()))
        if plan is not None:
            self.link_bytes_in += plan.link_bytes_in
            self.link_bytes_out += 0 if stays else plan.link_bytes_out
        for path, nbytes in copies.items():
            self.moved_bytes[path] = self.moved_bytes.get(path, 0) + nbytes
        self.queue.record(times.picked_ns - times.published_ns)
        frame.warmup = warmup
        self.recent.add(frame)
        if warmup:
            self.warmup_frames += 1
            return
        self.process.record(times.done_ns - times.picked_ns)
        self.total.record(times.done_ns - captured_ns)
        if times.gpu_ns:
            self.gpu.record(times.gpu_ns)

    def latency(self) -> dict[str, HistogramSnapshot]:
        """By stage; ``gpu`` only where the device tells."""
        shown = {
            "capture": self.capture.snapshot(),
            "queue": self.queue.snapshot(),
            "process": self.process.snapshot(),
            "gpu": self.gpu.snapshot(),
            "total": self.total.snapshot(),
        }
        return {stage: snapshot for stage, snapshot in shown.items() if stage != "gpu" or snapshot.count}
