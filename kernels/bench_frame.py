"""Times one camera frame through a chain in each memory strategy: the same work, only the memory differs.

Every strategy that :func:`kernels.device.open_device` offers is tried; what this machine does not have says why. A
frame is timed from submit to done, source and result in the strategy's own slots (:func:`kernels.bench.from_camera`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from kernels.bench import BY_HAND, WayFigures, from_camera, opencv_by_hand, percentile, time_frames
from kernels.bench_case import Case, NoEquivalentError, Ready
from kernels.device import Device, open_device
from kernels.errors import DeviceFailedError, DeviceUnavailableError, OutOfMemoryError

BASELINE = "pageable"  # ordinary memory and synchronous copies: where people start from

Open = Callable[[str], tuple[Device, str]]


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """``frames`` for each strategy and turn, ``runs`` turns; fewer frames where they would take over ``most_s``."""

    frames: int = 60
    runs: int = 3
    most_s: float = 0.12
    opencv: bool = True


@dataclass(slots=True)
class FrameCase:
    """A case's figures by strategy, and by hand in OpenCV."""

    case: Case
    ways: dict[str, WayFigures] = field(default_factory=dict)

    def p50_us(self, way: str) -> float | None:
        """The median over the turns, None if the way was not timed."""
        found = self.ways.get(way)
        return percentile(found.p50_us, 50) if found is not None and found.p50_us else None

    def p99_us(self, way: str) -> float | None:
        found = self.ways.get(way)
        return percentile(found.p99_us, 50) if found is not None and found.p99_us else None

    def saved_percent(self, way: str, over: str) -> float | None:
        """How much of ``over``'s time the way saves; None where either was not timed, or they are the same."""
        this, that = self.p50_us(way), self.p50_us(over)
        return None if this is None or that is None or way == over else 100 * (1 - this / that)

    def best(self) -> str | None:
        """The strategy with the least time; of those within 5 % of it, the one that is listed first."""
        times = {way: p50 for way in self.ways if way != BY_HAND and (p50 := self.p50_us(way)) is not None}
        least = min(times.values(), default=0.0)
        return next((way for way, p50 in times.items() if p50 <= 1.05 * least), None)


@dataclass(slots=True)
class FrameFigures:
    """What was measured so far. ``absent`` says by strategy why this machine does not have it."""

    cases: list[FrameCase]
    devices: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    failure: str = ""


class _Stopped(Exception):  # noqa: N818 - somebody asked for it
    """The rest is not measured."""


def measure_frames(
    cases: Sequence[Case],
    strategies: Sequence[str],
    options: FrameOptions,
    say: Callable[[str], object] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    open: Open = open_device,
) -> FrameFigures:
    """Every case in every strategy and in OpenCV by hand, turn by turn. Blocks for seconds to a minute.

    ``say`` hears of each way before it is timed, ``stop`` is asked before each. A strategy whose memory is not to be
    had for a case is left out there.
    """
    figures = FrameFigures([FrameCase(case) for case in cases])
    with _opened(figures, strategies, open) as devices:
        try:
            for _ in range(options.runs):
                for one in figures.cases:
                    ways: dict[str, Callable[[], Ready]] = {
                        name: partial(from_camera, device, one.case) for name, device in devices.items()
                    }
                    if options.opencv:
                        ways[BY_HAND] = partial(opencv_by_hand, one.case)
                    for name in (*strategies, BY_HAND):
                        if stop():
                            raise _Stopped
                        say(f"{one.case.source_text} {name}")
                        if name in ways:
                            _time(one, name, ways[name], options)
        except _Stopped:
            figures.interrupted = True
        except DeviceFailedError as error:
            figures.failure = str(error)
    return figures


@contextmanager
def _opened(figures: FrameFigures, strategies: Sequence[str], open: Open) -> Iterator[dict[str, Device]]:
    devices: dict[str, Device] = {}
    try:
        for name in strategies:
            try:
                devices[name], _ = open(name)
                figures.devices[name] = devices[name].name
            except (DeviceUnavailableError, DeviceFailedError) as error:
                figures.absent[name] = str(error)
        yield devices
    finally:
        for device in devices.values():
            device.close()


def _time(one: FrameCase, name: str, make: Callable[[], Ready], options: FrameOptions) -> None:
    figures = one.ways.setdefault(name, WayFigures())
    if figures.left_out:
        return
    try:
        ready = make()
    except NoEquivalentError as error:
        figures.left_out = f"nothing there for {error.what}"
        return
    except OutOfMemoryError as error:
        figures.left_out = str(error)
        return
    except DeviceFailedError as error:
        if error.sticky:
            raise
        figures.left_out = str(error)
        return
    try:
        taken = time_frames(ready, options.frames, options.most_s)
    finally:
        ready.close()
    figures.p50_us.append(percentile(taken, 50))
    figures.p99_us.append(percentile(taken, 99))
    figures.frames += len(taken)
