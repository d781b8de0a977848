"""Motion JPEG as real clients see it: strict parsers, OpenCV, ffmpeg, curl, a browser."""

from __future__ import annotations

import itertools
import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.helpers.chromium import chromium, shown_picture
from tests.helpers.mjpeg import Part, StreamClient
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import Server
from tests.programs import program


def decoded(part: Part) -> Any:
    picture = cv2.imdecode(np.frombuffer(part.body, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return picture


def assert_frame(part: Part, width: int, height: int, scale: float = 1.0) -> int:
    """The part is a whole picture of the frame that its header says; returns its number."""
    picture = decoded(part)
    assert picture.shape == (height, width, 3)
    sequence = int(part.headers["x-frame-sequence"])
    assert read_codes(picture, scale) == (sequence, sequence)
    assert part.headers["content-type"] == "image/jpeg"
    assert abs(float(part.headers["x-timestamp"]) - time.time()) < 10
    assert 0 <= float(part.headers["x-frame-age-ms"]) < 10_000
    assert int(part.headers["x-chain-version"]) >= 1
    assert (part.headers["x-frame-width"], part.headers["x-frame-height"]) == (str(width), str(height))
    return sequence


@pytest.mark.parametrize("seed", range(3))
def test_b07_b08_a_strict_reader_gets_whole_frames_in_any_chunks(service: Server, seed: int) -> None:
    random_ = random.Random(seed)
    longest = (50, 3000, 100_000)[seed]
    path = "/cameras/small/stream"
    with StreamClient(service.port, path, chunks=lambda: random_.randint(1, longest)) as client:
        sequences = [assert_frame(part, 352, 128) for part in itertools.islice(client.parts(), 10)]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_b07_the_first_bytes_of_the_body_are_the_delimiter(service: Server, version: str) -> None:
    with StreamClient(service.port, "/stream", version=version) as client:
        status, headers = client.head()
        boundary = headers["content-type"].partition("boundary=")[2].encode()
        data = client._rest
        while len(data) < len(boundary) + 20:
            data += client.socket.recv(100)
    assert status == 200
    assert data.startswith(b"--" + boundary + b"\r\nContent-Type: image/jpeg\r\n")
    assert "no-store" in headers["cache-control"]
    assert headers["pragma"] == "no-cache"
    assert headers["connection"] == "close"
    assert "transfer-encoding" not in headers, "framed by the end of the connection: clients of HTTP/1.0 read it"


@pytest.mark.parametrize(
    ("query", "size"), [("", (640, 360)), ("?width=320&quality=60", (320, 180)), ("?view=source", (640, 360))]
)
def test_renditions_have_the_size_that_was_asked_for(service: Server, query: str, size: tuple[int, int]) -> None:
    with StreamClient(service.port, f"/cameras/card/stream{query}") as client:
        for part in itertools.islice(client.parts(), 3):
            assert_frame(part, *size, scale=size[0] / 640)


def test_fps_bounds_what_a_viewer_gets(service: Server) -> None:
    with StreamClient(service.port, "/cameras/small/stream?fps=5") as client:
        parts = client.parts()
        next(parts)
        started = time.monotonic()
        sequences = [int(part.headers["x-frame-sequence"]) for part in itertools.islice(parts, 8)]
    assert time.monotonic() - started > 8 / 5 * 0.75
    assert all(b > a for a, b in itertools.pairwise(sequences))


def test_b07_opencv_opens_the_stream(service: Server) -> None:
    capture = cv2.VideoCapture(f"{service.url}/cameras/small/stream")
    try:
        assert capture.isOpened()
        sequences = []
        for _ in range(10):
            good, picture = capture.read()
            assert good
            top, bottom = read_codes(picture)
            assert top == bottom
            assert top is not None
            sequences.append(top)
    finally:
        capture.release()
    assert sequences == sorted(set(sequences))


@pytest.mark.program("ffmpeg")
def test_b07_ffmpeg_opens_the_stream(service: Server) -> None:
    source = ["-v", "error", "-i", f"{service.url}/cameras/card/stream", "-frames:v", "5"]
    sink = ["-f", "rawvideo", "-pix_fmt", "bgr24", "-"]
    done = subprocess.run([program("ffmpeg"), *source, *sink], capture_output=True, timeout=60, check=False)
    frames = np.frombuffer(done.stdout, np.uint8).reshape(-1, 360, 640, 3)
    assert len(frames) == 5, done.stderr
    codes = [read_codes(frame) for frame in frames]
    assert all(top == bottom and top is not None for top, bottom in codes), codes


@pytest.mark.program("curl")
def test_b07_curl_reads_the_stream(service: Server, tmp_path: Path) -> None:
    files = ["-D", str(tmp_path / "head"), "-o", str(tmp_path / "body")]
    arguments = ["-sS", "--max-time", "2", *files, f"{service.url}/?action=stream"]
    done = subprocess.run([program("curl"), *arguments], capture_output=True, timeout=30, check=False)
    assert done.returncode == 28, "ended by its own time limit"
    head, body = (tmp_path / "head").read_text(), (tmp_path / "body").read_bytes()
    assert "200 OK" in head
    assert body.count(b"Content-Type: image/jpeg") >= 10
    head = subprocess.run(
        [program("curl"), "-sSI", f"{service.url}/stream"], capture_output=True, timeout=30, check=True, text=True
    ).stdout
    assert "multipart/x-mixed-replace" in head


@pytest.mark.program("chromium")
def test_b06_a_browser_shows_the_newest_frame_not_the_one_before(service: Server) -> None:
    """The picture that is drawn is read back pixel by pixel, and its code compared with what the service has."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{service.url}/health/live")
        page.evaluate("document.body.innerHTML = '<img id=live src=/cameras/small/stream>'")
        service.until(lambda: page.evaluate("document.getElementById('live').naturalWidth") == 352)
        lags = []
        for _ in range(15):
            picture = shown_picture(page)
            newest = service.get("/api/v1/cameras/small").json()["sequence"]
            code, _ = read_codes(picture)
            assert code is not None
            lags.append(newest - code)
        assert sorted(lags)[len(lags) // 2] <= 4, lags


def watch(server: Server, path: str, stop: threading.Event, seen: list[tuple[str, int, int]], key: str) -> None:
    with StreamClient(server.port, path) as client:
        for part in client.parts():
            seen.append((key, int(part.headers["x-frame-sequence"]), len(part.body)))
            if stop.is_set():
                return


def test_b50_twenty_viewers_from_one_encoding_per_frame_and_rendition(service: Server) -> None:
    queries = ["", "?quality=50", "?width=320", "?width=160&quality=30", "?view=source"]
    service.until(lambda: service.metric("pinhole_viewers") == 0)
    before = service.metrics()
    stop, seen = threading.Event(), list[tuple[str, int, int]]()
    threads = [
        threading.Thread(target=watch, args=(service, f"/cameras/card/stream{query}", stop, seen, query))
        for query in queries * 4
    ]
    for thread in threads:
        thread.start()
    service.until(lambda: service.metric("pinhole_viewers", camera="card") == 20)
    captured = service.metric("pinhole_frames_captured_total", camera="card")
    time.sleep(2.0)
    rate = (service.metric("pinhole_frames_captured_total", camera="card") - captured) / 2.0
    stop.set()
    for thread in threads:
        thread.join(10)
    gone_s = service.until(lambda: service.metric("pinhole_viewers", camera="card") == 0)
    after = service.metrics()

    def grown(name: str) -> float:
        keys = [key for key in after if key.startswith(name) and '"card"' in key]
        return sum(after[key] - before.get(key, 0) for key in keys)

    encoded, processed = grown("pinhole_frames_encoded_total"), grown("pinhole_frames_processed_total")
    assert len({key for key, _, _ in seen}) == 5
    assert encoded <= (processed + 1) * len(queries), "the newest frame at the start was processed before"
    assert len(seen) > 2 * encoded, "most pictures went to several viewers"
    for query in queries:  # whoever got one frame in one rendition got the same bytes
        sizes: dict[int, set[int]] = {}
        for key, sequence, size in seen:
            if key == query:
                sizes.setdefault(sequence, set()).add(size)
        assert all(len(found) == 1 for found in sizes.values())
    assert rate > 20, "the camera's own rate does not suffer"
    assert gone_s < 2.0


def test_b01_encoding_ends_with_the_last_viewer(service: Server) -> None:
    with StreamClient(service.port, "/cameras/card/stream") as client:
        next(client.parts())
    service.until(lambda: service.metric("pinhole_viewers") == 0)
    time.sleep(0.2)
    before = service.metric("pinhole_frames_encoded_total")
    time.sleep(0.5)
    assert service.metric("pinhole_frames_encoded_total") == before
