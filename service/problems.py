"""Errors as RFC 9457 problem details, and JSON that is always valid: no NaN, no lone surrogates."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from kernels.errors import CompileError, InputError, OutOfMemoryError, PinholeError, UnknownNameError
from service.live import HubClosedError, TooManyVariantsError, TooManyViewersError

log = logging.getLogger("pinhole.http")


def to_json(content: object) -> bytes:
    """UTF-8 JSON. Numbers that JSON has no word for become null, lone surrogates their escape."""
    return json.dumps(finite(content), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def finite(value: Any) -> Any:
    """The same with None for every NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


class Json(Response):
    """``application/json``, never cached: all of it is of this moment."""

    media_type = "application/json"

    def __init__(self, content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(to_json(content), status, {"Cache-Control": "no-store", **(headers or {})})


class Problem(PinholeError):  # noqa: N818 - the RFC's own word
    """An answer that is an error: status, what it means for this request, and the fields that are wrong."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        type: str = "about:blank",
        title: str | None = None,
        errors: Iterable[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **extra: object,
    ) -> None:
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, object] = {
            "type": type,
            "title": title or HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            **extra,
        }
        if listed := list(errors):
            self.body["errors"] = listed
        super().__init__(detail)

    def response(self) -> Response:
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(to_json(self.body), self.status, headers, "application/problem+json")


def field_error(field: str, reason: str, allowed: str = "") -> dict[str, str]:
    """One entry of ``errors``."""
    return {"field": field, "reason": reason, "allowed": allowed}


def problem_of(error: Exception) -> Problem:
    """What an error of ours means over HTTP."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InputError):
        status = 404 if isinstance(error, UnknownNameError) and error.field == "camera" else 422
        wrong = field_error(error.field, error.reason, error.allowed)
        return Problem(status, str(error), type=f"urn:pinhole:{_KINDS[status]}", errors=[wrong])
    if isinstance(error, CompileError):
        return Problem(
            422, str(error), type="urn:pinhole:does-not-compile", op=error.op, file=error.file, line=error.line
        )
    if isinstance(error, TooManyVariantsError):
        return Problem(429, str(error), type="urn:pinhole:too-many-variants")
    if isinstance(error, TooManyViewersError):
        return Problem(503, str(error), type="urn:pinhole:too-many-viewers", headers={"Retry-After": "5"})
    if isinstance(error, HubClosedError):
        return Problem(503, str(error), type="urn:pinhole:stopping", headers={"Retry-After": "5"})
    if isinstance(error, OutOfMemoryError):
        return Problem(507, str(error), type="urn:pinhole:out-of-memory")
    return Problem(500, str(error), type=f"urn:pinhole:{type(error).__name__}")


_KINDS = {404: "not-found", 422: "invalid-input"}


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error of the application as problem details."""

    async def ours(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.status == 500:
            log.error("%s %s: %s", request.method, request.scope["path"], error, exc_info=error)
        return problem.response()

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        wrong = [validation_error({**item, "loc": item["loc"][1:]}) for item in error.errors()]  # not "path"
        detail = "; ".join(f"{e['field']}: {e['reason']}" for e in wrong)
        return Problem(422, detail, type="urn:pinhole:invalid-input", errors=wrong).response()

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == 404:
            detail = f"nothing is at {request.scope['path'][:200]}"
        elif error.status_code == 405:
            allowed = sorted(allowed_methods(app, request))
            headers["Allow"] = ", ".join(allowed)
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"Allow": ", ".join([*allowed, "OPTIONS"])})
            detail = f"{request.method} is not possible here; {', '.join(allowed)} is"
        return Problem(error.status_code, detail, headers=headers).response()

    async def unexpected(request: Request, error: Exception) -> Response:
        detail = "a fault of the service; its log says more"
        return Problem(500, detail, type="urn:pinhole:internal").response()

    app.add_exception_handler(PinholeError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def allowed_methods(app: FastAPI, request: Request) -> set[str]:
    """Every method that some route has at the request's path."""
    return {
        method
        for route in app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }


def validation_error(item: Mapping[str, Any], allowed: str = "") -> dict[str, str]:
    """One entry of ``errors`` from one of pydantic's, with its path as people write it: ``quality``, ``ops[0].op``."""
    path = ""
    for part in item["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    given = item.get("input")
    shown = "nothing" if given is None else repr(given)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    allowed = allowed or _PLAIN.get(str(item["type"]).partition("_")[0], "")
    return field_error(path, f"{shown}: {str(item['msg']).removeprefix('Value error, ')}", allowed)


# What pydantic's kinds of error ask for, where no model says more.
_PLAIN = {"int": "integer", "float": "number", "bool": "true or false", "string": "text"}
