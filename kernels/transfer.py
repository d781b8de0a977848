"""Times the ways of :mod:`kernels.transfer_plan`, each proven by a pattern of bytes before it is timed.

What allocates and moves is behind :class:`Machine` (kernels/transfer_cuda.py, kernels/transfer_host.py), so that the
order, the limits and the end by Ctrl-C are tested without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernels.bench import percentile
from kernels.errors import DeviceFailedError, OutOfMemoryError
from kernels.image import Pixels
from kernels.transfer_plan import Direction, Memory, Room, Way, holdings, refusal, size_text

POISON = 0xA5
PERIOD = 1_048_573  # a prime: no page, line or stream's share starts with the same bytes as another


class Pattern:
    """Bytes that tell where they belong: ``PERIOD`` random ones, over and over; another ``seed``, other bytes."""

    def __init__(self, seed: int) -> None:
        once = np.random.default_rng(seed).integers(0, 256, PERIOD, np.uint8)
        self._twice = np.concatenate((once, once))

    def at(self, start: int, nbytes: int) -> Pixels:
        """The bytes from ``start`` on, at most ``PERIOD`` of them, as a view."""
        first = start % PERIOD
        return self._twice[first : first + nbytes]

    def fill(self, target: Pixels, start: int = 0) -> None:
        """Write the pattern over all of (nbytes,) ``target``, whose first byte is number ``start``."""
        for offset in range(0, target.nbytes, PERIOD):
            part = target[offset : offset + PERIOD]
            part[:] = self.at(start + offset, part.nbytes)

    def first_wrong(self, found: Pixels, start: int = 0) -> int | None:
        """The number of the first byte that is not as the pattern has it, None if all are."""
        for offset in range(0, found.nbytes, PERIOD):
            part = found[offset : offset + PERIOD]
            expected = self.at(start + offset, part.nbytes)
            if not np.array_equal(part, expected):
                return start + offset + int(np.flatnonzero(part != expected)[0])
        return None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A way that is ready for one size.

    ``run`` moves all bytes and returns when they are there; ``prepare`` puts contents and pages where they are to be
    before each run, behind the clock. ``spoil`` overwrites the target; ``first_wrong`` is the number of the first byte
    that did not arrive, None if all did.
    """

    run: Callable[[], object]
    spoil: Callable[[], object]
    first_wrong: Callable[[], int | None]
    prepare: Callable[[], object] = lambda: None


class Hold(Protocol):
    """Memory of one kind and size. ``setup_s``: how long allocating or registering the host's part took."""

    setup_s: float

    def transfer(self, way: Way) -> Transfer: ...


@dataclass(frozen=True, slots=True)
class Peak:
    """GB/s of long copies by the copy engines, pinned, by events: what the link gives at most; ``both``: each way."""

    in_gb_s: float
    out_gb_s: float
    both_gb_s: float

    def of(self, direction: Direction) -> float | None:
        return {"in": self.in_gb_s, "out": self.out_gb_s, "both": self.both_gb_s}.get(direction)


class Machine(Protocol):
    """What can be measured. One thread. Whatever it holds, it gives back when the context ends, however it ends."""

    @property
    def ways(self) -> Sequence[Way]: ...

    def room(self) -> Room:
        """What may be taken now."""

    def hold(self, memory: Memory, nbytes: int, paired: bool) -> AbstractContextManager[Hold]:
        """Raises OutOfMemoryError, DeviceFailedError."""

    def peak(self) -> Peak | None:
        """None where there is no link, or no room to measure it."""


@dataclass(frozen=True, slots=True)
class Options:
    """``repeat`` runs for each way and size, fewer but ``least`` where they would take over ``most_s``.

    ``peak``: whether the link's is measured too.
    """

    repeat: int = 30
    most_s: float = 0.2
    least: int = 3
    peak: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A way's times for one size; its bytes were checked once, before the first of them."""

    way: Way
    nbytes: int
    runs_s: tuple[float, ...]
    setup_s: float

    @property
    def p50_s(self) -> float:
        return percentile(self.runs_s, 50)

    @property
    def gb_s(self) -> float:
        """For both directions at once: each way."""
        return self.nbytes / self.p50_s / 1e9


@dataclass(frozen=True, slots=True)
class Skipped:
    """A way that was not timed for a size. ``broken``: it should have worked, and bytes or calls went wrong."""

    way: Way
    nbytes: int
    reason: str
    broken: bool = False


