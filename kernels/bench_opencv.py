"""Chains as somebody would write them in OpenCV by hand: what Pinhole on the CPU is compared with.

Two buffers that are made once, point ops in place. Rounding is OpenCV's own, so a result may differ from Pinhole's
by a level here and there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from kernels.bench_case import Case, NoEquivalentError
from kernels.formats import GRAY8, I420, NV12, RGB8, UYVY, YUYV
from kernels.image import ImageView, Pixels
from kernels.plan import Plan

WAY = "OpenCV by hand"
Call = Callable[[Pixels, Pixels], object]  # reads the first, writes the second

_BORDER = cv2.BORDER_REFLECT_101
_SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
_TO_BGR = {RGB8: cv2.COLOR_RGB2BGR, YUYV: cv2.COLOR_YUV2BGR_YUYV, UYVY: cv2.COLOR_YUV2BGR_UYVY}


def _gaussian_blur(p: Any) -> Call:
    size = (p.ksize, p.ksize)
    # The bit-exact one where the version has the choice: OpenCV 5 also runs it faster.
    hint = {"hint": cv2.ALGO_HINT_ACCURATE} if hasattr(cv2, "ALGO_HINT_ACCURATE") else {}
    return lambda src, dst: cv2.GaussianBlur(src, size, p.sigma, dst=dst, borderType=_BORDER, **hint)


def _box_blur(p: Any) -> Call:
    return lambda src, dst: cv2.blur(src, (p.ksize, p.ksize), dst=dst, borderType=_BORDER)


def _gamma(p: Any) -> Call:
    table = np.array([round((i / 255) ** (1 / p.gamma) * 255) for i in range(256)], np.uint8)
    return lambda src, dst: cv2.LUT(src, table, dst=dst)


def _gain_offset(p: Any) -> Call:
    if p.offset < 0:
        raise NoEquivalentError(WAY, "gain_offset with a negative offset: convertScaleAbs takes absolute values")
    return lambda src, dst: cv2.convertScaleAbs(src, dst=dst, alpha=p.gain, beta=p.offset)


def _invert(p: Any) -> Call:
    return lambda src, dst: cv2.bitwise_not(src, dst=dst)


def _sharpen(p: Any) -> Call:
    return lambda src, dst: cv2.filter2D(src, -1, _SHARPEN, dst=dst, borderType=_BORDER)


def _white_balance(p: Any) -> Call:
    # A matrix has a vector path for bytes; multiply() by a Scalar takes eight times as long.
    matrix = np.diag([p.blue, p.green, p.red]).astype(np.float32)
    return lambda src, dst: cv2.transform(src, matrix, dst=dst)


def _saturation(p: Any) -> Call:
    grey = np.tile(np.array([0.114, 0.587, 0.299]), (3, 1))
    matrix = (grey * (1 - p.factor) + np.eye(3) * p.factor).astype(np.float32)
    return lambda src, dst: cv2.transform(src, matrix, dst=dst)


def _unsharp_mask(p: Any) -> Call:
    if p.threshold:
        raise NoEquivalentError(WAY, "unsharp_mask with a threshold")
    blur = _gaussian_blur(p)

    def call(src: Pixels, dst: Pixels) -> None:
        blur(src, dst)
        cv2.addWeighted(src, 1 + p.amount, dst, -p.amount, 0, dst=dst)

    return call


def _threshold(p: Any) -> Call:
    kind = cv2.THRESH_BINARY_INV if p.inverted else cv2.THRESH_BINARY
    return lambda src, dst: cv2.threshold(src, p.threshold, p.max_value, kind, dst=dst)


def _levels(p: Any) -> Call:
    span = max(p.white - p.black, 1)
    table = np.array([min(max(round((i - p.black) / span * 255), 0), 255) for i in range(256)], np.uint8)
    return lambda src, dst: cv2.LUT(src, table, dst=dst)


def _flip(p: Any) -> Call:
    code = {"horizontal": 1, "vertical": 0, "both": -1}[p.direction]
    return lambda src, dst: cv2.flip(src, code, dst=dst)


def _morphology(operation: int) -> Callable[[Any], Call]:
    def make(p: Any) -> Call:
        window = cv2.getStructuringElement(cv2.MORPH_RECT, (p.ksize, p.ksize))
        return lambda src, dst: cv2.morphologyEx(src, operation, window, dst=dst)

    return make


def _gradient(ksize: int) -> Callable[[Any], Call]:
    def make(p: Any) -> Call:
        made: list[Any] = []

        def call(src: Pixels, dst: Pixels) -> None:
            if not made:
                made.extend((np.empty(src.shape, np.int16), np.empty(src.shape, np.int16), np.empty_like(src)))
            gx, gy, other = made
            cv2.Sobel(src, cv2.CV_16S, 1, 0, dst=gx, ksize=ksize, borderType=_BORDER)
            cv2.Sobel(src, cv2.CV_16S, 0, 1, dst=gy, ksize=ksize, borderType=_BORDER)
            cv2.convertScaleAbs(gx, dst=dst)
            cv2.convertScaleAbs(gy, dst=other)
            cv2.add(dst, other, dst=dst)

        return call

    return make


def _laplacian(p: Any) -> Call:
    made: list[Any] = []

    def call(src: Pixels, dst: Pixels) -> None:
        if not made:
            made.append(np.empty(src.shape, np.int16))
        cv2.Laplacian(src, cv2.CV_16S, dst=made[0], ksize=p.ksize, borderType=_BORDER)
        cv2.convertScaleAbs(made[0], dst=dst)

    return call


# By name: what of Pinhole's has lines here. Those that change size or channels have none.
OPENCV: dict[str, Callable[[Any], Call]] = {
    "box_blur": _box_blur,
    "close": _morphology(cv2.MORPH_CLOSE),
    "dilate": _morphology(cv2.MORPH_DILATE),
    "erode": _morphology(cv2.MORPH_ERODE),
    "flip": _flip,
    "gain_offset": _gain_offset,
    "gamma": _gamma,
    "gaussian_blur": _gaussian_blur,
    "invert": _invert,
    "laplacian": _laplacian,
    "levels": _levels,
    "open": _morphology(cv2.MORPH_OPEN),
    "saturation": _saturation,
    "scharr": _gradient(cv2.FILTER_SCHARR),
    "sharpen": _sharpen,
    "sobel": _gradient(3),
    "threshold": _threshold,
    "unsharp_mask": _unsharp_mask,
    "white_balance": _white_balance,
}
_IN_PLACE = frozenset({"gain_offset", "gamma", "invert", "levels", "threshold"})
_OF_COLOURS = frozenset({"saturation", "white_balance"})


def by_hand(case: Case, source: ImageView, result: ImageView) -> Callable[[], None]:
    """One frame of the case from ``source`` to ``result``, written for exactly that case.

    Raises:
        NoEquivalentError: there is no line here for an op, the source's format or the result's.
    """
    plan = case.plan
    if plan.source.format.depth == 16:
        raise NoEquivalentError(WAY, str(plan.source.format))
    calls = [("ingest", _ingest(plan, source))] if not plan.source.format.is_working else []
    for step in case.chain.steps:
        name = step.op.name
        if name not in OPENCV or (plan.pictures[0].format is GRAY8 and name in _OF_COLOURS):
            raise NoEquivalentError(WAY, name)
        calls.append((name, OPENCV[name](step.params)))
    into = result.plane(0)
    if plan.converts:
        calls.append(("egress", _egress(plan)))
        into = result.buffer[: plan.result.nbytes].reshape(-1, plan.result.width)
    made = plan.pictures[-1]
    shape = (made.height, made.width) if made.format is GRAY8 else (made.height, made.width, 3)
    buffers = np.empty(shape, np.uint8), np.empty(shape, np.uint8)
    current, used = source.plane(0), 0
    bound: list[tuple[Call, Pixels, Pixels]] = []
    for name, call in calls or [("copy", lambda src, dst: np.copyto(dst, src))]:
        if len(bound) == max(len(calls), 1) - 1:
            target = into
        elif name in _IN_PLACE and bound:
            target = current
        else:
            target, used = buffers[used % 2], used + 1
        bound.append((call, current, target))
        current = target

    def frame() -> None:
        for call, src, dst in bound:
            call(src, dst)

    return frame


def _ingest(plan: Plan, source: ImageView) -> Call:
    format = plan.source.format
    if not (format is RGB8 or (format in (NV12, YUYV, UYVY) and _even(plan))):
        raise NoEquivalentError(WAY, f"{format} of {plan.source.width}x{plan.source.height}")
    if format is NV12:
        chroma = source.plane(1)
        return lambda src, dst: cv2.cvtColorTwoPlane(src, chroma, cv2.COLOR_YUV2BGR_NV12, dst=dst)
    code, pairs = _TO_BGR[format], format is not RGB8
    return lambda src, dst: cv2.cvtColor(src.reshape(len(src), -1, 2) if pairs else src, code, dst=dst)


def _egress(plan: Plan) -> Call:
    target = plan.result.format
    if not (target is GRAY8 or (target is I420 and plan.pictures[-1].format is not GRAY8 and _even(plan))):
        raise NoEquivalentError(WAY, f"{target} of {plan.source.width}x{plan.source.height}")
    code = cv2.COLOR_BGR2GRAY if target is GRAY8 else cv2.COLOR_BGR2YUV_I420
    return lambda src, dst: cv2.cvtColor(src, code, dst=dst)


def _even(plan: Plan) -> bool:
    return plan.source.width % 2 == 0 and plan.source.height % 2 == 0
