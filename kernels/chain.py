"""A chain: ordered ops with parameter values, checked as a whole, and its two notations (JSON and text)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kernels.errors import InputError, UnknownNameError
from kernels.op import MAX_TEXTS, OpParams, TextOp
from kernels.registry import AnyOp, all_ops, find_op

MAX_OPS = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One op with its parameter values."""

    op: AnyOp
    params: OpParams

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op.name, "params": self.params.model_dump(mode="json")}

    def __str__(self) -> str:
        values = ", ".join(f"{k}={v!r}" for k, v in self.params.model_dump(mode="json").items())
        return f"{self.op.name}({values})"


@dataclass(frozen=True, slots=True)
class Chain:
    """Ordered steps and a version. Immutable: a change is a new chain, swapped whole at a frame boundary."""

    steps: tuple[Step, ...] = ()
    version: int = 1

    def to_json(self) -> list[dict[str, Any]]:
        """As ``PUT …/chain`` takes it under ``ops``."""
        return [step.to_json() for step in self.steps]

    def __str__(self) -> str:
        return " | ".join(str(step) for step in self.steps)


def make_chain(ops: Sequence[Mapping[str, Any]], *, version: int = 1, field: str = "ops") -> Chain:
    """A chain from ``[{"op": "gamma", "params": {"gamma": 1.2}}, …]``; an empty list passes pixels through.

    Raises:
        InputError: names the whole path (``ops[1].params.ksize``) and what is allowed.
    """
    if isinstance(ops, (str, bytes)) or not isinstance(ops, Sequence):
        raise InputError(field, "must be a list of operations", '[{"op": NAME, "params": {…}}, …]')
    if len(ops) > MAX_OPS:
        raise InputError(field, f"{len(ops)} operations are too many", f"0 to {MAX_OPS}")
    steps = tuple(make_step(item, f"{field}[{i}]") for i, item in enumerate(ops))
    texts = sum(isinstance(step.op, TextOp) for step in steps)
    if texts > MAX_TEXTS:
        raise InputError(field, f"{texts} operations that write text are too many", f"0 to {MAX_TEXTS}")
    return Chain(steps, version)


def make_step(item: Mapping[str, Any], field: str) -> Step:
    """One checked step from ``{"op": NAME, "params": {…}}``; Raises InputError like :func:`make_chain`."""
    if not isinstance(item, Mapping):
        raise InputError(field, "must be an object", '{"op": NAME, "params": {…}}')
    for key in item:
        if key not in ("op", "params"):
            raise UnknownNameError(f"{field}.{key}", "key", str(key), ("op", "params"))
    if not isinstance(item.get("op"), str):
        raise InputError(f"{field}.op", "must be the name of an operation", ", ".join(all_ops()))
    op = find_op(item["op"], f"{field}.op")
    params = item.get("params", {})
    if not isinstance(params, Mapping):
        raise InputError(f"{field}.params", "must be an object", ", ".join(op.Params.model_fields) or "{}")
    return Step(op, make_params(op, params, f"{field}.params"))


def make_params(op: AnyOp, values: Mapping[str, Any], field: str) -> OpParams:
    """The op's parameter model from plain values.

    Raises:
        InputError: the first value that is wrong, with its path and what is allowed.
    """
    known = op.Params.model_fields
    for key in values:
        if key not in known:
            raise UnknownNameError(f"{field}.{key}", f"parameter of {op.name}", str(key), known)
    try:
        params: OpParams = op.Params.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ").replace("Tuple", "List").replace("tuple", "list")
        path = f"{field}.{name}" if name else field
        path += "".join(f"[{index}]" for index in first["loc"][1:])
        raise InputError(path, f"{_shown(first['input'])}: {message}", allowed_values(op, name)) from None
    return params


def allowed_values(op: AnyOp, name: str) -> str:
    """What a parameter takes, for people: ``integer, 1 to 31 in steps of 2``."""
    schema = op.Params.model_json_schema().get("properties", {}).get(name)
    if schema is None:
        return ", ".join(op.Params.model_fields) or "no parameters"
    return values_of(schema)


def values_of(schema: Mapping[str, Any]) -> str:
    """What the JSON Schema of a parameter takes, for people: ``list of 3 to 4: number, 0 to 1``."""
    if "enum" in schema:
        return ", ".join(map(repr, schema["enum"]))
    if schema.get("format") == "color":
        return '"#rrggbb"'
    if schema.get("type") == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        number = f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
        return f"list of {number}: {values_of(schema.get('items', {}))}"
    parts = [str(schema.get("type", "see the schema"))]
    if "minimum" in schema and "maximum" in schema:
        step = schema.get("x-step")
        whole = schema.get("type") == "integer" and step not in (None, 1)
        parts.append(f"{schema['minimum']:g} to {schema['maximum']:g}" + (f" in steps of {step}" if whole else ""))
    return ", ".join(parts)


def _shown(value: object) -> str:
    """A value for a message: short, whatever somebody sent."""
    try:
        text = "nothing" if value is None else repr(value)
    except (ValueError, RecursionError):  # Python refuses to write out huge integers and deep nesting
        return "a value too large to show"
    return text if len(text) <= 60 else text[:59] + "…"


