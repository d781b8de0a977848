"""Video of the network: real servers (gst-rtsp-server, ffmpeg) and an HTTP server that breaks on purpose."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest

from kernels.device import HostDevice
from kernels.image import ImageView
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.sources import make_source, redact
from pipeline.sources._av_stream import NetworkReader
from pipeline.sources._network import NetworkSource
from pipeline.sources.base import FormatChanged, FrameCorrupt, SourceEnded, SourceError
from tests.helpers.videos import Stream, write_video
from tests.pipeline.fakes import until, until_processed, until_state
from tests.programs import program

SERVER = Path(__file__).parents[1] / "helpers" / "rtsp_server.py"
PYTHON = "/usr/bin/python3"  # the distribution's, which has its GObject bindings
PATTERN = (
    "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=352,height=288,framerate=25/1 ! "
    "x264enc tune=zerolatency key-int-max=10 ! rtph264pay name=pay0 pt=96 )"
)
LEVELS = tuple(range(20, 220, 10))


def has_rtsp_server() -> bool:
    if shutil.which(PYTHON) is None:
        return False
    check = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    return subprocess.run([PYTHON, "-c", check], capture_output=True).returncode == 0


rtsp = pytest.mark.skipif(not has_rtsp_server(), reason="gst-rtsp-server is missing (gir1.2-gst-rtsp-server-1.0)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def rtsp_server(port: int, *credentials: str, launch: str = PATTERN) -> Iterator[subprocess.Popen[str]]:
    command = [PYTHON, str(SERVER), str(port), launch, *credentials]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def http_server(answer: Answer) -> Iterator[str]:
    """Serves whatever ``answer`` writes; the URL without a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def file_of(path: Path, upto: float = 1.0) -> Answer:
    data = path.read_bytes()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.send_header("Content-Type", "video/x-matroska")
        request.end_headers()
        request.wfile.write(data[: int(len(data) * upto)])

    return answer


def mjpeg_of(pictures: Callable[[], Iterable[bytes]], every_s: float = 0.02) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        request.end_headers()
        for data in pictures():
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
            request.wfile.write(head.encode() + data + b"\r\n")
            time.sleep(every_s)

    return answer


def jpeg(level: int, width: int = 64, height: int = 48) -> bytes:
    return cv2.imencode(".jpg", np.full((height, width), level, np.uint8))[1].tobytes()


def network(uri: str) -> NetworkSource:
    source = make_source(uri)
    assert isinstance(source, NetworkSource)
    return source


@contextlib.contextmanager
def opened(uri: str) -> Iterator[tuple[NetworkSource, ImageView]]:
    source = network(uri)
    try:
        image = source.open().image
        yield source, ImageView(image, np.empty(image.nbytes, np.uint8))
    finally:
        source.close()


def watch(source: NetworkSource, view: ImageView, seen: list[int] | None = None) -> None:
    """Fill until something ends it; ``seen`` gets the first pixel of each frame."""
    for _ in range(2000):
        with contextlib.suppress(FrameCorrupt):
            source.fill(view)
            if seen is not None:
                seen.append(int(view.plane(0)[0, 0]))


def clip(path: Path, levels: tuple[int, ...] = LEVELS, width: int = 64, height: int = 48) -> Path:
    pictures = ([np.full((height, width), level, np.uint8)] for level in levels)
    return write_video(path, pictures, width, height, Stream("gray", fps=100))


# ---- recordings


def test_no_frame_of_a_recording_is_lost_and_it_ends(tmp_path: Path) -> None:
    with http_server(file_of(clip(tmp_path / "clip.mkv"))) as url, opened(f"{url}/clip.mkv") as (source, view):
        assert source.open().live is False
        first = source.fill(view)
        assert (first.pts_s, first.copied_bytes) == (0.0, view.spec.pixel_bytes)
        seen = [int(view.plane(0)[0, 0])]
        with pytest.raises(SourceEnded, match="is over"):
            watch(source, view, seen)
        assert seen == list(LEVELS)


def test_a_recording_is_fetched_again_where_it_loops(tmp_path: Path) -> None:
    with (
        http_server(file_of(clip(tmp_path / "clip.mkv"))) as url,
        opened(f"{url}/clip.mkv?loop=true") as (source, view),
    ):
        seen = []
        for _ in range(2 * len(LEVELS) + 3):
            source.fill(view)
            seen.append(int(view.plane(0)[0, 0]))
        assert seen == [*LEVELS, *LEVELS, *LEVELS[:3]]


