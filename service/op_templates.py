"""What ``pinhole ops new`` writes: the simplest useful op of each kind, and its test.

``@name@`` stands for the op's name, ``@Name@`` for its class.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """An op's file, and what its test has of its own: ``VALUES`` and ``expected(picture, …)``."""

    summary: str
    op: str
    oracle: str


TABLE = Template(
    "each value by a table of 256 entries; no CUDA to write",
    '''import numpy as np
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, TableOp


class @Name@Params(OpParams):
    by: int = Field(default=10, ge=0, le=255, description="Subtracted.", json_schema_extra={"x-unit": "levels"})


class @Name@(TableOp[@Name@Params]):
    """Subtract a constant: out = max(in − by, 0), as cv2.subtract."""

    name = "@name@"
    Params = @Name@Params

    def table(self, params: @Name@Params) -> Pixels:
        # The result for each of the values 0 to 255, on the CPU and on the GPU.
        return np.clip(np.arange(256) - params.by, 0, 255).astype(np.uint8)
''',
    """VALUES = [{}, {"by": 0}, {"by": 255}]


def expected(picture, by=10):
    return np.array([max(int(value) - by, 0) for value in picture.flat], np.uint8).reshape(picture.shape)
""",
)

POINT = Template(
    "each pixel by itself, four lines of CUDA and one of Python",
    '''import numpy as np

from kernels.image import Pixels
from kernels.op import OpKind, OpParams, PixelOp, Scratch


class @Name@(PixelOp[OpParams]):
    """Swap blue and red, (blue, green, red) → (red, green, blue) as cv2.cvtColor; a grey picture stays as it is."""

    name = "@name@"
    kind = OpKind.POINT
    Params = OpParams
    cuda_source = """
struct @name@_params {};
template <int CHANNELS>
__device__ void @name@(const Picture<CHANNELS>& in, int x, int y, Size, const @name@_params&, uint8* out) {
  for (int c = 0; c < CHANNELS; ++c) out[c] = in.at(x, y)[CHANNELS - 1 - c];
}
"""

    def constants(self, params: OpParams) -> bytes:
        return b""

    def run_cpu(self, src: Pixels, dst: Pixels, params: OpParams, scratch: Scratch) -> None:
        np.copyto(dst, src[..., ::-1] if src.ndim == 3 else src)
''',
    """VALUES = [{}]


def expected(picture):
    made = picture.copy()
    for y in range(picture.shape[0]):
        for x in range(picture.shape[1]):
            if picture.ndim == 3:
                blue, green, red = picture[y, x]
                made[y, x] = red, green, blue
    return made
""",
)

PIXEL = Template(
    "each pixel by itself, with parameters and other channels",
    '''from dataclasses import replace
from typing import Literal

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels, Shape
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_CHANNELS = ("blue", "green", "red")  # as they lie in memory


class @Name@Params(OpParams):
    channel: Literal["blue", "green", "red"] = Field(default="green", description="Which one becomes the picture.")


class @Name@(PixelOp[@Name@Params]):
    """One channel as a grey picture, out = in[channel] as cv2.extractChannel; a grey picture stays as it is."""

    name = "@name@"
    kind = OpKind.POINT
    Params = @Name@Params
    cuda_source = """
struct @name@_params {
  int channel;  // as constants() has it
};

template <int CHANNELS>
__device__ void @name@(const Picture<CHANNELS>& in, int x, int y, Size, const @name@_params& p, uint8* out) {
  out[0] = in.at(x, y)[CHANNELS == 1 ? 0 : p.channel];
}
"""

    def output(self, source: Shape, params: @Name@Params) -> Shape:
        return replace(source, channels=1)

    def constants(self, params: @Name@Params) -> bytes:
        return np.array([_CHANNELS.index(params.channel)], np.int32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: @Name@Params, scratch: Scratch) -> None:
        if src.ndim == 2:
            np.copyto(dst, src)
        else:
            cv2.extractChannel(src, _CHANNELS.index(params.channel), dst)
''',
    """VALUES = [{}, {"channel": "blue"}, {"channel": "red"}]


def expected(picture, channel="green"):
    if picture.ndim == 2:
        return picture
    place = {"blue": 0, "green": 1, "red": 2}[channel]
    return np.array([[pixel[place] for pixel in row] for row in picture], np.uint8)
""",
)

