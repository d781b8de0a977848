from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kernels.chain import parse_chain
from tests.helpers.inprocess import Served, serving
from tests.helpers.server import SMALL_CARD
from tests.leaks import no_leaks

CHAIN = "gaussian_blur(ksize=5, sigma=1.5) | gamma(gamma=1.2)"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Two small test cards, ``one`` (NV12, with a chain) and ``two`` (BGR8, without), shared by a module's tests."""
    cameras = {"one": SMALL_CARD, "two": SMALL_CARD + "&format=BGR8"}
    with no_leaks(), serving(cameras, chains={"one": parse_chain(CHAIN)}) as served:
        yield served


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that set up logging as the service does."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("pinhole", "pinhole.serve", "uvicorn", "uvicorn.error", "asyncio", "aiortc", "aioice")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)
