"""Finds the threads and descriptors that a piece of code left behind."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class LeakError(AssertionError):
    """Something was left behind; ``threads`` and ``descriptors`` say what, in words."""

    def __init__(self, threads: tuple[str, ...], descriptors: tuple[str, ...]) -> None:
        self.threads = threads
        self.descriptors = descriptors
        super().__init__(f"left behind: threads {list(threads)}, descriptors {list(descriptors)}")


@dataclass(frozen=True, slots=True)
class Holdings:
    """The threads and descriptors of this process at one moment; descriptors by number with what they lead to."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> Holdings:
        return cls(frozenset(t for t in threading.enumerate() if t.is_alive()), frozenset(_descriptors()))

    def since(self, before: Holdings) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is here and was not before, in words: (threads, descriptors)."""
        threads = tuple(sorted(t.name for t in self.threads - before.threads))
        descriptors = tuple(sorted(f"{number} → {target}" for number, target in self.descriptors - before.descriptors))
        return threads, descriptors


def _descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the descriptor of this very listing is closed by now
            continue
        if not _belongs_to_cuda(target):
            yield int(name), target


def _belongs_to_cuda(target: str) -> bool:
    """CUDA opens its devices and event descriptors on first use and keeps them for the life of the process."""
    return target.startswith(("/dev/nvidia", "/dev/nvhost", "/dev/nvmap", "/dev/dri"))


@contextmanager
def no_leaks(grace_s: float = 2.0) -> Iterator[None]:
    """Check that the body leaves no thread and no descriptor; what is on its way out has ``grace_s`` to be gone.

    Raises:
        LeakError: something stayed. Not raised over an error of the body itself.
    """
    before = Holdings.now()
    yield
    deadline = time.monotonic() + grace_s
    while any(left := Holdings.now().since(before)):
        if time.monotonic() > deadline:
            raise LeakError(*left)
        gc.collect()  # a cycle may hold the last reference
        time.sleep(0.01)
