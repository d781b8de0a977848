"""Hypothesis strategies for whatever ops there are: built from their schemas, so a new op is covered as it is added."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st

from kernels.chain import Chain, Step
from kernels.op import OpParams
from kernels.registry import AnyOp, all_ops


def _value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "boolean":
        return st.booleans()
    if schema["type"] == "integer":
        least, step = schema["minimum"], schema.get("x-step", 1)
        return st.integers(0, (schema["maximum"] - least) // step).map(lambda n: least + n * step)
    return st.floats(schema["minimum"], schema["maximum"], allow_nan=False)


def op_params(op: AnyOp) -> st.SearchStrategy[OpParams]:
    """Valid parameter values of an op."""
    properties = op.Params.model_json_schema().get("properties", {})
    return st.builds(op.Params, **{name: _value(schema) for name, schema in properties.items()})


def _step(op: AnyOp) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(op), op_params(op))


steps: st.SearchStrategy[Step] = st.one_of([_step(op) for op in all_ops().values()])
chains: st.SearchStrategy[Chain] = st.lists(steps, max_size=6).map(lambda drawn: Chain(tuple(drawn)))


def extreme_steps() -> list[Step]:
    """Each op with each combination of least, default and greatest values."""
    found = []
    for op in all_ops().values():
        properties = op.Params.model_json_schema().get("properties", {})
        choices = [sorted({s["minimum"], s["default"], s["maximum"]}) for s in properties.values()]
        found += [Step(op, op.Params(**dict(zip(properties, values, strict=True)))) for values in product(*choices)]
    return found
