"""Hypothesis strategies for whatever ops there are: built from their schemas, so a new op is covered as it is added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

from hypothesis import strategies as st

from kernels.chain import Chain, Step
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.image import MAX_SIDE_PX
from kernels.op import OpParams
from kernels.registry import AnyOp, all_ops
from tests.kernels.oracles_gather import GATHER_REPAIRS
from tests.kernels.oracles_point import POINT_REPAIRS
from tests.kernels.oracles_stencil import LEVELS_APART, STENCIL_REPAIRS

MAX_RESULT_PX = 90

Values = dict[str, Any]

# Ops whose parameters depend on one another: makes any values, each of which fits its own schema, fit together.
REPAIRS: dict[str, Callable[[Values], Values]] = {**POINT_REPAIRS, **GATHER_REPAIRS, **STENCIL_REPAIRS}

# Ops that draw into the picture, or whose result depends on where a pixel is: one value does not stay one value.
DRAWING_OPS: set[str] = {
    "letterbox",
    "overlay_grid",
    "overlay_text",
    "privacy_mask",
    "rotate_angle",
    "undistort",
    "warp_affine",
    "warp_perspective",
}


def _value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if schema.get("format") == "color":
        return st.integers(0, 0xFFFFFF).map("#{:06x}".format)
    if schema["type"] in ("string", "boolean"):
        return st.sampled_from(_extremes(schema))
    if schema["type"] == "array":
        # Long lists are among the extremes; drawn often, they take most of the time.
        fewest = schema.get("minItems", 0)
        return st.lists(_value(schema["items"]), min_size=fewest, max_size=min(schema["maxItems"], max(fewest, 5)))
    if schema["type"] == "integer":
        least, step = schema["minimum"], schema.get("x-step", 1)
        return st.integers(0, (schema["maximum"] - least) // step).map(lambda n: least + n * step)
    return st.floats(schema["minimum"], schema["maximum"], allow_nan=False)


def _extremes(schema: dict[str, Any]) -> list[Any]:
    """All values where they can be counted, else the least, the default and the greatest, each once."""
    default = [schema["default"]] if "default" in schema else []
    if "enum" in schema:
        return list(schema["enum"])
    if schema["type"] == "boolean":
        return [False, True]
    if schema["type"] == "string" and "examples" in schema:  # any text: the op says what is worth a try
        return [*default, *schema["examples"]]
    if schema.get("format") == "color":
        found = ["#000000", *default, "#ffffff"]
    elif schema["type"] == "array":
        of_items = _extremes(schema["items"])
        fewest, most = schema.get("minItems", 0), schema["maxItems"]
        found = [[of_items[0]] * fewest, *default, [of_items[-1]] * most]
    else:
        found = sorted([schema["minimum"], *default, schema["maximum"]])
    return [value for index, value in enumerate(found) if value not in found[:index]]


def _properties(op: AnyOp) -> dict[str, dict[str, Any]]:
    """The schema of each parameter; sides of the result are kept to what oracles can do."""
    properties: dict[str, dict[str, Any]] = op.Params.model_json_schema().get("properties", {})
    return {
        name: {**schema, "maximum": MAX_RESULT_PX} if schema.get("maximum") == MAX_SIDE_PX else schema
        for name, schema in properties.items()
    }


def _params(op: AnyOp, values: Values) -> OpParams:
    params: OpParams = op.Params(**REPAIRS.get(op.name, dict)(values))
    return params


def op_params(op: AnyOp) -> st.SearchStrategy[OpParams]:
    """Valid parameter values of an op."""
    values = st.fixed_dictionaries({name: _value(schema) for name, schema in _properties(op).items()})
    return values.map(lambda drawn: _params(op, drawn))


def _step(op: AnyOp) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(op), op_params(op))


steps: st.SearchStrategy[Step] = st.one_of([_step(op) for op in all_ops().values()])
exact_steps: st.SearchStrategy[Step] = steps.filter(lambda step: step.op.name not in LEVELS_APART)
chains: st.SearchStrategy[Chain] = st.lists(steps, max_size=6).map(lambda drawn: Chain(tuple(drawn)))
exact_chains: st.SearchStrategy[Chain] = st.lists(exact_steps, max_size=6).map(lambda drawn: Chain(tuple(drawn)))


def pairwise(choices: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows of one choice for each column, such that any two choices of any two columns are together in a row.

    Greedy: each row starts from a pair that is still missing, and takes in each other column what adds most pairs.
    """
    columns = range(len(choices))
    if len(choices) < 2:
        return list(product(*choices))
    missing = {
        ((a, i), (b, j))
        for a, b in combinations(columns, 2)
        for i, j in product(range(len(choices[a])), range(len(choices[b])))
    }
    rows = []
    while missing:
        row = dict(min(missing))
        for column in columns:
            if column not in row:
                gains = [
                    sum(tuple(sorted(((column, i), other))) in missing for other in row.items())
                    for i in range(len(choices[column]))
                ]
                row[column] = gains.index(max(gains))
        missing -= set(combinations(sorted(row.items()), 2))
        rows.append(tuple(choices[column][row[column]] for column in columns))
    return rows


def extreme_steps() -> list[Step]:
    """Each op with its extreme values, any two of them together; with all the least, and all the greatest."""
    found = []
    for op in all_ops().values():
        properties = _properties(op)
        choices = [_extremes(schema) for schema in properties.values()]
        ends = [tuple(values[end] for values in choices) for end in (0, -1)]
        made = [_params(op, dict(zip(properties, row, strict=True))) for row in (*ends, *pairwise(choices))]
        found += [Step(op, params) for params in dict.fromkeys(made)]
    return found


def short(step: Step) -> str:
    """A test's name for the step, however long its lists are."""
    text = str(step)
    return text if len(text) <= 100 else text[:97] + "..."


def steps_for(format: PixelFormat) -> list[Step]:
    """The extreme steps for formats that ops see; for others, which come to ops as BGR8, each op as it is."""
    if format in (BGR8, GRAY8):
        return extreme_steps()
    return [Step(op, op.Params()) for op in all_ops().values() if format.depth == 8 or op.takes_16_bit]
