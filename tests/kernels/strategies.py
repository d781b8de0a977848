"""Hypothesis strategies for whatever ops there are: built from their schemas, so a new op is covered as it is added."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st

from kernels.chain import Chain, Step
from kernels.image import MAX_SIDE_PX
from kernels.op import OpParams
from kernels.registry import AnyOp, all_ops

MAX_RESULT_PX = 90


def _value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if schema["type"] in ("string", "boolean"):
        return st.sampled_from(_extremes(schema))
    if schema["type"] == "integer":
        least, step = schema["minimum"], schema.get("x-step", 1)
        return st.integers(0, (schema["maximum"] - least) // step).map(lambda n: least + n * step)
    return st.floats(schema["minimum"], schema["maximum"], allow_nan=False)


def _extremes(schema: dict[str, Any]) -> list[Any]:
    """All values where they can be counted, else the least, the default and the greatest."""
    if schema["type"] == "string":
        return list(schema["enum"])
    if schema["type"] == "boolean":
        return [False, True]
    return sorted({schema["minimum"], schema["default"], schema["maximum"]})


def _properties(op: AnyOp) -> dict[str, dict[str, Any]]:
    """The schema of each parameter; sides of the result are kept to what oracles can do."""
    properties: dict[str, dict[str, Any]] = op.Params.model_json_schema().get("properties", {})
    return {
        name: {**schema, "maximum": MAX_RESULT_PX} if schema.get("maximum") == MAX_SIDE_PX else schema
        for name, schema in properties.items()
    }


def op_params(op: AnyOp) -> st.SearchStrategy[OpParams]:
    """Valid parameter values of an op."""
    return st.builds(op.Params, **{name: _value(schema) for name, schema in _properties(op).items()})


def _step(op: AnyOp) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(op), op_params(op))


steps: st.SearchStrategy[Step] = st.one_of([_step(op) for op in all_ops().values()])
chains: st.SearchStrategy[Chain] = st.lists(steps, max_size=6).map(lambda drawn: Chain(tuple(drawn)))


def extreme_steps() -> list[Step]:
    """Each op with each combination of extreme values."""
    found = []
    for op in all_ops().values():
        properties = _properties(op)
        choices = [_extremes(schema) for schema in properties.values()]
        found += [Step(op, op.Params(**dict(zip(properties, values, strict=True)))) for values in product(*choices)]
    return found
