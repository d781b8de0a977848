"""The health check of the containers, against services that are well, not ready, locked, or not there."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from service import health
from service.cli import main
from service.health import ask, default_url
from tests.helpers.server import SMALL_CARD, environment, serve


def test_a_service_is_asked_where_it_listens(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token")
    args = ("--camera", f"a={SMALL_CARD}", "--token-file", str(token))
    with serve(*args) as server:
        assert ask(server.url)[0]
        assert ask(server.url + "/", "ready")[0]
        done = subprocess.run(
            [sys.executable, "-m", "service.health"],
            env=environment(PINHOLE_PORT=str(server.port), http_proxy="http://127.0.0.1:9"),
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, '{"status":"alive"}\n')
        assert CliRunner().invoke(main, ["health", "--url", server.url, "--ready"]).exit_code == 0


def test_a_service_without_a_picture_is_alive_and_not_ready(tmp_path: Path) -> None:
    file = tmp_path / "noise.mp4"
    file.write_bytes(b"no video" * 100)
    with serve("--camera", f"gone={file.as_uri()}", ready=False) as server:
        assert ask(server.url)[0]
        healthy, text = ask(server.url, "ready")
        assert not healthy
        assert "503" in text
        assert "gone" in text
        assert CliRunner().invoke(main, ["health", "--url", server.url, "--ready"]).exit_code == 1


def test_nobody_there_and_nobody_answering() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert not ask(url)[0]
        listener.listen()
        healthy, text = ask(url, timeout_s=0.3)
        assert not healthy
        assert "no answer" in text
    for url in ("nonsense", "http://", "ftp://127.0.0.1:1"):
        assert not ask(url)[0]
    assert CliRunner().invoke(main, ["health", "--url", "http://127.0.0.1:9"]).exit_code == 1
    done = CliRunner().invoke(main, ["health", "--port", "9"])
    assert done.exit_code == 1
    assert "http://127.0.0.1:9" in done.output
    assert CliRunner().invoke(main, ["health", "--port", "9", "--url", "http://127.0.0.1:9"]).exit_code == 2


@pytest.mark.parametrize(("port", "expected"), [("9000", 9000), ("", 8080), ("tcp://10.0.0.1:80", 8080)])
def test_the_port_is_the_containers_own(port: str, expected: int) -> None:
    assert default_url({"PINHOLE_PORT": port}) == f"http://127.0.0.1:{expected}"
    assert default_url({}) == "http://127.0.0.1:8080"


def test_it_imports_nothing_but_the_standard_library() -> None:
    """It starts every few seconds beside the service."""
    tree = ast.parse(Path(health.__file__).read_text())
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)
