"""The catalogue of ops says what is: its text, its pictures, and where each formula is from."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from kernels.op import OpKind, OpParams
from kernels.params import FROM_LIST, Color
from kernels.registry import AnyOp, all_ops
from tests.kernels.catalogue import FUSION, PAGE, catalogue, paragraphs, parameter_table
from tests.kernels.catalogue_pictures import (
    EXAMPLES,
    FOLDER,
    PHOTOGRAPH,
    decoded,
    encoded,
    looks_like,
    pictures,
    read,
    through,
)

SOURCE = re.compile(r"OpenCV|cv2\.|NumPy|FFmpeg|BT\.601|Source:|\b(?:19|20)\d\d\b")
FORMULA = re.compile(r"[=Σ⌊·→]|>>|\w [<>] \w|min\(|\|[^|]+\|")


def test_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue(), "run python -m tests.kernels.catalogue"


def test_pictures_are_what_the_ops_make_now() -> None:
    made = dict(pictures(list(all_ops().values())))
    assert {path.stem for path in FOLDER.glob("*.jpg")} == {PHOTOGRAPH.file, *made}
    unlike = [name for name, picture in made.items() if not looks_like(read(name), picture)]
    assert unlike == [], "run python -m tests.kernels.catalogue, and look at what it made"


def test_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"[\"(]((?:pictures|\.\.)/[^\")]+)[\")]", PAGE.read_text(encoding="utf-8")))
    assert "pictures/sobel.jpg" in named
    assert [name for name in sorted(named) if not (PAGE.parent / name).is_file()] == []


def test_another_picture_is_not_taken_for_it() -> None:
    photograph = read(PHOTOGRAPH.file)
    assert looks_like(decoded(encoded(photograph)), photograph)
    assert not looks_like(photograph[:, :-1], photograph)
    assert not looks_like(photograph[..., 0], photograph)
    assert not looks_like(np.roll(photograph, 1, axis=1), photograph)
    assert not looks_like(through("gaussian_blur(ksize=9)", [photograph]), read("gaussian_blur"))
    assert not looks_like(through("gain_offset(gain=1.49, offset=-60)", [photograph]), read("gain_offset"))
    assert not looks_like(np.clip(photograph.astype(int) + 2, 0, 255).astype(np.uint8), photograph)


@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
def test_docstring_has_a_formula_and_says_where_it_is_from(op: AnyOp) -> None:
    text = type(op).__doc__ or ""
    assert FORMULA.search(text), f"{op.name}: no formula"
    assert SOURCE.search(text), f"{op.name}: no source"


class TellingParams(OpParams):
    mode: Literal["a", "b"] = Field(default="a", description="One | the other.")
    color: Color = "#102030"
    width: int = Field(default=3, ge=1, le=9, json_schema_extra={"x-unit": "px", "x-step": 2})
    pairs: Annotated[tuple[Annotated[tuple[float, ...], Field(min_length=2, max_length=2)], ...], FROM_LIST] = ()
    triple: Annotated[tuple[int, ...], Field(min_length=1, max_length=3), FROM_LIST] = (1,)
    few: Annotated[tuple[Color, ...], Field(max_length=2), FROM_LIST] = ()
    on: bool = True
    text: str = Field(default="x", max_length=7)


def test_parameters_are_told_as_chain_text_takes_them() -> None:
    rows = parameter_table(TellingParams.model_json_schema()).split("\n")[2:]
    assert rows == [
        r'| `mode` | one of | `"a"` | `a`, `b` |  | One \| the other. |',
        '| `color` | colour | `"#102030"` | `#rrggbb` |  |  |',
        "| `width` | integer | `3` | 1 to 9 in steps of 2 | px |  |",
        "| `pairs` | list of 0 or more: list of 2: number | `[]` |  |  |  |",
        "| `triple` | list of 1 to 3: integer | `[1]` |  |  |  |",
        "| `few` | list of up to 2: colour | `[]` | `#rrggbb` |  |  |",
        "| `on` | boolean | `True` |  |  |  |",
        '| `text` | string | `"x"` | up to 7 characters |  |  |',
    ]
    assert parameter_table(OpParams.model_json_schema()) == "No parameters."


def test_docstrings_keep_their_paragraphs_and_the_line_ends_that_are_meant() -> None:
    filled = "a line that is as long as one can be, so that the next word would not have fitted behind it at all, not"
    text = f"""Promise.

    One thing, a*b < c:
    {filled}
    at all. Another thing.
    A third.

    The end
    of it.
    """
    assert list(paragraphs(text)) == [
        "**Promise.**",
        f"One thing, a\\*b &lt; c:\\\n{filled}\nat all. Another thing.\\\nA third.",
        "The end\nof it.",
    ]


def test_every_example_shows_its_op() -> None:
    assert set(FUSION) == set(OpKind)
    for name, example in EXAMPLES.items():
        assert example.chain.split(" | ")[-1].partition("(")[0] == name
