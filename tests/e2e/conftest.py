from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.server import Server, serve


@pytest.fixture(scope="module")
def service() -> Iterator[Server]:
    """``pinhole serve`` with a card in colour, ``card`` at 640x360, and its small one, ``small``."""
    card, small = "card=testcard://?size=640x360&fps=30", "small=testcard://?size=352x128&fps=30&format=BGR8"
    with serve("--camera", card, "--camera", small, "--chain", "card=gamma(gamma=1.2)") as server:
        yield server
