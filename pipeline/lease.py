"""Leases: the right to write, process or read one slot."""

from __future__ import annotations

from types import TracebackType

from kernels.device import Completion
from kernels.errors import PinholeError
from kernels.image import ImageView
from pipeline.frame import Frame


class LeaseConsumedError(PinholeError):
    """A lease was used after it was given up."""


class ReadLease:
    """One finished frame, shared with other readers, read-only until :meth:`release`."""

    @property
    def frame(self) -> Frame:
        raise NotImplementedError

    @property
    def source(self) -> ImageView:
        raise NotImplementedError

    @property
    def result(self) -> ImageView:
        raise NotImplementedError

    def release(self, pending: Completion | None = None) -> None:
        raise NotImplementedError

    def __enter__(self) -> ReadLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
