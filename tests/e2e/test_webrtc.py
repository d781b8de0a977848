"""WebRTC as a browser has it: the service's own module in Chromium, without the page around it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from tests.e2e.page import until, viewers
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import Server
from tests.helpers.whep import needs_address

if TYPE_CHECKING:  # not installed everywhere
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.program("chromium"), needs_address]

# What each frame was said to be, and every fifth one as it was then.
PLAY = """async ([path, frames]) => {
    const { playWhep } = await import("/static/webrtc.js");
    const video = document.body.appendChild(document.createElement("video"));
    const canvas = document.createElement("canvas");
    const control = new AbortController();
    const told = [];
    const onFrame = (frame) => {
        if (told.length % 5 === 0) {
            Object.assign(canvas, { width: video.videoWidth, height: video.videoHeight });
            canvas.getContext("2d").drawImage(video, 0, 0);
            frame.picture = canvas.toDataURL();
        }
        told.push(frame);
        if (told.length === frames) control.abort();
    };
    const started = performance.now();
    try {
        await playWhep({ url: path, video, onFrame, signal: control.signal });
        return { told, left: video.srcObject };
    } catch (error) {
        return { told, left: video.srcObject, error: error.message, ms: performance.now() - started };
    }
}"""


def play(browser: Browser, service: Server, path: str, frames: int = 40) -> Any:
    page = browser.new_page()
    try:
        page.goto(service.url + "/health/live")
        return page.evaluate(PLAY, [path, frames])
    finally:
        page.close()


def test_each_frame_that_is_shown_is_the_one_that_is_named(browser: Browser, service: Server) -> None:
    played = play(browser, service, "/cameras/card/whep")
    assert "error" not in played, played
    assert played["left"] is None
    read = 0
    for frame in played["told"]:
        if "sequence" not in frame or "picture" not in frame:
            continue
        data = np.frombuffer(base64.b64decode(frame["picture"].partition(",")[2]), np.uint8)
        picture = cv2.imdecode(data, cv2.IMREAD_COLOR)
        assert picture is not None
        assert picture.shape == (360, 640, 3)
        # The video may have come to its next frame by the time the canvas takes it.
        assert read_codes(picture)[0] in range(frame["sequence"], frame["sequence"] + 4)
        assert 0 < frame["age_ms"] < 60_000
        read += 1
    assert read >= 4
    assert any("sequence" in frame for frame in played["told"])
    until(lambda: viewers(service) == {"card": 0, "small": 0}, "the session's end")


def test_what_does_not_come_is_said_at_once(browser: Browser, service: Server) -> None:
    played = play(browser, service, "/cameras/nobody/whep")
    assert "nobody" in played["error"]
    assert played["told"] == []
    assert played["ms"] < 5000
