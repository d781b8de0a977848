"""What is shown for each state of a camera, and what is said of it."""

from __future__ import annotations

import io
import time

import cv2
import numpy as np
import pytest

from kernels.formats import BGR8, BGR16, FORMATS, GRAY8, GRAY16, PixelFormat
from kernels.image import Pixels
from pipeline.state import CameraState
from service.picture import Picture, Renderer, Variant, View, no_picture_reason
from service.placeholder import draw_placeholder, printable
from tests.service.fakes import FakeCamera


@pytest.fixture
def camera() -> FakeCamera:
    camera = FakeCamera()
    camera.state = CameraState.RUNNING
    return camera


def render(camera: FakeCamera, **options: object) -> Picture:
    picture = Renderer(camera, Variant.make(camera.name, **options)).render()  # type: ignore[arg-type]
    assert picture is not None
    assert camera.leases_out == 0
    return picture


def decode(picture: Picture) -> Pixels:
    decoded = cv2.imdecode(np.frombuffer(picture.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert decoded is not None
    return np.asarray(decoded, np.uint8)


def test_a_picture_carries_its_frame_to_the_headers(camera: FakeCamera) -> None:
    camera.show(41, age_s=0.25)
    picture = render(camera, width=32)
    headers = dict(picture.headers())
    assert headers["X-Frame-Sequence"] == "41"
    assert headers["X-Chain-Version"] == "1041"
    assert (headers["X-Frame-Width"], headers["X-Frame-Height"]) == ("32", "24")
    assert decode(picture).shape == (24, 32, 3)
    assert 250 <= float(headers["X-Frame-Age-Ms"]) < 5000
    assert abs(float(headers["X-Timestamp"]) - time.time()) < 5
    later = dict(picture.headers(time.monotonic_ns() + 3_000_000_000))
    assert float(later["X-Frame-Age-Ms"]) >= 3250, "the age is that of the moment it is sent"


def test_result_and_source_are_what_they_say(camera: FakeCamera) -> None:
    camera.show(100)
    assert np.abs(decode(render(camera)).astype(int) - 100).max() <= 2
    assert np.abs(decode(render(camera, view=View.SOURCE)).astype(int) - 155).max() <= 2


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", [(64, 48), (63, 47), (1, 1)])
def test_source_as_npy_is_the_packed_native_planes(format: PixelFormat, size: tuple[int, int]) -> None:
    camera = FakeCamera(format=format, size=size)
    camera.state = CameraState.RUNNING
    camera.show(30)
    picture = render(camera, view=View.SOURCE, format="npy")
    planes = np.load(io.BytesIO(picture.data))
    lease = camera.latest()
    assert lease is not None
    with lease:
        np.testing.assert_array_equal(planes, lease.source.packed())
    assert picture.pixel_format == format.name
    assert (picture.width, picture.height) == size


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_source_as_png_is_converted(format: PixelFormat) -> None:
    camera = FakeCamera(format=format)
    camera.state = CameraState.RUNNING
    camera.show(30)
    picture = render(camera, view=View.SOURCE, format="png")
    working = format if format in (GRAY8, GRAY16, BGR16) else BGR8
    assert picture.pixel_format == working.name
    made = cv2.imdecode(np.frombuffer(picture.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert made is not None
    assert made.shape == ((48, 64) if format.channels == 1 else (48, 64, 3))
    lease = camera.latest()
    assert lease is not None
    with lease:
        assert made.itemsize == format.value_bytes
        if format.is_working:
            np.testing.assert_array_equal(made, lease.source.plane(0))


@pytest.mark.parametrize("format", [GRAY16, BGR16], ids=str)
def test_a_jpeg_of_16_bits_shows_them_in_8(format: PixelFormat) -> None:
    camera = FakeCamera(format=format)
    camera.state = CameraState.RUNNING
    camera.show(77)
    for width in (None, 32):
        picture = render(camera, view=View.SOURCE, width=width)
        assert picture.pixel_format == ("GRAY8" if format is GRAY16 else "BGR8")
        lease = camera.latest()
        assert lease is not None
        with lease:
            mean = lease.source.plane(0).mean() / 257
        assert abs(decode(picture).mean() - mean) < 3


def test_the_same_frame_is_not_made_twice(camera: FakeCamera) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    camera.show(1)
    assert renderer.render() is not None
    assert renderer.render() is None
    camera.show(2)
    assert renderer.render() is not None


@pytest.mark.parametrize("state", [CameraState.RECONNECTING, CameraState.FAILED, CameraState.STOPPED])
def test_a_lost_camera_is_a_marked_placeholder_and_never_its_old_frame(camera: FakeCamera, state: CameraState) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    camera.show(9)
    assert renderer.render() is not None
    camera.become(state, "read timed out\r\nX-Evil: 1 é")
    placeholder = renderer.render()
    assert placeholder is not None
    headers = dict(placeholder.headers())
    assert headers["X-Pinhole-Placeholder"] == f"{state.value}: read timed out X-Evil: 1 ?"
    assert "X-Frame-Sequence" not in headers
    assert decode(placeholder).shape == (48, 64, 3), "of the frames' size"
    assert renderer.render() is None, "drawn once per reason"
    camera.become(CameraState.RUNNING)
    assert renderer.render() is None, "the frame from before the loss is not live again"
    camera.show(10)
    again = renderer.render()
    assert again is not None
    assert again.sequence == 10
    camera.become(state, "read timed out\r\nX-Evil: 1 é")
    assert renderer.render() is not None, "the same reason once more is news again"


def test_a_frame_from_before_a_loss_is_not_shown_after_it_even_if_nobody_saw_it(camera: FakeCamera) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    camera.show(19)
    camera.state = CameraState.RECONNECTING
    lost = renderer.render()
    assert lost is not None
    assert lost.placeholder
    camera.state = CameraState.RUNNING
    assert renderer.render() is None
    camera.show(20)
    back = renderer.render()
    assert back is not None
    assert back.sequence == 20
    assert camera.leases_out == 0


def test_an_ended_camera_keeps_its_last_picture(camera: FakeCamera) -> None:
    camera.show(9)
    camera.become(CameraState.ENDED)
    assert render(camera).sequence == 9
    renderer = Renderer(camera, Variant.make("cam"))
    camera.state = CameraState.RECONNECTING
    first = renderer.render()
    assert first is not None
    assert first.placeholder
    camera.state = CameraState.ENDED
    last = renderer.render()
    assert last is not None
    assert last.sequence == 9


@pytest.mark.parametrize("state", [CameraState.STARTING, CameraState.RUNNING])
def test_a_first_picture_is_waited_for_a_little_and_then_said_to_be_missing(
    camera: FakeCamera, state: CameraState, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera.state = state
    assert Renderer(camera, Variant.make("cam")).render() is None
    monkeypatch.setattr("service.picture.START_GRACE_S", 0.0)
    assert render(camera).placeholder == f"{state.value}: no picture yet"


def test_equal_renditions_are_equal_variants() -> None:
    assert Variant.make("a", format="png", quality=3) == Variant.make("a", format="png")
    assert Variant.make("a", quality=3) != Variant.make("a")


@pytest.mark.parametrize("size", [(1, 1), (16, 9), (96, 54), (640, 360), (3840, 8), (7, 4000)])
def test_a_placeholder_has_any_size(size: tuple[int, int]) -> None:
    picture = draw_placeholder("front_door", "reconnecting: " + "no such device " * 40, size)
    assert picture.shape == (size[1], size[0], 3)
    assert picture.dtype == np.uint8


def test_a_placeholder_differs_by_reason() -> None:
    one, two = (draw_placeholder("cam", reason, (640, 360)) for reason in ("failed: a", "failed: b"))
    assert (one != two).any()


@pytest.mark.parametrize("text", ["a\r\nSet-Cookie: x", "tab\tand\x00nul", "ümlaut ☃", "x" * 5000])
def test_reasons_are_one_short_printable_line(text: str) -> None:
    line = printable(text)
    assert len(line) <= 300
    assert line.isascii()
    assert line.isprintable()


def test_reasons_name_state_and_cause() -> None:
    assert no_picture_reason(CameraState.FAILED, "no memory") == "failed: no memory"
    assert no_picture_reason(CameraState.STARTING, None) == "starting: no picture yet"
