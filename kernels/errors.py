"""One error class for each thing a caller can act on; the message says what, what was expected, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PinholeError(Exception):
    """Base of every error that Pinhole raises on purpose."""


class InputError(PinholeError):
    """A value that somebody gave is not acceptable; nothing was applied.

    ``field`` is the whole path of the value (``chain[1].params.ksize``), ``reason`` says what is wrong and
    ``allowed`` what is allowed ("" when ``reason`` already says it).
    """

    def __init__(self, field: str, reason: str, allowed: str = "") -> None:
        self.field = field
        self.reason = reason
        self.allowed = allowed
        super().__init__(f"{field}: {reason}" + (f"; allowed: {allowed}" if allowed else ""))


class UnknownNameError(InputError):
    """A name (op, format, scheme, camera, parameter) that does not exist; says the nearest one that does.

    Where there is a nearest one, ``listing``, if given, stands for all that are ``known``: where to read of them.
    ``more`` is how others come to be known.
    """

    def __init__(
        self, field: str, kind: str, name: str, known: Iterable[str], *, listing: str = "", more: str = ""
    ) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        by_lower = {k.lower(): k for k in self.known}
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        hint = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
        allowed = listing if near and listing else ", ".join(self.known) or "none here"
        super().__init__(field, f"unknown {kind} {name!r}{hint}", f"{allowed}; {more}" if more else allowed)


class MemoryClosedError(PinholeError):
    """A buffer was used after its owner released it."""


class OutOfMemoryError(PinholeError):
    """Host or device memory ran out; says what was asked, what is free and what to lower."""

    def __init__(self, where: str, asked_bytes: int, free_bytes: int | None, remedy: str) -> None:
        self.where = where
        self.asked_bytes = asked_bytes
        self.free_bytes = free_bytes
        free = "an unknown amount" if free_bytes is None else f"{free_bytes / 1e6:.1f} MB"
        super().__init__(f"{where}: {asked_bytes / 1e6:.1f} MB were asked for and {free} is free; {remedy}")


class DeviceLostError(PinholeError):
    """The device cannot be used any more in this process: the service ends, to be started anew."""


class DeviceUnavailableError(PinholeError):
    """The device that was asked for explicitly is not there."""


class DeviceFailedError(PinholeError):
    """A CUDA call failed. ``sticky``: the context is lost and the process must be restarted."""

    def __init__(self, call: str, code: int, name: str, sticky: bool, advice: str) -> None:
        self.call = call
        self.code = code
        self.name = name
        self.sticky = sticky
        super().__init__(f"{call} failed with {name} ({code}); {advice}")


class CompileError(PinholeError):
    """CUDA text did not compile: one line of what and where, and the compiler's whole ``log``.

    ``op`` is the operation it came from (or "" for shared code); ``file`` and ``line`` where in it, "" and None where
    the compiler did not say; ``reason`` the first error in the compiler's words.
    """

    def __init__(self, op: str, log: str, *, reason: str = "", file: str = "", line: int | None = None) -> None:
        self.op = op
        self.log = log
        self.file = file
        self.line = line
        self.reason = reason or log
        place = "" if not file else f" ({file})" if line is None else f" ({file}:{line})"
        super().__init__(f"CUDA code of {op or 'the shared headers'} does not compile{place}: {self.reason}")
