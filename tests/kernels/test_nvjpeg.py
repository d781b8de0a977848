"""The coder around nvJPEG, on a library that only checks what it is told. The real one: tests/gpu/test_jpeg.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from kernels import nvjpeg
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError, OutOfMemoryError
from kernels.formats import BGR8, GRAY8, I420, NV12, Matrix, PixelFormat, Range
from kernels.image import DeviceView, ImageSpec, ImageView
from kernels.nvjpeg import JpegCoder, SharedCoder
from tests.kernels.emulator import EmulatedDevice, emulate
from tests.kernels.fake_nvjpeg import FakeNvJpeg
from tests.kernels.jpeg_pictures import as_bgr, psnr, smooth


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EmulatedDevice:
    return emulate(monkeypatch, "", tmp_path)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeNvJpeg:
    found = FakeNvJpeg()
    monkeypatch.setattr(nvjpeg, "library", lambda: found)
    return found


@pytest.fixture
def coder(device: EmulatedDevice, library: FakeNvJpeg) -> Iterator[JpegCoder]:
    coder = JpegCoder(device)
    yield coder
    coder.close()
    coder.close()
    assert not library.live
    assert device.ledger.held("host") == 0


@pytest.mark.parametrize("format", nvjpeg.FORMATS, ids=str)
@pytest.mark.parametrize(("width", "height", "padding"), [(64, 48, 0), (17, 19, 5), (1, 1, 0), (130, 3, 7)])
def test_pictures_of_every_format_and_size_are_what_they_were(
    coder: JpegCoder, format: PixelFormat, width: int, height: int, padding: int
) -> None:
    view = smooth(format, width, height, padding)
    data = coder.encode(DeviceView(view.spec, view.address), 95)
    decoded = simplejpeg.decode_jpeg(data, "BGR")
    assert decoded.shape == (height, width, 3)
    assert psnr(decoded, as_bgr(view)) > 30


def test_quality_and_sampling_are_set_when_they_change(coder: JpegCoder, library: FakeNvJpeg) -> None:
    view = smooth(BGR8, 64, 48)
    picture = DeviceView(view.spec, view.address)
    sizes = [len(coder.encode(picture, quality)) for quality in (90, 90, 20, 90)]
    assert sizes[0] == sizes[1] == sizes[3] > sizes[2]
    assert library.calls.count("nvjpegEncoderParamsSetQuality") == 3
    assert library.calls.count("nvjpegEncoderParamsSetSamplingFactors") == 1
    assert library.calls.count("nvjpegEncodeGetBufferSize") == 1


def test_the_buffer_grows_and_old_bytes_stay_what_they_are(coder: JpegCoder, device: EmulatedDevice) -> None:
    small, large = smooth(GRAY8, 32, 16), smooth(GRAY8, 320, 160)
    first = coder.encode(DeviceView(small.spec, small.address), 80)
    kept, held = bytes(bytearray(first)), device.ledger.held("host")
    coder.encode(DeviceView(large.spec, large.address), 80)
    grown = device.ledger.held("host")
    coder.encode(DeviceView(small.spec, small.address), 80)
    assert first == kept
    assert held < grown == device.ledger.held("host")


def test_a_format_it_does_not_take_is_refused_with_those_it_does(coder: JpegCoder) -> None:
    spec = ImageSpec.make(NV12, 16, 16, matrix=Matrix.BT601, range=Range.FULL)
    with pytest.raises(InputError, match=r"NV12 is not encoded.*BGR8, GRAY8, I420"):
        coder.encode(DeviceView(spec, 4096), 80)


@pytest.mark.parametrize(
    "name",
    [
        "nvjpegEncodeImage",
        "nvjpegEncodeRetrieveBitstream",
        "nvjpegEncoderParamsSetQuality",
        "nvjpegEncodeGetBufferSize",
    ],
)
def test_a_call_that_fails_is_named_and_the_next_picture_is_encoded(
    coder: JpegCoder, library: FakeNvJpeg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = smooth(BGR8, 64, 48)
    picture = DeviceView(view.spec, view.address)
    library.fail[name] = 6
    with pytest.raises(DeviceFailedError, match=f"{name} failed with execution failed") as caught:
        coder.encode(picture, 80)
    assert not caught.value.sticky
    assert psnr(simplejpeg.decode_jpeg(coder.encode(picture, 95), "BGR"), as_bgr(view)) > 30


def test_a_lost_context_is_told_as_that(
    coder: JpegCoder, library: FakeNvJpeg, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = DeviceFailedError("cudaMemGetInfo", 700, "illegal address", True, "restart")
    monkeypatch.setattr(device, "check", lambda: (_ for _ in ()).throw(lost), raising=False)
    library.fail["nvjpegEncodeImage"] = 6
    view = smooth(BGR8, 64, 48)
    with pytest.raises(DeviceFailedError) as caught:
        coder.encode(DeviceView(view.spec, view.address), 80)
    assert caught.value.sticky


@pytest.mark.parametrize("name", ["nvjpegCreateSimple", "nvjpegEncoderStateCreate", "nvjpegEncoderParamsCreate"])
def test_a_coder_that_cannot_be_made_holds_nothing(device: EmulatedDevice, library: FakeNvJpeg, name: str) -> None:
    library.fail[name] = 5
    with pytest.raises(DeviceFailedError, match="allocator failure"):
        JpegCoder(device)
    assert not library.live


def test_no_memory_for_the_bitstream_is_said_and_the_coder_goes_on(
    coder: JpegCoder, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = smooth(BGR8, 64, 48)
    picture = DeviceView(view.spec, view.address)

    def none(nbytes: int) -> None:
        raise OutOfMemoryError("pinned host memory", nbytes, 0, "lower it")

    with monkeypatch.context() as patch:
        patch.setattr(device, "allocate_pinned", none)
        with pytest.raises(OutOfMemoryError):
            coder.encode(picture, 80)
    assert coder.encode(picture, 80).startswith(b"\xff\xd8")


def test_a_closed_coder_says_so(device: EmulatedDevice, library: FakeNvJpeg) -> None:
    coder = JpegCoder(device)
    coder.close()
    with pytest.raises(MemoryClosedError):
        coder.encode(DeviceView(ImageSpec.make(GRAY8, 8, 8), 4096), 80)


def test_without_the_library_what_to_install_is_said(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvjpeg, "library", lambda: None)
    assert "cuda12 or cuda13" in str(nvjpeg.absence())
    with pytest.raises(DeviceFailedError, match="nvJPEG is not installed"):
        JpegCoder(device)


def test_no_more_than_so_many_encode_at_once_and_the_last_to_leave_releases_them(
    device: EmulatedDevice, library: FakeNvJpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [SharedCoder(device) for _ in range(12)]
    view = smooth(BGR8, 64, 48)
    picture = DeviceView(view.spec, view.address)
    inside, most = [0], [0]
    encode = JpegCoder.encode

    def counted(self: JpegCoder, *arguments: object) -> bytes:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.005)
        inside[0] -= 1
        return encode(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(JpegCoder, "encode", counted)
    threads = [threading.Thread(target=client.encode, args=(picture, 80)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 < most[0] <= nvjpeg.MOST_AT_ONCE
    for client in clients[:-1]:
        client.close()
    assert library.live
    assert clients[-1].encode(picture, 80).startswith(b"\xff\xd8")
    clients[-1].close()
    clients[-1].close()
    assert not library.live
    with pytest.raises(MemoryClosedError):
        clients[0].encode(picture, 80)


def test_a_coder_that_failed_is_made_anew(device: EmulatedDevice, library: FakeNvJpeg) -> None:
    client = SharedCoder(device)
    view = smooth(BGR8, 64, 48)
    picture = DeviceView(view.spec, view.address)
    for name in ("nvjpegCreateSimple", "nvjpegEncodeImage", "nvjpegEncodeRetrieveBitstream"):
        for _ in range(2 * nvjpeg.MOST_AT_ONCE):  # no place is lost
            library.fail[name] = 6
            with pytest.raises(DeviceFailedError):
                client.encode(picture, 80)
        assert client.encode(picture, 80).startswith(b"\xff\xd8")
    client.close()
    assert not library.live


def test_the_planes_of_i420_are_at_their_offsets() -> None:
    """The oracle of the other tests: a picture of its own, told apart by its planes."""
    view = smooth(I420, 17, 19, 5)
    assert isinstance(view, ImageView)
    assert [plane.shape for plane in view.planes] == [(19, 17), (10, 9), (10, 9)]
    assert len({int(np.mean(plane)) for plane in view.planes}) == 3
