"""``/``: the page, its files, and the query forms of mjpg-streamer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.context import Shared
from service.inputs import QueryModel, read_query
from service.problems import Problem, field_error
from service.queries import SnapshotQuery
from service.routes import readable
from service.routes.live import first_camera, snapshot_of, stream_of
from service.ustreamer import MjpegQuery

router = APIRouter(include_in_schema=False)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file of the page, in memory."""

    data: bytes
    media_type: str
    etag: str


@cache
def static_files() -> dict[str, StaticFile]:
    """The page's files by name, as ``page.js`` and ``vendor/uPlot.min.css``. Read once: no request becomes a path."""
    folder = resources.files("service").joinpath("static")
    found = {}
    for prefix, place in (("", folder), ("vendor/", folder.joinpath("vendor"))):
        for entry in place.iterdir():
            suffix = "." + entry.name.rpartition(".")[2]
            if entry.is_file() and suffix in _TYPES:
                data = entry.read_bytes()
                found[prefix + entry.name] = StaticFile(data, _TYPES[suffix], f'"{sha256(data).hexdigest()[:16]}"')
    return found


@readable(router, "/")
async def page(request: Request, shared: Shared) -> Response:
    actions = request.query_params.getlist("action")
    if not actions:
        read_query(QueryModel, request)
        return _file("index.html", request)
    if actions == ["stream"]:
        return stream_of(first_camera(shared), read_query(MjpegQuery, request, ignore=("action",)), shared)
    if actions == ["snapshot"]:
        return await snapshot_of(first_camera(shared), read_query(SnapshotQuery, request, ignore=("action",)), shared)
    wrong = [field_error("action", f"{actions[0][:60]!r} is not an action", "stream, snapshot")]
    raise Problem(422, "action is stream or snapshot", type="urn:pinhole:invalid-input", errors=wrong)


@readable(router, "/static/{name}")
async def static(name: str, request: Request) -> Response:
    return _file(name, request)


@readable(router, "/static/vendor/{name}")
async def vendored(name: str, request: Request) -> Response:
    return _file(f"vendor/{name}", request)


@readable(router, "/favicon.ico")
async def favicon(request: Request) -> Response:
    return _file("icon.svg", request)


def _file(name: str, request: Request) -> Response:
    file = static_files().get(name)
    if file is None:
        raise Problem(404, "there is no such file")
    headers = {**_PAGE_HEADERS, "ETag": file.etag, "Content-Type": file.media_type}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers=headers)
