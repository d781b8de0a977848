"""A bell: one thread waits for it burning its core without the GIL, and is there within a microsecond.

A thread that polls in Python needs the GIL for each look. While the thread that is about to publish holds it, the
poller falls asleep in the kernel, and on a virtual machine it takes some 40 µs to come back. A pthread spin lock is
waited for in C: nobody sleeps.
"""

from __future__ import annotations

import ctypes
import time

# CDLL lets the GIL go during a call, PyDLL keeps it: the waiter must not have it, and the ringer must not lose it.
_waiting = ctypes.CDLL(None)
_ringing = ctypes.PyDLL(None)


class Bell:
    """Rings for one waiter. Rings while nobody waits are kept, as one."""

    def __init__(self) -> None:
        self._lock = ctypes.c_int()
        self._address = ctypes.byref(self._lock)
        _ringing.pthread_spin_init(self._address, 0)
        _ringing.pthread_spin_lock(self._address)

    def wait(self) -> None:
        """Burn the core until the bell rings; at once if it has rung since the last time. Any rings are then over."""
        _waiting.pthread_spin_lock(self._address)

    def ring(self) -> None:
        """Wake the waiter. Any thread, never blocks."""
        _ringing.pthread_spin_unlock(self._address)

    def hand_over(self) -> None:
        """Wake the waiter and leave the GIL to it for some 60 µs, in which it takes over."""
        self.ring()
        time.sleep(0)
