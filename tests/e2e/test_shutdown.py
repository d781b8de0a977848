"""The end: in under two seconds, with exit code 0, whatever is connected, and the same port at once again."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from pipeline.engine import Engine
from service.live import Viewer
from tests.helpers.inprocess import serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD, Server, serve
from tests.helpers.websocket import silent_viewer

QUERIES = ("", "?quality=40", "?width=160", "?width=320&quality=90", "?view=source")


def connect(server: Server, count: int = 20) -> list[StreamClient]:
    """Viewers of which one in five never reads."""
    clients = []
    for number in range(count):
        query = QUERIES[number % len(QUERIES)]
        client = StreamClient(server.port, f"/stream{query}", rcvbuf=2048 if number % 5 == 0 else None)
        clients.append(client)
        if number % 5:
            next(client.parts())
    server.until(lambda: server.metric("pinhole_viewers") == count)
    return clients


def test_b55_b56_twenty_viewers_ten_times_on_the_same_port() -> None:
    port = 0
    for number in (signal.SIGTERM, signal.SIGINT) * 5:
        with serve("--camera", f"cam={SMALL_CARD}", port=port) as server:
            port = server.port
            clients = connect(server)
            code, took_s = server.end(number)
            for client in clients:
                client.socket.close()
        assert code == 0, server.log
        assert took_s < 2.0
        assert "all cameras stopped, all frames given back" in server.log
        assert "stopped" in server.lines[-1]
        assert "did not end" not in server.log


def test_b55_a_hundred_viewers_of_both_kinds_some_of_whom_never_read() -> None:
    with serve("--camera", f"cam={SMALL_CARD}", "--max-viewers", "200") as server, contextlib.ExitStack() as stack:
        for number in range(50):
            query = QUERIES[number % len(QUERIES)]
            rcvbuf = 2048 if number % 5 == 0 else None
            client = stack.enter_context(StreamClient(server.port, f"/stream{query}", rcvbuf=rcvbuf))
            viewer = stack.enter_context(silent_viewer(server.port, f"/cameras/cam/ws{query}", rcvbuf))
            if number % 5:
                next(client.parts())
                viewer.recv(1000)
        server.until(lambda: server.metric("pinhole_viewers") == 100)
        code, took_s = server.end()
    assert code == 0, server.log
    assert took_s < 2.0
    assert "all cameras stopped, all frames given back" in server.log
    assert "did not end" not in server.log


def test_b55_every_viewer_has_let_go_before_memory_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    release, stop = Viewer.release, Engine.stop

    def released(self: Viewer) -> None:
        order.append("released")
        release(self)

    def stopped(self: Engine, *args: float) -> object:
        order.append("stopped")
        return stop(self, *args)

    monkeypatch.setattr(Viewer, "release", released)
    monkeypatch.setattr(Engine, "stop", stopped)
    with serving({"cam": SMALL_CARD}) as served, contextlib.ExitStack() as stack:
        for number in range(10):
            rcvbuf = 2048 if number % 2 else None
            stack.enter_context(StreamClient(served.port, "/stream", rcvbuf=rcvbuf))
            stack.enter_context(silent_viewer(served.port, "/cameras/cam/ws", rcvbuf))
        served.until(lambda: served.metric("pinhole_viewers") == 20)
        order.clear()
        served.server.should_exit = True
        served.until(lambda: "stopped" in order)
    assert order[:20] == ["released"] * 20
    assert order[20] == "stopped"


def test_b43_killed_services_leave_nothing_behind_and_the_next_one_starts() -> None:
    def shared_memory() -> set[str]:
        return {entry.name for entry in Path("/dev/shm").iterdir() if "chromium" not in entry.name}

    before, port = shared_memory(), 0
    for _ in range(5):
        with serve("--camera", f"cam={SMALL_CARD}", port=port) as server:
            port = server.port
            server.process.kill()
            server.process.wait(10)
    assert shared_memory() <= before
    with serve("--camera", f"cam={SMALL_CARD}", port=port) as server:
        assert server.end()[0] == 0


@pytest.mark.parametrize("pause_s", [0.0, 0.02, 0.15])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_b56_a_second_signal_changes_nothing(second: signal.Signals, pause_s: float) -> None:
    with serve("--camera", f"cam={SMALL_CARD}") as server:
        clients = connect(server, 5)
        server.process.send_signal(signal.SIGINT)
        for _ in range(3):
            time.sleep(pause_s)
            if server.process.poll() is None:
                server.process.send_signal(second)
        assert server.process.wait(10) == 0, server.log
        for client in clients:
            client.socket.close()
    assert "all cameras stopped, all frames given back" in server.log


@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6, 0.9, 1.2])
def test_a_signal_during_the_start_ends_it_with_code_0(after_s: float) -> None:
    import subprocess

    from tests.helpers.server import command, environment

    process = subprocess.Popen(
        command("serve", "--port", "0", "--camera", f"cam={SMALL_CARD}"),
        stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=20)
    assert "Traceback" not in text
    if "pinhole" in text:
        assert process.returncode == 0, text


def test_b55_the_end_with_requests_of_every_kind_under_way() -> None:
    with serve("--camera", f"cam={SMALL_CARD}", "--camera", "gone=opencv:///dev/video97", ready=False) as server:
        clients = connect(server, 3)
        idle = socket.create_connection(("127.0.0.1", server.port))
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(b"PUT /api/v1/cameras/cam/chain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 100\r\n\r\n{")  # fmt: skip
        placeholder = StreamClient(server.port, "/cameras/gone/stream")
        assert next(placeholder.parts()).headers["x-pinhole-placeholder"].startswith("reconnecting")
        code, took_s = server.end()
        for connection in (idle, half, placeholder.socket, *(client.socket for client in clients)):
            connection.close()
    assert code == 0, server.log
    assert took_s < 2.0


def test_b15_b55_the_end_while_a_library_hangs_in_a_call() -> None:
    """OpenCV waits eight seconds for a stream that never answers, and cannot be interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        name = f"http%3A%2F%2F127.0.0.1%3A{silent.getsockname()[1]}%2Fx"
        with serve("--camera", f"deaf=opencv://?name={name}", ready=False) as server:
            connection, _ = silent.accept()
            code, took_s = server.end()
            connection.close()
    assert code == 0, server.log
    assert took_s < 5.0
    assert "camera deaf: cap-deaf did not end in time" in server.log


def test_viewers_see_a_clean_end_of_the_stream() -> None:
    with serving({"cam": SMALL_CARD}) as served, StreamClient(served.port, "/stream") as client:
        parts = client.parts()
        next(parts)
        served.server.should_exit = True
        assert all(part.body for part in parts), "until the server closes, whole parts only"


def test_in_process_nothing_is_left_after_viewers_of_every_kind() -> None:
    """Threads and descriptors are checked by the test's own guard, slots by ``serving``."""
    with serving({"cam": SMALL_CARD, "other": SMALL_CARD}) as served:
        clients = [StreamClient(served.port, f"/cameras/cam/stream{query}") for query in QUERIES * 2]
        clients += [StreamClient(served.port, "/cameras/other/stream", rcvbuf=2048)]
        snapshots = [threading.Thread(target=served.get, args=("/snapshot?format=png",)) for _ in range(5)]
        for thread in snapshots:
            thread.start()
        for client in clients[:5]:
            next(client.parts())
        for thread in snapshots:
            thread.join()
        clients[0].reset()
        served.server.should_exit = True
        time.sleep(0.3)
        for client in clients[1:]:
            client.socket.close()
