"""JPEG by nvJPEG on a real GPU: pixels against the CPU's JPEG, memory, threads, and what crosses the link."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import simplejpeg

from kernels.chain import parse_chain
from kernels.device import MEMORY_STRATEGIES, CudaDevice, cuda_errors
from kernels.errors import DeviceFailedError
from kernels.formats import BGR8, FORMATS, GRAY8, I420, PixelFormat
from kernels.image import DeviceView, ImageView, Pixels
from kernels.memory import DeviceMemory
from kernels.nvjpeg import FORMATS as ENCODED
from kernels.nvjpeg import JpegCoder, SharedCoder, absence
from kernels.strategies import refusals
from pipeline.camera import Camera, CameraConfig
from pipeline.demand import Place
from pipeline.encoders import holds_results
from service.picture import Picture, Renderer, Variant, View
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import serve
from tests.kernels.jpeg_pictures import as_bgr, psnr, smooth
from tests.pipeline.fakes import until, until_processed

pytestmark = pytest.mark.gpu
SIZES = [(1, 1), (17, 19), (64, 48), (40, 50), (72, 33), (641, 479), (1366, 768), (1920, 1080), (3840, 2160)]


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    assert absence() is None
    made = CudaDevice()
    made.activate()
    yield made
    assert {kind: made.ledger.held(kind) for kind in ("pinned", "device")} == {"pinned": 0, "device": 0}


def on_device(device: CudaDevice, view: ImageView) -> tuple[DeviceMemory, DeviceView]:
    from cupy.cuda import runtime

    memory = DeviceMemory(view.spec.nbytes, device.ledger)
    with cuda_errors("cudaMemcpy"):
        runtime.memcpy(memory.ptr, view.address, view.spec.nbytes, runtime.memcpyHostToDevice)
        runtime.deviceSynchronize()
    return memory, DeviceView(view.spec, memory.ptr)


def by_the_cpu(view: ImageView, quality: int) -> Pixels:
    """The picture after libjpeg-turbo has had it."""
    if view.spec.format is GRAY8:
        data = simplejpeg.encode_jpeg(np.ascontiguousarray(view.plane(0))[:, :, None], quality, "GRAY", "Gray")
    elif view.spec.format is I420:
        data = simplejpeg.encode_jpeg_yuv_planes(*map(np.ascontiguousarray, view.planes), quality=quality)
    else:
        data = simplejpeg.encode_jpeg(np.ascontiguousarray(view.plane(0)), quality, "BGR", "420")
    return np.asarray(simplejpeg.decode_jpeg(data, "BGR"), np.uint8)


@pytest.mark.parametrize("format", ENCODED, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pictures_are_as_good_as_the_cpus(device: CudaDevice, format: PixelFormat, size: tuple[int, int]) -> None:
    coder = JpegCoder(device)
    view = smooth(format, *size, padding=8 if size[0] < 1000 else 0)
    memory, picture = on_device(device, view)
    for quality in (40, 80, 95):
        shown = np.asarray(simplejpeg.decode_jpeg(coder.encode(picture, quality), "BGR"), np.uint8)
        exact = as_bgr(view)
        assert shown.shape == exact.shape
        assert psnr(shown, exact) > min(psnr(by_the_cpu(view, quality), exact), 60) - 1.5
    coder.close()
    memory.close()


def test_the_file_is_a_baseline_jpeg_of_420(device: CudaDevice) -> None:
    coder = JpegCoder(device)
    memory, picture = on_device(device, smooth(BGR8, 641, 479))
    data = coder.encode(picture, 80)
    height, width, colorspace, subsampling = simplejpeg.decode_jpeg_header(data)
    assert (height, width, colorspace, subsampling) == (479, 641, "YCbCr", "420")
    assert data.startswith(b"\xff\xd8")
    assert data.endswith(b"\xff\xd9")
    assert b"\xff\xc0" in data, "progressive files are slow to decode"
    coder.close()
    memory.close()


def test_one_coder_serves_sizes_and_qualities_by_turns(device: CudaDevice) -> None:
    coder = JpegCoder(device)
    held = [(view, *on_device(device, view)) for view in (smooth(f, w, h) for f in ENCODED for w, h in SIZES[1:6])]
    for (view, _, picture), quality in zip(held * 2, itertools.cycle((90, 50, 75))):
        shown = np.asarray(simplejpeg.decode_jpeg(coder.encode(picture, quality), "BGR"), np.uint8)
        assert psnr(shown, as_bgr(view)) > 27
    coder.close()
    for _, memory, _ in held:
        memory.close()


def test_many_threads_have_coders_of_their_own(device: CudaDevice) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            device.activate()
            coder = JpegCoder(device)
            view = smooth(BGR8, 320 + 16 * number, 240, shift=16 * number)
            memory, picture = on_device(device, view)
            first = coder.encode(picture, 80)
            for _ in range(50):
                assert coder.encode(picture, 80) == first, "the same picture gives the same file"
            assert psnr(np.asarray(simplejpeg.decode_jpeg(first, "BGR"), np.uint8), as_bgr(view)) > 30
            coder.close()
            memory.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_padded_plane_that_nvjpeg_does_not_take_is_an_error_and_no_crash(device: CudaDevice) -> None:
    coder = JpegCoder(device)
    memory, picture = on_device(device, smooth(GRAY8, 64, 48, padding=7))
    with pytest.raises(DeviceFailedError, match="invalid parameter"):
        coder.encode(picture, 80)
    memory.close()
    memory, picture = on_device(device, smooth(GRAY8, 64, 48))
    assert coder.encode(picture, 80).startswith(b"\xff\xd8")
    coder.close()
    memory.close()


def test_more_threads_than_coders_take_turns(device: CudaDevice) -> None:
    clients = [SharedCoder(device) for _ in range(24)]
    view = smooth(BGR8, 640, 480)
    memory, picture = on_device(device, view)
    made: list[bytes] = []

    def work(client: SharedCoder) -> None:
        device.activate()
        for _ in range(20):
            made.append(client.encode(picture, 80))

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 24 * 20
    assert len(set(made)) == 1
    for client in clients:
        client.close()
    memory.close()


def rendered(renderer: Renderer) -> Picture:
    made: list[Picture] = []

    def newer() -> bool:
        if (picture := renderer.render()) is not None:
            made.append(picture)
        return bool(made) and not made[-1].placeholder

    until(newer, "a picture")
    return made[-1]


@pytest.mark.parametrize("memory", [name for name in MEMORY_STRATEGIES if name != "host"])
def test_with_every_strategy_results_stay_until_they_are_asked_for(memory: str) -> None:
    device = CudaDevice(memory=memory)
    if (reason := refusals(device.traits)[memory]) is not None:
        pytest.skip(reason)
    device.holds_results = holds_results(device)
    assert device.holds_results
    uri = "testcard://?size=642x362&fps=60&format=NV12"
    camera = Camera(CameraConfig("cam", uri, parse_chain("gamma(gamma=1.1)")), device)
    camera.start()
    renderers = [
        Renderer(camera, Variant.make("cam", view=view, width=width, quality=90))
        for view in View for width in (None, 320)
    ]  # fmt: skip
    try:
        until_processed(camera, 5)
        before = camera.statistics()
        for _ in range(20):
            pictures = [rendered(renderer) for renderer in renderers]
            for picture in pictures:
                assert picture.encoder == "jpeg_gpu"
                shown = np.asarray(simplejpeg.decode_jpeg(picture.data, "BGR"), np.uint8)
                codes = read_codes(shown, picture.width / 642, source_height=362)
                assert codes == (picture.sequence, picture.sequence)
        after = camera.statistics()
        assert before.copied_bytes.get("from_device", 0) == after.copied_bytes.get("from_device", 0) == 0
        assert after.link_bytes_out > before.link_bytes_out, "bitstreams"
        nbytes = 642 * 362 * 3
        assert after.link_bytes_out < (after.processed - before.processed + 80) * nbytes / 3
        still = Renderer(camera, Variant.make("cam", format="png"))
        rendered(still)
        still.close()
        assert camera.statistics().copied_bytes["from_device"] == nbytes
        release = camera.claim(Place.HOST)
        lease = camera.wait_newer(camera.statistics().sequence or 0, 5)
        assert lease is not None
        with lease:
            codes = read_codes(lease.result.plane(0))
            assert codes == (lease.frame.sequence, lease.frame.sequence)
        release()
    finally:
        for renderer in renderers:
            renderer.close()
        assert camera.stop(5)
    assert {kind: device.ledger.held(kind) for kind in ("pinned", "device", "host", "managed")} == dict.fromkeys(
        ("pinned", "device", "host", "managed"), 0
    )


def test_a_result_that_is_fetched_is_the_one_on_the_device(device: CudaDevice) -> None:
    """Frames read on the host where the device wrote them to its own memory, and by turns where it wrote them there."""
    from cupy.cuda import runtime

    device.holds_results = True
    uri = "testcard://?size=641x361&fps=120&format=BGR8"
    camera = Camera(CameraConfig("cam", uri, parse_chain("gaussian_blur | gamma(gamma=1.3)")), device)
    camera.start()
    try:
        last = -1
        for turn in range(40):
            release = camera.claim(Place.HOST) if turn % 2 else None
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                last = lease.frame.sequence
                there = lease.device_result
                assert there is not None
                copy = np.empty(there.spec.nbytes, np.uint8)
                with cuda_errors("cudaMemcpy"):
                    runtime.memcpy(copy.ctypes.data, there.dev_ptr, copy.nbytes, runtime.memcpyDefault)
                np.testing.assert_array_equal(copy, lease.result.buffer[: copy.nbytes])
                assert read_codes(lease.result.plane(0)) == (last, last)
            if release is not None:
                release()
    finally:
        assert camera.stop(5)


def test_16_bits_and_every_source_format_are_shown(device: CudaDevice) -> None:
    device.holds_results = True
    for format in FORMATS.values():
        uri = f"testcard://?size=354x130&fps=60&format={format.name}"
        camera = Camera(CameraConfig("cam", uri), device)
        camera.start()
        renderers = [Renderer(camera, Variant.make("cam", view=view, quality=95)) for view in View]
        try:
            for renderer in renderers:
                picture = rendered(renderer)
                assert picture.encoder == "jpeg_gpu", format.name
                shown = np.asarray(simplejpeg.decode_jpeg(picture.data, "BGR"), np.uint8)
                assert read_codes(shown) == (picture.sequence, picture.sequence), format.name
        finally:
            for renderer in renderers:
                renderer.close()
            assert camera.stop(5)


def test_the_service_encodes_on_the_gpu_and_says_so() -> None:
    with serve("--camera", "card=testcard://?size=1280x720&fps=30&format=NV12", "--chain", "card=sobel") as server:
        answer = server.get("/cameras/card/snapshot?width=640")
        assert answer.status == 200
        assert server.metric("pinhole_frames_encoded_total", encoder="jpeg_gpu") > 0
        assert server.metric("pinhole_copied_bytes_total", path="from_device") == 0
        assert server.end()[0] == 0
