from __future__ import annotations

import json
import math
import re
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.chain import MAX_OPS, Chain, _operations, make_chain, make_params, parse_chain
from kernels.errors import InputError, UnknownNameError
from kernels.registry import USER_PACKAGE, all_ops
from tests.kernels.strategies import chains, op_params

KSIZE = "integer, 1 to 31 in steps of 2"


def refusal(ops: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        make_chain(ops)
    return caught.value


@given(chains)
def test_both_notations_give_the_chain_back(chain: Chain) -> None:
    assert parse_chain(str(chain)) == chain
    assert make_chain(json.loads(json.dumps(chain.to_json()))) == chain


def test_the_text_notation() -> None:
    chain = parse_chain(" gaussian_blur( ksize = 7 )|gamma(gamma=2)| sobel | sobel() ")
    assert str(chain) == "gaussian_blur(ksize=7, sigma=0.0) | gamma(gamma=2.0) | sobel() | sobel()"
    assert chain.to_json()[1] == {"op": "gamma", "params": {"gamma": 2.0}}


def test_b117_an_empty_chain_is_a_pass_through_in_both_notations() -> None:
    assert make_chain([]) == parse_chain("") == parse_chain("  \n") == Chain()
    assert str(Chain()) == ""
    assert Chain().to_json() == []


OWN = "; of your own: with --ops DIR, or ops_dir in the configuration"


def test_b117_an_unknown_op_names_the_nearest_and_where_all_are_listed() -> None:
    error = refusal([{"op": "sobel"}, {"op": "gausian_blur"}])
    assert isinstance(error, UnknownNameError)
    assert error.field == "ops[1].op"
    assert error.reason == "unknown op 'gausian_blur' (did you mean 'gaussian_blur'?)"
    assert error.allowed == "what `pinhole ops` lists" + OWN


def test_b117_an_unknown_op_like_none_lists_the_known_ones() -> None:
    error = refusal([{"op": "posterise"}])
    assert error.reason == "unknown op 'posterise'"
    assert error.allowed == ", ".join(all_ops()) + OWN


def test_a_folder_of_operations_that_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # As use_ops_folder leaves it, without loading all operations anew: chains made before hold those there are.
    monkeypatch.setitem(sys.modules, USER_PACKAGE, ModuleType(USER_PACKAGE))
    assert refusal([{"op": "posterise"}]).allowed == ", ".join(all_ops())


@pytest.mark.parametrize(
    "value",
    [4, 2, 0, -1, -3, 3.5, 5.0, "5", True, False, None, 33, 10**9, 10**5000, [5], {"a": 1}, math.nan, math.inf],
    ids=lambda v: repr(v) if not isinstance(v, int) or v < 10**10 else "huge",
)
def test_b113_a_bad_window_is_refused_with_path_and_allowed_values(value: Any) -> None:
    error = refusal([{"op": "sobel"}, {"op": "gaussian_blur", "params": {"ksize": value}}])
    assert error.field == "ops[1].params.ksize"
    assert error.allowed == KSIZE


@given(st.integers())
def test_b113_exactly_the_odd_windows_of_1_to_31_are_taken(ksize: int) -> None:
    ops = [{"op": "gaussian_blur", "params": {"ksize": ksize}}]
    if 1 <= ksize <= 31 and ksize % 2 == 1:
        assert make_chain(ops).steps[0].params.model_dump()["ksize"] == ksize
    else:
        assert refusal(ops).allowed == KSIZE


FLOATS = [
    (name, field, schema["minimum"], schema["maximum"])
    for name, op in all_ops().items()
    for field, schema in op.Params.model_json_schema().get("properties", {}).items()
    if schema["type"] == "number"
]


@pytest.mark.parametrize(("name", "field", "least", "most"), FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "NaN", "1", True, None, 10**400], ids=repr)
def test_b115_what_is_no_finite_number_is_refused(name: str, field: str, least: float, most: float, value: Any) -> None:
    error = refusal([{"op": name, "params": {field: value}}])
    assert error.field == f"ops[0].params.{field}"
    assert error.allowed == f"number, {least:g} to {most:g}"


@pytest.mark.parametrize(("name", "field", "least", "most"), FLOATS)
def test_the_ends_of_a_range_are_taken_and_what_is_beyond_is_not(
    name: str, field: str, least: float, most: float
) -> None:
    for value in (least, most):
        make_chain([{"op": name, "params": {field: value}}])
    for value in (math.nextafter(least, -math.inf), math.nextafter(most, math.inf)):
        error = refusal([{"op": name, "params": {field: value}}])
        assert (error.field, error.allowed) == (f"ops[0].params.{field}", f"number, {least:g} to {most:g}")


def test_b115_json_that_python_reads_as_infinite_is_refused() -> None:
    for text in ("1e999", "NaN", "-Infinity"):
        error = refusal(json.loads(f'[{{"op": "gamma", "params": {{"gamma": {text}}}}}]'))
        assert error.field == "ops[0].params.gamma"