# What Python's parser raises for text that is no expression, however absurd the text.
_PARSER_ERRORS = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)


def parse_chain(text: str, *, version: int = 1, field: str = "chain") -> Chain:
    """A chain from ``gaussian_blur(ksize=5, sigma=0) | gamma(gamma=1.2) | sobel``; "" passes pixels through.

    Raises:
        InputError: says which operation and what is wrong.
    """
    parts = _operations(text) if text.strip() else []
    if len(parts) > MAX_OPS:
        raise InputError(field, f"{len(parts)} operations are too many", f"0 to {MAX_OPS}")
    items = [_parse_step(part.strip(), f"{field}[{index}]") for index, part in enumerate(parts)]
    return make_chain(items, version=version, field=field)


# Anything up to a pipe that stands in no quotes; a quote without its partner is a sign like others.
_OPERATION = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^|])*""", re.DOTALL)


def _operations(text: str) -> list[str]:
    found, at = [], 0
    while at <= len(text):
        piece = _OPERATION.match(text, at)
        assert piece is not None
        found.append(piece[0])
        at = piece.end() + 1
    return found


def _parse_step(text: str, path: str) -> dict[str, Any]:
    example = "NAME(parameter=value, …), e.g. gaussian_blur(ksize=5)"
    try:
        node = ast.parse(text, mode="eval").body
    except _PARSER_ERRORS:
        raise InputError(path, f"{_shown(text)} is not an operation{_hint(text)}", example) from None
    if isinstance(node, ast.Name):
        return {"op": node.id, "params": {}}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise InputError(path, f"{_shown(text)} is not an operation{_hint(text)}", example)
    op = find_op(node.func.id, f"{path}.op")
    if node.args:
        raise InputError(path, f"{_shown(text)} must give each parameter by name{_hint(text)}", example)
    params: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in params:
            raise InputError(path, f"{_shown(text)} must give each parameter once by name", example)
        try:
            params[keyword.arg] = ast.literal_eval(keyword.value)
        except _PARSER_ERRORS:
            shown = _shown(ast.get_source_segment(text, keyword.value))
            allowed = allowed_values(op, keyword.arg)
            reason = f"{shown} is not a plain value{_hint(text)}"
            raise InputError(f"{path}.params.{keyword.arg}", reason, allowed) from None
    return {"op": op.name, "params": params}


_MAX_HINT_CHARS = 200
_BETWEEN_OPS = re.compile(r" ?(?:,|;|->|=>|→|>|&| ) ?(?=(\w+)\b(?! ?[=:]))")
_BETWEEN_VALUES = re.compile(r" ?[,;] ?| (?=[\"']?\w+[\"']? ?[=:])")
_NAMED_VALUE = re.compile(r"[\"']?(\w+)[\"']?\s*[=:]\s*(.+)", re.DOTALL)


def _hint(text: str) -> str:
    """`` (did you mean gaussian_blur(ksize=5)?)`` if what was meant can be told, and is a chain; else nothing."""
    if len(text) > _MAX_HINT_CHARS:
        return ""
    meant = [_meant(piece) for piece in _split(" ".join(text.split()), _is_between_ops)]
    return f" (did you mean {' | '.join(map(str, meant))}?)" if meant and None not in meant else ""


def _meant(text: str) -> str | None:
    """One operation as it must be written, from ``gamma(2)``, ``gamma gamma=2``, ``gamma{gamma: 2}`` and the like."""
    found = re.match(r"\w+", text)
    op = all_ops().get(found[0]) if found else None
    if found is None or op is None:
        return None
    inner = text[found.end() :].strip().removeprefix(":").strip()
    if inner and inner[0] in _CLOSING:
        inner = inner[1:].strip().removesuffix(_CLOSING[inner[0]])
    values: dict[str, Any] = {}
    free = list(op.Params.model_fields)
    for piece in _split(inner.strip(), _BETWEEN_VALUES.match):
        named = _NAMED_VALUE.fullmatch(piece)
        name, value = named.groups() if named else (next((n for n in free if n not in values), ""), piece)
        if name in values:
            return None
        try:
            values[name] = ast.literal_eval(value)
        except _PARSER_ERRORS:
            values[name] = {"true": True, "false": False}.get(value, value)  # a word without its quotes, or JSON's
    try:
        make_params(op, values, op.name)
    except InputError:
        return None
    return f"{op.name}({', '.join(f'{name}={value!r}' for name, value in values.items())})" if values else op.name


_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _is_between_ops(text: str, at: int) -> re.Match[str] | None:
    found = _BETWEEN_OPS.match(text, at)
    return found if found is not None and found[1] in all_ops() else None


def _split(text: str, separator: Callable[[str, int], re.Match[str] | None]) -> list[str]:
    """The pieces between separators that stand in no brackets or quotes."""
    pieces, start, at, depth, quote = [], 0, 0, 0, ""
    while at < len(text):
        sign = text[at]
        if quote or sign in "\"'":
            quote = "" if sign == quote else quote or sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth <= 0 and (found := separator(text, at)):
            pieces.append(text[start:at])
            start = at = found.end()
            continue
        at += 1
    return [piece for piece in map(str.strip, [*pieces, text[start:]]) if piece]
