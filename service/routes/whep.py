"""``/cameras/{camera}/whep``: WebRTC by WHEP (draft-ietf-wish-whep)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.context import Context, Shared
from service.inputs import query_parameters, read_query
from service.problems import Problem
from service.queries import VideoQuery
from service.whep import MEDIA_TYPE

router = APIRouter(tags=["live"])

RESOURCE, SESSION = "/cameras/{camera}/whep", "/cameras/{camera}/whep/{session}"


@router.post(
    RESOURCE, status_code=201, response_model=None,
    summary="The live picture as H.264 over WebRTC: an SDP offer in, the answer out; DELETE its Location to end it",
    openapi_extra={
        "parameters": query_parameters(VideoQuery),
        "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
    },
)  # fmt: skip
async def whep_offer(camera: str, request: Request, shared: Shared) -> Response:
    variant = read_query(VideoQuery, request).variant(camera)
    shared.engine.get(camera)
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != MEDIA_TYPE:
        detail = f"the body is an offer, {MEDIA_TYPE}, not {given[:60] or 'of no type'}"
        raise Problem(415, detail, type="urn:pinhole:media-type", headers={"Accept-Post": MEDIA_TYPE})
    offer = (await request.body()).decode("utf-8", "replace")
    session, answer = await shared.sessions.open(variant, offer)
    headers = {"Location": f"/cameras/{camera}/whep/{session}", "Cache-Control": "no-store", **_links(shared)}
    return Response(answer, 201, headers, MEDIA_TYPE)


@router.options(RESOURCE, include_in_schema=False)
async def whep_options(camera: str, shared: Shared) -> Response:
    shared.engine.get(camera)
    return Response(None, 204, {"Allow": "OPTIONS, POST", "Accept-Post": MEDIA_TYPE, **_links(shared)})


# Any other method, PATCH for candidates that trickle in among them, is answered with 405: as the draft allows.
@router.delete(SESSION, response_model=None, summary="End a WebRTC session")
async def whep_end(camera: str, session: str, shared: Shared) -> Response:
    shared.sessions.close(camera, session)
    return Response(None, 200)


def _links(shared: Context) -> dict[str, str]:
    servers = [f'<{url}>; rel="ice-server"' for url in shared.settings.ice_servers]
    return {"Link": ", ".join(servers)} if servers else {}