WINDOW = Template(
    "each value by those around it",
    '''import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, Scratch, WindowOp


class @Name@Params(OpParams):
    strength: int = Field(default=1, ge=0, le=8, description="Of the difference.", json_schema_extra={"x-unit": "×"})


class @Name@(WindowOp[@Name@Params]):
    """Emboss: out = 128 + strength · (lower right − upper left neighbour), saturated, as cv2.filter2D."""

    name = "@name@"
    Params = @Name@Params
    fixed_radius = 1  # how far the window reaches; 0: radius() says, by the parameters
    cuda_source = """
struct @name@_params {
  int strength;  // as constants() has it
};

template <class At>
__device__ int @name@(At at, const @name@_params& p) {
  return 128 + p.strength * (at(1, 1) - at(-1, -1));
}
"""

    def constants(self, params: @Name@Params) -> bytes:
        return np.array([params.strength], np.int32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: @Name@Params, scratch: Scratch) -> None:
        weights = np.zeros((3, 3), np.float32)
        weights[0, 0], weights[2, 2] = -params.strength, params.strength
        cv2.filter2D(src, -1, weights, dst=dst, delta=128, borderType=cv2.BORDER_REFLECT_101)
''',
    '''VALUES = [{}, {"strength": 0}, {"strength": 8}]


def reflected(index, size):
    """Outside the picture lies its reflection, the last pixel not twice."""
    while size > 1 and not 0 <= index < size:
        index = -index if index < 0 else 2 * (size - 1) - index
    return index if size > 1 else 0


def expected(picture, strength=1):
    height, width = picture.shape[:2]
    made = np.empty_like(picture)
    for y in range(height):
        for x in range(width):
            lower = picture[reflected(y + 1, height), reflected(x + 1, width)].astype(int)
            upper = picture[reflected(y - 1, height), reflected(x - 1, width)].astype(int)
            made[y, x] = np.clip(128 + strength * (lower - upper), 0, 255)
    return made
''',
)

GATHER = Template(
    "each pixel of the result from anywhere in the picture; another size",
    '''import cv2

from kernels.image import Pixels, Shape
from kernels.op import OpKind, OpParams, PixelOp, Scratch


class @Name@(PixelOp[OpParams]):
    """Mirror at the diagonal, rows become columns: out(x, y) = in(y, x), as cv2.transpose."""

    name = "@name@"
    kind = OpKind.GATHER
    Params = OpParams
    cuda_source = """
struct @name@_params {};

template <int CHANNELS>
__device__ void @name@(const Picture<CHANNELS>& in, int x, int y, Size, const @name@_params&, uint8* out) {
  for (int c = 0; c < CHANNELS; ++c) out[c] = in.at(y, x)[c];
}
"""

    def output(self, source: Shape, params: OpParams) -> Shape:
        return Shape(source.height, source.width, source.channels)

    def constants(self, params: OpParams) -> bytes:
        return b""

    def run_cpu(self, src: Pixels, dst: Pixels, params: OpParams, scratch: Scratch) -> None:
        cv2.transpose(src, dst=dst)
''',
    """VALUES = [{}]


def expected(picture):
    height, width = picture.shape[:2]
    return np.array([[picture[y, x] for y in range(height)] for x in range(width)], np.uint8)
""",
)

TEMPLATES = {"point": POINT, "table": TABLE, "window": WINDOW, "pixel": PIXEL, "gather": GATHER}

TEST = '''"""The operation @name@ against its definition, written anew in plain Python."""

from pathlib import Path

import numpy as np
import pytest

from kernels.device import CudaDevice, cuda_absence
from kernels.registry import find_op, use_ops_folder
from kernels.trial import compile_op, run_once

use_ops_folder(Path(__file__).parents[1])
OP = find_op("@name@")

@oracle@

SIZES = [(1, 1), (7, 1), (1, 7), (19, 17), (130, 33)]  # width and height; odd ones find what even ones hide


def picture(size, channels):
    shape = (size[1], size[0]) if channels == 1 else (size[1], size[0], channels)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_cpu_does_as_defined(size, channels, values):
    source = picture(size, channels)
    np.testing.assert_array_equal(run_once(OP, source, values), expected(source, **values))


def test_the_cuda_text_compiles():
    pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13")
    compile_op(OP)


@pytest.mark.skipif(cuda_absence() is not None, reason="there is no GPU")
@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_gpu_does_as_defined(size, channels, values):
    source = picture(size, channels)
    np.testing.assert_array_equal(run_once(OP, source, values, CudaDevice()), expected(source, **values))
'''
