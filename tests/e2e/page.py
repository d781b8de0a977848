"""The page, opened in a real browser and watched; and a proxy that is bad at WebSockets, as some are."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from tests.helpers.chromium import Watched
from tests.helpers.server import Client

if TYPE_CHECKING:  # not installed everywhere
    from playwright.sync_api import Browser, Page

WAIT_MS = 15_000  # for what a loaded machine does late

HIDE_JS = """hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@contextmanager
def opened(
    browser: Browser,
    url: str,
    path: str = "/",
    width: int = 1280,
    height: int = 900,
    expected: str = "",
    moving: bool = True,
    transport: str = "websocket",
    **options: Any,
) -> Iterator[Page]:
    """The page, moving; at exit it must have logged no error but ``expected`` and asked nobody else for anything.

    ``transport`` is what the user has chosen before, "" the best there is.
    """
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.add_init_script(f"""localStorage["pinhole.transport"] ??= "{transport}";""")
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    watched = Watched(page, url)
    try:
        page.goto(url + path)
        if moving:
            until(lambda: picture_width(page) > 16, "a picture")
        yield page
        complaints = [text for text in watched.complaints if not (expected and re.search(expected, text))]
        assert complaints == [], complaints
        assert watched.foreign == []
    finally:
        context.close()


def picture_width(page: Page, selector: str = "#live") -> int:
    """Of the picture as it was sent, in px; 0 while there is none."""
    width: int = page.eval_on_selector(selector, "canvas => canvas.width")
    return width


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_MS / 1000) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.03)


def viewers(service: Client) -> dict[str, int]:
    """How many live viewers each camera has, by ``/api/v1/state``."""
    cameras = service.get("/api/v1/state").json()["cameras"]
    return {name: camera["viewers"] for name, camera in cameras.items()}


@contextmanager
def bad_proxy(port: int, upgrades: Literal["refused", "swallowed"]) -> Iterator[str]:
    """The URL of a proxy before that port, which hands on everything but WebSockets."""
    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                opened.append(client)
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        def serve(client: socket.socket) -> None:
            with suppress(OSError):
                head = b""
                while b"\r\n\r\n" not in head:
                    chunk = client.recv(65536)
                    if not chunk:
                        return
                    head += chunk
                if b"\r\nupgrade:" in head.lower():
                    if upgrades == "refused":
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        client.close()
                    return
                server = socket.create_connection(("127.0.0.1", port))
                opened.append(server)
                server.sendall(head)
                threading.Thread(target=pump, args=(server, client), daemon=True).start()
                pump(client, server)

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while chunk := source.recv(65536):
                    sink.sendall(chunk)
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for end in opened:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
