"""The sample configurations of proxies, with the real programs: what comes passes at once, for each viewer alone."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from service.settings import Settings
from tests.benchmarks.bench_host import free_port
from tests.helpers.inprocess import Served, serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD, Client
from tests.helpers.websocket import received, watching
from tests.programs import program

DEPLOY = Path(__file__).parents[2] / "deploy"
CARD = "testcard://?size=1280x720&fps=30&format=BGR8"


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[Client]:
    """A proxy on ``port``, until the body ends."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    client = Client(f"http://127.0.0.1:{port}")
    try:
        until = time.monotonic() + 20
        while True:
            try:
                if client.get("/health/live").status == 200:
                    break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
        yield client
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def nginx(served: Served, folder: Path) -> Iterator[Client]:
    """nginx with the sample configuration; only its addresses, its log's place and its name are this test's."""
    port = free_port()
    text = (DEPLOY / "nginx" / "pinhole.conf").read_text()
    changes = {
        "server 127.0.0.1:8080;": f"server 127.0.0.1:{served.port};", "listen 80 ": f"listen 127.0.0.1:{port} ",
        "cam.example;": "127.0.0.1;", "/var/log/nginx/": f"{folder}/",
    }  # fmt: skip
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "pinhole.conf").write_text(text)
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;\n"
        f"events {{ worker_connections 256; }}\nhttp {{ {temporary} include {folder}/pinhole.conf; }}\n"
    )
    command = [program("nginx"), "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
    with running(command, port, folder / "out") as client:
        yield client


@contextmanager
def caddy(served: Served, folder: Path) -> Iterator[Client]:
    """Caddy with the sample configuration, without TLS."""
    port = free_port()
    text = (DEPLOY / "caddy" / "Caddyfile").read_text()
    changes = {"127.0.0.1:8080": f"127.0.0.1:{served.port}", "\ncam.example {": f"\nhttp://127.0.0.1:{port} {{"}
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    options = "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + str(folder) + "\n}\n"
    (folder / "Caddyfile").write_text(options + text)
    command = [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with running(command, port, folder / "out") as client:
        yield client


PROXIES = [
    pytest.param(nginx, id="nginx", marks=pytest.mark.program("nginx")),
    pytest.param(caddy, id="caddy", marks=pytest.mark.program("caddy")),
]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_passes_on_what_comes_as_it_comes(proxy: object, tmp_path: Path) -> None:
    assert callable(proxy)
    with serving({"cam": SMALL_CARD}) as served, proxy(served, tmp_path) as client:
        assert client.get("/snapshot").headers["x-frame-sequence"].isdecimal()
        with watching(client.port, "/cameras/cam/ws", origin=client.url) as socket:
            sequences = [received(socket).header["sequence"] for _ in range(20)]
            newest = served.get("/api/v1/cameras/cam").json()["sequence"]
        assert sequences == sorted(set(sequences))
        assert newest - sequences[-1] <= 10, "nothing waits in a buffer"
        with pytest.raises(InvalidStatus), watching(client.port, "/cameras/cam/ws", origin="http://evil.test"):
            pass
        with client_stream(client) as stream:
            parts = list(itertools.islice(stream, 20))
            newest = served.get("/api/v1/cameras/cam").json()["sequence"]
        numbers = [int(part) for part in parts]
        assert numbers == sorted(set(numbers))
        assert newest - numbers[-1] <= 10, "nothing waits in a buffer"
        served.until(lambda: served.metric("pinhole_viewers") == 0)


@contextmanager
def client_stream(client: Client) -> Iterator[Iterator[str]]:
    """The numbers of the frames as they arrive; a proxy may frame the body in chunks."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request("GET", "/stream")
    reply = connection.getresponse()
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("multipart/x-mixed-replace")

    def numbers() -> Iterator[str]:
        while True:
            line = reply.readline()
            assert line, "the stream ended"
            if found := re.match(rb"X-Frame-Sequence: (\d+)", line):
                yield found[1].decode()

    try:
        yield numbers()
    finally:
        reply.close()
        connection.close()


@pytest.mark.program("nginx")
def test_b04_a_slow_viewer_behind_nginx_is_not_late_and_slows_nobody_down(tmp_path: Path) -> None:
    with (
        serving({"cam": CARD}) as served,
        nginx(served, tmp_path) as client,
        StreamClient(client.port, "/stream?quality=95", version="1.0", chunks=lambda: 16384, rcvbuf=16384) as slow,
        StreamClient(client.port, "/stream", version="1.0") as quick,
    ):
        parts, others = slow.parts(), quick.parts()
        next(parts)
        lags = []
        for _ in range(20):
            seen = [int(next(others).headers["x-frame-sequence"]) for _ in range(6)]
            lags.append(seen[-1] - int(next(parts).headers["x-frame-sequence"]))
            assert seen[-1] - seen[0] <= 30, "the other one gets its frames"
        # nginx and the kernel on its two sides hold about 300 kB, eight of these frames, each of which takes 6 periods.
        # What nginx would hold of its own, it would hold for ever: 5 frames more at each turn.
        assert max(lags) <= 75, f"the lag grows: {lags}"


@pytest.mark.program("nginx")
def test_the_token_is_asked_for_and_not_logged_by_nginx(tmp_path: Path) -> None:
    from pydantic import SecretStr

    token = "s3cret-s3cret-s3cret"
    with serving({"cam": SMALL_CARD}, settings=Settings(token=SecretStr(token)), ready=False) as served:
        with nginx(served, tmp_path) as client:
            assert client.get("/snapshot").status == 401
            served.until(lambda: client.get(f"/snapshot?token={token}").status == 200)
        logged = (tmp_path / "pinhole.log").read_text()
    assert '"GET /snapshot HTTP/1.1" 200' in logged
    assert token not in logged
