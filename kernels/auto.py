"""``memory: auto``: times the ways a plan's frames can cross between host and device, and takes the fastest.

The answer is kept on disk by device, driver, plan and sizes: the next start of the same chain measures nothing.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.codegen import generate
from kernels.compiler import cache_folder
from kernels.crossing import IN_PLACE, Crossing, bands
from kernels.image import AnyView, DeviceView, ImageView
from kernels.op import OpParams
from kernels.plan import Plan, result_nbytes

if TYPE_CHECKING:
    from kernels.device import CudaDevice, WaitMode
    from kernels.run_cuda import CudaExecutor

_log = logging.getLogger("pinhole.auto")

ROUNDS = 25
WARM_UP = 5
LEAST_BYTES = 512 << 10  # of a band that is tried
# In place needs no copy engine and no scratch: something else has to be faster by this much.
WORTH = 0.98


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and from what: microseconds of a frame, median, by how it crosses; and when."""

    crossing: Crossing
    microseconds: dict[str, float]
    date: str

    def describe(self) -> dict[str, Any]:
        """For state and logs."""
        return {
            "chosen": str(self.crossing),
            "into": self.crossing.into,
            "out": self.crossing.out,
            "microseconds": self.microseconds,
            "date": self.date,
        }


def candidates(plan: Plan, waits_for_words: bool, leaves: bool = True) -> list[Crossing]:
    """In place first; then copies into, out of, and both, as a whole and, where streams can wait, in bands.

    Where no result ``leaves`` the device, those into it alone.
    """

    def counts(nbytes: int) -> list[int]:
        wanted = (1, 4, 8, 12) if waits_for_words else (1,)
        return sorted({bands(nbytes, most, LEAST_BYTES) for most in wanted})

    into, out = counts(plan.link_bytes_in), counts(plan.link_bytes_out)
    if not leaves:
        return [IN_PLACE, *(Crossing(n, 0) for n in into)]
    both = [Crossing(a, b) for a, b in zip(into, out, strict=False)]
    return [IN_PLACE, *(Crossing(n, 0) for n in into), *(Crossing(0, n) for n in out), *both]


def fastest(times: Sequence[tuple[Crossing, Sequence[float]]]) -> tuple[Crossing, dict[str, float]]:
    """The one of the least median, or the first if none is much faster; all medians by name, rounded to 0.1."""
    medians = [(crossing, statistics.median(taken)) for crossing, taken in times]
    best, least = min(medians, key=lambda pair: pair[1])
    first, taken = medians[0]
    chosen = best if least < taken * WORTH else first
    return chosen, {str(crossing): round(median, 1) for crossing, median in medians}


def make_fastest(device: CudaDevice, plan: Plan, wait: WaitMode) -> CudaExecutor:
    """The executor that was, or is now measured to be, the fastest; its ``choice`` says why.

    Measuring blocks for as long as the compiler needs for a few texts, and some tens of milliseconds. Raises what
    making an executor raises for the way in place; another way that cannot be made is left out.
    """
    from kernels.run_cuda import CudaExecutor

    def make(crossing: Crossing) -> CudaExecutor:
        return CudaExecutor(device, plan, wait, crossing=crossing)

    path = _path(device, plan)
    choice = _read(path)
    if choice is None:
        choice = measure(device, plan, make)
        _write(path, choice)
        _log.info("%s: %s", plan.source.describe(), choice.describe())
    executor = make(choice.crossing)
    executor.choice = choice.describe()
    return executor


def measure(device: CudaDevice, plan: Plan, make: Callable[[Crossing], CudaExecutor]) -> Choice:
    """Frame by frame in turns, so that whatever else the machine does meets all of them."""
    from kernels.errors import PinholeError

    params: tuple[OpParams, ...] = tuple(op.Params() for op in plan.ops)
    with ExitStack() as stack:
        slot = device.allocate_slot(plan.source.nbytes)
        stack.callback(slot.close)
        made = device.allocate_result(result_nbytes(plan))
        stack.callback(made.close)
        for owner in (slot, made.host):
            owner.array[:] = 128
        source = ImageView(plan.source, slot.array, slot.dev_ptr)
        result: AnyView = ImageView(plan.result, made.host.array, made.host.dev_ptr)
        if made.device is not None:
            result = DeviceView(plan.result, made.device.ptr)
        running: list[tuple[Crossing, CudaExecutor, list[float]]] = []
        for crossing in candidates(plan, device.traits.waits_for_words, not device.holds_results):
            try:
                executor = make(crossing)
            except PinholeError as error:
                if crossing == IN_PLACE:
                    raise
                _log.warning("%s was left out: %s", crossing, error)
                continue
            stack.callback(executor.close)
            running.append((crossing, executor, []))
        for number in range(WARM_UP + ROUNDS):
            for _, executor, taken in running:
                began = time.perf_counter_ns()
                completion = executor.submit(source, result, params)
                completion.wait()
                if number >= WARM_UP:
                    taken.append((time.perf_counter_ns() - began) / 1e3)
                completion.gpu_ns()
    chosen, medians = fastest([(crossing, taken) for crossing, _, taken in running])
    return Choice(chosen, medians, datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))


def _path(device: CudaDevice, plan: Plan) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    key = (device.name, device.driver, generate(plan), repr(plan.source), repr(plan.result), repr(plan.pictures))
    named = repr((*key, "held") if device.holds_results else key)
    return folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.crossing.json"


def _read(path: Path | None) -> Choice | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path is not None else None
        return Choice(Crossing(**kept["crossing"]), dict(kept["microseconds"]), str(kept["date"])) if kept else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # not there, or damaged: measured again


def _write(path: Path | None, choice: Choice) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(asdict(choice), file)
        os.replace(file.name, path)
    except OSError as error:
        _log.warning("what was measured is not kept: %s", error)
