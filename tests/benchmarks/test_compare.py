"""What the comparison's figures rest on: the code read from edges, the viewer's parser, ages, the recorded frames."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import MEMORY_STRATEGIES
from kernels.formats import BGR8
from kernels.image import ImageSpec, ImageView, Pixels
from pipeline.sources._card import Card
from tests.benchmarks.baselines.opencv_alone import RECORD
from tests.benchmarks.baselines.opencv_chain import QUALITY, process
from tests.benchmarks.bench_compare import Camera, jpegs, judge, pinhole, records
from tests.benchmarks.harness import Load, arguments
from tests.benchmarks.time_code import read_edges

LOAD = Load(1.0, (0, 0, 0), (0, 0, 0), {"server": 0.5}, 0.0)


def jpeg(picture: Pixels, quality: int = QUALITY) -> bytes:
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def seen(number: int, size: tuple[int, int] = (640, 360)) -> bytes:
    """A card as a viewer gets it: through the camera's JPEG, the chain, and the server's JPEG."""
    spec = ImageSpec.make(BGR8, *size)
    view = ImageView(spec, np.zeros(spec.nbytes, np.uint8))
    Card(spec).draw(view, number)
    taken = cv2.imdecode(np.frombuffer(jpeg(view.plane(0), 90), np.uint8), cv2.IMREAD_COLOR)
    assert taken is not None
    return jpeg(np.asarray(process(taken), np.uint8))


def grey(data: bytes) -> Pixels:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE), np.uint8)


@pytest.mark.parametrize("number", [0, 1, 899, 0b1010101, 0xFFFFFFFF, 0x80000000, 0xAAAAAAAA, 123_456_789])
@pytest.mark.parametrize("size", [(1280, 720), (352, 128)])
def test_the_code_is_read_from_its_edges(number: int, size: tuple[int, int]) -> None:
    assert read_edges(grey(seen(number, size))) == number


def test_a_torn_picture_and_other_pictures_have_no_code() -> None:
    torn = grey(seen(1))
    torn[180:] = grey(seen(2))[180:]
    assert read_edges(torn) is None
    assert read_edges(np.zeros((360, 640), np.uint8)) is None
    assert read_edges(np.random.default_rng(1).integers(0, 256, (360, 640), np.uint8)) is None


@given(st.data())
def test_the_viewer_finds_every_jpeg_whatever_the_chunks(data: st.DataObject) -> None:
    pictures = [jpeg(np.full((8 + n, 16, 3), 40 * n, np.uint8)) for n in range(4)]
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
    for picture in pictures:
        length = b"Content-Length: %d\r\n" % len(picture) if data.draw(st.booleans()) else b""
        stream += b"--frame\r\nContent-Type: image/jpeg\r\n" + length + b"\r\n" + picture + b"\r\n"
    sizes = data.draw(st.lists(st.integers(1, 700), min_size=1))
    source, turns = io.BytesIO(stream), iter(sizes * (len(stream) // sum(sizes) + 1))
    assert [found for _, found in jpegs(lambda limit: source.read(next(turns, limit)))] == pictures


def test_judging_counts_distinct_frames_first_arrivals_and_what_cannot_be_read() -> None:
    camera = Camera("", 1000.0, 900, 30)
    one, two = seen(30), seen(31)
    unreadable = jpeg(np.zeros((360, 640, 3), np.uint8))
    arrivals = [(1001.01, one), (1001.05, two), (1001.09, two), (1001.5, unreadable), (1009.0, one)]
    result = judge("x", [arrivals, arrivals[:1]], camera, (1000.5, 1002.5), LOAD, 7.0)
    assert (result.viewers, result.fps, result.worst_fps, result.unreadable) == (2, 0.75, 0.5, 1)
    assert result.age_p50_ms == pytest.approx(10, abs=0.01)
    assert result.age_p99_ms == pytest.approx(50 - 100 / 3 + 10 / 3 - 0.0, abs=20)
    assert result.server_cores == 0.5


def test_ages_are_those_of_the_newest_round() -> None:
    camera = Camera("", 1000.0, 900, 30)
    assert camera.age_s(0, 1000.25) == pytest.approx(0.25)
    assert camera.age_s(0, 1030.25) == pytest.approx(0.25)
    assert camera.age_s(899, 1030.0) == pytest.approx(1 / 30)
    assert camera.age_s(300, 1030.0) == pytest.approx(20.0)


def test_records_are_read_back_and_a_cut_one_is_left_out(tmp_path: Path) -> None:
    written = [(time.time(), os.urandom(size)) for size in (0, 1, 1000)]
    data = b"".join(RECORD.pack(at, len(body)) + body for at, body in written)
    assert list(records(data)) == written
    assert list(records(data[:-1])) == written[:-1]
    assert list(records(data + b"\0" * 5)) == written


@pytest.mark.parametrize("memory", ["host", "zero_copy"])
def test_pinhole_is_compared_in_the_memory_that_was_asked_for(memory: str) -> None:
    command = pinhole(memory, Camera("http://127.0.0.1:1/", 0.0, 900, 30), 8080)
    assert command[command.index("--memory") + 1] == memory
    assert arguments("", ["--memory", memory], memory=MEMORY_STRATEGIES).memory == memory
    assert arguments("", [], memory=MEMORY_STRATEGIES).memory == "host"
