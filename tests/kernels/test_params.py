"""Colours and lists as parameters: what they take, how errors name the place, and that both notations keep them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field

from kernels.chain import allowed_values, make_params
from kernels.errors import InputError
from kernels.image import Pixels
from kernels.op import OpParams, TableOp
from kernels.params import FROM_LIST, Color, bgr, fill_of, grey, step_for
from tests.kernels.oracles import grayscale

Side = Annotated[float, Field(ge=0, le=5)]


class SomeParams(OpParams):
    ink: Color = "#ff8000"
    row: Annotated[tuple[Side, ...], Field(min_length=2, max_length=3), FROM_LIST] = (1.0, 2.0)
    boxes: Annotated[
        tuple[Annotated[tuple[Side, ...], Field(min_length=4, max_length=4)], ...], Field(max_length=3), FROM_LIST
    ] = ()


class Some(TableOp[SomeParams]):
    """Takes what no op need have."""

    name = "some"
    Params = SomeParams

    def table(self, params: SomeParams) -> Pixels:
        return np.arange(256, dtype=np.uint8)


def made(**values: Any) -> dict[str, Any]:
    return make_params(Some(), values, "params").model_dump(mode="json")


def test_lists_of_json_are_taken_and_given_back() -> None:
    values = {"ink": "#00ff7f", "row": [0, 5, 2.5], "boxes": [[0, 1, 2, 3], [5, 5, 5, 5]]}
    assert made(**values) == values
    assert made(**made(**values)) == values
    assert made(ink="#00FF7F")["ink"] == "#00ff7f"
    assert hash(make_params(Some(), values, "params")) == hash(make_params(Some(), values, "params"))


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("ink", "red", "ink"),
        ("ink", "#12345", "ink"),
        ("ink", "#12345g", "ink"),
        ("ink", "#١٢٣٤٥٦", "ink"),
        ("ink", "#123456\n", "ink"),
        ("ink", 0xFF8000, "ink"),
        ("ink", None, "ink"),
        ("row", [1], "row"),
        ("row", [1, 2, 3, 4], "row"),
        ("row", "12", "row"),
        ("row", 5, "row"),
        ("row", {1, 2}, "row"),
        ("row", [1, 6], "row[1]"),
        ("row", [True, 1], "row[0]"),
        ("row", [1, float("nan")], "row[1]"),
        ("row", [1, [2]], "row[1]"),
        ("boxes", [[0, 0, 1, 1], [0, 0, -1, 1]], "boxes[1][2]"),
        ("boxes", [[0, 0, 1]], "boxes[0]"),
        ("boxes", [[0, 0, 1, 1]] * 4, "boxes"),
    ],
    ids=repr,
)
def test_b113_a_bad_value_is_named_with_its_place_in_the_list(name: str, value: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        made(**{name: value})
    assert caught.value.field == f"params.{path}"
    assert caught.value.allowed == allowed_values(Some(), name)
    assert "tuple" not in caught.value.reason.lower()


def test_what_is_allowed_is_said_in_words() -> None:
    assert allowed_values(Some(), "ink") == '"#rrggbb"'
    assert allowed_values(Some(), "row") == "list of 2 to 3: number, 0 to 5"
    assert allowed_values(Some(), "boxes") == "list of 0 to 3: list of 4: number, 0 to 5"


def test_nesting_without_end_is_refused() -> None:
    nested: Any = 1
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(InputError):
        made(row=nested)


@pytest.mark.parametrize("color", ["#000000", "#ffffff", "#ff8000", "#123456", "#0000ff"])
def test_a_colour_in_a_grey_picture_is_what_grayscale_makes_of_it(color: Color) -> None:
    picture = np.array([[bgr(color)]], np.uint8)
    assert picture[0, 0].tolist() == [int(color[i : i + 2], 16) for i in (5, 3, 1)]
    assert grey(color) == grayscale(picture, {})[0, 0]
    assert fill_of(color, picture) == bgr(color)
    assert fill_of(color, picture[:, :, 0]) == (grey(color),)


class NumbersParams(OpParams):
    whole: int = Field(default=1, ge=0, le=5)
    odd: int = Field(default=1, ge=1, le=5, json_schema_extra={"x-step": 2})
    real: float = Field(default=1, ge=0.1, le=4)
    unbounded: float = 0.5
    switch: bool = True


def test_a_control_s_step_follows_from_the_range_unless_it_is_given() -> None:
    properties = NumbersParams.model_json_schema()["properties"]
    assert {name: schema.get("x-step") for name, schema in properties.items()} == {
        "whole": 1, "odd": 2, "real": 0.02, "unbounded": None, "switch": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("least", "most", "step"),
    [
        (0, 1, 0.01), (0, 100, 1), (-50, 50, 1), (0, 0.99, 0.005), (0.1, 10, 0.05), (0, 4.2, 0.02), (0, 1e-3, 1e-5),
        (-1e9, 1e9, 2e7), (3, 3, 1), (-1.7e308, 1.7e308, 1),
    ],
)  # fmt: skip
def test_the_step_is_the_greatest_round_one_of_which_a_hundred_fit(least: float, most: float, step: float) -> None:
    assert step_for(least, most) == step


def test_an_op_without_parameters_says_nothing_of_their_base_class() -> None:
    assert "description" not in OpParams.model_json_schema()
    assert NumbersParams.__doc__ is None
    assert "description" not in NumbersParams.model_json_schema()
