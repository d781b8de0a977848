"""What one camera is asked to be."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kernels.chain import Chain
from kernels.device import MEMORY_STRATEGIES, WaitMode
from kernels.errors import InputError

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
MIN_SLOTS, MAX_SLOTS = 4, 64
WAIT_MODES: tuple[WaitMode, ...] = ("auto", "block", "spin")


@dataclass(frozen=True, slots=True)
class CameraConfig:
    """A camera's name, source, first chain and ring. Checked when made; the URI is checked by the camera.

    ``wait`` is how the stage waits: "block" always asleep; "spin" with a CPU core while frames come, for the shortest
    wake-up; "auto" asleep for the next frame, and with a core for one that is on the GPU for 2 ms or less. A result
    older than ``stale_after_s`` makes the camera unready, and a live source silent for that long is reopened; slower
    sources have longer. ``memory`` is the strategy that its frames lie and move by; None is the engine's.

    Raises:
        InputError: names the field and what is allowed.
    """

    name: str
    uri: str
    chain: Chain = field(default_factory=Chain)
    slots: int = 6
    wait: WaitMode = "auto"
    stale_after_s: float = 3.0
    memory: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME_PATTERN.fullmatch(self.name):
            raise InputError("name", f"{str(self.name)[:80]!r} is not a name", "1 to 64 of A-Z a-z 0-9 _ -")
        if not isinstance(self.uri, str) or not self.uri:
            raise InputError("uri", "must say where frames come from", "scheme://…")
        if not isinstance(self.slots, int) or not MIN_SLOTS <= self.slots <= MAX_SLOTS:
            raise InputError("slots", f"{self.slots!r} is not a ring size", f"{MIN_SLOTS} to {MAX_SLOTS}")
        if self.wait not in WAIT_MODES:
            raise InputError("wait", f"unknown mode {self.wait!r}", ", ".join(WAIT_MODES))
        if self.memory not in (None, *MEMORY_STRATEGIES):
            raise InputError("memory", f"unknown strategy {self.memory!r}", ", ".join(MEMORY_STRATEGIES))
        if not (math.isfinite(self.stale_after_s) and 0.1 <= self.stale_after_s <= 3600):
            raise InputError("stale_after_s", f"{self.stale_after_s!r} is not a time", "0.1 to 3600 s")
