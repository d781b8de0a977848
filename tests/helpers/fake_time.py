"""A clock for sources that only moves when somebody waits for it, or when the test says so."""

from __future__ import annotations

import pytest

from pipeline.sources.base import Source

START_NS = 1_000_000_000_000


class FakeTime:
    """Replaces the one clock that paces ``source``; ``waited_for`` are the times it waited for."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = START_NS
        self.waited_for: list[int] = []
        monkeypatch.setattr(source, "now_ns", lambda: self.now_ns)
        monkeypatch.setattr(source, "wait_until", self._wait_until)

    def _wait_until(self, due_ns: int) -> None:
        self.waited_for.append(due_ns)
        self.now_ns = max(self.now_ns, due_ns)
