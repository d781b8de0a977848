from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.device import NullDevice
from kernels.errors import InputError
from kernels.formats import BGR8, GRAY8
from kernels.image import ImageView, Pixels
from kernels.plan import slot_source_spec
from pipeline import capture as capture_module
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.sources import _capture_problem, clip_uri, make_source, opencv, redact
from pipeline.sources._capture_problem import device_problem
from pipeline.sources.base import FormatChanged, FrameCorrupt, SourceEnded, SourceError
from pipeline.sources.opencv import BUFFERS, Opencv
from tests.helpers.fake_opencv import Array, FakeOpencv, Shot, fake_capture, install, numbered
from tests.helpers.fake_time import START_NS
from tests.helpers.inprocess import serving
from tests.helpers.open_source import Opener, OpenSource, opener
from tests.helpers.sequence_code import read_codes
from tests.helpers.videos import Stream, turn_by_metadata, write_video
from tests.pipeline.fakes import held, until, until_processed, until_state

MS = 1_000_000
PASSWORD = "p@ss!w0rd"


def source_of(uri: str) -> Opencv:
    source = make_source(uri)
    assert isinstance(source, Opencv)
    return source


def by_path(path: Path, settings: str = "") -> Opencv:
    return source_of(f"opencv://{quote(os.fspath(path))}{settings}")


def by_name(name: str, settings: str = "") -> str:
    return f"opencv://?name={quote(name, safe='')}{settings}"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    yield from opener(monkeypatch)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "FIRST_BACKOFF_S", 0.02)


def picture(source: OpenSource) -> Pixels:
    (rows,), _ = source.fill()
    spec = source.spec
    return rows if spec.format is GRAY8 else rows.reshape(spec.height, spec.width, 3)


def clip_path() -> Path:
    uri = clip_uri()
    assert uri is not None
    return Path(uri.removeprefix("file://").partition("?")[0])


# ---- what the URI says


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("opencv://0", 0),
        ("opencv://12?size=640x480&fps=30&fourcc=MJPG&backend=v4l2", 12),
        ("opencv:///media/a%20b%3F.mp4", "/media/a b?.mp4"),
        ("opencv:///dev/v4l/by-id/usb-cam", "/dev/v4l/by-id/usb-cam"),
        (by_name("rtsp://u:p%40ss@cam/x?a=1&b=2"), "rtsp://u:p%40ss@cam/x?a=1&b=2"),
        (by_name("videotestsrc ! appsink", "&backend=gstreamer"), "videotestsrc ! appsink"),
    ],
)
def test_the_uri_names_what_opencv_opens(uri: str, name: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, lambda: fake_capture([Shot(numbered(0))] * 2, FRAME_COUNT=2))
    source = source_of(uri)
    source.open()
    assert fake.opened[0][0] == name
    source.close()


