"""The application: composition only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from pipeline.engine import Engine
from service.auth import AccessRule, origin_of
from service.context import Context
from service.limits import BodyLimit
from service.live import Hub
from service.problems import install_problem_handlers
from service.profile import Profiler
from service.routes import (
    cameras,
    catalogue,
    chain,
    configuration,
    controls,
    health,
    live,
    metrics,
    page,
    profile,
    state,
    trace,
    whep,
)
from service.settings import Settings
from service.version import version
from service.whep import Sessions

log = logging.getLogger("pinhole.app")

ENGINE_DEADLINE_S = 1.0

# What pages of the origins that are allowed may send, and read of an answer.
CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
CORS_HEADERS = ("Authorization", "Content-Type")
EXPOSED_HEADERS = (
    "X-Timestamp", "X-Frame-Sequence", "X-Frame-Age-Ms", "X-Chain-Version", "X-Frame-Width", "X-Frame-Height",
    "X-Pixel-Format", "X-Pinhole-Placeholder", "X-Pinhole-Stale", "Retry-After", "Location", "Link",
)  # fmt: skip

_RESOURCES = (page, health, metrics, state, configuration, catalogue, cameras, controls, trace, profile, live, whep)


def create_app(engine: Engine, settings: Settings, *, memory_reason: str = "") -> FastAPI:
    """The service over an engine, which starts and stops with it.

    ``app.state.pinhole`` is the :class:`Context`; whoever serves the application awaits its ``hub.stop()`` before the
    lifespan ends (``service.server`` does).

    Raises:
        PluginError: an op's file is broken.
    """
    limits = settings.limits
    hub = Hub(lambda: engine.cameras, max_viewers=limits.max_viewers, max_variants=limits.max_variants)

    sessions = Sessions(hub, settings)
    profiler = Profiler(lambda: engine.gpu or engine.device)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(engine.start)
        try:
            yield
        finally:
            await hub.stop()
            await sessions.stop()
            await profiler.close()
            late = await anyio.to_thread.run_sync(engine.stop, ENGINE_DEADLINE_S)
            if not late:
                log.info("all cameras stopped, all frames given back")

    app = FastAPI(
        title="Pinhole",
        version=version(),
        summary="Watches cameras and shows where every microsecond of a frame's latency went.",
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.pinhole = Context(engine, hub, settings, profiler, sessions, memory_reason)
    install_problem_handlers(app)
    for router in (*(resource.router for resource in _RESOURCES), chain.make_router()):
        app.router.routes.extend(router.routes)
    app.add_middleware(BodyLimit, max_bytes=limits.max_body_bytes)
    app.add_middleware(AccessRule, settings=settings)
    if settings.allow_origins:  # the last one added is the first to see a request: browsers ask it without a token
        app.add_middleware(
            CORSMiddleware, allow_origins=[origin_of(origin) for origin in settings.allow_origins],
            allow_credentials=True, allow_methods=CORS_METHODS, allow_headers=CORS_HEADERS,
            expose_headers=EXPOSED_HEADERS, max_age=600,
        )  # fmt: skip
    return app


def __getattr__(name: str) -> FastAPI:
    if name == "app":  # what `uvicorn service.app:app --workers 2` looks for, and every worker would open the cameras
        raise RuntimeError("one process owns the cameras and serves all viewers; start it with `pinhole serve`")
    raise AttributeError(name)
