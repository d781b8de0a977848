"""Views of frames encoded on the device: kernels on the processor, nvJPEG by a stand-in, cameras as they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg

from kernels import nvjpeg
from kernels.chain import parse_chain
from kernels.color_cpu import to_working
from kernels.errors import DeviceFailedError
from kernels.image import Pixels
from kernels.op import Scratch
from pipeline.camera import Camera, CameraConfig
from pipeline.encoders import all_encoders, device_encoder_for, holds_results, where_encoded
from pipeline.rendition import DeviceRendition
from pipeline.scaling import scaled_size
from service.picture import Picture, Renderer, Variant
from tests.helpers.sequence_code import read_codes
from tests.kernels.emulator import EmulatedDevice, emulate
from tests.kernels.fake_nvjpeg import FakeNvJpeg
from tests.kernels.jpeg_pictures import psnr
from tests.pipeline.fakes import until, until_processed
from tests.programs import program

pytestmark = [pytest.mark.program("c++"), pytest.mark.slow]
SIZE = (354, 130)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeNvJpeg:
    found = FakeNvJpeg()
    monkeypatch.setattr(nvjpeg, "library", lambda: found)
    return found


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, folder: Path, library: FakeNvJpeg) -> EmulatedDevice:
    made = emulate(monkeypatch, program("c++"), folder)
    made.holds_results = holds_results(made)
    return made


@pytest.fixture
def camera(device: EmulatedDevice, library: FakeNvJpeg) -> Iterator[Camera]:
    uri = f"testcard://?size={SIZE[0]}x{SIZE[1]}&fps=20&format=NV12"
    camera = Camera(CameraConfig("cam", uri, parse_chain("gain_offset(gain=0.9)"), wait="block"), device)
    camera.start()
    try:
        until_processed(camera, 1, 60)
        yield camera
    finally:
        assert camera.stop(10)
    assert not library.live
    assert {kind: device.ledger.held(kind) for kind in ("device", "host", "pinned")} == dict.fromkeys(
        ("device", "host", "pinned"), 0
    )


def rendered(renderer: Renderer) -> Picture:
    made: list[Picture] = []

    def newer() -> bool:
        if (picture := renderer.render()) is not None:
            made.append(picture)
        return bool(made) and not made[-1].placeholder

    until(newer, "a picture")
    return made[-1]


def pixels(picture: Picture) -> Pixels:
    return np.asarray(simplejpeg.decode_jpeg(picture.data, "BGR"), np.uint8)


def test_a_device_of_its_own_memory_holds_results_and_has_its_encoder(device: EmulatedDevice) -> None:
    assert device.holds_results
    found = device_encoder_for("jpg", device)
    assert found is not None
    assert found.name == "jpeg_gpu"
    assert device_encoder_for("png", device) is None
    assert "jpeg_gpu" not in all_encoders()
    device.integrated = True
    assert not holds_results(device)


@pytest.mark.parametrize("of_source", [False, True], ids=["result", "source"])
@pytest.mark.parametrize("width", [None, 177, 353, 1000])
def test_a_view_is_the_picture_that_the_host_would_make_of_it(
    camera: Camera, device: EmulatedDevice, of_source: bool, width: int | None
) -> None:
    encoder = device_encoder_for("jpg", device)
    assert encoder is not None
    rendition = DeviceRendition(device, encoder, of_source=of_source, width=width)
    lease = camera.latest()
    assert lease is not None
    with lease:
        data, full = rendition.encode(lease, 95)
        rendition.close()
        rendition.close()
        working = np.empty((SIZE[1], SIZE[0], 3), np.uint8)
        to_working(lease.source, working, Scratch())
        if not of_source:
            working = np.clip(working * 0.9, 0, 255).round().astype(np.uint8)
            np.testing.assert_allclose(lease.result.plane(0), working, atol=1)
        sequence = lease.frame.sequence
    assert (full.width, full.height) == SIZE
    shown = np.asarray(simplejpeg.decode_jpeg(data, "BGR"), np.uint8)
    size = scaled_size(*SIZE, width)
    if size != SIZE:
        working = np.asarray(cv2.resize(working, size, interpolation=cv2.INTER_AREA), np.uint8)
    assert shown.shape == working.shape
    # Hard edges between colours suffer from 4:2:0, so the CPU's JPEG is what it is compared with.
    reference = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(working, 95, "BGR", "420"), "BGR")
    assert psnr(shown, np.asarray(reference, np.uint8)) > 32
    if size == SIZE:
        assert read_codes(shown) == (sequence, sequence)


def test_one_rendition_follows_changes_of_size(camera: Camera, device: EmulatedDevice) -> None:
    renderer = Renderer(camera, Variant.make("cam", width=100))
    try:
        assert (rendered(renderer).width, rendered(renderer).height) == (100, 37)
        camera.set_chain(parse_chain("crop(x=0, y=0, width=80, height=60)"))
        until(lambda: rendered(renderer).width == 80, "the smaller picture")
        camera.set_chain(parse_chain("resize(width=400)"))
        until(lambda: rendered(renderer).width == 100, "the wider picture, scaled")
    finally:
        renderer.close()


def test_only_encoded_bytes_come_over_while_nobody_reads_pixels(camera: Camera, device: EmulatedDevice) -> None:
    renderer = Renderer(camera, Variant.make("cam", quality=70))
    try:
        before = camera.statistics()
        made = [rendered(renderer) for _ in range(3)]
        after = camera.statistics()
        assert {picture.encoder for picture in made} == {"jpeg_gpu"}
        assert after.link_bytes_out - before.link_bytes_out == sum(len(picture.data) for picture in made)
        assert "from_device" not in after.copied_bytes
        still = Renderer(camera, Variant.make("cam", format="png"))
        picture = rendered(still)
        still.close()
        assert picture.encoder == "png"
        nbytes = SIZE[0] * SIZE[1] * 3
        assert camera.statistics().copied_bytes["from_device"] == nbytes, "a still was asked for, and paid for"
    finally:
        renderer.close()


def test_grey_is_encoded_as_grey(camera: Camera, device: EmulatedDevice) -> None:
    renderer = Renderer(camera, Variant.make("cam", quality=95))
    try:
        camera.set_chain(parse_chain("grayscale"))
        until(lambda: rendered(renderer).pixel_format == "GRAY8", "a grey picture")
        picture = rendered(renderer)
        assert (picture.encoder, picture.pixel_format) == ("jpeg_gpu", "GRAY8")
        shown = simplejpeg.decode_jpeg(picture.data, "GRAY")
        assert read_codes(np.asarray(shown[:, :, 0], np.uint8)) == (picture.sequence, picture.sequence)
    finally:
        renderer.close()


def test_where_the_device_fails_to_encode_the_cpu_does_it_from_then_on(
    camera: Camera, library: FakeNvJpeg, caplog: pytest.LogCaptureFixture
) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    try:
        assert rendered(renderer).encoder == "jpeg_gpu"
        library.fail["nvjpegEncodeImage"] = 6
        with caplog.at_level(logging.WARNING, "pinhole.live"):
            picture = rendered(renderer)
        assert picture.encoder == "jpeg_cpu"
        assert read_codes(pixels(picture)) == (picture.sequence, picture.sequence)
        assert not library.live, "what it held on the device is given back at once"
        assert [record.message for record in caplog.records if "execution failed" in record.message]
        assert rendered(renderer).encoder == "jpeg_cpu"
    finally:
        renderer.close()


def test_a_lost_gpu_is_not_hidden_by_the_cpu(
    camera: Camera, device: EmulatedDevice, library: FakeNvJpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    lost = DeviceFailedError("cudaMemGetInfo", 700, "illegal address", True, "restart")
    try:
        rendered(renderer)
        monkeypatch.setattr(device, "check", lambda: (_ for _ in ()).throw(lost))
        library.fail["nvjpegEncodeImage"] = 6
        with pytest.raises(DeviceFailedError, match="illegal address"):
            rendered(renderer)
    finally:
        renderer.close()


def test_a_closed_renderer_makes_nothing(camera: Camera, library: FakeNvJpeg) -> None:
    renderer = Renderer(camera, Variant.make("cam"))
    rendered(renderer)
    renderer.close()
    assert not library.live
    assert renderer.render() is None


def test_who_encodes_is_said_in_words(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    assert where_encoded("jpg", device) == "jpeg_gpu on the device, where results stay"
    device.holds_results = False
    assert where_encoded("jpg", device) == "jpeg_gpu on the device"
    assert where_encoded("png", device) == "png on the CPU"
    monkeypatch.setattr(nvjpeg, "library", lambda: None)
    assert where_encoded("jpg", device).startswith("jpeg_cpu on the CPU: nvJPEG is not installed; install")