def test_a_recording_that_is_cut_in_mid_frame_shows_what_came(tmp_path: Path) -> None:
    with http_server(file_of(clip(tmp_path / "clip.mkv"), 0.6)) as url, opened(f"{url}/clip.mkv") as (source, view):
        seen: list[int] = []
        with pytest.raises((SourceEnded, SourceError)):
            watch(source, view, seen)
        assert 3 <= len(seen) < len(LEVELS)
        assert seen == list(LEVELS[: len(seen)])


# ---- live streams


def test_b11_of_a_live_stream_the_newest_frame_is_taken() -> None:
    """A reader that sleeps does not get what has waited since, but what is there now."""
    sent: list[int] = []

    def pictures() -> Iterator[bytes]:
        for number in range(2000):
            sent.append(10 + number % 200)
            yield jpeg(10 + number % 200)

    with http_server(mjpeg_of(pictures, 0.01)) as url, opened(f"{url}/stream.mjpg") as (source, view):
        source.fill(view)
        assert source.open().live
        source.fill(view)
        time.sleep(0.5)
        source.skip()
        source.fill(view)
        behind = (sent[-1] - int(view.plane(0)[0, 0])) % 200
        assert behind <= 20, "half a second of frames is 50"


def test_b20_a_size_that_changes_in_mid_stream_is_a_new_format() -> None:
    def pictures() -> Iterator[bytes]:
        yield from (jpeg(50) for _ in range(10))
        yield from (jpeg(60, 96, 64) for _ in range(1000))

    with http_server(mjpeg_of(pictures)) as url, opened(f"{url}/stream.mjpg") as (source, view):
        with pytest.raises(FormatChanged) as caught:
            watch(source, view)
        image = caught.value.format.image
        assert (image.width, image.height) == (96, 64)
        source.fill(ImageView(image, np.empty(image.nbytes, np.uint8)))


def test_a_stream_that_is_cut_is_a_loss_and_not_an_end() -> None:
    answer = mjpeg_of(lambda: [*[jpeg(50)] * 30, jpeg(50)[:300]])
    with (
        http_server(answer) as url,
        opened(f"{url}/stream.mjpg") as (source, view),
        pytest.raises(SourceError, match=r"ended the stream|broke off"),
    ):
        watch(source, view)


def test_b15_a_stream_that_stalls_is_given_up_and_an_interrupt_wakes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources._av_stream.READ_TIMEOUT_S", 0.5)
    go = threading.Event()

    def pictures() -> Iterator[bytes]:
        yield from [jpeg(50)] * 30
        go.wait(20)

    with http_server(mjpeg_of(pictures, 0.005)) as url:
        try:
            with opened(f"{url}/stream.mjpg") as (source, view), pytest.raises(SourceError, match="nothing in time"):
                watch(source, view)
            monkeypatch.setattr("pipeline.sources._av_stream.READ_TIMEOUT_S", 20.0)
            go.clear()
            with opened(f"{url}/stream.mjpg") as (source, view):
                waker = threading.Timer(0.3, source.interrupt)
                waker.start()
                with pytest.raises(SourceError, match="interrupted"):
                    watch(source, view)
                waker.join()
        finally:
            go.set()


def test_nothing_is_left_of_a_reader_that_was_in_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources._av_stream.READ_TIMEOUT_S", 0.3)
    before = set(os.listdir("/proc/self/fd"))
    with http_server(mjpeg_of(lambda: [jpeg(50)] * 40, 0.2)) as url, opened(f"{url}/stream.mjpg"):
        pass
    until(lambda: not any(t.name == "network-reader" for t in threading.enumerate()), "the reader's end")
    until(lambda: set(os.listdir("/proc/self/fd")) <= before, "the end of its connection")


# ---- refusals


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "refuses the user"), (403, "forbids it"), (404, "not there"), (503, "answers with an error")],
)
def test_b29_a_refusal_is_told_from_an_outage(status: int, words: str) -> None:
    def refuse(request: BaseHTTPRequestHandler) -> None:
        request.send_error(status)

    with http_server(refuse) as url:
        source = network(f"{url.replace('//', '//ann:secret@')}/stream.mjpg")
        with pytest.raises(SourceError, match=words) as caught:
            source.open()
        source.close()
        assert "secret" not in str(caught.value)


def test_a_port_where_nothing_listens_says_so() -> None:
    for scheme in ("http", "rtsp"):
        source = network(f"{scheme}://127.0.0.1:{free_port()}/x")
        with pytest.raises(SourceError, match="connection refused"):
            source.open()
        source.close()


def test_what_is_no_video_is_refused() -> None:
    def text(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"<html>" + b"no video " * 1000)

    with http_server(text) as url:
        source = network(f"{url}/page")
        with pytest.raises(SourceError):
            source.open()
        source.close()


