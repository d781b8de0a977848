"""Chains op by op in CuPy, as somebody would write them with cupyx.scipy.ndimage: what fusion is compared with.

The functions take the array module and ndimage, so that their results are tested where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.bench_case import Case, NoEquivalentError

WAY = "CuPy op by op"
Array = Any
Call = Callable[[Array], Array]  # (H, W) or (H, W, 3) uint8 to the same
Make = Callable[[Any, Any, Any], Call]  # from the array module, ndimage and the op's parameters

_SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)


def _bytes(xp: Any, values: Array) -> Array:
    """Rounded half up and saturated."""
    return xp.clip(xp.floor(values + 0.5), 0, 255).astype(xp.uint8)


def _floats(x: Array) -> Array:
    return x.astype(np.float32)


def _over(x: Array, size: float) -> tuple[float, ...]:
    """A size or sigma for both axes of a picture and none between its channels."""
    return (size, size) if x.ndim == 2 else (size, size, 0)


def _smooth(ndi: Any, x: Array, p: Any) -> Array:
    sigma = p.sigma or 0.3 * ((p.ksize - 1) / 2 - 1) + 0.8
    return ndi.gaussian_filter(_floats(x), _over(x, sigma), mode="mirror", truncate=(p.ksize // 2) / sigma)


def _gaussian_blur(xp: Any, ndi: Any, p: Any) -> Call:
    return lambda x: _bytes(xp, _smooth(ndi, x, p))


def _gamma(xp: Any, ndi: Any, p: Any) -> Call:
    table = xp.asarray(np.floor(255 * (np.arange(256) / 255) ** (1 / p.gamma) + 0.5).astype(np.uint8))
    return lambda x: table[x]


def _gain_offset(xp: Any, ndi: Any, p: Any) -> Call:
    return lambda x: _bytes(xp, _floats(x) * np.float32(p.gain) + np.float32(p.offset))


def _invert(xp: Any, ndi: Any, p: Any) -> Call:
    return lambda x: 255 - x


def _sharpen(xp: Any, ndi: Any, p: Any) -> Call:
    flat = xp.asarray(_SHARPEN)
    return lambda x: _bytes(xp, ndi.convolve(_floats(x), flat if x.ndim == 2 else flat[:, :, None], mode="mirror"))


def _unsharp_mask(xp: Any, ndi: Any, p: Any) -> Call:
    if p.threshold:
        raise NoEquivalentError(WAY, "unsharp_mask with a threshold")

    def call(x: Array) -> Array:
        blurred = _floats(_bytes(xp, _smooth(ndi, x, p)))
        return _bytes(xp, _floats(x) + np.float32(p.amount) * (_floats(x) - blurred))

    return call


def _white_balance(xp: Any, ndi: Any, p: Any) -> Call:
    gains = xp.asarray(np.array([p.blue, p.green, p.red], np.float32))
    return lambda x: x if x.ndim == 2 else _bytes(xp, _floats(x) * gains)


def _saturation(xp: Any, ndi: Any, p: Any) -> Call:
    luma = xp.asarray(np.array([0.114, 0.587, 0.299], np.float32))

    def call(x: Array) -> Array:
        if x.ndim == 2:
            return x
        grey = (_floats(x) * luma).sum(axis=2, keepdims=True)
        return _bytes(xp, grey + np.float32(p.factor) * (_floats(x) - grey))

    return call


CUPY: dict[str, Make] = {
    "gain_offset": _gain_offset,
    "gamma": _gamma,
    "gaussian_blur": _gaussian_blur,
    "invert": _invert,
    "saturation": _saturation,
    "sharpen": _sharpen,
    "unsharp_mask": _unsharp_mask,
    "white_balance": _white_balance,
}


def op_by_op(case: Case, xp: Any, ndi: Any) -> Call:
    """The case's chain as a function of an array that lies where ``xp`` computes.

    Raises:
        NoEquivalentError: there is no line here for an op, or the source or result is not BGR8 or GRAY8.
    """
    plan = case.plan
    for format in (plan.source.format, plan.result.format):
        if not format.is_working or format.depth == 16 or plan.converts:
            raise NoEquivalentError(WAY, f"{plan.source.format} to {plan.result.format}")
    for step in case.chain.steps:
        if step.op.name not in CUPY:
            raise NoEquivalentError(WAY, step.op.name)
    calls = [CUPY[step.op.name](xp, ndi, step.params) for step in case.chain.steps]

    def chain(x: Array) -> Array:
        for call in calls:
            x = call(x)
        return x

    return chain