@pytest.mark.parametrize(
    ("uri", "field"),
    [
        ("opencv://", "uri"),
        ("opencv:///", "uri"),
        ("opencv://0/dev/video0", "uri"),
        ("opencv://0?name=x", "uri"),
        ("opencv:///dev/video0?name=x", "uri"),
        ("opencv://-1", "uri"),
        ("opencv://1000", "uri"),
        ("opencv://٣", "uri"),
        ("opencv://0x0", "uri"),
        ("opencv://video0", "uri"),
        ("opencv://rtsp://u:geheim@cam/x", "uri"),
        ("opencv://0?size=0x0", "uri?size"),
        ("opencv://0?size=16385x1", "uri?size"),
        ("opencv://0?size=640", "uri?size"),
        ("opencv://0?fps=0", "uri?fps"),
        ("opencv://0?fps=1001", "uri?fps"),
        ("opencv://0?fps=nan", "uri?fps"),
        ("opencv://0?fourcc=MJPEG", "uri?fourcc"),
        ("opencv://0?fourcc=../", "uri?fourcc"),
        ("opencv://0?backend=dshow", "uri?backend"),
        ("opencv://0?loop=yes", "uri?loop"),
        ("opencv://0?width=640", "uri?width"),
    ],
)
def test_other_uris_are_refused_with_what_is_allowed(uri: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        make_source(uri)
    assert caught.value.field == field
    assert caught.value.allowed
    assert "geheim" not in str(caught.value)


def test_a_missing_file_is_heard_of_at_once_and_a_missing_camera_may_come(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        by_path(tmp_path / "clip.mp4").check("cameras.door.uri")
    with pytest.raises(InputError, match="is a folder"):
        by_path(tmp_path).check()
    for uri in ("opencv://97", "opencv:///dev/video97", by_name("rtsp://cam/x"), "opencv:///p/img_%2503d.png"):
        source_of(uri).check()
    by_path(clip_path()).check()


# ---- the real OpenCV


def test_clip_equals_opencvs_own_decode_and_lands_in_the_slot(opened: Opener) -> None:
    source = opened(by_path(clip_path()))
    reference = cv2.VideoCapture(str(clip_path()))
    assert (source.spec.format, source.spec.width, source.spec.height) == (BGR8, 1280, 720)
    for index in range(12):
        (rows,), capture = source.fill()
        expected = reference.read()[1]
        np.testing.assert_array_equal(rows.reshape(720, 1280, 3), expected)
        # The first frame told the format before there was a slot.
        assert capture.copied_bytes == expected.nbytes * (2 if index == 0 else 1)
        assert capture.clock == "host"
    reference.release()


def test_a_recording_gives_all_its_frames_in_their_time_and_ends(tmp_path: Path, opened: Opener) -> None:
    pictures = [[np.full((48, 64), 5 * index, np.uint8)] for index in range(40)]
    source = opened(by_path(write_video(tmp_path / "clip.mkv", pictures, 64, 48, Stream("gray", "ffv1"))))
    frames = source.fill_all()
    assert len(frames) == 40
    assert source.corrupt == 0
    assert source.time.waited_for == [START_NS + index * 40 * MS for index in range(40)]
    assert [capture.pts_s for _, capture in frames] == pytest.approx([index * 0.04 for index in range(40)])
    assert [capture.captured_ns for _, capture in frames] == source.time.waited_for


@pytest.mark.parametrize("size", [(641, 479), (64, 48), (33, 3), (3, 33), (2, 2)])
def test_pictures_of_odd_sizes_land_in_strided_slots(size: tuple[int, int], tmp_path: Path, opened: Opener) -> None:
    frames = [np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8) for seed in range(4)]
    for index, frame in enumerate(frames):
        assert cv2.imwrite(str(tmp_path / f"p{index:03d}.png"), frame)
    source = opened(by_path(tmp_path / "p%03d.png", "?backend=images"))
    for index, expected in enumerate(frames):
        (rows,), capture = source.fill()
        np.testing.assert_array_equal(rows.reshape(expected.shape), expected)
        assert capture.copied_bytes == expected.nbytes * (2 if index == 0 else 1)
    with pytest.raises(SourceEnded):
        source.fill()


def test_a_loop_goes_on_without_a_gap(tmp_path: Path, opened: Opener) -> None:
    path = write_video(tmp_path / "clip.mkv", [[np.full((48, 64), v, np.uint8)] for v in (0, 80, 160)], 64, 48,
                       Stream("gray", "ffv1", fps=10))  # fmt: skip
    source = opened(by_path(path, "?loop=true"))
    levels = [int(picture(source)[20, 20].max()) for _ in range(7)]
    assert levels == [levels[0], levels[1], levels[2], *levels[:3], levels[0]]
    assert len(set(levels)) == 3
    assert source.time.waited_for == [START_NS + index * 100 * MS for index in range(7)]


def test_b112_a_variable_frame_rate_is_paced_by_its_stamps(tmp_path: Path, opened: Opener) -> None:
    stamps = [0, 10, 210, 250, 1000, 1001]
    pictures = [[np.full((48, 64), 40 * index, np.uint8)] for index in range(len(stamps))]
    path = write_video(tmp_path / "clip.mkv", pictures, 64, 48, Stream("gray", "ffv1"), pts_ms=stamps)
    source = opened(by_path(path))
    assert len(source.fill_all()) == len(stamps)
    assert source.time.waited_for == [START_NS + stamp * MS for stamp in stamps]


TURNS: dict[str, tuple[tuple[int, int, int, int], Callable[[Array], Array]]] = {
    "90": ((0, 1, -1, 0), lambda p: np.rot90(p, -1)),
    "180": ((-1, 0, 0, -1), lambda p: np.rot90(p, 2)),
    "270": ((0, -1, 1, 0), lambda p: np.rot90(p, 1)),
}


@pytest.mark.parametrize("turn", TURNS)
def test_b124_recordings_are_turned_upright_once(turn: str, tmp_path: Path, opened: Opener) -> None:
    luma = np.full((48, 64), 200, np.uint8)
    luma[:16, :32] = 20
    neutral = np.full((24, 32), 128, np.uint8)
    stream = Stream(codec="libx264", options={"qp": "0", "preset": "ultrafast"})
    path = write_video(tmp_path / "clip.mp4", [[luma, neutral, neutral]] * 3, 64, 48, stream)
    matrix, turned = TURNS[turn]
    source = opened(by_path(turn_by_metadata(path, matrix)))
    for _ in range(3):
        shown = picture(source)[:, :, 0]
        assert shown.shape == turned(luma).shape
        assert ((shown > 110) == (turned(luma) > 110)).all()


def test_a_real_stream_is_live_and_every_frame_is_whole() -> None:
    """Pinhole's own service as the camera: MJPEG over HTTP, its sequence code read out of the slot."""
    with serving({"card": "testcard://?size=640x480&fps=60"}) as server:
        source = source_of(by_name(f"{server.url}/cameras/card/stream?quality=95"))
        format = source.open()
        assert format.live
        assert (format.image.format, format.image.width, format.image.height) == (BGR8, 640, 480)
        spec = slot_source_spec(format.image)
        view = ImageView(spec, np.zeros(spec.nbytes, np.uint8))
        numbers = []
        for _ in range(20):
            assert source.fill(view).copied_bytes == 640 * 480 * 3
            source.skip()
            top, bottom = read_codes(view.plane(0))
            assert top is not None
            assert top == bottom
            numbers.append(top)
        source.close()
    assert numbers == sorted(set(numbers))


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Accepts, and never says a word."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_b15_an_open_that_gets_no_answer_ends_in_time(silent_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencv, "OPEN_TIMEOUT_S", 0.3)
    source = source_of(by_name(f"http://127.0.0.1:{silent_server}/x"))
    began = time.monotonic()
    with pytest.raises(SourceError, match=rf"127\.0\.0\.1:{silent_server} did not open within 0\.3 s"):
        source.open()
    assert time.monotonic() - began < 5


def test_b15_a_refusal_is_not_called_a_time_out() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SourceError, match=rf"127\.0\.0\.1:{port} did not open \(refused or unreachable") as raised:
        source_of(by_name(f"http://127.0.0.1:{port}/x")).open()
    assert " within " not in str(raised.value)


