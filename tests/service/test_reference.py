"""The reference says what the code does now."""

from __future__ import annotations

from pathlib import Path

from kernels.registry import all_ops
from pipeline.sources import all_sources
from service.reference import COMMAND, reference

PAGE = Path(__file__).parents[2] / "service" / "REFERENCE.md"


def test_the_reference_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), f"run `{COMMAND} > service/REFERENCE.md`"


def test_a_range_says_its_steps() -> None:
    assert "| `degrees` | integer, 0 to 270 ° in steps of 90 |" in reference()


def test_it_names_every_operation_and_source() -> None:
    text = reference()
    for name in all_ops():
        assert f"### `{name}`" in text
    for scheme in all_sources():
        assert f"### `{scheme}://`" in text
    assert "PUT /api/v1/cameras/{camera}/chain" in text
