"""Many cameras in one browser: all move, only what is on screen is streamed, and at the size at which it is shown."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.e2e.page import HIDE_JS, bad_proxy, opened, until, viewers
from tests.helpers.server import Server, serve

pytest.importorskip("playwright", reason="Playwright is not installed")
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.program("chromium")

CAMERAS = 14  # more than the browser has connections for a host, twice
FPS = 8


def cameras(count: int) -> list[str]:
    given = [("--camera", f"cam{i}=testcard://?size=640x360&fps={FPS}") for i in range(count)]
    return [word for words in given for word in words]


@pytest.fixture(scope="module")
def service() -> Iterator[Server]:
    with serve(*cameras(CAMERAS)) as server:
        yield server


SUMS_JS = """() => [...document.querySelectorAll(".tile canvas")].map((canvas) => {
    if (canvas.width === 0) return 0;
    const small = new OffscreenCanvas(48, 27).getContext("2d");
    small.drawImage(canvas, 0, 0, 48, 27);
    return small.getImageData(0, 0, 48, 27).data.reduce((sum, value, i) => (sum + value * (i % 251)) % 1e9, 1);
})"""


def moved(page: Page, count: int = CAMERAS) -> list[bool]:
    """For each tile, whether its picture becomes another within the time a machine that is busy may take."""
    expect(page.locator(".tile")).to_have_count(count)
    first: list[int] = page.evaluate(SUMS_JS)
    changed = [False] * len(first)

    def all_changed() -> bool:
        for index, value in enumerate(page.evaluate(SUMS_JS)):
            changed[index] |= value not in (0, first[index])
        return all(changed)

    with suppress(AssertionError):
        until(all_changed, "movement", 8)
    return changed


def test_with_one_browser_every_camera_moves_and_hidden_none_is_asked(browser: Browser, service: Server) -> None:
    with opened(browser, service.url, "/#/grid", moving=False) as page:
        assert all(moved(page)), "each of them"
        assert set(viewers(service).values()) == {1}
        expect(page.locator("#grid-said")).to_have_text(f"{CAMERAS} of {CAMERAS} on screen, by WebSocket")
        expect(page.locator(".tile .badge.good")).to_have_count(CAMERAS)
        # Tiles are about 300 px wide here.
        shown = page.locator(".tile").first.bounding_box()
        assert shown is not None
        width = min(width for width in (160, 320, 480, 640) if width >= shown["width"])
        asked = service.get("/api/v1/cameras/cam3").json()["viewers"]["connections"]
        assert [(one["kind"], one["width"]) for one in asked] == [("websocket", width)]
        page.evaluate(HIDE_JS, True)
        until(lambda: set(viewers(service).values()) == {0}, "the end of all streams")
        page.evaluate(HIDE_JS, False)
        until(lambda: set(viewers(service).values()) == {1}, "all of them again")
        page.get_by_role("link", name="cam2: ").press("Enter")
        expect(page.locator("#name")).to_have_text("cam2")
        until(lambda: sum(viewers(service).values()) == 1, "that one alone")
        expect(page.locator("#picture")).to_be_focused()
        page.keyboard.press("g")
        expect(page.get_by_role("link", name="cam2: ")).to_be_focused()
        page.go_back()
        expect(page.locator("#name")).to_have_text("cam2")


def test_only_what_is_on_screen_is_streamed(browser: Browser, service: Server) -> None:
    def seen() -> set[str]:
        return {name for name, count in viewers(service).items() if count}

    with opened(browser, service.url, "/#/grid", width=500, height=500, moving=False) as page:
        page.get_by_label("Columns").select_option("1")
        until(lambda: seen() in ({"cam0"}, {"cam0", "cam1"}), "the first alone")
        page.locator(".tile").last.scroll_into_view_if_needed()
        last = {f"cam{CAMERAS - 1}", f"cam{CAMERAS - 2}"}
        until(lambda: bool(seen()) and seen() <= last, "the last alone")
        page.reload()
        expect(page.get_by_label("Columns")).to_have_value("1")  # remembered


def test_without_websockets_single_pictures_leave_the_browser_its_connections(
    browser: Browser, service: Server
) -> None:
    with (
        bad_proxy(service.port, "refused") as url,
        opened(browser, url, "/#/grid", moving=False, expected="WebSocket connection") as page,
    ):
        said = page.locator("#grid-said")
        expect(said).to_have_text(f"{CAMERAS} of {CAMERAS} on screen, by single pictures (WebSocket is refused here)")
        assert all(moved(page))
        page.locator(".tile").first.click()
        expect(page.locator("#name")).to_have_text("cam0")
        expect(page.locator("#via")).to_contain_text("Motion JPEG")


def test_after_the_service_was_away_every_tile_moves_again(browser: Browser) -> None:
    with serve(*cameras(6)) as server, opened(browser, server.url, "/#/grid", moving=False, expected="ERR_") as page:
        assert all(moved(page, 6))
        port = server.port
        assert server.end(signal.SIGTERM)[0] == 0
        expect(page.locator(".tile .badge.bad")).to_have_count(6)
        with serve(*cameras(6), port=port) as again:
            until(lambda: set(viewers(again).values()) == {1}, "a stream of each")
            assert all(moved(page, 6))
            expect(page.locator(".tile .badge.good")).to_have_count(6)
