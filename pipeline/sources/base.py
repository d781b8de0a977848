"""What a source is: where frames come from. ONE FILE PER SOURCE: a settings model and a class, chosen by URI scheme.

A source belongs to its camera's capture thread: ``open``, ``read`` and ``close`` are only ever called there. The
one exception is ``interrupt``, which any thread may call at any time to make a blocked call return soon.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from kernels.errors import PinholeError
from kernels.image import ImageSpec, ImageView
from pipeline.frame import Capture


class SourceError(PinholeError):
    """The source cannot deliver now; the camera closes it and tries again with back-off."""


class SourceEnded(PinholeError):  # noqa: N818 - an end is not an error
    """The source is over (a file that does not loop); the camera goes to ``ended`` and keeps its last picture."""


class FrameCorrupt(PinholeError):  # noqa: N818
    """One frame is unusable; it is counted as a drop with ``reason`` and the source goes on."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class FormatChanged(PinholeError):  # noqa: N818
    """The source now delivers another size or format; the camera rebuilds its ring and reads again."""

    def __init__(self, format: SourceFormat) -> None:
        self.format = format
        super().__init__(f"the source changed to {format.image.describe()}")


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """How slots have to lie for a driver to write them itself, in ordinary pages that it can pin.

    ``spec``: where it puts the planes; ``nbytes``: what it may write from the slot's start on, at least the picture;
    ``queued``: how many slots it has at once, which the ring gets beside its own.
    """

    spec: ImageSpec
    nbytes: int
    queued: int = 0


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """What an open source delivers.

    ``image`` is the picture as the source means it (packed); slots may lay it out with other strides, ``layout`` says
    which where that matters. ``fps`` is the nominal rate, None if unknown. ``live`` sources lose what is not read in
    time (the ring keeps the newest); the others wait (the ring keeps all). ``details`` is for the camera's state: plain
    data, whose values, not keys, the source may change while it is open.
    """

    image: ImageSpec
    fps: float | None
    live: bool
    layout: SlotLayout | None = None
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)


class SourceConfig(BaseModel):
    """Base of a source's settings, parsed from its URI's query; unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class WriteSlot(Protocol):
    """A slot to fill: what a source sees of a write lease."""

    @property
    def view(self) -> ImageView: ...


class SlotProvider(Protocol):
    """Gives slots to a source. A driver's queue may hold several at once; each is returned exactly once."""

    def acquire(self) -> WriteSlot | None:
        """A free slot; None when there is none (a counted drop) or the camera stops. May block only for sources
        that are not live."""

    def publish(self, slot: WriteSlot, capture: Capture) -> None:
        """Hand over a filled slot; it may not be touched afterwards."""

    def give_back(self, slot: WriteSlot, reason: str | None = None) -> None:
        """Return a slot unused; ``reason`` counts it as a dropped frame."""

    def lost(self, reason: str, count: int = 1) -> None:
        """Count frames that never came as dropped."""


class Source(ABC):
    """One place where frames come from. See the module's docstring for threads.

    ``scheme`` is the URI scheme; ``Config`` its settings; ``example`` a URI for help texts; ``location`` what stands
    between ``://`` and ``?``: nothing, the absolute path of a file or folder here, a host with an optional path, or a
    device: a number, an absolute path, or nothing and the setting ``name``.
    """

    scheme: ClassVar[str]
    Config: ClassVar[type[SourceConfig]]
    example: ClassVar[str]
    location: ClassVar[Literal["nothing", "path", "host", "device"]] = "nothing"

    def __init__(self, uri: str, config: Any) -> None:
        self.uri = uri
        self.config = config
        self._interrupted = threading.Event()

    @classmethod
    def unavailable(cls) -> str | None:
        """Why no source of this kind can be used here (a library is missing, and how to get it); None if one can."""
        return None

    @classmethod
    def devices(cls) -> list[dict[str, Any]]:
        """What there is of this kind on this machine now: JSON, each with a ``uri``; may take a second. Any thread."""
        return []

    def check(self, field: str = "uri") -> None:
        """Raise InputError on ``field`` for what is wrong now and would only fail in ``open``, e.g. a missing file.

        For commands and requests that should say so at once; any thread, before ``open``; may read the disk.
        """

    @abstractmethod
    def open(self) -> SourceFormat:
        """Start delivering; may be called again after ``close``.

        Raises:
            SourceError: not now (absent, busy, refused); the message says what to do.
        """

    @abstractmethod
    def fill(self, view: ImageView) -> Capture:
        """Wait for the next frame and write all of its pixels through ``view.planes``; blocks.

        Raises:
            SourceEnded, SourceError, FrameCorrupt, FormatChanged
        """

    def skip(self) -> None:
        """Take the next frame off the source without keeping it, as no slot is free; blocks like ``fill``."""

    def read(self, slots: SlotProvider) -> None:
        """Move one frame from the source into a slot. Sources whose driver writes the slots override this."""
        slot = slots.acquire()
        if slot is None:
            self.skip()
            return
        try:
            capture = self.fill(slot.view)
        except FrameCorrupt as error:
            slots.give_back(slot, error.reason)
            raise
        except BaseException:
            slots.give_back(slot)
            raise
        slots.publish(slot, capture)

    def interrupt(self) -> None:
        """Make a blocked ``open`` or ``fill`` raise SourceError soon. Any thread; stays set until ``open``."""
        self._interrupted.set()

    @abstractmethod
    def close(self) -> None:
        """Release everything; idempotent, also after a failed ``open``."""

    def follow(self, previous: Source) -> None:
        """Before ``open``: what a fresh source should know of the one before it in the same run, such as which device
        it was. That one is closed."""

    def returned(self) -> bool:
        """Asked now and then while the camera waits to try again: is there something new worth trying at once?

        Of the closed source, in the capture thread; never blocks.
        """
        return False

    def now_ns(self) -> int:
        """``time.monotonic_ns()``; with ``wait_until`` the only clock that paces, so that tests can replace both."""
        return time.monotonic_ns()

    def wait_until(self, due_ns: int) -> None:
        """Sleep until ``now_ns()`` reaches ``due_ns``.

        Raises:
            SourceError: ``interrupt`` was called.
        """
        if self._interrupted.wait(max(0, due_ns - self.now_ns()) / 1e9):
            raise SourceError("interrupted")
