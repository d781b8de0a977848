"""Runs a plan on the CPU with OpenCV: the same result as every other executor, pixel for pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from kernels.color_cpu import to_planes, to_working
from kernels.device import Completion, DoneNow
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError, OutOfMemoryError
from kernels.image import NO_STAMP, AnyView, ImageView, Stamp, Values
from kernels.op import OpKind, OpParams, Scratch, TableOp, look_up, table_of
from kernels.plan import Plan
from kernels.wide_cpu import narrow


class CpuExecutor:
    """One plan over at most two buffers, allocated here; see :class:`kernels.device.Executor`.

    The first op reads a source that needs no conversion where it lies, the last op writes where the result lies, an
    empty chain ingests straight into the result. Source and result may not overlap.
    """

    def __init__(self, plan: Plan) -> None:
        """Allocate the buffers. Raises OutOfMemoryError."""
        self.plan = plan
        self.copies: Mapping[str, int] = {}
        self.choice: Mapping[str, Any] | None = None
        self._ingests = not (plan.source.format.is_working and (plan.ops or plan.converts))
        last = None if plan.converts else -1
        between = plan.pictures[0 if self._ingests else 1 : last]
        # Two buffers take turns, each as large as the largest picture it holds.
        sizes = [max(picture.nbytes for picture in pictures) for pictures in (between[::2], between[1::2]) if pictures]
        try:
            buffers = [np.empty(nbytes, np.uint8) for nbytes in sizes]
        except MemoryError:
            raise OutOfMemoryError("host memory", sum(sizes), None, "use smaller pictures or fewer cameras") from None
        self._between: list[Values] = [ImageView(spec, buffers[i % 2]).plane(0) for i, spec in enumerate(between)]
        self._scratch = Scratch()
        # What an op remembers is its own, also where it comes twice.
        remembering = (OpKind.TEMPORAL, OpKind.GLOBAL)
        self._scratches = [Scratch() if op.kind in remembering else self._scratch for op in plan.ops]
        # Tables in a row are one table: what lies between them is never made.
        tables = [isinstance(op, TableOp) for op in plan.ops]
        self._goes_on = [tables[at : at + 2] == [True, True] for at in range(len(tables))]
        self._open = True

    def submit(
        self, source: AnyView, result: AnyView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        """Process one frame; it is done when this returns.

        Raises:
            InputError: a picture or the parameters are not those of the plan.
            MemoryClosedError: the executor is closed.
            DeviceFailedError: OpenCV failed.
        """
        if not (isinstance(source, ImageView) and isinstance(result, ImageView)):
            raise InputError("result", "the CPU does not see memory of a device", "pictures in host memory")
        self._check(source, result, params)
        targets = iter(self._between if self.plan.converts else [*self._between, result.plane(0)])
        call = "ingest"
        try:
            if self._ingests:
                current = next(targets)
                to_working(source, current, self._scratch)
            else:
                current = source.plane(0)
            steps = zip(self.plan.ops, params, targets, self._scratches, self._goes_on, strict=True)
            table: Values | None = None
            for op, values, target, scratch, goes_on in steps:
                call = op.name
                if isinstance(op, TableOp) and (goes_on or table is not None):
                    depth = 8 * (current if table is None else table).itemsize
                    made = table_of(op, values, depth)
                    table = made if table is None else made[table]
                    if goes_on:
                        continue
                    look_up(current, table, target)
                    table = None
                else:
                    scratch.stamp = stamp
                    op.run_cpu(current, target, values, scratch)
                    scratch.frames += 1
                current = target
            if self.plan.converts:
                call = "egress"
                if current.dtype == np.uint16:
                    eight = self._scratch.array("egress", current.shape, np.uint8)
                    narrow(current, eight)
                    current = eight
                to_planes(current, result, self._scratch)
        except cv2.error as error:
            raise DeviceFailedError(f"OpenCV ({call})", error.code, error.func, False, error.err.strip()) from error
        return DoneNow()

    def close(self) -> None:
        """Release scratch memory; idempotent."""
        self._open = False
        self._between = []
        self._scratch = Scratch()
        self._scratches = []

    def _check(self, source: ImageView, result: ImageView, params: tuple[OpParams, ...]) -> None:
        plan = self.plan
        if not self._open:
            raise MemoryClosedError(f"the executor for {plan.source.describe()} was used after close()")
        for field, got, expected in (("source", source.spec, plan.source), ("result", result.spec, plan.result)):
            if got != expected:
                reason = f"{got.describe()} with strides {got.strides} at {got.offsets} is not what the plan is for"
                allowed = f"{expected.describe()} with strides {expected.strides} at {expected.offsets}"
                raise InputError(field, reason, allowed)
        expected_types = tuple(op.Params for op in plan.ops)
        if tuple(type(values) for values in params) != expected_types:
            got_names = ", ".join(type(values).__name__ for values in params) or "none"
            raise InputError("params", f"got {got_names}", ", ".join(t.__name__ for t in expected_types) or "none")
