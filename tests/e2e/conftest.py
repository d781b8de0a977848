from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers.chromium import chromium
from tests.helpers.server import Server, serve
from tests.leaks import no_leaks

if TYPE_CHECKING:  # not installed everywhere
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the module; asyncio is this thread's until it ends (see chromium)."""
    with no_leaks(grace_s=5), chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def service() -> Iterator[Server]:
    """``pinhole serve`` with a card in colour, ``card`` at 640x360, and its small one, ``small``."""
    card, small = "card=testcard://?size=640x360&fps=30", "small=testcard://?size=352x128&fps=30&format=BGR8"
    with serve("--camera", card, "--camera", small, "--chain", "card=gamma(gamma=1.2)") as server:
        yield server
