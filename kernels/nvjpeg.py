"""JPEG on the GPU by nvJPEG, through ctypes: from pixels in device memory to bytes in host memory.

Baseline, 4:2:0 (grey: one component), the standard's own Huffman tables, BT.601 with full range as JFIF has it. Source:
NVIDIA, "nvJPEG Encode"; the constants are those of nvjpeg.h.
"""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import cuda_events
from kernels.device import WaitMode, cuda_errors
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError, OutOfMemoryError
from kernels.formats import BGR8, GRAY8, I420
from kernels.image import DeviceView, ImageSpec

if TYPE_CHECKING:
    from kernels.device import CudaDevice
    from kernels.memory import HostMemory

CSS_420, CSS_GRAY = 2, 6
INPUT_BGRI = 6
FORMATS = (BGR8, GRAY8, I420)
MOST_AT_ONCE = 16

# What only notes something, or submits a copy of what is ready.
_QUICK = frozenset(
    {"nvjpegEncoderParamsSetQuality", "nvjpegEncoderParamsSetSamplingFactors", "nvjpegEncodeRetrieveBitstream"}
)

# nvjpegStatus_t
_STATUS = {
    1: "not initialized", 2: "invalid parameter", 3: "bad jpeg", 4: "jpeg not supported", 5: "allocator failure",
    6: "execution failed", 7: "arch mismatch", 8: "internal error", 9: "implementation not supported",
    10: "incomplete bitstream",
}  # fmt: skip


