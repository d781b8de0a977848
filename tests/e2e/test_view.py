"""Looking at one camera as a person would: frozen, closely, both views at once, by keyboard, behind bad proxies."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from kernels.formats import BGR8
from kernels.image import ImageSpec
from pipeline.sources.base import SourceFormat
from tests.e2e.page import HIDE_JS, bad_proxy, opened, picture_width, until, viewers
from tests.helpers.chromium import Pixels, shown_picture
from tests.helpers.inprocess import serving
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import Server, serve
from tests.pipeline.fakes import Block, FakeSource, Maker, pictures

pytest.importorskip("playwright", reason="Playwright is not installed")
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.program("chromium")

CARD = ("--camera", "card=testcard://?size=640x360&fps=15&format=BGR8", "--chain", "card=gamma(gamma=2)")


@pytest.fixture(scope="module")
def service() -> Iterator[Server]:
    """``card`` in colour at 640x360, brighter in the result."""
    with serve(*CARD) as server:
        yield server


def code(page: Page, selector: str = "#live") -> int | None:
    """The number of the frame that is shown, if it is whole."""
    picture = shown_picture(page, selector)
    top, bottom = read_codes(picture, picture.shape[1] / 640)
    return top if top == bottom else None


def saved(page: Page, key: str, folder: Path) -> tuple[str, Pixels]:
    """What a key makes the page save: its name and the picture."""
    with page.expect_download() as download:
        page.keyboard.press(key)
    download.value.save_as(folder / "saved.png")
    picture = cv2.imread(str(folder / "saved.png"), cv2.IMREAD_COLOR)
    assert picture is not None
    return download.value.suggested_filename, np.asarray(picture, np.uint8)


def test_frozen_it_keeps_the_picture_and_ends_the_stream_and_saves_just_that(
    browser: Browser, service: Server, tmp_path: Path
) -> None:
    with opened(browser, service.url) as page:
        freeze = page.get_by_role("button", name="Freeze")
        freeze.click()
        expect(freeze).to_have_attribute("aria-pressed", "true")
        until(lambda: viewers(service) == {"card": 0}, "the stream's end")
        expect(page.locator("#age")).to_contain_text("frozen")
        kept = shown_picture(page)
        number = code(page)
        expect(page.locator("#message")).to_contain_text(f"Frozen: frame {number}, ")
        name, picture = saved(page, "s", tmp_path)
        assert name == f"card-{number}.png"
        assert np.array_equal(picture, kept), "what was shown, to the last bit"
        page.wait_for_timeout(300)
        assert np.array_equal(shown_picture(page), kept)
        page.locator("#screen").press("Space")
        expect(freeze).to_have_attribute("aria-pressed", "false")
        until(lambda: code(page) not in (None, number), "another picture")
        expect(page.locator("#message")).to_be_hidden()
        assert viewers(service) == {"card": 1}
        page.keyboard.press("p")
        page.get_by_role("radio", name="Source").check(force=True)  # live again
        expect(freeze).to_have_attribute("aria-pressed", "false")
        until(lambda: viewers(service) == {"card": 1}, "the stream")


def test_a_hidden_tab_ends_its_stream(browser: Browser, service: Server) -> None:
    with opened(browser, service.url) as page:
        until(lambda: viewers(service) == {"card": 1}, "the stream")
        page.evaluate(HIDE_JS, True)
        until(lambda: viewers(service) == {"card": 0}, "the stream's end")
        page.evaluate(HIDE_JS, False)
        number = code(page)
        until(lambda: code(page) not in (None, number), "another picture")


BOTH_JS = """() => {
    const both = document.createElement("canvas");
    Object.assign(both, { width: 340, height: 128 });
    ["#live", "#other"].forEach((name, i) => {
        const canvas = document.querySelector(name);
        if (canvas.width > 0) both.getContext("2d").drawImage(canvas, 0, 0, 340, 64, 0, i * 64, 340, 64);
    });
    return both.toDataURL().split(",")[1];
}"""


def test_source_and_result_are_the_same_frame_on_both_sides_of_a_divider(
    browser: Browser, service: Server, tmp_path: Path
) -> None:
    def both() -> tuple[int | None, int | None]:
        encoded = np.frombuffer(base64.b64decode(page.evaluate(BOTH_JS)), np.uint8)
        picture = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
        assert picture is not None
        return read_codes(picture[:64])[0], read_codes(picture[64:])[0]

    with opened(browser, service.url) as page:
        page.keyboard.press("b")
        until(lambda: None not in both(), "both views")
        seen = {both() for _ in range(30)}
        assert len(seen) > 2
        assert all(result == source for result, source in seen), "never two frames side by side"
        divider = page.get_by_role("separator")
        expect(divider).to_have_attribute("aria-valuenow", "50")
        divider.press("ArrowLeft")
        divider.press("Shift+ArrowLeft")
        expect(divider).to_have_attribute("aria-valuetext", "source 39 %, result 61 %")
        screen = page.locator("#screen").bounding_box()
        handle = divider.bounding_box()
        assert screen is not None
        assert handle is not None
        page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + 50)
        page.mouse.down()
        page.mouse.move(screen["x"] + screen["width"] * 0.75, handle["y"] + 80, steps=4)
        page.mouse.up()
        expect(divider).to_have_attribute("aria-valuenow", "75")
        page.keyboard.press("p")
        name, picture = saved(page, "s", tmp_path)
        assert re.fullmatch(r"card-split-\d+\.png", name)
        source, result = shown_picture(page, "#other"), shown_picture(page)
        assert np.array_equal(picture[:, :478], source[:, :478])
        assert np.array_equal(picture[:, 482:], result[:, 482:])
        page.keyboard.press("r")
        expect(divider).to_be_hidden()
        until(lambda: viewers(service) == {"card": 1}, "the other stream's end")


def test_views_that_come_late_are_still_paired_and_one_that_is_gone_holds_nothing_up(
    browser: Browser, service: Server
) -> None:
    with opened(browser, service.url) as page:
        shown, kept = page.evaluate(
            """async () => {
                const { Pairs } = await import("/static/split.js");
                const shown = [], alive = new Set();
                const pairs = new Pairs(({ result, source }) => {
                    shown.push([result?.sequence ?? null, source?.sequence ?? null]);
                    for (const frame of [result, source]) frame?.image.close();
                });
                const put = (view, sequence) => {
                    const image = { close: () => alive.delete(image) };
                    alive.add(image);
                    pairs.put(view, { sequence, image });
                };
                for (const n of [1, 2]) put("result", n);
                for (const n of [1, 2, 3, 4, 5]) { put("source", n); put("result", n + 2); }
                put("source", 7);
                put("result", null);
                for (const n of [8, 9, 10, 11, 12, 13]) put("source", n);
                pairs.clear();
                return [shown, alive.size];
            }"""
        )
    assert shown == [*([n, n] for n in (1, 2, 3, 4, 5, 7)), [None, None], [None, 8], [None, 9]]
    assert kept == 0, "each was shown or freed"


def test_close_up_each_pixel_is_a_square_with_its_place_and_value(browser: Browser, service: Server) -> None:
    with opened(browser, service.url, width=420) as page:
        assert picture_width(page) == 480, "enough for the window"
        page.locator("#screen").focus()
        for _ in range(9):
            page.keyboard.press("+")
        until(lambda: picture_width(page) == 640, "all that there is, to see pixels")
        page.keyboard.press("p")
        where = page.locator("#pixel")
        expect(where).to_have_text(re.compile(r"^x \d+ y \d+ RGB \d+ \d+ \d+$"))
        x, y = map(int, re.findall(r"\d+", where.inner_text())[:2])
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Shift+ArrowLeft"):
            page.keyboard.press(key)
        column, row, red, green, blue = map(int, re.findall(r"\d+", where.inner_text()))
        assert (column, row) == (x + 2 - 10, y + 1)
        picture = shown_picture(page)
        assert picture[row, column].tolist() == [blue, green, red]
        expect(page.locator("#picture-said")).to_contain_text(f"x {column} y {row}", use_inner_text=True)
        # As it stands on the screen: one colour to the edges, none mixed with its neighbours'.
        box = page.locator("#reticle").bounding_box()
        assert box is not None
        assert box["width"] > 9, "its outline is that of the pixel"
        page.locator("#reticle").evaluate("element => { element.style.visibility = 'hidden'; }")
        clip = {"x": box["x"] + 1, "y": box["y"] + 1, "width": box["width"] - 2, "height": box["height"] - 2}
        square = cv2.imdecode(np.frombuffer(page.screenshot(clip=clip), np.uint8), cv2.IMREAD_COLOR)  # type: ignore[arg-type]
        assert square is not None
        assert (square == picture[row, column]).all()
        page.keyboard.press("0")
        expect(where).to_be_hidden()


def test_the_wheel_zooms_where_it_is_and_scrolls_the_page_elsewhere(browser: Browser, service: Server) -> None:
    with opened(browser, service.url) as page:
        box = page.locator("#screen").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 4, box["y"] + box["height"] / 4
        page.mouse.move(x, y)
        page.mouse.wheel(0, 100)
        until(lambda: page.evaluate("scrollY") > 0, "the page scrolls over a picture that nobody touched")
        page.evaluate("scrollTo(0, 0)")
        page.mouse.click(x, y)
        for _ in range(10):
            page.mouse.wheel(0, -120)
        expect(page.locator("#pixel")).to_have_text(re.compile(r"^x 1(59|60) y (89|90) "))
        assert page.evaluate("scrollY") == 0
        page.mouse.dblclick(x, y)
        expect(page.locator("#pixel")).to_be_hidden()


def test_every_tool_is_reached_seen_and_used_by_keyboard(browser: Browser, service: Server) -> None:
    with opened(browser, service.url) as page:
        page.locator("#picture").focus()
        names = []
        for _ in range(10):
            page.keyboard.press("Tab")
            name, style = page.evaluate(
                """() => {
                    const { activeElement: one } = document;
                    const seen = one.matches("input[type=radio]") ? one.closest("fieldset") : one;
                    return [one.id || one.value, getComputedStyle(seen).outlineStyle];
                }"""
            )
            assert style == "solid", f"{name} shows that it has the focus"
            names.append(name)
        tools = ["freeze", "snapshot", "zoom-out", "zoom-fit", "zoom-in", "full", "help", "transport"]
        assert names == ["result", "screen", *tools]
        page.keyboard.press("?")  # in a list, keys choose from it
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.locator("#screen").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("full screen")
        page.keyboard.press("Escape")
        page.keyboard.press("f")
        page.wait_for_function("document.fullscreenElement?.id === 'picture'")
        expect(page.locator("#full")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("o")
        expect(page.get_by_role("radio", name="Source")).to_be_checked()
        page.keyboard.press("f")
        page.wait_for_function("document.fullscreenElement === null")
        page.locator("#help").press("Enter")
        page.get_by_label("Keys act everywhere").uncheck()
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("r")
        expect(page.get_by_role("radio", name="Source")).to_be_checked()


def test_a_picture_that_gets_old_turns_red_by_itself(browser: Browser) -> None:
    block = Block()
    spec = SourceFormat(ImageSpec.make(BGR8, 64, 48), 30, True)
    maker = Maker(lambda: FakeSource([*itertools.islice(pictures(), 60), block, *pictures(2000)], spec))
    with (
        serving({"cam": "fake://"}, source_factory=maker, stale_after_s=600, ready=False) as served,
        opened(browser, served.url) as page,
    ):
        assert block.entered.wait(10)
        age = page.locator("#age")
        expect(age).to_have_text(re.compile(r"^\d+\.\d s old$"))
        expect(age).to_have_class(re.compile(r"\bbad\b"))
        expect(page.locator("#screen")).to_have_class(re.compile(r"\bold\b"))
        expect(page.locator("#state")).to_have_text("running")  # as far as the service knows
        block.release.set()
        expect(age).to_have_class(re.compile("good"))
        expect(page.locator("#screen")).not_to_have_class(re.compile(r"\bold\b"))


@pytest.mark.parametrize("upgrades", ["refused", "swallowed"])
def test_where_websockets_do_not_come_through_motion_jpeg_does(
    browser: Browser, service: Server, upgrades: str
) -> None:
    with (
        bad_proxy(service.port, upgrades) as url,  # type: ignore[arg-type]
        opened(browser, url, expected="WebSocket connection") as page,
    ):
        via = page.locator("#via")
        why = "is refused here" if upgrades == "refused" else "does not open"
        expect(via).to_have_text(f"Motion JPEG (WebSocket {why})")
        number = code(page)
        until(lambda: code(page) not in (None, number), "another picture")
        kinds = [one["kind"] for one in service.get("/api/v1/cameras/card").json()["viewers"]["connections"]]
        assert kinds == ["mjpeg"]
        if upgrades == "swallowed":  # not waited for once more
            tried: list[str] = []
            page.on("websocket", lambda socket: tried.append(socket.url))
            page.reload()
            expect(via).to_have_text(f"Motion JPEG (WebSocket {why})")
            assert tried == []


def test_the_user_chooses_how_it_comes_and_that_is_remembered(browser: Browser, service: Server) -> None:
    def kinds() -> list[str]:
        return [one["kind"] for one in service.get("/api/v1/cameras/card").json()["viewers"]["connections"]]

    best = "WebRTC" if service.get("/api/v1/state").json().get("webrtc") else "WebSocket"
    with opened(browser, service.url, transport="", expected="404") as page:
        via = page.locator("#via")
        expect(via).to_have_text(best)
        page.get_by_label("by", exact=True).select_option("Motion JPEG")
        expect(via).to_have_text("Motion JPEG")
        until(lambda: kinds() == ["mjpeg"], "that alone")
        page.reload()
        expect(via).to_have_text("Motion JPEG")
        page.get_by_label("by", exact=True).select_option("the best way")
        expect(via).to_have_text(best)
        until(lambda: kinds() == [best.lower()], "that alone")


def test_over_webrtc_the_frozen_frame_is_the_one_that_is_named(browser: Browser, service: Server) -> None:
    if not service.get("/api/v1/state").json().get("webrtc"):
        pytest.skip("aiortc is not installed")
    gone = "404"  # of a session that the service ended before it was told to
    with opened(browser, service.url, transport="", expected=gone) as page:
        expect(page.locator("#via")).to_have_text("WebRTC")
        expect(page.locator("#age")).to_have_text(re.compile(r"^\d+ ms old$"))
        named = 0
        for _ in range(6):  # what is said of a frame goes beside it, and may be late or lost
            until(lambda: code(page) is not None, "a picture")
            page.keyboard.press("p")
            until(lambda: viewers(service) == {"card": 0}, "the stream's end")
            text = page.locator("#message").inner_text()
            assert text == "Frozen" or text.startswith(f"Frozen: frame {code(page)}, ")
            named += text != "Frozen"
            if named == 2:
                break
            page.keyboard.press("p")
            until(lambda: viewers(service) == {"card": 1}, "the stream")
        assert named > 0


# Draws frames of its own into the video, as a peer would; it breaks after as many as the address says.
WHEP_JS = """export async function playWhep({ url, video, onFrame, signal }) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 320, height: 180 });
    const pencil = canvas.getContext("2d");
    video.srcObject = canvas.captureStream();
    const playing = video.play();
    for (let sequence = 1; !signal.aborted; sequence++) {
        pencil.fillStyle = "rgb(9 99 0)";
        pencil.fillRect(0, 0, 320, 180);
        await new Promise((resolve) => setTimeout(resolve, 50));
        await playing;
        if (sequence > %d) throw new Error("the peer is gone");
        if (video.videoWidth) onFrame({ sequence, age_ms: 5 });
    }
}"""


def test_webrtc_is_taken_where_it_is_offered_and_left_where_it_does_not_come(browser: Browser, service: Server) -> None:
    def offer(page: Page, frames: int) -> None:
        state = {**service.get("/api/v1/state").json(), "webrtc": True}
        page.route("**/api/v1/state", lambda route: route.fulfill(json=state))
        script = WHEP_JS % frames
        page.route("**/static/webrtc.js", lambda route: route.fulfill(body=script, content_type="text/javascript"))
        page.reload()

    with opened(browser, service.url, transport="") as page:
        via = page.locator("#via")
        offer(page, 10_000)
        expect(via).to_have_text("WebRTC")
        until(lambda: picture_width(page) == 320, "the video on the canvas")
        until(lambda: abs(float(shown_picture(page)[..., 1].mean()) - 99) < 4, "what the peer drew")
        page.keyboard.press("b")  # views are paired by numbers
        expect(via).to_have_text("WebSocket")
        page.keyboard.press("r")
        expect(via).to_have_text("WebRTC")
        page.keyboard.press("+")  # pixels are looked at as JPEG has them
        expect(via).to_have_text("WebSocket")
        page.keyboard.press("0")
        expect(via).to_have_text("WebRTC")
        page.unroute("**/static/webrtc.js")
        offer(page, 0)
        expect(via).to_have_text(re.compile(r"^WebSocket \(WebRTC does not come"))
        until(lambda: code(page) is not None, "its pictures")


def test_frames_that_are_not_drawn_are_freed(browser: Browser, service: Server) -> None:
    """Every bitmap is closed and every object's URL given back, but for what is on its way."""
    count = """() => {
        window.bitmaps = new Set();
        const make = window.createImageBitmap;
        window.createImageBitmap = async (...args) => {
            const bitmap = await make(...args), close = bitmap.close.bind(bitmap);
            window.bitmaps.add(bitmap);
            window.made = (window.made ?? 0) + 1;
            bitmap.close = () => { window.bitmaps.delete(bitmap); close(); };
            return bitmap;
        };
    }"""
    with opened(browser, service.url) as page:
        page.evaluate(count)
        for key in ("b", "o", "p", "p", "b", "r"):
            page.keyboard.press(key)
            page.wait_for_timeout(150)
        page.keyboard.press("p")
        until(lambda: viewers(service) == {"card": 0}, "the streams' end")
        page.wait_for_timeout(100)
        assert page.evaluate("window.made") > 10
        assert page.evaluate("window.bitmaps.size") == 0
