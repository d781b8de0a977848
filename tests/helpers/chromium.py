"""The system's Chromium without a window, driven by Playwright; no browser of Playwright's own is downloaded."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import numpy.typing as npt

from tests.programs import program

if TYPE_CHECKING:  # imported when it is used: a machine without Chromium need not have it either
    from playwright.sync_api import Browser, Page, Request

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

Pixels = npt.NDArray[np.uint8]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser; it and Playwright's helper process are ended at exit.

    Between, the calling thread counts as one with a running event loop: not for the whole of a test session.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """What a page did that nobody asked for: errors it logged, and what it wanted from elsewhere."""

    def __init__(self, page: Page, url: str) -> None:
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self._url = url
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def _said(self, kind: str, text: str) -> None:
        if kind == "error":
            self.complaints.append(text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self._url):
            self.foreign.append(request.url)


def shown_picture(page: Page, selector: str = "#live") -> Pixels:
    """What an <img> or <canvas> shows now, pixel by pixel in its own size: (H, W, 3) BGR.

    Waits for a first picture after the address of an <img> has changed.
    """
    data: Any = page.eval_on_selector(
        selector,
        """async (element) => {
            const until = performance.now() + 10000;
            while (element.naturalWidth === 0 && performance.now() < until) await new Promise(requestAnimationFrame);
            const canvas = document.createElement("canvas");
            canvas.width = element.naturalWidth ?? element.width;
            canvas.height = element.naturalHeight ?? element.height;
            canvas.getContext("2d").drawImage(element, 0, 0);
            return canvas.toDataURL("image/png");
        }""",
    )
    encoded = np.frombuffer(base64.b64decode(data.partition(",")[2]), np.uint8)
    picture = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    assert picture is not None
    return np.asarray(picture, np.uint8)
