"""The real server in a thread of the test's own process: for tests that look inside, or need a scripted source."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import uvloop

from kernels.chain import Chain
from kernels.device import Device, HostDevice
from pipeline.camera import CameraConfig, SourceFactory
from pipeline.engine import Engine
from pipeline.sources import make_source
from service.app import create_app
from service.connection import listen
from service.context import Context
from service.live import Hub
from service.server import Server
from service.settings import Settings
from tests.helpers.server import Client

# libuv keeps two descriptors for the life of the process from the first loop on: not a leak of what is tested.
uvloop.new_event_loop().close()


class Served(Client):
    """A service in this process."""

    def __init__(self, url: str, context: Context, server: Server) -> None:
        super().__init__(url)
        self.context = context
        self.server = server

    @property
    def engine(self) -> Engine:
        return self.context.engine


def start_workers(hub: Hub) -> None:
    """Have all of the hub's threads run: one that a test happens to start would be something it leaves behind."""
    for pool in (hub._live_pool, hub._still_pool):
        together = threading.Barrier(pool._max_workers)
        for _ in range(pool._max_workers):
            pool.submit(together.wait, 10)


@contextmanager
def serving(
    cameras: Mapping[str, str],
    *,
    settings: Settings | None = None,
    chains: Mapping[str, Chain] | None = None,
    device: Device | None = None,
    source_factory: SourceFactory = make_source,
    stale_after_s: float = 3.0,
    ready: bool = True,
) -> Iterator[Served]:
    """Serve ``cameras`` (name to URI) on a free port; everything is stopped, and every slot back, at exit."""
    settings = settings if settings is not None else Settings()
    engine = Engine(device if device is not None else HostDevice(), source_factory=source_factory)
    for name, uri in cameras.items():
        chain = (chains or {}).get(name, Chain())
        engine.add(CameraConfig(name, uri, chain, stale_after_s=stale_after_s), start=False, check=False)
    app = create_app(engine, settings, memory_reason="a test")
    context: Context = app.state.pinhole
    started = threading.Event()
    urls: list[str] = []

    def at(url: str) -> None:
        urls.append(url)
        started.set()

    listener = listen(settings.host, 0)
    server = Server(app, listener, stop_viewers=context.hub.stop, started_at=at)
    thread = threading.Thread(target=server.serve_forever, name="server")
    thread.start()
    try:
        assert started.wait(20), "did not start"
        served = Served(urls[0], context, server)
        start_workers(context.hub)
        if ready:
            served.until(lambda: served.get("/health/ready").status == 200, 20)
        yield served
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        held = engine.device.ledger.held("host")
    assert not thread.is_alive(), "the server did not end"
    assert held == 0, f"{held} bytes of slots were not given back"
