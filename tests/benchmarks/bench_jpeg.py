"""How long from a camera's picture in host memory to a JPEG in host memory, through std4, quality 80?

NV12 at 1080p and 4K, back to back with a spinning wait. On a GPU: nvJPEG from the chain's BGR result in device memory,
from I420 that the chain's last pass writes, from I420 that a pass of its own makes of BGR; and nvImageCodec from the
same result, where it is installed. Beside them the same with OpenCV on all cores and cv2.imencode, in turns.

Budget, on an H200: 300 µs p50 at 1080p, p99 at most twice that, 25 times faster than OpenCV; 700 µs at 4K.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import cv2
import numpy as np

from kernels.bench_case import Case, make_case
from kernels.bench_opencv import by_hand
from kernels.chain import Chain
from kernels.device import CudaDevice, open_device
from kernels.formats import I420, NV12
from kernels.image import DeviceView, ImageView, Pixels
from kernels.memory import DeviceMemory
from kernels.nvjpeg import JpegCoder, absence
from kernels.plan import chain_params, make_plan, result_nbytes
from kernels.run_cuda import CudaExecutor
from tests.benchmarks.harness import arguments, percentile, publish, table

SIZES = ((1920, 1080), (3840, 2160))
QUALITY = 80
FRAMES, WARM_UP = 300, 20
BEST = "nvJPEG, I420 by the last pass"
OPENCV = "OpenCV on all cores, cv2.imencode"

Frame = Callable[[], bytes]


def picture(width: int, height: int) -> Pixels:
    """A smooth picture with a little noise, as NV12, (3·height/2, width) uint8: some 300 kB of JPEG at 1080p."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    noisy = cv2.add(smooth, rng.integers(0, 8, (height, width, 3), dtype=np.uint8))
    i420 = cv2.cvtColor(noisy, cv2.COLOR_BGR2YUV_I420)
    chroma = i420[height:].reshape(2, -1)
    return np.concatenate([i420[:height].ravel(), chroma.T.ravel()]).reshape(-1, width)


def source_view(stack: ExitStack, device: Any, case: Case, content: Pixels) -> ImageView:
    spec = case.plan.source
    memory = device.allocate_slot(spec.nbytes)
    stack.callback(memory.close)
    view = ImageView(spec, memory.array, memory.dev_ptr)
    luma = view.plane(0)
    luma[:] = content[: spec.height]
    view.plane(1)[:] = content[spec.height :].reshape(view.plane(1).shape)
    return view


