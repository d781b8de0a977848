"""The last few things that a thread has noted, for whoever asks what happened just now."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Keeps the last ``size`` items. :meth:`add` from one thread only, :meth:`newest` from any; neither waits.

    Nothing is allocated by ``add``; the item stays alive until ``size`` newer ones have come.
    """

    __slots__ = ("_count", "_items", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._items: list[T | None] = [None] * size
        self._count = 0

    def add(self, item: T) -> None:
        self._items[self._count % self.size] = item
        self._count += 1

    def newest(self, count: int | None = None) -> list[T]:
        """The last ``count`` items (all that are kept, if None), oldest first.

        An item that comes while this copies may be left out, or take the oldest one's place.
        """
        end = self._count
        items = self._items.copy()  # one step under the interpreter's lock, and more than one would do no harm
        start = max(0, end - min(self.size, self.size if count is None else count))
        found = (items[at % self.size] for at in range(start, end))
        return [item for item in found if item is not None]
