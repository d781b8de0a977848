"""The real ``pinhole serve`` as a child process, for tests with real clients."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

READY_S = 30.0  # a noisy machine imports OpenCV slowly
SMALL_CARD = "testcard://?size=352x128&fps=30"

_URL = re.compile(r"Pinhole \S+ on (http://[^\s;]+);")


@dataclass(slots=True)
class Reply:
    """One answer: status, header fields in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Talks to a service at ``url``."""

    def __init__(self, url: str = "") -> None:
        self.url = url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10,
    ) -> Reply:
        """One request; an error status is a reply like any other. ``body`` that is not bytes is sent as JSON."""
        fields = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            fields = {"Content-Type": "application/json", **fields}
        request = urllib.request.Request(self.url + path, data=body, headers=fields, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels as they stand in the text."""
        lines = self.get("/metrics").body.decode().splitlines()
        return {name: float(value) for name, _, value in (li.rpartition(" ") for li in lines if li and li[0] != "#")}

    def metric(self, name: str, **labels: str) -> float:
        """The sum over the samples of that name with those labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if sample.partition("{")[0] == name and all(label in sample for label in wanted)
        )

    def until(self, condition: Any, timeout_s: float = 10.0) -> float:
        """Wait for ``condition()``; returns how long it took."""
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < timeout_s, f"did not happen within {timeout_s} s\n{self.log}"
            time.sleep(0.02)
        return time.monotonic() - started

    @property
    def log(self) -> str:
        return ""


class Server(Client):
    """A running service; ``lines`` is what it logged, complete once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        self.process = process
        self.lines: list[str] = []

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 20.0) -> tuple[int, float]:
        """Send a signal; the exit code and how many seconds it took to end."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        return code, time.monotonic() - started


def command(*args: str) -> list[str]:
    """The command with resource warnings as errors, so that what it leaves behind shows in its log."""
    return [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-m", "service", *args]


def environment(**variables: str) -> dict[str, str]:
    """The test's own without what would change the service."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PINHOLE_TOKEN", "WEB_CONCURRENCY")}
    return {**kept, "PYTHONUNBUFFERED": "1", **variables}


@contextmanager
def serve(*args: str, port: int = 0, ready: bool = True, **variables: str) -> Iterator[Server]:
    """Run ``pinhole serve`` on a free port; ended and checked for leaks of its own at exit.

    ``ready`` waits for the first processed frame of every camera.
    """
    process = subprocess.Popen(
        command("serve", "--port", str(port), *args),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(**variables),
    )  # fmt: skip
    server = Server(process)
    started = threading.Event()
    assert process.stderr is not None
    reader = threading.Thread(target=_read, args=(process.stderr, server, started), daemon=True)
    reader.start()
    try:
        assert started.wait(READY_S), f"did not start; log:\n{server.log}"
        assert server.url, f"ended instead of starting; log:\n{server.log}"
        if ready:
            server.until(lambda: server.get("/health/ready").status == 200, READY_S)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        process.stderr.close()
    assert "ResourceWarning" not in server.log, server.log
    assert "Traceback" not in server.log, server.log


def _read(stream: IO[str], server: Server, started: threading.Event) -> None:
    for line in stream:
        server.lines.append(line.rstrip("\n"))
        if not server.url and (match := _URL.search(line)):
            server.url = match[1]
            started.set()
    started.set()
