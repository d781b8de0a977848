"""Each operation alone as somebody would write it with OpenCV by hand: what ``bench_cpu_ops`` compares with.

Buffers are made once, results are written where they belong. Rounding is OpenCV's own. Where OpenCV has another method
for the same purpose (``background_subtraction``: MOG2) that one stands, and ``DIFFERS`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from kernels.bench_opencv import OPENCV, Call
from kernels.image import Pixels

DIFFERS = {
    "background_subtraction": "MOG2, several Gaussians a pixel",
    "clahe": "colour by way of YCrCb",
    "equalize_histogram": "colour by way of YCrCb",
    "overlay_text": "putText: a stroked font, and no box behind it",
}
_OF_COLOURS = frozenset({"auto_white_balance", "color_matrix", "hue", "saturation", "white_balance"})
_BORDER = cv2.BORDER_REFLECT_101


def by_hand(name: str, params: Any, src: Pixels, dst: Pixels) -> Callable[[], object] | None:
    """One frame of the op from ``src`` to ``dst``; None where OpenCV has nothing for it."""
    if name in _OF_COLOURS and src.ndim == 2:
        return lambda: np.copyto(dst, src)
    if name in OPENCV:
        call: Call = OPENCV[name](params)
    elif name in _MAKERS:
        call = _MAKERS[name](params, src, dst)
    else:
        return None
    return lambda: call(src, dst)


def _adaptive_threshold(p: Any, src: Pixels, dst: Pixels) -> Call:
    if src.ndim == 2:
        return lambda a, b: cv2.adaptiveThreshold(
            a, p.max_value, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, p.ksize, p.offset, dst=b
        )
    mean, offset = np.empty_like(src), np.full((4, 1), p.offset, np.float64)  # a scalar

    def call(a: Pixels, b: Pixels) -> None:
        cv2.blur(a, (p.ksize, p.ksize), dst=mean, borderType=_BORDER)
        cv2.subtract(mean, offset, dst=mean)
        cv2.compare(a, mean, cv2.CMP_GT, dst=b)

    return call


def _histogram(a: Pixels) -> Any:
    # Grey and colour alike, all channels together.
    return cv2.calcHist([a.reshape(len(a), -1)], [0], None, [256], [0, 256]).ravel()


def _auto_contrast(p: Any, src: Pixels, dst: Pixels) -> Call:
    def call(a: Pixels, b: Pixels) -> None:
        total = np.cumsum(_histogram(a))
        low = np.searchsorted(total, total[-1] * p.dark / 100)
        high = np.searchsorted(total, total[-1] * (1 - p.bright / 100))
        table = np.clip((np.arange(256) - low) * 255.0 / max(high - low, 1) + 0.5, 0, 255).astype(np.uint8)
        cv2.LUT(a, table, dst=b)

    return call


def _auto_white_balance(p: Any, src: Pixels, dst: Pixels) -> Call:
    def call(a: Pixels, b: Pixels) -> None:
        means = cv2.mean(a)[:3]
        matrix = np.diag([min(sum(means) / 3 / max(mean, 1), p.max_gain) for mean in means])
        cv2.transform(a, matrix, dst=b)

    return call


def _background(p: Any, src: Pixels, dst: Pixels) -> Call:
    model = cv2.createBackgroundSubtractorMOG2(detectShadows=False)
    mask = np.empty(src.shape[:2], np.uint8)
    return lambda a, b: model.apply(a, mask if a.ndim == 3 else b, p.learning_rate)


def _clahe(p: Any, src: Pixels, dst: Pixels) -> Call:
    made = cv2.createCLAHE(p.clip_limit, (p.tiles_x, p.tiles_y))
    return _of_luma(src, made.apply)


def _of_luma(src: Pixels, apply: Callable[..., object]) -> Call:
    if src.ndim == 2:
        return lambda a, b: apply(a, b)
    ycc, luma, equal = np.empty_like(src), np.empty(src.shape[:2], np.uint8), np.empty(src.shape[:2], np.uint8)

    def call(a: Pixels, b: Pixels) -> None:
        cv2.cvtColor(a, cv2.COLOR_BGR2YCrCb, dst=ycc)
        cv2.extractChannel(ycc, 0, dst=luma)
        apply(luma, equal)
        cv2.insertChannel(equal, ycc, 0)
        cv2.cvtColor(ycc, cv2.COLOR_YCrCb2BGR, dst=b)

    return call


def _color_matrix(p: Any, src: Pixels, dst: Pixels) -> Call:
    matrix = np.array(p.matrix, np.float32).reshape(3, 3)[::-1, ::-1].copy()
    return lambda a, b: cv2.transform(a, matrix, dst=b)


def _hue(p: Any, src: Pixels, dst: Pixels) -> Call:
    matrix = np.array([[0.9, 0.3, -0.2], [-0.2, 0.9, 0.3], [0.3, -0.2, 0.9]], np.float32)
    return lambda a, b: cv2.transform(a, matrix, dst=b)


def _colormap(p: Any, src: Pixels, dst: Pixels) -> Call:
    gray = np.empty(src.shape[:2], np.uint8)

    def call(a: Pixels, b: Pixels) -> None:
        if a.ndim == 3:
            cv2.cvtColor(a, cv2.COLOR_BGR2GRAY, dst=gray)
        cv2.applyColorMap(gray if a.ndim == 3 else a, cv2.COLORMAP_VIRIDIS, dst=b)

    return call


def _crop(p: Any, src: Pixels, dst: Pixels) -> Call:
    return lambda a, b: np.copyto(b, a[p.y : p.y + len(b), p.x : p.x + b.shape[1]])


def _frame_difference(p: Any, src: Pixels, dst: Pixels) -> Call:
    before = np.zeros_like(src)

    def call(a: Pixels, b: Pixels) -> None:
        cv2.absdiff(a, before, dst=b)
        cv2.convertScaleAbs(b, dst=b, alpha=p.gain)
        np.copyto(before, a)

    return call


def _temporal_denoise(p: Any, src: Pixels, dst: Pixels) -> Call:
    mean, part = np.zeros(src.shape, np.float32), np.empty_like(src)
    far = np.empty_like(src)

    def call(a: Pixels, b: Pixels) -> None:
        cv2.convertScaleAbs(mean, dst=part)
        cv2.absdiff(a, part, dst=far)
        cv2.threshold(far, p.threshold, 255, cv2.THRESH_BINARY, dst=far)
        cv2.accumulateWeighted(a, mean, 1 - p.strength)
        cv2.convertScaleAbs(mean, dst=b)
        cv2.copyTo(a, far, b)

    return call


def _motion_heatmap(p: Any, src: Pixels, dst: Pixels) -> Call:
    shape = src.shape[:2]
    heat, before, gray, moved, shown = (np.zeros(shape, np.float32), *(np.zeros(shape, np.uint8) for _ in range(4)))
    colours, base = np.empty((*shape, 3), np.uint8), np.empty((*shape, 3), np.uint8)

    def call(a: Pixels, b: Pixels) -> None:
        if a.ndim == 3:
            cv2.cvtColor(a, cv2.COLOR_BGR2GRAY, dst=gray)
        now = gray if a.ndim == 3 else a
        cv2.absdiff(now, before, dst=moved)
        cv2.threshold(moved, p.threshold, 255, cv2.THRESH_TOZERO, dst=moved)
        cv2.accumulateWeighted(moved, heat, 1 - p.decay)
        cv2.convertScaleAbs(heat, dst=shown, alpha=p.gain)
        cv2.applyColorMap(shown, cv2.COLORMAP_JET, dst=colours)
        if a.ndim == 2:
            cv2.cvtColor(a, cv2.COLOR_GRAY2BGR, dst=base)
        under, shown_in = (a if a.ndim == 3 else base), (b if b.ndim == 3 else base)
        cv2.addWeighted(under, 1 - p.opacity, colours, p.opacity, 0, dst=shown_in)
        np.copyto(before, now)

    return call


def _overlay_grid(p: Any, src: Pixels, dst: Pixels) -> Call:
    def call(a: Pixels, b: Pixels) -> None:
        np.copyto(b, a)
        for x in range(0, a.shape[1], p.spacing):
            part = b[:, x : x + p.thickness]
            cv2.addWeighted(part, 1 - p.opacity, part, 0, 255 * p.opacity, dst=part)
        for y in range(0, a.shape[0], p.spacing):
            part = b[y : y + p.thickness]
            cv2.addWeighted(part, 1 - p.opacity, part, 0, 255 * p.opacity, dst=part)

    return call


def _overlay_text(p: Any, src: Pixels, dst: Pixels) -> Call:
    def call(a: Pixels, b: Pixels) -> None:
        np.copyto(b, a)
        cv2.putText(b, "camera  2026-12-01 05:00:00  #1", (8, 40), cv2.FONT_HERSHEY_SIMPLEX, 1, (255, 255, 255), 2)

    return call


def _privacy_mask(p: Any, src: Pixels, dst: Pixels) -> Call:
    height, width = src.shape[:2]
    corners = [tuple(int(v * side) for v, side in zip(r, (width, height) * 2, strict=True)) for r in p.rectangles]
    polygons = [np.array([[x * width, y * height] for x, y in one], np.int32) for one in p.polygons]

    def call(a: Pixels, b: Pixels) -> None:
        np.copyto(b, a)
        for x, y, w, h in corners:
            cv2.rectangle(b, (x, y), (x + w - 1, y + h - 1), (0, 0, 0), cv2.FILLED)
        if polygons:
            cv2.fillPoly(b, polygons, (0, 0, 0))

    return call


_RESIZED = {
    "nearest": cv2.INTER_NEAREST_EXACT,
    "linear": cv2.INTER_LINEAR,
    "area": cv2.INTER_AREA,
    "cubic": cv2.INTER_CUBIC,
}


def _resize(p: Any, src: Pixels, dst: Pixels) -> Call:
    size, how = (dst.shape[1], dst.shape[0]), _RESIZED[p.interpolation]
    return lambda a, b: cv2.resize(a, size, dst=b, interpolation=how)


def _letterbox(p: Any, src: Pixels, dst: Pixels) -> Call:
    scale = min(p.width / src.shape[1], p.height / src.shape[0])
    w, h = round(src.shape[1] * scale), round(src.shape[0] * scale)
    x, y = (p.width - w) // 2, (p.height - h) // 2

    def call(a: Pixels, b: Pixels) -> None:
        b[:y] = 114
        b[y + h :] = 114
        cv2.resize(a, (w, h), dst=b[y : y + h, x : x + w], interpolation=_RESIZED[p.interpolation])

    return call


def _rotate_angle(p: Any, src: Pixels, dst: Pixels) -> Call:
    height, width = src.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -p.degrees, p.scale)
    return lambda a, b: cv2.warpAffine(a, matrix, (width, height), dst=b)


def _warp_affine(p: Any, src: Pixels, dst: Pixels) -> Call:
    matrix, size = np.array(p.matrix).reshape(2, 3), (dst.shape[1], dst.shape[0])
    return lambda a, b: cv2.warpAffine(a, matrix, size, dst=b)


def _warp_perspective(p: Any, src: Pixels, dst: Pixels) -> Call:
    matrix, size = np.array(p.matrix).reshape(3, 3), (dst.shape[1], dst.shape[0])
    return lambda a, b: cv2.warpPerspective(a, matrix, size, dst=b)


def _undistort(p: Any, src: Pixels, dst: Pixels) -> Call:
    fx, fy, cx, cy = p.camera
    camera = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    size = (src.shape[1], src.shape[0])
    maps = cv2.initUndistortRectifyMap(camera, np.array(p.coefficients), np.eye(3), camera, size, cv2.CV_16SC2)
    return lambda a, b: cv2.remap(a, maps[0], maps[1], cv2.INTER_LINEAR, dst=b)


def _otsu(p: Any, src: Pixels, dst: Pixels) -> Call:
    kind = cv2.THRESH_BINARY | cv2.THRESH_OTSU
    return lambda a, b: cv2.threshold(
        a.reshape(len(a), -1), 0, p.max_value, kind, dst=b.reshape(len(b), -1)
    )  # all channels together


def _filter2d(p: Any, src: Pixels, dst: Pixels) -> Call:
    weights = np.array(p.weights, np.float32)
    return lambda a, b: cv2.filter2D(a, -1, weights, dst=b, borderType=_BORDER)


def _grayscale(p: Any, src: Pixels, dst: Pixels) -> Call:
    if src.ndim == 2:
        return lambda a, b: np.copyto(b, a)
    return lambda a, b: cv2.cvtColor(a, cv2.COLOR_BGR2GRAY, dst=b)


# By name, what ``kernels.bench_opencv`` has no line for: parameters, source and result to one frame's call.
_MAKERS: dict[str, Callable[[Any, Pixels, Pixels], Any]] = {
    "adaptive_threshold": _adaptive_threshold,
    "auto_contrast": _auto_contrast,
    "auto_white_balance": _auto_white_balance,
    "background_subtraction": _background,
    "bilateral": lambda p, a, b: (
        lambda s, d: cv2.bilateralFilter(s, p.ksize, p.sigma_color, p.sigma_space, dst=d, borderType=_BORDER)
    ),
    "canny": lambda p, a, b: lambda s, d: cv2.Canny(s, p.low, p.high, edges=d, L2gradient=p.norm == "l2"),
    "clahe": _clahe,
    "color_matrix": _color_matrix,
    "colormap": _colormap,
    "crop": _crop,
    "equalize_histogram": lambda p, a, b: _of_luma(a, cv2.equalizeHist),
    "filter2d": _filter2d,
    "frame_difference": _frame_difference,
    "grayscale": _grayscale,
    "hue": _hue,
    "letterbox": _letterbox,
    "median": lambda p, a, b: lambda s, d: cv2.medianBlur(s, p.ksize, dst=d),
    "motion_heatmap": _motion_heatmap,
    "otsu_threshold": _otsu,
    "overlay_grid": _overlay_grid,
    "overlay_text": _overlay_text,
    "privacy_mask": _privacy_mask,
    "resize": _resize,
    "rotate": lambda p, a, b: lambda s, d: cv2.rotate(s, cv2.ROTATE_90_CLOCKWISE, dst=d),
    "rotate_angle": _rotate_angle,
    "temporal_denoise": _temporal_denoise,
    "undistort": _undistort,
    "warp_affine": _warp_affine,
    "warp_perspective": _warp_perspective,
}