def test_b15_a_stream_that_falls_silent_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(opencv, "READ_TIMEOUT_S", 0.3)
    done = threading.Event()
    jpeg = cv2.imencode(".jpg", numbered(7))[1].tobytes()

    def speak() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=f\r\n\r\n")
            for _ in range(60):
                connection.sendall(b"--f\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg))
                connection.sendall(jpeg + b"\r\n")
            done.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        thread = threading.Thread(target=speak)
        thread.start()
        try:
            source = source_of(by_name(f"http://127.0.0.1:{server.getsockname()[1]}/x"))
            spec = slot_source_spec(source.open().image)
            view = ImageView(spec, np.zeros(spec.nbytes, np.uint8))
            began = time.monotonic()
            with pytest.raises(SourceError, match="silent for too long"):
                list(iter(lambda: source.fill(view), None))
            assert time.monotonic() - began < 8
        finally:
            source.close()
            done.set()
            thread.join(10)


def test_b77_neither_opencv_nor_the_source_shows_a_password(silent_server: int, tmp_path: Path) -> None:
    """In a process of its own, as libraries write to the error output and FFmpeg sets up its log only once."""
    (tmp_path / "broken.mp4").write_bytes(bytes(5000))
    encoded = quote(PASSWORD, safe="")
    uris = [
        by_name(f"{scheme}://viewer:{encoded}@127.0.0.1:1/live?key=geheim") for scheme in ("rtsp", "http", "rtmp")
    ] + [by_name(f"viewer:{PASSWORD}"), "opencv://98", f"opencv://{tmp_path}/broken.mp4"]
    program = f"""
import logging
logging.basicConfig(level=0)
from pipeline.sources import make_source, redact
from pipeline.sources.base import SourceError
for uri in {uris!r}:
    try:
        make_source(uri).open()
    except SourceError as error:
        print(redact(uri), error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=Path.cwd()
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(uris)
    for form in (PASSWORD, encoded, quote(encoded), "p@ss", "viewer", "geheim"):
        assert form not in done.stdout
    assert "opencv://?name=rtsp://***@127.0.0.1:1/live%3Fkey=***" in lines[0]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (
            by_name("rtsp://u:p%40ss@cam:554/x?token=abc&fps=30"),
            "opencv://?name=rtsp://***@cam:554/x%3Ftoken=***%26fps=30",
        ),
        (by_name("rtsp://cam/x", "&backend=ffmpeg"), by_name("rtsp://cam/x", "&backend=ffmpeg")),
        (by_name("rtsp://cam/user=admin_password=x"), "opencv://?name=rtsp://cam/***"),
        (by_name("rtspsrc location=rtsp://u:pw@cam ! appsink"), "opencv://?name=***"),
        ("opencv://?name=rtsp://u:a/b?c&d@cam/x", None),
        ("opencv://?name=rtsp://u:12&34geheim@cam/x", None),
        ("opencv:///media/a@b/clip.mp4", "opencv:///media/a@b/clip.mp4"),
        ("opencv://0?size=640x480&fourcc=MJPG", "opencv://0?size=640x480&fourcc=MJPG"),
    ],
)
def test_b80_the_name_is_shown_as_far_as_it_is_no_secret(uri: str, shown: str | None) -> None:
    text = redact(uri)
    assert shown is None or text == shown
    for secret in ("p%40ss", "p@ss", "pw", "abc", "u:", "geheim", "12", "a/b"):
        assert secret not in text
    assert redact(text) == text


# ---- cameras, by a fake


def camera_script(count: int | None = None) -> Iterator[Shot]:
    return (Shot(numbered(n)) for n in (itertools.count() if count is None else range(count)))


def test_wishes_are_set_in_order_and_what_comes_of_them_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pinhole.source")
    refused = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FPS)
    yuyv = float(cv2.VideoWriter.fourcc(*"YUYV"))
    fake = install(monkeypatch, lambda: fake_capture(camera_script(), refuses=(*refused, cv2.CAP_PROP_FOURCC), FPS=15,
                                                     FOURCC=yuyv))  # fmt: skip
    source = source_of("opencv://3?size=300x300&fps=30000/1001&fourcc=MJPG")
    format = source.open()
    assert (format.image.width, format.image.height, format.fps, format.live) == (64, 48, 15.0, True)
    mjpg = cv2.VideoWriter.fourcc(*"MJPG")
    assert fake.captures[0].wishes == [
        (cv2.CAP_PROP_FOURCC, mjpg), (cv2.CAP_PROP_FRAME_WIDTH, 300), (cv2.CAP_PROP_FRAME_HEIGHT, 300),
        (cv2.CAP_PROP_FPS, pytest.approx(29.97, abs=0.001)), (cv2.CAP_PROP_BUFFERSIZE, BUFFERS),
    ]  # fmt: skip
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for fact in ("/dev/video3", "300x300", "64x48", "15.0 fps", "YUYV", "MJPG"):
        assert fact in record.getMessage()
    source.close()


def test_wishes_that_come_true_are_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pinhole.source")
    install(monkeypatch, lambda: fake_capture(camera_script()))
    source = source_of("opencv://3?size=64x48&fps=30&fourcc=MJPG")
    source.open()
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    source.close()


def test_grey_cameras_stay_grey_and_in_place(monkeypatch: pytest.MonkeyPatch, opened: Opener) -> None:
    grey = float(cv2.VideoWriter.fourcc(*"GREY"))
    fake = install(monkeypatch, lambda: fake_capture((Shot(numbered(n, 65, 33, 0)) for n in range(5)), FOURCC=grey))
    source = opened(source_of("opencv://0"))
    assert (cv2.CAP_PROP_CONVERT_RGB, 0) in fake.captures[0].wishes
    assert (source.spec.format, source.spec.width, source.spec.height) == (GRAY8, 65, 33)
    for number in range(1, 5):  # a live source's first frame is too old when there is a slot
        (rows,), capture = source.fill()
        np.testing.assert_array_equal(rows, numbered(number, 65, 33, 0))
        assert capture.copied_bytes == 65 * 33


def test_b68_a_fourth_channel_is_dropped_and_a_lone_one_is_grey(
    monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    install(monkeypatch, lambda: fake_capture(Shot(numbered(n, 64, 48, 4)) for n in range(3)))
    source = opened(source_of("opencv://0"))
    (rows,), capture = source.fill()
    np.testing.assert_array_equal(rows.reshape(48, 64, 3), numbered(1, 64, 48, 4)[:, :, :3])
    assert capture.copied_bytes == 2 * 64 * 48 * 3
    install(monkeypatch, lambda: fake_capture(Shot(numbered(n, 64, 48, 1)) for n in range(3)))
    source = opened(source_of("opencv://0"))
    assert source.spec.format is GRAY8
    np.testing.assert_array_equal(picture(source), numbered(1, 64, 48, 1)[:, :, 0])


@pytest.mark.parametrize(
    "frame",
    [np.zeros((48, 64), np.uint16), np.zeros((48, 64, 3), np.float32), np.zeros((48, 64, 2), np.uint8)],
    ids=["16 bit", "float", "YUYV as it is"],
)
def test_b65_other_pixels_are_refused_and_never_shown_wrongly(
    frame: Array, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    install(monkeypatch, lambda: fake_capture([Shot(frame)] * 3))
    with pytest.raises(SourceError, match="uint8"):
        source_of("opencv://0").open()


@pytest.mark.parametrize("bad", [Shot(None), Shot(np.zeros((0, 0, 3), np.uint8)), Shot(None, error=cv2.error("boom"))])
def test_b25_an_empty_frame_is_corrupt_and_the_next_one_is_shown(
    bad: Shot, monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    install(monkeypatch, lambda: fake_capture([Shot(numbered(0)), bad, Shot(numbered(2)), bad, Shot(numbered(4))]))
    source = opened(source_of("opencv://0"))
    for number in (2, 4):
        with pytest.raises(FrameCorrupt) as caught:
            source.fill()
        assert caught.value.reason == "corrupt"
        np.testing.assert_array_equal(picture(source), numbered(number))


def test_b25_a_first_frame_that_is_empty_does_not_stop_the_camera(
    monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    empty = Shot(np.zeros((0, 0, 3), np.uint8))
    sides = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    script = [empty, empty, Shot(numbered(2))]
    install(monkeypatch, lambda: fake_capture(script, refuses=sides, FRAME_WIDTH=64, FRAME_HEIGHT=48))
    source = opened(source_of("opencv://0?size=300x300"))
    with pytest.raises(FrameCorrupt, match="size asked for"):
        source.fill()
    np.testing.assert_array_equal(picture(source), numbered(2))
    install(monkeypatch, lambda: fake_capture([empty] * 3))
    with pytest.raises(SourceError, match="0x0"):
        source_of("opencv://0").open()


SIZES = [(640, 480), (1280, 720), (320, 240)]


@pytest.mark.parametrize("stubborn", [False, True])
def test_b20_the_size_changes_mid_stream(stubborn: bool, monkeypatch: pytest.MonkeyPatch, opened: Opener) -> None:
    shots = [Shot(numbered(10 * i + n, *size), stubborn=stubborn) for i, size in enumerate(SIZES) for n in range(10)]
    install(monkeypatch, lambda: fake_capture([shots[0], *shots]))
    source = opened(source_of("opencv://0"))
    changes = 0
    for index, shot in enumerate(shots):
        try:
            shown = picture(source)
        except FormatChanged as change:
            assert source.is_untouched()
            source.use(change.format.image)
            shown = picture(source)
            changes += 1
        assert shot.frame is not None
        np.testing.assert_array_equal(shown, shot.frame, err_msg=str(index))
    assert changes == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["frame", "frame", "empty", "none", "error"]), st.integers(1, 70), st.integers(1, 40),
            st.sampled_from([0, 1, 3, 4]), st.booleans(),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_a_recording_gives_every_frame_once_in_order_whatever_they_are(
    script: list[tuple[str, int, int, int, bool]],
) -> None:
    shots, expected = [Shot(numbered(255, 8, 8))], [numbered(255, 8, 8)]
    for number, (kind, width, height, channels, stubborn) in enumerate(script):
        frame = numbered(number, width, height, channels)
        if kind == "frame":
            shots.append(Shot(frame, 40.0 * (number + 1), stubborn=stubborn))
            expected.append(frame[:, :, 0] if channels == 1 else frame[:, :, :3] if channels == 4 else frame)
        elif kind == "error":
            shots.append(Shot(None, error=cv2.error("boom")))
        else:
            shots.append(Shot(np.zeros((0, 0, 3), np.uint8) if kind == "empty" else None))
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake = install(monkeypatch, lambda: fake_capture(shots, FRAME_COUNT=len(shots)))
        source = OpenSource(source_of(by_name("clip.nut")), monkeypatch)
        seen, corrupt = [], 0
        while True:
            try:
                seen.append(picture(source))
            except FrameCorrupt:
                corrupt += 1
            except FormatChanged as change:
                assert source.is_untouched()
                source.use(change.format.image)
            except SourceEnded:
                break
        source.source.close()
    assert fake.breaches() == []
    assert corrupt == len(shots) - len(expected)
    assert len(seen) == len(expected)
    for shown, frame in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(shown, frame)


def test_streams_with_an_end_are_recordings_and_one_that_breaks_off_is_an_error(
    monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    script = [Shot(numbered(n), 40.0 * n) for n in range(10)]
    fake = install(monkeypatch, lambda: fake_capture(script, FRAME_COUNT=100, FPS=25))
    source = opened(source_of(by_name("http://cam/clip.mp4")))
    for _ in script:
        source.fill()
    with pytest.raises(SourceError, match="broke off after 10 of 100"):
        source.fill()
    assert source.time.waited_for == [START_NS + n * 40 * MS for n in range(10)]
    assert fake.opened[0][1] == cv2.CAP_FFMPEG
    assert fake.opened[0][2][::2] == [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, cv2.CAP_PROP_READ_TIMEOUT_MSEC]


@pytest.mark.parametrize("stamps", [[0.0] * 6, [0, 40, 40, -9.2e18, float("nan"), 0]], ids=["none", "wild"])
def test_b110_stamps_that_make_no_sense_do_not_stop_a_recording(
    stamps: list[float], monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    shots = [Shot(numbered(n), stamp) for n, stamp in enumerate(stamps)]
    install(monkeypatch, lambda: fake_capture(shots, FRAME_COUNT=6, FPS=25))
    source = opened(source_of(by_name("clip.avi")))
    assert len(source.fill_all()) == 6
    assert source.time.waited_for == [START_NS + n * 40 * MS for n in range(6)]


def test_b110_a_cameras_stamps_are_the_hosts_not_opencvs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda: fake_capture((Shot(numbered(n), 176707.1e3) for n in range(9)), FPS=30))
    source = source_of("opencv://0")
    spec = slot_source_spec(source.open().image)
    view = ImageView(spec, np.zeros(spec.nbytes, np.uint8))
    before = time.monotonic_ns()
    capture = source.fill(view)
    assert before <= capture.captured_ns <= time.monotonic_ns()
    assert (capture.clock, capture.pts_s) == ("host", None)
    source.close()


# ---- cameras, by a fake, in a Camera


class Door:
    """A camera on ``opencv://0`` of fake captures; at the end it must have stopped and broken no rule."""

    def __init__(self, fake: FakeOpencv, device: NullDevice, **config: float) -> None:
        self.fake = fake
        self.device = device
        self.before = held(device)
        self.camera = Camera(CameraConfig("door", "opencv://0", **config), device)  # type: ignore[arg-type]

    def __enter__(self) -> Camera:
        self.camera.start()
        return self.camera

    def __exit__(self, *error: object) -> None:
        assert self.camera.stop(10)
        assert self.fake.breaches() == []
        assert held(self.device) == self.before
        for capture in self.fake.captures:
            assert len(capture.released_by) == 1
            assert capture.released_by[0].startswith("cap-door")


def test_b11_a_driver_queue_never_makes_the_picture_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that keeps four frames, at 30 fps; the stage takes 200 ms for each."""
    period_s, taken_at = 1 / 30, []

    def driver() -> Iterator[Shot]:
        start = time.monotonic()
        for number in itertools.count():
            newest = int((time.monotonic() - start) / period_s)
            number = max(number, newest - 3)  # older ones were overwritten
            time.sleep(max(0.0, start + number * period_s - time.monotonic()))
            taken_at.append(time.monotonic() - start - number * period_s)
            yield Shot(numbered(number))

    fake = install(monkeypatch, lambda: fake_capture(driver(), FPS=30))
    with Door(fake, NullDevice(0.2)) as camera:
        until_processed(camera, 8)
    late = sorted(taken_at[10:])
    assert late[len(late) // 2] < 2 * period_s, "the queue is not drained"


@pytest.mark.usefixtures("quick_retries")
def test_b16_only_a_fresh_capture_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(
        monkeypatch,
        lambda: fake_capture((Shot(numbered(n), takes_s=0.001) for n in range(101)), FPS=30),
        lambda: fake_capture((Shot(numbered(n), takes_s=0.001) for n in itertools.count()), FPS=30),
    )
    with Door(fake, NullDevice()) as camera:
        until(lambda: camera.statistics().reconnects == 1, "the reconnect")
        seen = camera.statistics().processed
        until_processed(camera, seen + 20)
        assert camera.state is CameraState.RUNNING
    assert len(fake.captures) == 2
    assert fake.captures[0].grabs == 102


def test_b22_a_camera_that_fails_at_once_is_no_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, lambda: fake_capture())
    with Door(fake, NullDevice()) as camera:
        until_state(camera, CameraState.RECONNECTING)
        time.sleep(1.2)
        assert camera.cause is not None
        assert "no frame came" in camera.cause
    assert 2 <= len(fake.captures) <= 4
    assert sum(capture.grabs for capture in fake.captures) <= 4


@pytest.mark.usefixtures("quick_retries")
def test_b25_empty_frames_alone_are_counted_and_the_camera_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Shot(np.zeros((0, 0, 3), np.uint8))
    fake = install(
        monkeypatch, lambda: fake_capture(itertools.repeat(empty), FRAME_WIDTH=300, FRAME_HEIGHT=300, FPS=30)
    )
    with Door(fake, NullDevice(), stale_after_s=0.3) as camera:
        until_state(camera, CameraState.RECONNECTING)
        statistics = camera.statistics()
        assert statistics.dropped["corrupt"] > 0
        assert statistics.captured == 0
        assert not camera.health().ready
        assert camera.latest() is None
        assert sum(capture.grabs for capture in fake.captures) < 200


@pytest.mark.parametrize("takes_s", [0.2, 0.0])
def test_b48_only_the_capture_thread_releases_and_never_during_a_read(
    takes_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(
        monkeypatch, lambda: fake_capture((Shot(numbered(n), takes_s=takes_s) for n in itertools.count()), FPS=30)
    )
    for _ in range(3 if takes_s else 10):
        with Door(fake, NullDevice()):
            until(lambda: bool(fake.captures) and fake.captures[-1].reading.is_set(), "a read")


def test_b48_the_fake_catches_a_release_from_elsewhere() -> None:
    capture = fake_capture([Shot(numbered(0), takes_s=0.5)])
    reader = threading.Thread(target=capture.grab)
    reader.start()
    assert capture.reading.wait(5)
    with pytest.raises(SystemError):
        capture.release()
    reader.join()
    assert capture.breaches


# ---- what does not open


def test_a_camera_is_tried_by_v4l2_first_and_everything_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, lambda: fake_capture(opens=False))
    with pytest.raises(SourceError, match=r"/dev/video97 does not exist"):
        source_of("opencv://97").open()
    assert [backend for _, backend, _ in fake.opened] == [cv2.CAP_V4L2, cv2.CAP_ANY]
    assert all(len(capture.released_by) == 1 for capture in fake.captures)


def test_a_file_that_is_no_video_says_so(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(os.urandom(3000))
    with pytest.raises(SourceError, match="is not a video that OpenCV can read"):
        by_path(tmp_path / "clip.mp4").open()
    with pytest.raises(SourceError, match="does not exist"):
        by_path(tmp_path / "other.mp4").open()
    with pytest.raises(SourceError, match="no pictures are named like"):
        by_path(tmp_path / "p%03d.png").open()


@pytest.mark.parametrize("mode", [0o000, 0o600])
def test_b132_permission_names_device_ids_and_group(mode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = Path("/dev/full")  # a character device that every machine has
    real = os.open

    def refuse(path: Path, *args: int, **options: int) -> int:
        if path == device:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **options)

    install(monkeypatch, lambda: fake_capture(opens=False))
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(_capture_problem, "device_path", lambda number: device)
    monkeypatch.setattr(opencv, "device_path", lambda number: device)
    with pytest.raises(SourceError) as caught:
        source_of("opencv://0").open()
    status = device.stat()
    for fact in (str(device), f"uid {os.geteuid()}", f"gid {os.getegid()}", f"gid {status.st_gid}", "--group-add"):
        assert fact in str(caught.value)
    # The same for a file that is given as the camera, by the mode it has; root may read it nevertheless.
    given = tmp_path / "video0"
    given.write_bytes(b"x")
    given.chmod(mode)
    with pytest.raises(SourceError, match=re.escape(str(given))) as caught:
        by_path(given).open()
    if os.geteuid() != 0 and mode == 0:
        assert "--group-add" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "says"), [(errno.EBUSY, "is busy"), (errno.ENODEV, "no camera behind it"), (errno.EIO, "cannot be read")]
)
def test_a_device_that_cannot_be_opened_says_what_to_do(code: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *args: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    assert says in device_problem(Path("/dev/full"))


def test_a_busy_camera_names_the_program_that_has_it() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; f = open('/dev/full'); print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert f"is busy (process {holder.pid}, " in device_problem(Path("/dev/full"))
    assert "may be used but does not deliver" in device_problem(Path("/dev/full"))


def test_a_closed_source_says_so_and_an_interrupted_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda: fake_capture(camera_script()))
    source = source_of("opencv://0")
    format = source.open()
    spec = slot_source_spec(format.image)
    view = ImageView(spec, np.zeros(spec.nbytes, np.uint8))
    source.interrupt()
    with pytest.raises(SourceError, match="interrupted"):
        source.fill(view)
    source.close()
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.fill(view)
    source.open()
    source.fill(view)
    source.close()