@dataclass(slots=True)
class Figures:
    """What was measured so far. ``interrupted`` and ``failure`` say why it is not everything."""

    results: list[Result] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    peak: Peak | None = None
    interrupted: bool = False
    failure: str = ""

    def baseline(self, result: Result) -> Result | None:
        """What ``result`` is compared with: the same bytes by the baseline of its direction."""
        for one in self.results:
            if (one.nbytes, one.way.direction) == (result.nbytes, result.way.direction) and one.way.is_baseline:
                return one
        return None

    def saved_percent(self, result: Result) -> float | None:
        """How much of the baseline's time the way saves; negative where it is slower."""
        baseline = self.baseline(result)
        return None if baseline is None else 100 * (1 - result.p50_s / baseline.p50_s)

    def peak_percent(self, result: Result) -> float | None:
        """Of the link's peak of the same run."""
        peak = None if self.peak is None else self.peak.of(result.way.direction)
        return 100 * result.gb_s / peak if peak else None


class _Stopped(Exception):  # noqa: N818 - somebody asked for it
    """The rest is not measured."""


def measure(
    machines: Sequence[Machine],
    sizes: Sequence[int],
    options: Options,
    say: Callable[[str], object] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
    wanted: Callable[[Way], bool] = lambda way: True,
) -> Figures:
    """All wanted ways of all machines for all sizes, one holding of memory at a time.

    Blocks for seconds to a minute; ``say`` hears of each way before it is measured, ``stop`` is asked between runs. A
    way that does not fit, or whose memory is not to be had, is skipped with the reason; the others go on.
    """
    figures = Figures()
    run = _Run(figures, options, say, stop, clock)
    try:
        for machine in machines if options.peak else ():
            run.check()
            with suppress(OutOfMemoryError):  # somebody took it meanwhile: no fractions then
                figures.peak = figures.peak or machine.peak()
        for nbytes in sizes:
            for machine in machines:
                for memory, paired, ways in holdings([way for way in machine.ways if wanted(way)]):
                    run.holding(machine, memory, paired, ways, nbytes)
    except _Stopped:
        figures.interrupted = True
    except DeviceFailedError as error:
        figures.failure = str(error)
    return figures


@dataclass(frozen=True, slots=True)
class _Run:
    figures: Figures
    options: Options
    say: Callable[[str], object]
    stop: Callable[[], bool]
    clock: Callable[[], float]

    def check(self) -> None:
        if self.stop():
            raise _Stopped

    def holding(self, machine: Machine, memory: Memory, paired: bool, ways: Sequence[Way], nbytes: int) -> None:
        self.check()
        room = machine.room()
        fitting = []
        for way in ways:
            if (reason := refusal(way, nbytes, room)) is None:
                fitting.append(way)
            else:
                self.say(f"{size_text(nbytes)} {way.name}")
                self.figures.skipped.append(Skipped(way, nbytes, reason))
        if not fitting:
            return
        done = 0
        try:
            with machine.hold(memory, nbytes, paired) as held:
                for way in fitting:
                    self.say(f"{size_text(nbytes)} {way.name}")
                    self.way(held, way, nbytes)
                    done += 1
        except OutOfMemoryError as error:
            self.figures.skipped += [Skipped(way, nbytes, str(error)) for way in fitting[done:]]
        except DeviceFailedError as error:
            self.figures.skipped += [Skipped(way, nbytes, str(error), broken=True) for way in fitting[done:]]
            if error.sticky:
                raise

    def way(self, held: Hold, way: Way, nbytes: int) -> None:
        self.check()
        transfer = held.transfer(way)
        transfer.spoil()
        transfer.prepare()
        transfer.run()
        if (wrong := transfer.first_wrong()) is not None:
            reason = f"byte {wrong} of {nbytes} did not arrive"
            self.figures.skipped.append(Skipped(way, nbytes, reason, broken=True))
            return
        taken: list[float] = []
        began = self.clock()
        try:
            while len(taken) < self.options.repeat:
                self.check()
                if len(taken) >= self.options.least and self.clock() - began > self.options.most_s:
                    break
                transfer.prepare()
                before = self.clock()
                transfer.run()
                taken.append(self.clock() - before)
        finally:
            if taken:
                self.figures.results.append(Result(way, nbytes, tuple(taken), held.setup_s))
