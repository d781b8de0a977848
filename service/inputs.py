"""What clients send, checked: query parameters by a model, bodies as JSON; each refusal says what is allowed."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, HTTPConnection

from service.problems import Problem, field_error, validation_error

BODY_DEADLINE_S = 10.0


class QueryModel(BaseModel):
    """Base of the query parameters of a resource."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Q = TypeVar("Q", bound=QueryModel)


def read_query(model: type[Q], request: HTTPConnection, *, ignore: tuple[str, ...] = ()) -> Q:
    """The request's query parameters as ``model``. Cache busters (``_``, ``t``, all digits) and ``ignore`` are skipped.

    Raises:
        Problem: 422 with an entry for each parameter that is unknown, given twice, or not allowed.
    """
    values: dict[str, str] = {}
    wrong: list[dict[str, str]] = []
    for key, value in request.query_params.multi_items():
        if key in ignore or key in ("_", "t") or (key.isdecimal() and not value):
            continue
        if key not in model.model_fields:
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            wrong.append(field_error(key[:60], f"unknown parameter{hint}", ", ".join(model.model_fields) or "none"))
        elif key in values:
            wrong.append(field_error(key, "given more than once", allowed_by(model, key)))
        values[key] = value
    if not wrong:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            wrong = [validation_error(e, allowed_by(model, str(e["loc"][0]))) for e in error.errors()]
    detail = "; ".join(f"{e['field']}: {e['reason']}" for e in wrong)
    raise Problem(422, detail, type="urn:pinhole:invalid-input", errors=wrong)


def allowed_by(model: type[BaseModel], field: str) -> str:
    """What a field takes, for people: ``integer, 1 to 100``."""
    schema = field_schemas(model).get(field, {})
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    kind = str(schema.get("type", "see the schema"))
    if low is None or high is None:
        return kind
    return f"{kind}, {'more than ' if 'exclusiveMinimum' in schema else ''}{low:g} to {high:g}"


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The model's fields as OpenAPI parameters."""
    parameters = []
    for name, schema in field_schemas(model).items():
        plain = {key: value for key, value in schema.items() if key not in ("title", "description")}
        description = schema.get("description", "")
        parameters.append({"name": name, "in": "query", "required": False, "description": description, "schema": plain})
    return parameters


def field_schemas(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Each field's JSON schema, with references and "or null" taken out: a parameter that is not given is absent."""
    whole = model.model_json_schema()
    found = {}
    for name, schema in whole.get("properties", {}).items():
        variants = [s for s in schema.get("anyOf", [schema]) if s.get("type") != "null"]
        merged = {**{k: v for k, v in schema.items() if k not in ("anyOf", "default")}, **variants[0]}
        if schema.get("default") is not None:
            merged["default"] = schema["default"]
        if "$ref" in merged:
            target = whole["$defs"][merged.pop("$ref").rsplit("/", 1)[1]]
            merged = {**target, **merged, "description": schema.get("description", "")}
        found[name] = merged
    return found


async def read_json(request: Request) -> Any:
    """The body as JSON. Its size is limited before, by :class:`service.limits.BodyLimit`.

    Raises:
        Problem: 415 for another content type, 422 for what is not JSON, not UTF-8, nested too deep, or has a key twice,
            408 for a body that does not come.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        shown = content_type[:60] or "no content type"
        wrong = [field_error("Content-Type", f"{shown} is not accepted", "application/json")]
        raise Problem(415, "send JSON with Content-Type: application/json", errors=wrong)
    try:
        body = await asyncio.wait_for(request.body(), BODY_DEADLINE_S)
    except asyncio.TimeoutError:
        raise Problem(408, f"the body did not come within {BODY_DEADLINE_S:g} s") from None
    except ClientDisconnect:
        raise Problem(400, "the client went away") from None
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        wrong = [field_error("body", reason, "JSON in UTF-8, each key once")]
        raise Problem(422, f"the body is not JSON: {reason}", type="urn:pinhole:invalid-input", errors=wrong) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:60]!r} is given twice")
        found[key] = value
    return found


async def read_object(request: Request, allowed: Mapping[str, str], *, required: tuple[str, ...]) -> dict[str, Any]:
    """The body as a JSON object with no keys but ``allowed`` (each with what it holds) and with the ``required`` ones.

    Raises:
        Problem: as :func:`read_json`, and 422 for another shape.
    """
    body = await read_json(request)
    shape = "{" + ", ".join(f'"{key}": {what}' for key, what in allowed.items()) + "}"
    wrong = []
    if not isinstance(body, dict):
        wrong.append(field_error("body", f"{type(body).__name__} is not an object", shape))
    else:
        for key in body:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                wrong.append(field_error(key[:60], f"unknown key{hint}", ", ".join(allowed)))
        wrong += [field_error(key, "is missing", allowed[key]) for key in required if key not in body]
    if wrong:
        detail = "; ".join(f"{e['field']}: {e['reason']}" for e in wrong)
        raise Problem(422, detail, type="urn:pinhole:invalid-input", errors=wrong)
    assert isinstance(body, dict)
    return body
