"""nvJPEG's encoder without a GPU: reads what it is pointed at, checks what it is told, and encodes by libjpeg-turbo."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import simplejpeg

from kernels.image import Pixels
from kernels.nvjpeg import CSS_420, CSS_GRAY, INPUT_BGRI


def _plane(image: Any, index: int, rows: int, nbytes: int) -> Pixels:
    pitch = image.pitch[index]
    assert pitch >= nbytes, "rows overlap"
    room = (ctypes.c_uint8 * (pitch * (rows - 1) + nbytes)).from_address(image.channel[index])
    return np.array(np.lib.stride_tricks.as_strided(np.frombuffer(room, np.uint8), (rows, nbytes), (pitch, 1)))


class FakeNvJpeg:
    """One process's library. ``fail`` names a function that answers with that status once."""

    def __init__(self) -> None:
        self.live: set[int] = set()  # handles that were made and not destroyed
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.working = self.quick = self
        self._made = 0
        self._quality: dict[int, int] = {}  # by parameters
        self._sampling: dict[int, int] = {}
        self._bitstream: dict[int, bytes] = {}  # by state

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvjpeg"):
            raise AttributeError(name)

        functions: dict[str, Callable[..., None]] = {
            "CreateSimple": self._create, "EncoderStateCreate": self._create_part,
            "EncoderParamsCreate": self._create_part, "Destroy": self._destroy, "EncoderStateDestroy": self._destroy,
            "EncoderParamsDestroy": self._destroy, "EncoderParamsSetQuality": self._set_quality,
            "EncoderParamsSetSamplingFactors": self._set_sampling, "EncodeGetBufferSize": self._buffer_size,
            "EncodeImage": self._encode_image, "EncodeYUV": self._encode_yuv,
            "EncodeRetrieveBitstream": self._give,
        }  # fmt: skip

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if (status := self.fail.pop(name, 0)) != 0:
                return status
            functions[name.removeprefix("nvjpeg")](*arguments)
            return 0

        return call

    def _make(self, handle: Any) -> None:
        self._made += 1
        handle._obj.value = self._made
        self.live.add(self._made)

    def _create(self, handle: Any) -> None:
        self._make(handle)

    def _create_part(self, library: Any, handle: Any, stream: Any) -> None:
        assert library.value in self.live
        self._make(handle)

    def _destroy(self, handle: Any) -> None:
        self.live.remove(handle.value)

    def _set_quality(self, params: Any, quality: int, stream: Any) -> None:
        assert params.value in self.live
        self._quality[params.value] = quality

    def _set_sampling(self, params: Any, sampling: int, stream: Any) -> None:
        self._sampling[params.value] = sampling

    def _buffer_size(self, library: Any, params: Any, width: int, height: int, most: Any) -> None:
        most._obj.value = width * height * 3 + 2048

    def _encode_image(
        self, library: Any, state: Any, params: Any, image: Any, kind: int, w: int, h: int, on: Any
    ) -> None:
        assert (kind, self._sampling[params.value]) == (INPUT_BGRI, CSS_420)
        pixels = _plane(image._obj, 0, h, 3 * w).reshape(h, w, 3)
        self._bitstream[state.value] = simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), self._quality[params.value], "BGR", "420"
        )

    def _encode_yuv(
        self, library: Any, state: Any, params: Any, image: Any, kind: int, w: int, h: int, on: Any
    ) -> None:
        assert kind == self._sampling[params.value]
        luma, quality = _plane(image._obj, 0, h, w), self._quality[params.value]
        if kind == CSS_GRAY:
            self._bitstream[state.value] = simplejpeg.encode_jpeg(luma[:, :, None], quality, "GRAY", "Gray")
            return
        assert kind == CSS_420
        chroma = [_plane(image._obj, i, (h + 1) // 2, (w + 1) // 2) for i in (1, 2)]
        self._bitstream[state.value] = simplejpeg.encode_jpeg_yuv_planes(luma, *chroma, quality=quality)

    def _give(self, library: Any, state: Any, at: Any, length: Any, on: Any) -> None:
        made = self._bitstream[state.value]
        assert length._obj.value >= len(made)
        ctypes.memmove(at, made, len(made))
        length._obj.value = len(made)
