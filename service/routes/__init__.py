"""One resource per file; each has a ``router``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def readable(router: APIRouter, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
    """Register an endpoint for GET and, outside the schema, for HEAD."""

    def register(endpoint: Endpoint) -> Endpoint:
        router.add_api_route(path, endpoint, methods=["GET"], response_model=None, **options)
        router.add_api_route(path, endpoint, methods=["HEAD"], response_model=None, include_in_schema=False)
        return endpoint

    return register