@pytest.mark.parametrize("name", all_ops())
def test_every_parameter_has_help_and_a_range_with_a_unit_or_choices(name: str) -> None:
    """The schema is what the page draws its controls from and what an error calls allowed."""
    schema = all_ops()[name].Params.model_json_schema()
    json.dumps(schema, allow_nan=False)
    for parameter, field in schema.get("properties", {}).items():
        assert field["description"]
        if field["type"] == "boolean":
            assert isinstance(field["default"], bool)
        elif field["type"] == "array":
            assert field["maxItems"] >= len(field["default"]) >= field.get("minItems", 0)
            assert "x-unit" in field
            for sample in field["examples"] if not field["default"] else []:  # an empty list says nothing of its form
                assert make_params(all_ops()[name], {parameter: sample}, name)
        elif field.get("format") == "color":
            assert re.fullmatch(field["pattern"], field["default"])
        elif field["type"] == "string" and "enum" not in field:
            assert field["maxLength"] >= len(field["default"])
            assert field["examples"], "any text: tests need some to try"
        elif field["type"] == "string":
            assert field["default"] in field["enum"]
        else:
            assert {"minimum", "maximum", "default", "x-unit"} <= set(field)
            assert field["minimum"] <= field["default"] <= field["maximum"]
            assert field["x-step"] > 0


@pytest.mark.parametrize("side", ["width", "height"])
@pytest.mark.parametrize("value", [-1, -640, 16385, 10**9, 10**5000, 3.5, 640.0, "640", True, None, math.nan], ids=type)
def test_b126_an_impossible_size_is_refused_with_what_is_allowed(side: str, value: Any) -> None:
    error = refusal([{"op": "resize", "params": {"width": 640, "height": 480, side: value}}])
    assert error.field == f"ops[0].params.{side}"
    assert error.allowed == "integer, 0 to 16384"


@pytest.mark.parametrize(
    ("op", "field", "value", "allowed"),
    [
        ("flip", "direction", "sideways", "'horizontal', 'vertical', 'both'"),
        ("flip", "direction", 1, "'horizontal', 'vertical', 'both'"),
        ("flip", "direction", None, "'horizontal', 'vertical', 'both'"),
        ("resize", "interpolation", "lanczos", "'nearest', 'linear', 'area', 'cubic'"),
        ("resize", "interpolation", ["area"], "'nearest', 'linear', 'area', 'cubic'"),
        ("threshold", "inverted", 1, "boolean"),
        ("threshold", "inverted", "true", "boolean"),
        ("threshold", "threshold", 256, "integer, 0 to 255"),
        ("threshold", "threshold", -1, "integer, 0 to 255"),
        ("threshold", "max_value", 127.5, "integer, 0 to 255"),
    ],
)
def test_b113_what_is_no_choice_or_out_of_range_is_refused(op: str, field: str, value: Any, allowed: str) -> None:
    error = refusal([{"op": op, "params": {field: value}}])
    assert (error.field, error.allowed) == (f"ops[0].params.{field}", allowed)


OP_NAMES = ", ".join(all_ops())


