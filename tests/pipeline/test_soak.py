"""Very many frames through one ring while everything goes wrong that may: nothing is lost, torn or kept.

``SOAK_FRAMES=1000000 pytest tests/pipeline/test_soak.py`` is the long run (minutes); by default there are as many as
fit a quick suite.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import numpy as np

from kernels.chain import Chain, parse_chain
from kernels.device import Completion, NullDevice
from kernels.errors import DeviceFailedError, OutOfMemoryError
from kernels.formats import GRAY8
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.memory import HostMemory
from kernels.plan import make_plan, result_nbytes, slot_source_spec
from pipeline.ring import Keep, Ring
from tests.pipeline.fakes import frame, held, settled

FRAMES = int(os.environ.get("SOAK_FRAMES", "20000"))
SPEC = slot_source_spec(ImageSpec.make(GRAY8, 64, 16))
SIZES = (64, 640, 2000, 33)  # of results: a chain that changes their size, now larger, now smaller
FAILED = DeviceFailedError("cudaEventSynchronize", 999, "cudaErrorUnknown", False, "see the documentation")


def write_number(picture: Pixels, number: int) -> None:
    """At both ends, at two times."""
    numbers = picture[: picture.size // 8 * 8].view(np.int64)
    numbers[0] = number
    time.sleep(0)
    numbers[-1] = number


def read_number(picture: Pixels) -> tuple[int, int]:
    numbers = picture[: picture.size // 8 * 8].view(np.int64)
    first = int(numbers[0])
    time.sleep(0)
    return first, int(numbers[-1])


class Soak:
    """A writer, a stage, two readers and somebody who changes the chain, each a thread with a seed of its own."""

    def __init__(self) -> None:
        self.device = NullDevice()
        self._allocate = self.device.allocate_slot
        self._short = random.Random(1)
        self.device.allocate_slot = self.allocate  # type: ignore[method-assign]
        self.plans = [make_plan(parse_chain(f"resize(width={width}, height=16)"), SPEC) for width in SIZES]
        self.tally_before = held(self.device)
        self.short = False
        self.ring = Ring(self.device, SPEC, slots=6, keep=Keep.NEWEST, plan=make_plan(Chain(), SPEC))
        self.over = threading.Event()
        self.plan = self.plans[0]
        self.count: Counter[str] = Counter()
        self.wrong: list[object] = []

    def allocate(self, nbytes: int) -> HostMemory:
        if self.short and self._short.random() < 0.3:
            raise OutOfMemoryError("host memory", nbytes, 0, "lower the ring")
        return self._allocate(nbytes)

    def write(self) -> None:
        chance = random.Random(2)
        for number in range(FRAMES):
            lease = self.ring.acquire_write()
            if lease is None:
                self.count["no slot"] += 1
                continue
            write_number(lease.view.buffer, number)
            if chance.random() < 0.01:
                lease.give_back("corrupt")
                self.count["given back"] += 1
                continue
            lease.publish(frame(number))
            self.count["published"] += 1
            if chance.random() < 0.001:
                time.sleep(0.002)  # the camera stalls
            elif number % 4 == 0:
                time.sleep(0)

    def process(self) -> None:
        chance = random.Random(3)
        while not (self.over.is_set() and self.ring.statistics().ready == 0):
            lease = self.ring.acquire_ready(0.01)
            if lease is None:
                continue
            number = lease.frame.sequence
            try:
                result = lease.result(self.plan)
            except OutOfMemoryError:
                lease.abandon("memory")
                self.count["out of memory"] += 1
                continue
            kind = chance.random()
            if kind < 0.005:
                lease.abandon("device", _Failed())
                self.count["failed"] += 1
                continue
            self._compute(lease.source, result, number)
            if kind < 0.006:
                time.sleep(0.002)  # the device stalls
            lease.finish(_Done())
            self.count["processed"] += 1

    def _compute(self, source: ImageView, result: ImageView, number: int) -> None:
        first, last = read_number(source.buffer)
        if (first, last) != (number, number):
            self.wrong.append(("source", number, first, last))
        write_number(result.buffer[: result.spec.nbytes], first)

    def read(self, seed: int) -> None:
        chance, seen = random.Random(seed), -1
        while not self.over.is_set():
            lease = self.ring.wait_newer(seen, 0.01)
            if lease is None:
                continue
            with lease:
                number = lease.frame.sequence
                found = read_number(lease.result.buffer[: lease.result.spec.nbytes])
                if number <= seen or found != (number, number):
                    self.wrong.append(("result", number, seen, *found))
                if chance.random() < 0.002:
                    time.sleep(0.005)  # the reader stalls, and holds its frame
                seen = number
            self.count[f"read by {seed}"] += 1

    def change(self) -> None:
        chance = random.Random(4)
        while not self.over.wait(0.005):
            plan = chance.choice(self.plans)
            self.short = chance.random() < 0.3
            try:
                self.ring.reserve(plan)
                self.plan = plan
                self.count["changed"] += 1
            except OutOfMemoryError:
                self.count["refused"] += 1
            self.short = False


class _Done:
    def done(self) -> bool:
        return True

    def wait(self) -> None: ...

    def gpu_ns(self) -> int | None:
        return None


class _Failed(_Done):
    def done(self) -> bool:
        raise FAILED


_: Completion = _Done()


def test_a_million_frames_lose_tear_and_keep_nothing() -> None:
    soak = Soak()
    bodies = [soak.write, soak.process, lambda: soak.read(5), lambda: soak.read(6), soak.change]
    threads = [threading.Thread(target=body, name=f"soak-{number}") for number, body in enumerate(bodies)]
    for thread in threads:
        thread.start()
    threads[0].join()
    soak.over.set()
    for thread in threads[1:]:
        thread.join(30)
        assert not thread.is_alive()
    assert soak.wrong == []
    settled(soak.ring)
    ring, count, drops = soak.ring.statistics(), soak.count, soak.ring.drops
    assert ring.slots == 6
    assert ring.nbytes == held(soak.device)
    assert ring.nbytes <= 6 * (SPEC.nbytes + 2 * max(result_nbytes(plan) for plan in soak.plans))
    # Every frame has one end.
    assert count["published"] + count["given back"] + count["no slot"] == FRAMES
    lost = drops.get("overrun", 0) + drops.get("device", 0) + drops.get("memory", 0) + drops.get("stale", 0)
    assert count["published"] == count["processed"] + lost
    assert drops.get("device", 0) == count["failed"]
    assert drops.get("memory", 0) == count["out of memory"]
    # All of it came to pass.
    for what in ("processed", "read by 5", "read by 6", "changed", "failed", "given back"):
        assert count[what] > 0, (what, count)
    assert soak.ring.close(1)
    assert held(soak.device) == soak.tally_before == 0
