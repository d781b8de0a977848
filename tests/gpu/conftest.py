"""One CUDA context for the whole run, made before anything is counted."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def cuda() -> None:
    """The context and what the driver keeps open for it, so that no single test is blamed for it."""
    from cupy.cuda import Event, Stream, runtime

    runtime.setDevice(0)
    stream = Stream(non_blocking=True)
    done = Event(block=True)
    done.record(stream)
    done.synchronize()
