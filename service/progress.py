"""How far a benchmark is: a bar on a terminal, nothing at all in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click


@contextmanager
def progress(steps: int, stream: TextIO | None = None) -> Iterator[Callable[[str], None]]:
    """Call what this gives before each of ``steps`` with what comes; it is drawn on ``stream`` (standard error)."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield lambda text: None
        return
    with click.progressbar(
        length=steps, file=stream, width=24, show_eta=False, item_show_func=lambda text: text or ""
    ) as bar:
        yield lambda text: bar.update(1, text)