@pytest.mark.parametrize(
    ("ops", "field", "allowed"),
    [
        (None, "ops", '"op": NAME'),
        (5, "ops", '"op": NAME'),
        ("gamma", "ops", '"op": NAME'),
        ({"op": "gamma"}, "ops", '"op": NAME'),
        ([{"op": "gamma"}, 5], "ops[1]", '"op": NAME'),
        ([None], "ops[0]", '"op": NAME'),
        ([{}], "ops[0].op", OP_NAMES),
        ([{"op": 5}], "ops[0].op", OP_NAMES),
        ([{"op": ["gamma"]}], "ops[0].op", OP_NAMES),
        ([{"op": ""}], "ops[0].op", OP_NAMES),
        ([{"op": "Gamma"}], "ops[0].op", "`pinhole ops`"),
        ([{"op": "gamma", "prams": {}}], "ops[0].prams", "op, params"),
        ([{"op": "gamma", "params": None}], "ops[0].params", "gamma"),
        ([{"op": "gamma", "params": [1]}], "ops[0].params", "gamma"),
        ([{"op": "gain_offset", "params": {"gian": 1}}], "ops[0].params.gian", "gain, offset"),
        ([{"op": "sobel", "params": {"ksize": 3}}], "ops[0].params.ksize", "none here"),
        ([{"op": "gamma"}] * (MAX_OPS + 1), "ops", f"0 to {MAX_OPS}"),
    ],
    ids=lambda v: None if isinstance(v, list) and len(v) > 2 else repr(v),
)
def test_bad_json_names_the_path_and_what_is_allowed(ops: Any, field: str, allowed: str) -> None:
    error = refusal(ops)
    assert error.field == field
    assert allowed in error.allowed
    assert str(error).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        ("|", "chain[0]", "NAME(parameter=value"),
        ("gamma|", "chain[1]", "NAME(parameter=value"),
        ("gamma(1.2)", "chain[0]", "NAME(parameter=value"),
        ("gamma(gamma=1, gamma=2)", "chain[0]", "NAME(parameter=value"),
        ("gamma(**{'gamma': 1})", "chain[0]", "NAME(parameter=value"),
        ("gamma gamma", "chain[0]", "NAME(parameter=value"),
        ("gamma; sobel", "chain[0]", "NAME(parameter=value"),
        ("gamma(gamma=1.2", "chain[0]", "NAME(parameter=value"),
        ("os.system('true')", "chain[0]", "NAME(parameter=value"),
        ("sobel | 5", "chain[1]", "NAME(parameter=value"),
        ("gamma\0", "chain[0]", "NAME(parameter=value"),
        ("\ud800", "chain[0]", "NAME(parameter=value"),
        ("-" * 100_000 + "1", "chain[0]", "NAME(parameter=value"),
        ("(" * 1000 + ")" * 1000, "chain[0]", "NAME(parameter=value"),
        ("sobel | gama", "chain[1].op", "`pinhole ops`"),
        ("gama(gamma=1.2)", "chain[0].op", "`pinhole ops`"),
        ("gamma(gama=1.2)", "chain[0].params.gama", "gamma"),
        ("gamma(gamma='1')", "chain[0].params.gamma", "number, 0.1 to 10"),
        ("gamma(gamma=nan)", "chain[0].params.gamma", "number, 0.1 to 10"),
        ("gamma(gamma=1e999)", "chain[0].params.gamma", "number, 0.1 to 10"),
        ("gamma(gamma=__import__('os'))", "chain[0].params.gamma", "number, 0.1 to 10"),
        ("gamma(gamma=" + "-" * 900 + "1)", "chain[0].params.gamma", "number, 0.1 to 10"),
        ("gaussian_blur(ksize=4)", "chain[0].params.ksize", KSIZE),
        ("gaussian_blur(ksize=0x" + "f" * 9999 + ")", "chain[0].params.ksize", KSIZE),
        ("|".join(["sobel"] * (MAX_OPS + 1)), "chain", f"0 to {MAX_OPS}"),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_bad_text_names_the_op_and_what_is_allowed(text: str, field: str, allowed: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_chain(text)
    assert caught.value.field == field
    assert allowed in caught.value.allowed


TOKENS = (
    "gamma",
    "sobel",
    "gain_offset",
    "(",
    ")",
    "|",
    "=",
    ",",
    "1.5",
    "-",
    "'",
    "gain",
    "[",
    "]",
    "**",
    "None",
    " ",
)


@given(st.text() | st.lists(st.sampled_from(TOKENS)).map("".join))
def test_no_text_whatever_makes_the_parser_raise_anything_else(text: str) -> None:
    try:
        chain = parse_chain(text)
    except UnknownNameError:
        return
    except InputError as error:
        if suggested := re.search(r"\(did you mean (.*)\?\)$", error.reason, re.DOTALL):
            parse_chain(suggested[1])
        return
    assert parse_chain(str(chain)) == chain


def test_messages_stay_short_whatever_was_sent() -> None:
    for value in ("x" * 10**6, ["x"] * 10**5, 10**5000):
        assert len(str(refusal([{"op": "gamma", "params": {"gamma": value}}]))) < 300


def test_a_field_name_leads_to_the_value_where_the_caller_has_it() -> None:
    with pytest.raises(InputError, match=r"^cameras\.front\.chain\[0\]\.params\.gamma: 99"):
        make_chain([{"op": "gamma", "params": {"gamma": 99}}], field="cameras.front.chain")


@given(st.sampled_from(sorted(all_ops())), st.data())
def test_parameters_are_frozen_and_whole(name: str, data: st.DataObject) -> None:
    op = all_ops()[name]
    params = data.draw(op_params(op))
    assert make_params(op, params.model_dump(), "params") == params
    for field in op.Params.model_fields:
        with pytest.raises(ValueError, match="frozen"):
            setattr(params, field, 1)


def test_64_ops_are_taken() -> None:
    assert len(make_chain([{"op": "sobel"}] * MAX_OPS, version=7).steps) == MAX_OPS


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("a(t='x | y') | b", ["a(t='x | y') ", " b"]),
        ('b | a(t="x | \\" | y")', ["b ", ' a(t="x | \\" | y")']),
        ("a(t='|')|a(t=\"'|'\")|c", ["a(t='|')", "a(t=\"'|'\")", "c"]),
        # A quote without its partner is a sign like others; nothing between two pipes is an operation that is missing.
        ("it's | b", ["it's ", " b"]),
        ("a || b |", ["a ", "", " b ", ""]),
    ],
)
def test_a_pipe_in_quotes_belongs_to_the_text(text: str, operations: list[str]) -> None:
    assert _operations(text) == operations