class OnGpu:
    """The ways on a GPU, each with executors and memory of its own."""

    def __init__(self, stack: ExitStack, device: CudaDevice, case: Case, source: ImageView) -> None:
        self._stack, self._device, self._source = stack, device, source
        self._params = chain_params(case.chain)
        self._chain, self._coder = case.chain, JpegCoder(device, "spin")
        stack.callback(self._coder.close)

    def _made(self, chain: Chain, source: Any, target: Any = None) -> tuple[CudaExecutor, DeviceView]:
        plan = make_plan(chain, source, target)
        executor = CudaExecutor(self._device, plan, "spin")
        self._stack.callback(executor.close)
        memory = DeviceMemory(result_nbytes(plan), self._device.ledger)
        self._stack.callback(memory.close)
        return executor, DeviceView(plan.result, memory.ptr)

    def one_launch(self, target: Any) -> Frame:
        executor, result = self._made(self._chain, self._source.spec, target)
        stream = executor._stream

        def frame() -> bytes:
            completion = executor.submit(self._source, result, self._params)
            data = self._coder.encode(result, QUALITY, stream)
            completion.wait()
            completion.gpu_ns()
            return data

        return frame

    def two_launches(self) -> Frame:
        executor, result = self._made(self._chain, self._source.spec)
        second, planes = self._made(Chain(), result.spec, I420)

        def frame() -> bytes:
            first = executor.submit(self._source, result, self._params)
            first.wait()
            first.gpu_ns()
            completion = second.submit(result, planes, ())
            data = self._coder.encode(planes, QUALITY, second._stream)
            completion.wait()
            completion.gpu_ns()
            return data

        return frame

    def chain_alone(self) -> Frame:
        executor, result = self._made(self._chain, self._source.spec, I420)

        def frame() -> bytes:
            completion = executor.submit(self._source, result, self._params)
            completion.wait()
            completion.gpu_ns()
            return b""

        return frame

    def encode_alone(self, target: Any) -> Frame:
        executor, result = self._made(self._chain, self._source.spec, target)
        executor.submit(self._source, result, self._params).wait()
        return lambda: self._coder.encode(result, QUALITY)

    def by_library(self) -> Frame | None:
        """nvImageCodec from the chain's result on the device, or None where it is not installed."""
        try:
            import cupy
            from nvidia import nvimgcodec  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            return None
        executor, result = self._made(self._chain, self._source.spec)
        spec = result.spec
        shape = (spec.height, spec.width, 3)
        memory = cupy.cuda.UnownedMemory(result.dev_ptr, spec.nbytes, None)
        array = cupy.ndarray(shape, cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
        stream = executor._stream
        encoder = nvimgcodec.Encoder()
        try:
            params = nvimgcodec.EncodeParams(quality_type=nvimgcodec.QualityType.QUALITY, quality_value=QUALITY)
        except (AttributeError, TypeError):
            params = nvimgcodec.EncodeParams(quality=QUALITY)
        image = nvimgcodec.as_image(array, stream.ptr)

        def frame() -> bytes:
            completion = executor.submit(self._source, result, self._params)
            data = encoder.encode(image, "jpeg", params=params, cuda_stream=stream.ptr)
            completion.wait()
            completion.gpu_ns()
            return bytes(data)

        return frame


def with_opencv(stack: ExitStack, case: Case, content: Pixels) -> Frame:
    device, _ = open_device("host")
    source = source_view(stack, device, case, content)
    memory = device.allocate_slot(result_nbytes(case.plan))
    stack.callback(memory.close)
    result = ImageView(case.plan.result, memory.array)
    chain = by_hand(case, source, result)

    def frame() -> bytes:
        chain()
        return cv2.imencode(".jpg", result.plane(0), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()

    return frame


def timed(ways: dict[str, Frame], frames: int) -> dict[str, list[float]]:
    """Microseconds of each frame, in blocks of a tenth of the frames for each way in turn."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for frame in ways.values():
        for _ in range(WARM_UP if frame is not ways.get(OPENCV) else 2):
            frame()
    for _ in range(10):
        for name, frame in ways.items():
            for _ in range(max(1, (frames if name != OPENCV else frames // 10) // 10)):
                began = time.perf_counter_ns()
                frame()
                taken[name].append((time.perf_counter_ns() - began) / 1e3)
    return taken


def main() -> None:
    options = arguments(__doc__)
    device, reason = open_device(None)
    rows, data, verdicts = [], {}, []
    for width, height in SIZES:
        with ExitStack() as stack:
            case = make_case("std4", NV12, width, height)
            content = picture(width, height)
            ways: dict[str, Frame] = {}
            if isinstance(device, CudaDevice) and absence() is None:
                gpu = OnGpu(stack, device, case, source_view(stack, device, case, content))
                ways[BEST] = gpu.one_launch(I420)
                ways["nvJPEG, BGR by the last pass"] = gpu.one_launch(None)
                ways["nvJPEG, I420 by a launch of its own"] = gpu.two_launches()
                ways["chain to I420 on the device, alone"] = gpu.chain_alone()
                ways["nvJPEG of I420, alone"] = gpu.encode_alone(I420)
                ways["nvJPEG of BGR, alone"] = gpu.encode_alone(None)
                if (library := gpu.by_library()) is not None:
                    ways["nvImageCodec, BGR taken for RGB"] = library
            ways[OPENCV] = with_opencv(stack, case, content)
            sizes = {name: len(frame()) for name, frame in ways.items()}
            taken = timed(ways, FRAMES)
        label = f"{width}x{height}"
        p50 = {name: statistics.median(values) for name, values in taken.items()}
        p99 = {name: percentile(values, 99) for name, values in taken.items()}
        data[label] = {"p50_us": p50, "p99_us": p99, "bytes": sizes}
        rows += [
            [label, name, f"{p50[name]:.0f}", f"{p99[name]:.0f}", f"{p50[OPENCV] / p50[name]:.1f}", f"{sizes[name]}"]
            for name in ways
        ]
        if BEST in ways:
            most = 300 if width == SIZES[0][0] else 700
            best = min((BEST, "nvJPEG, BGR by the last pass"), key=p50.__getitem__)
            verdicts.append([f"{label} p50, {best}", f"{p50[best]:.0f} µs", f"<= {most}"])
            verdicts.append([f"{label} p99 over p50", f"{p99[best] / p50[best]:.2f}", "<= 2"])
            if width == SIZES[0][0]:
                verdicts.append([f"{label} faster than OpenCV", f"{p50[OPENCV] / p50[best]:.1f}x", ">= 25"])
    result = table(["size", "way", "p50 µs", "p99 µs", "OpenCV / this", "bytes"], rows)
    if verdicts:
        result += "\n\n" + table(["bar", "found", "asked"], verdicts)
    publish("bench_jpeg", __doc__ or "", f"{reason}\n\n{result}", data, options.out)
    device.close()


if __name__ == "__main__":
    main()
