"""Copies of a frame between host memory and the device in bands of rows, on streams of their own.

While a band arrives the passes work on the one before, and the one before that leaves: both copy engines and the
multiprocessors are busy. Every copy and kernel only waits for what was submitted before it, so nothing can dead-lock,
however many streams share a hardware queue and whatever else the device runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels import cuda_events
from kernels.crossing import band_rows
from kernels.cuda_block import Rows
from kernels.driver_calls import wait_for_word, write_word
from kernels.image import ImageView
from kernels.plan import Plan

if TYPE_CHECKING:
    from cupy.cuda import Stream

Allocate = Callable[[int], int]  # bytes → the address of that much device memory


class Arrivals:
    """Brings source pictures to device memory, at ``address``; ``flags`` say how far, one word a band.

    The words are written on a stream of their own, behind an event for each band: in the stream of the copies each
    would hold the next band up by some 9 µs (measured: kernels/TUNING.md).
    """

    def __init__(self, plan: Plan, bands: int, allocate: Allocate) -> None:
        from cupy.cuda import Event, Stream, runtime

        source = plan.source
        self.stream: Stream = Stream(non_blocking=True)
        self._marks: Stream = Stream(non_blocking=True)
        self.address = allocate(source.nbytes)
        self.rows = band_rows(source.height, bands)
        self._runs = [_runs(plan, top, self.rows) for top in range(0, source.height, self.rows)]
        self.nbytes = sum(nbytes for runs in self._runs for _, nbytes in runs)  # of a frame, padding included
        self._arrived = [Event(disable_timing=True) for _ in self._runs]
        self._awaited = plan.awaits_source
        self.flags = 0
        if self._awaited:
            nbytes = 4 * len(self._runs)
            self.flags = allocate(nbytes)
            runtime.memsetAsync(self.flags, 0, nbytes, self.stream.ptr)
        self._copy, self._kind = runtime.memcpyAsync, runtime.memcpyHostToDevice

    def bring(self, source: ImageView, number: int, consumer: Stream) -> None:
        """Submit the copies of frame ``number`` (mod 2^32); ``consumer`` is the stream whose next kernel reads them."""
        stream, host = self.stream.ptr, source.address
        for band, runs in enumerate(self._runs):
            for offset, nbytes in runs:
                self._copy(self.address + offset, host + offset, nbytes, self._kind, stream)
            arrived = self._arrived[band]
            cuda_events.record(arrived, self.stream)
            if self._awaited:
                self._marks.wait_event(arrived)
                write_word(self._marks.ptr, self.flags + 4 * band, number)
            else:
                consumer.wait_event(arrived)


def _runs(plan: Plan, top: int, rows: int) -> list[tuple[int, int]]:
    """Offset and length of what rows ``top`` to ``top + rows`` take in each plane; ``top`` is even."""
    source = plan.source
    runs = []
    for layout, offset, stride in zip(source.format.planes, source.offsets, source.strides, strict=True):
        first = top // layout.y_step
        last = min(layout.rows(source.height), (top + rows) // layout.y_step)
        runs.append((offset + first * stride, (last - first) * stride))
    return runs


class Departures:
    """Takes results from device memory, once the passes have made them.

    Packed pictures leave in bands of ``rows``, from the last picture of the plan; results with planes as a whole, from
    ``result``.
    """

    def __init__(self, plan: Plan, bands: int, picture: tuple[int, Rows] | None, allocate: Allocate) -> None:
        """``picture``: where the last picture lies in device memory, and how its rows are handed over."""
        from cupy.cuda import Event, Stream, runtime

        self.stream: Stream = Stream(non_blocking=True)
        # Waits on a stream of its own, so that the next band's is over before the copy of this one is.
        self._waits: Stream = Stream(non_blocking=True)
        self.end = Event(disable_timing=True)
        self._made = Event(disable_timing=True)
        self._runtime = runtime
        self._spec = spec = plan.result
        self.nbytes = spec.nbytes
        self.result = 0
        if picture is None:
            self.result, self.rows = allocate(spec.nbytes), spec.height
            self._bands = [_Band(0, self.result, spec.nbytes, spec.nbytes, 1, 0, 0)]
            return
        address, made = picture
        pitch, packed = plan.pictures[-1].strides[0], spec.strides[0]
        self.rows = band_rows(spec.height, bands)
        self._bands = []
        for number, top in enumerate(range(0, spec.height, self.rows)):
            rows = min(self.rows, spec.height - top)
            counter = made.finished + 4 * number if bands > 1 else 0
            at = address + top * pitch
            self._bands.append(_Band(top * packed, at, pitch, packed, rows, counter, rows * made.across))
        self._ready = [Event(disable_timing=True) for _ in self._bands]

    def take(self, result: ImageView, number: int, maker: Stream) -> None:
        """Submit the copies of frame ``number``, whose kernel was launched on ``maker``."""
        stream, runtime = self.stream, self._runtime
        host = result.address + self._spec.offsets[0]
        for index, band in enumerate(self._bands):
            if band.counter:
                wait_for_word(self._waits.ptr, band.counter, band.count * number % 2**32)
                cuda_events.record(self._ready[index], self._waits)
                stream.wait_event(self._ready[index])
            else:
                cuda_events.record(self._made, maker)
                stream.wait_event(self._made)
            to, kind = host + band.offset, runtime.memcpyDeviceToHost
            if band.pitch == band.row_bytes:
                runtime.memcpyAsync(to, band.address, band.rows * band.pitch, kind, stream.ptr)
            else:
                row_bytes = band.row_bytes
                runtime.memcpy2DAsync(to, row_bytes, band.address, band.pitch, row_bytes, band.rows, kind, stream.ptr)
        cuda_events.record(self.end, stream)


@dataclass(frozen=True, slots=True)
class _Band:
    """Rows that leave together: where they come to lie, where they are, and the word that says that they are made."""

    offset: int  # in the result
    address: int
    pitch: int
    row_bytes: int
    rows: int
    counter: int  # 0: once the kernel is over
    count: int  # that the counter grows by with each frame
