from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationInfo, field_validator

from kernels.image import MAX_SIDE_PX, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import FROM_LIST
from kernels.sampling import FARTHEST, Border, Fill, Interpolation, Points, Sampling, sample

CameraNumber = Annotated[float, Field(ge=-1e5, le=1e5)]
Coefficient = Annotated[float, Field(ge=-1e4, le=1e4)]
_COUNTS = {"pinhole": (4, 5, 8, 12), "fisheye": (4,)}


class UndistortParams(OpParams):
    model: Literal["pinhole", "fisheye"] = Field(
        default="pinhole",
        description="OpenCV's calib3d (ROS: plumb_bob, rational_polynomial) or fisheye (equidistant).",
    )
    camera: Annotated[tuple[CameraNumber, ...], Field(min_length=4, max_length=4), FROM_LIST] = Field(
        default=(1000.0, 1000.0, 959.5, 539.5),
        description="fx, fy, cx, cy of the calibration.",
        json_schema_extra={"x-unit": "px"},
    )
    coefficients: Annotated[tuple[Coefficient, ...], Field(min_length=4, max_length=12), FROM_LIST] = Field(
        default=(-0.2, 0.03, 0.0, 0.0),
        description="pinhole: k1, k2, p1, p2, then k3, then k4 to k6, then s1 to s4; fisheye: k1 to k4.",
        json_schema_extra={"x-unit": ""},
    )
    calibrated_width: int = Field(
        default=1920, ge=0, le=MAX_SIDE_PX, description="Width of the calibration's pictures; 0 is this picture's.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    calibrated_height: int = Field(
        default=1080, ge=0, le=MAX_SIDE_PX, description="Height of the calibration's pictures; 0 is this picture's.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    zoom: float = Field(
        default=1.0, ge=0.1, le=10.0, description="Below 1 shows more of what lies at the edges, above 1 less.",
        json_schema_extra={"x-unit": "×", "x-step": 0.01},
    )  # fmt: skip
    interpolation: Interpolation = "linear"
    border: Border = "constant"
    fill: Fill = "#000000"

    @field_validator("camera")
    @classmethod
    def _has_focal_lengths(cls, camera: tuple[float, ...]) -> tuple[float, ...]:
        if min(camera[:2]) < 1:
            raise ValueError("fx and fy must be at least 1 px")
        return camera

    @field_validator("coefficients")
    @classmethod
    def _are_as_many_as_the_model_has(cls, coefficients: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        model = info.data.get("model", "pinhole")
        if len(coefficients) not in _COUNTS[model]:
            counts = " or ".join(map(str, _COUNTS[model]))
            raise ValueError(f"{model} has {counts} coefficients, not {len(coefficients)}")
        return coefficients


class Undistort(PixelOp[UndistortParams]):
    """Straightens what a lens bends, by its calibration with OpenCV or ROS; size and camera stay the same.

    The camera is scaled to the picture: f·W / w and (c + ½)·W / w − ½ for W and w columns of the picture and of the
    calibration, rows alike. Pixel u of the result is x = (u − cx) / (fx·zoom), y alike, which the lens bends:

    pinhole: x·(1 + ((k3·r² + k2)·r² + k1)·r²) / (1 + ((k6·r² + k5)·r² + k4)·r²) + 2·p1·x·y + p2·(r² + 2x²) +
    (s2·r² + s1)·r², r² = x² + y², and y alike with p1 and p2 exchanged, s3 and s4;

    fisheye: x·θ·(1 + (((k4·θ² + k3)·θ² + k2)·θ² + k1)·θ²) / r, θ = atan r.

    Times fx plus cx it is the point that is shown, rounded half up to 1/32 px. In 32-bit floats, each operation
    rounded, in the order of ``bent`` below, so that CPU and GPU agree exactly; far below 1/32 px from real numbers for
    usual lenses. Formulas: OpenCV's initUndistortRectifyMap, of both models; atan: Moshier, Cephes, atanf.c.
    """

    name = "undistort"
    kind = OpKind.GATHER
    Params = UndistortParams
    takes_16_bit = True
    cuda_source = """
struct undistort_params {
  float fx, fy, cx, cy, zoom;
  float k[12];  // pinhole: k1, k2, p1, p2, k3 to k6, s1 to s4; fisheye: k1 to k4
  int fisheye, width, height;  // of the calibration
  Sampling sampling;
};

// A float whose operations are rounded one by one: never fused, never approximated.
struct Rounded {
  float value;
  __device__ __forceinline__ Rounded(float v) : value(v) {}
};
__device__ __forceinline__ Rounded operator+(Rounded a, Rounded b) { return __fadd_rn(a.value, b.value); }
__device__ __forceinline__ Rounded operator-(Rounded a, Rounded b) { return __fsub_rn(a.value, b.value); }
__device__ __forceinline__ Rounded operator*(Rounded a, Rounded b) { return __fmul_rn(a.value, b.value); }
__device__ __forceinline__ Rounded operator/(Rounded a, Rounded b) { return __fdiv_rn(a.value, b.value); }

__device__ __forceinline__ Rounded arc_tangent(Rounded r) {
  Rounded from = 0.0f, z = r;
  if (r.value > 2.414213562373095f) {
    from = 1.5707963267948966f;
    z = Rounded(-1.0f) / r;
  } else if (r.value > 0.41421356237309503f) {
    from = 0.78539816339744831f;
    z = (r - 1.0f) / (r + 1.0f);
  }
  const Rounded w = z * z;
  const Rounded tail = ((w * 8.05374449538e-2f - 1.38776856032e-1f) * w + 1.99777106478e-1f) * w - 3.33329491539e-1f;
  return from + (tail * w * z + z);
}

// To 1/32 px, rounded half up; as far as can be where it is no number.
__device__ __forceinline__ int point_of(Rounded place) {
  const float scaled = floorf((place * 32.0f + 0.5f).value);
  if (!(scaled > (float)-FARTHEST)) return -FARTHEST;
  return scaled < (float)FARTHEST ? (int)scaled : FARTHEST;
}

template <int CHANNELS, class Value>
__device__ __forceinline__ void undistort(const Picture<CHANNELS, Value>& in, int column, int row, Size size,
                                          const undistort_params& p, Value* out) {
  const Rounded width = (float)size.width, height = (float)size.height;
  const Rounded from_width = p.width ? (float)p.width : width, from_height = p.height ? (float)p.height : height;
  const Rounded fx = Rounded(p.fx) * width / from_width, fy = Rounded(p.fy) * height / from_height;
  const Rounded cx = (Rounded(p.cx) + 0.5f) * width / from_width - 0.5f;
  const Rounded cy = (Rounded(p.cy) + 0.5f) * height / from_height - 0.5f;
  const Rounded x = (Rounded((float)column) - cx) / (fx * p.zoom);
  const Rounded y = (Rounded((float)row) - cy) / (fy * p.zoom);
  const Rounded r2 = x * x + y * y, one = 1.0f;
  Rounded bent_x = x, bent_y = y;
  if (p.fisheye) {
    const Rounded r = __fsqrt_rn(r2.value);
    if (r.value > 0) {
      const Rounded angle = arc_tangent(r), a2 = angle * angle;
      const Rounded bent = angle * ((((a2 * p.k[3] + p.k[2]) * a2 + p.k[1]) * a2 + p.k[0]) * a2 + one) / r;
      bent_x = x * bent;
      bent_y = y * bent;
    }
  } else {
    const Rounded above = ((r2 * p.k[4] + p.k[1]) * r2 + p.k[0]) * r2 + one;
    const Rounded below = ((r2 * p.k[7] + p.k[6]) * r2 + p.k[5]) * r2 + one;
    const Rounded radial = above / below, xy = x * y * 2.0f, p1 = p.k[2], p2 = p.k[3];
    bent_x = x * radial + (p1 * xy + p2 * (r2 + x * x * 2.0f)) + (r2 * p.k[9] + p.k[8]) * r2;
    bent_y = y * radial + (p2 * xy + p1 * (r2 + y * y * 2.0f)) + (r2 * p.k[11] + p.k[10]) * r2;
  }
  sample(in, point_of(bent_x * fx + cx), point_of(bent_y * fy + cy), p.sampling, out);
}
"""

    def constants(self, params: UndistortParams) -> bytes:
        reals = np.array((*params.camera, params.zoom, *_padded(params)), np.float32)
        whole = np.array((params.model == "fisheye", params.calibrated_width, params.calibrated_height), np.int32)
        return reals.tobytes() + whole.tobytes() + _sampling(params).constants()

    def run_cpu(self, src: Values, dst: Values, params: UndistortParams, scratch: Scratch) -> None:
        height, width = dst.shape[:2]

        def points(first: int, last: int) -> tuple[Points, Points]:
            # A lens far outside of its calibration leads to infinity and beyond: that is outside of the picture.
            with np.errstate(all="ignore"):
                return bent(params, width, height, first, last)

        fixed = params.model_dump(exclude={"interpolation", "border", "fill"})
        sample(self.name, tuple(fixed.values()), points, src, dst, _sampling(params), scratch)


def _sampling(params: UndistortParams) -> Sampling:
    return Sampling(params.interpolation, params.border, params.fill)


def _padded(params: UndistortParams) -> tuple[float, ...]:
    return params.coefficients + (0.0,) * (12 - len(params.coefficients))


Reals = npt.NDArray[np.float32]


def bent(params: UndistortParams, width: int, height: int, first: int, last: int) -> tuple[Points, Points]:
    """The points that the result's rows from first to last show, in 1/32 px."""
    f = np.float32
    one, two, half = f(1), f(2), f(0.5)
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = map(f, _padded(params))
    across, down = f(width), f(height)
    from_width, from_height = f(params.calibrated_width or width), f(params.calibrated_height or height)
    fx, fy, cx, cy = map(f, params.camera)
    fx, fy = fx * across / from_width, fy * down / from_height
    cx, cy = (cx + half) * across / from_width - half, (cy + half) * down / from_height - half
    x: Any = ((np.arange(width, dtype=f) - cx) / (fx * f(params.zoom)))[None, :]
    y: Any = ((np.arange(first, last, dtype=f) - cy) / (fy * f(params.zoom)))[:, None]
    r2 = x * x + y * y
    if params.model == "fisheye":
        r = np.sqrt(r2)
        angle = arc_tangent(r)
        a2 = angle * angle
        # k1 to k4 are the first four of the list.
        scale = angle * ((((a2 * p2 + p1) * a2 + k2) * a2 + k1) * a2 + one) / r
        scale = np.where(r > 0, scale, one)
        bent_x, bent_y = x * scale, y * scale
    else:
        radial = (((r2 * k3 + k2) * r2 + k1) * r2 + one) / (((r2 * k6 + k5) * r2 + k4) * r2 + one)
        xy = x * y * two
        bent_x = x * radial + (p1 * xy + p2 * (r2 + x * x * two)) + (r2 * s2 + s1) * r2
        bent_y = y * radial + (p2 * xy + p1 * (r2 + y * y * two)) + (r2 * s4 + s3) * r2
    return _points(bent_x * fx + cx), _points(bent_y * fy + cy)


def arc_tangent(r: Reals) -> Reals:
    """atan of 0 and more, in 32-bit floats, to about 2·10⁻⁷."""
    f = np.float32
    far, middle = r > f(2.414213562373095), r > f(0.41421356237309503)
    start = np.where(far, f(1.5707963267948966), np.where(middle, f(0.78539816339744831), f(0)))
    z = np.where(far, f(-1) / r, np.where(middle, (r - f(1)) / (r + f(1)), r))
    w = z * z
    tail = ((w * f(8.05374449538e-2) - f(1.38776856032e-1)) * w + f(1.99777106478e-1)) * w - f(3.33329491539e-1)
    arc: Reals = start + (tail * w * z + z)
    return arc


def _points(places: Reals) -> Points:
    scaled = np.floor(places * np.float32(32) + np.float32(0.5))
    limit = np.float32(FARTHEST)
    points: Points = np.where(scaled > -limit, np.minimum(scaled, limit), -limit).astype(np.int64)
    return points