class _Image(ctypes.Structure):
    _fields_ = (("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4))


def _candidates() -> Iterator[str]:
    """Where the library may be: the wheels of CUDA 13 and 12, what the loader finds, and the toolkit's own folder."""
    for folder in sys.path:
        for pattern in ("cu1?/lib/libnvjpeg.so.*", "nvjpeg/lib/libnvjpeg.so.*"):
            yield from map(str, sorted(Path(folder or ".", "nvidia").glob(pattern), reverse=True))
    names = ("libnvjpeg.so.13", "libnvjpeg.so.12")
    yield from names
    for name in names:
        yield f"/usr/local/cuda/lib64/{name}"


class Library:
    """nvJPEG's functions: of :attr:`working` while other Python threads run, of :attr:`quick` without letting them.

    Why it is worth the difference: :mod:`kernels.driver_calls`.
    """

    def __init__(self, name: str) -> None:
        """Raises OSError: it is not there."""
        self.working = ctypes.CDLL(name)
        self.quick = ctypes.PyDLL(name)


@cache
def library() -> Library | None:
    """nvJPEG, or None where there is none. Loading it needs no GPU."""
    for name in _candidates():
        try:
            return Library(name)
        except OSError:
            continue
    return None


def absence() -> str | None:
    """Why pictures cannot be encoded by nvJPEG, and what helps; None if they can."""
    if library() is None:
        return "nvJPEG is not installed; install the extra cuda12 or cuda13 again, or the toolkit's libnvjpeg"
    return None


_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)
_bytes_at = ctypes.pythonapi.PyBytes_AsString
_bytes_at.restype, _bytes_at.argtypes = ctypes.c_void_p, (ctypes.py_object,)


def _copied(address: ctypes.c_void_p, nbytes: int) -> bytes:
    """As ctypes.string_at, but other threads run meanwhile: hundreds of kB into new pages take some 100 µs."""
    made: bytes = _new_bytes(None, nbytes)
    ctypes.memmove(_bytes_at(made), address, nbytes)
    return made


class Handle:
    """nvJPEG's library handle on a device, which takes it half a second; coders in any thread share it."""

    def __init__(self, device: CudaDevice) -> None:
        """Raises DeviceFailedError: also where there is no nvJPEG."""
        found = library()
        if found is None:
            raise DeviceFailedError("dlopen", 0, str(absence()), False, "see above")
        self._library, self._device = found, device
        self.pointer = ctypes.c_void_p()
        device.activate()
        self.call("nvjpegCreateSimple", ctypes.byref(self.pointer))

    def call(self, name: str, *arguments: Any) -> None:
        """One of nvJPEG's functions. Raises DeviceFailedError unless it succeeds."""
        functions = self._library.quick if name in _QUICK else self._library.working
        if (code := getattr(functions, name)(*arguments)) != 0:
            why = _STATUS.get(code, "an unknown status")
            self._device.check()  # a lost context shows itself here, as what it is
            raise DeviceFailedError(name, code, why, False, "lower the picture's size or use the CPU's encoder")

    def destroy(self, name: str, handle: ctypes.c_void_p) -> None:
        """Let go of what nvJPEG made; idempotent."""
        if handle.value:
            getattr(self._library.working, name)(handle)
            handle.value = None

    def close(self) -> None:
        """Release it, after its coders; idempotent."""
        self.destroy("nvjpegDestroy", self.pointer)


class JpegCoder:
    """Encodes one picture at a time, on the stream it is told. Not thread-safe; whoever calls has activated the device.

    Holds nvJPEG's own device memory (some 10 bytes a pixel, which it allocates itself) and a pinned buffer for the
    bitstream; both grow with the largest picture and are kept.
    """

    def __init__(self, device: CudaDevice, wait: WaitMode = "block", handle: Handle | None = None) -> None:
        """``handle``: one that it shares with others, open for longer than this; None: its own.

        Raises DeviceFailedError: also where there is no nvJPEG.
        """
        from cupy.cuda import Event, Stream

        self._device = device
        self._own = Handle(device) if handle is None else None
        self._nvjpeg = self._own or handle
        assert self._nvjpeg is not None
        self._call = self._nvjpeg.call
        self._handle, self._state, self._params = self._nvjpeg.pointer, ctypes.c_void_p(), ctypes.c_void_p()
        self._buffer: HostMemory | None = None
        self._open = True
        self._quality = self._sampling = -1
        self._sizes: set[tuple[int, int]] = set()
        self._image, self._length = _Image(), ctypes.c_size_t()
        device.activate()
        try:
            with cuda_errors("cudaStreamCreate"):
                self.stream = Stream(non_blocking=True)
                self._done = Event(block=wait != "spin", disable_timing=True)
            stream = ctypes.c_void_p(self.stream.ptr)
            self._call("nvjpegEncoderStateCreate", self._handle, ctypes.byref(self._state), stream)
            self._call("nvjpegEncoderParamsCreate", self._handle, ctypes.byref(self._params), stream)
        except BaseException:
            self.close()
            raise

    def encode(self, picture: DeviceView, quality: int, stream: Any = None) -> bytes:
        """The picture as a JPEG, behind what is on ``stream`` (CuPy's; None: the coder's own); blocks until it is done.

        ``picture``: BGR8, GRAY8 or I420 (BT.601 full range), in memory that the device reads. nvJPEG refuses planes of
        GRAY8 and I420 that are a multiple of 8 px wide and whose start or stride is not (measured, 13.3): packed ones
        are right. Allocates only for a size that is larger than any before.

        Raises:
            InputError: another format; DeviceFailedError, OutOfMemoryError
        """
        if not self._open:
            raise MemoryClosedError("a JPEG coder was used after close()")
        spec = picture.spec
        if spec.format not in FORMATS:
            raise InputError("picture", f"{spec.format} is not encoded", ", ".join(map(str, FORMATS)))
        stream = self.stream if stream is None else stream
        on = ctypes.c_void_p(stream.ptr)
        self._set(quality, CSS_GRAY if spec.format is GRAY8 else CSS_420, on)
        buffer = self._room_for(spec)
        image = self._image
        for plane, (offset, pitch) in enumerate(zip(spec.offsets, spec.strides, strict=True)):
            image.channel[plane], image.pitch[plane] = picture.dev_ptr + offset, pitch
        if spec.format is BGR8:
            call, means = "nvjpegEncodeImage", INPUT_BGRI
        else:
            call, means = "nvjpegEncodeYUV", self._sampling
        self._call(
            call, self._handle, self._state, self._params, ctypes.byref(image), means, spec.width, spec.height, on
        )
        # Asleep until it is done: the next call would wait for it with a core.
        with cuda_errors("cudaEventSynchronize"):
            cuda_events.record(self._done, stream)
            self._done.synchronize()
        self._length.value = buffer.nbytes
        at = ctypes.c_void_p(buffer.array.ctypes.data)
        self._call("nvjpegEncodeRetrieveBitstream", self._handle, self._state, at, ctypes.byref(self._length), on)
        with cuda_errors("cudaStreamSynchronize"):
            stream.synchronize()
        return _copied(at, self._length.value)

    def _set(self, quality: int, sampling: int, stream: ctypes.c_void_p) -> None:
        if quality != self._quality:
            self._call("nvjpegEncoderParamsSetQuality", self._params, quality, stream)
            self._quality = quality
        if sampling != self._sampling:
            self._call("nvjpegEncoderParamsSetSamplingFactors", self._params, sampling, stream)
            self._sampling = sampling

    def _room_for(self, spec: ImageSpec) -> HostMemory:
        """The buffer, large enough for the worst bitstream of that size."""
        if (spec.width, spec.height) not in self._sizes or self._buffer is None:
            most = ctypes.c_size_t()
            self._call(
                "nvjpegEncodeGetBufferSize", self._handle, self._params, spec.width, spec.height, ctypes.byref(most)
            )
            if self._buffer is None or self._buffer.nbytes < most.value:
                if self._buffer is not None:
                    self._buffer.close()
                    self._buffer = None
                    self._sizes.clear()
                self._buffer = self._device.allocate_pinned(most.value)
            self._sizes.add((spec.width, spec.height))
        return self._buffer

    def close(self) -> None:
        """Release everything; idempotent."""
        if not self._open:
            return
        self._open = False
        assert self._nvjpeg is not None
        self._nvjpeg.destroy("nvjpegEncoderParamsDestroy", self._params)
        self._nvjpeg.destroy("nvjpegEncoderStateDestroy", self._state)
        if self._buffer is not None:
            self._buffer.close()
        if self._own is not None:
            self._own.close()


class JpegCoders:
    """A device's coders, for any number of threads: at most ``MOST_AT_ONCE`` pictures are encoded at one time.

    Others sleep, and take their turns: more at once are not encoded faster, and each coder holds memory on the device.
    One is made when it is first needed.
    """

    def __init__(self, device: CudaDevice, most: int | None = None) -> None:
        self._device = device
        self._most = MOST_AT_ONCE if most is None else most
        self._idle: queue.SimpleQueue[JpegCoder | None] = queue.SimpleQueue()
        for _ in range(self._most):
            self._idle.put(None)
        self._handle: Handle | None = None
        self._making = threading.Lock()
        self.users = 0  # counted by SharedCoder

    def encode(self, picture: DeviceView, quality: int, stream: Any = None) -> bytes:
        """See :meth:`JpegCoder.encode`; blocks for a coder first. Raises also what making one raises."""
        coder = self._idle.get()
        try:
            if coder is None:
                coder = self._make()
            return coder.encode(picture, quality, stream)
        except (DeviceFailedError, OutOfMemoryError):
            if coder is not None:  # nothing is known of its state
                coder.close()
                coder = None
            raise
        finally:
            self._idle.put(coder)

    def _make(self) -> JpegCoder:
        with self._making:
            if self._handle is None:
                self._handle = Handle(self._device)
        return JpegCoder(self._device, handle=self._handle)

    def close(self) -> None:
        """Release all coders; blocks while one is in use."""
        for _ in range(self._most):
            if (coder := self._idle.get()) is not None:
                coder.close()
        if self._handle is not None:
            self._handle.close()


class SharedCoder:
    """One user's claim on the coders of a device. One thread at a time."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._open = True
        with _lock:
            self._coders = _coders.setdefault(device, JpegCoders(device))
            self._coders.users += 1

    def encode(self, picture: DeviceView, quality: int, stream: Any = None) -> bytes:
        """See :meth:`JpegCoders.encode`."""
        if not self._open:
            raise MemoryClosedError("a JPEG coder was used after close()")
        return self._coders.encode(picture, quality, stream)

    def close(self) -> None:
        """Give the claim up; the last one releases the coders. Idempotent."""
        if not self._open:
            return
        self._open = False
        with _lock:
            self._coders.users -= 1
            last = self._coders.users == 0
            if last:
                del _coders[self._device]
        if last:
            self._coders.close()


_lock = threading.Lock()
_coders: weakref.WeakKeyDictionary[CudaDevice, JpegCoders] = weakref.WeakKeyDictionary()