def test_a_playlist_leads_to_no_file_of_this_machine(tmp_path: Path) -> None:
    secret = clip(tmp_path / "secret.ts")

    def playlist(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/vnd.apple.mpegurl")
        request.end_headers()
        text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{secret}\n#EXT-X-ENDLIST\n"
        request.wfile.write(text.encode())

    with http_server(playlist) as url:
        source = network(f"{url}/list.m3u8")
        with pytest.raises(SourceError):
            source.open()
        source.close()


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("rtsp://cam/live?channel=1&subtype=0&via=udp", "rtsp://cam/live?channel=1&subtype=0"),
        ("rtsp://cam/live?via=tcp", "rtsp://cam/live"),
        ("http://cam/v.mp4?loop=true&q=a%20b", "http://cam/v.mp4?q=a%20b"),
        ("udp://0.0.0.0:5000?fifo_size=1000", "udp://0.0.0.0:5000?fifo_size=1000"),
    ],
)
def test_a_servers_settings_stay_and_pinholes_go(uri: str, url: str) -> None:
    assert network(uri).url() == url


def test_a_password_is_in_no_text_about_the_source() -> None:
    uri = "rtsp://ann:s3cret@127.0.0.1:1/live?token=abc123"
    assert "s3cret" not in redact(uri)
    source = network(uri)
    with pytest.raises(SourceError) as caught:
        source.open()
    source.close()
    for secret in ("s3cret", "abc123"):
        assert secret not in str(caught.value)


# ---- real servers


@rtsp
def test_rtsp_is_live_and_its_frames_come_at_their_pace() -> None:
    port = free_port()
    with rtsp_server(port), opened(f"rtsp://127.0.0.1:{port}/test") as (source, view):
        assert (view.spec.width, view.spec.height) == (352, 288)
        captures = [source.fill(view) for _ in range(30)]
        stamps = [capture.pts_s for capture in captures if capture.pts_s is not None]
        assert len(stamps) == 30
        assert stamps == sorted(set(stamps))
        assert view.plane(0).max() > 50, "a ball on black"


@rtsp
def test_rtsp_with_a_password_and_without() -> None:
    port = free_port()
    with rtsp_server(port, "ann", "pass"):
        for who, words in (("", "401"), ("ann:wrong@", "401")):
            source = network(f"rtsp://{who}127.0.0.1:{port}/test")
            with pytest.raises(SourceError, match=words):
                source.open()
            source.close()
        with opened(f"rtsp://ann:pass@127.0.0.1:{port}/test") as (source, view):
            source.fill(view)


@rtsp
@pytest.mark.slow
def test_b16_a_server_that_stalls_stops_and_comes_back_is_followed() -> None:
    """One camera over a server that is stopped, started again on the same port, and then stalls in mid-stream."""
    port = free_port()
    camera = Camera(CameraConfig("cam", f"rtsp://127.0.0.1:{port}/test"), HostDevice())
    try:
        with rtsp_server(port):
            camera.start()
            until_processed(camera, 10, 20)
        until_state(camera, CameraState.RECONNECTING, 20)
        with rtsp_server(port) as server:
            until(lambda: camera.state is CameraState.RUNNING, "the server's return", 20)
            assert camera.statistics().reconnects == 1
            before = camera.statistics().processed
            until_processed(camera, before + 10, 20)
            server.send_signal(signal.SIGSTOP)
            until_state(camera, CameraState.RECONNECTING, 20)
            server.send_signal(signal.SIGCONT)
            until(lambda: camera.state is CameraState.RUNNING, "the server's waking", 30)
    finally:
        assert camera.stop(10)


@pytest.mark.program("ffmpeg")
def test_what_somebody_sends_by_udp_is_shown(tmp_path: Path) -> None:
    port = free_port()
    send = [
        program("ffmpeg"), "-loglevel", "error", "-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25", "-c:v",
        "mpeg2video", "-g", "5", "-f", "mpegts", f"udp://127.0.0.1:{port}?pkt_size=1316",
    ]  # fmt: skip
    with subprocess.Popen(send, stdin=subprocess.DEVNULL) as sender:
        try:
            with opened(f"udp://127.0.0.1:{port}") as (source, view):
                assert (view.spec.width, view.spec.height) == (320, 240)
                shown = 0
                for _ in range(60):
                    with contextlib.suppress(FrameCorrupt):
                        source.fill(view)
                        shown += 1
                assert shown >= 40
        finally:
            sender.kill()


def test_the_reader_is_not_shared_between_openings() -> None:
    with http_server(mjpeg_of(lambda: [jpeg(70)] * 400)) as url, opened(f"{url}/stream.mjpg") as (source, view):
        first = source._reader
        source.open()
        assert isinstance(source._reader, NetworkReader)
        assert source._reader is not first
        source.fill(view)
