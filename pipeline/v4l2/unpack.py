"""Copies a driver's buffer into a slot, plane by plane: what it costs where a driver takes no foreign memory."""

from __future__ import annotations

import numpy as np

from kernels.image import VALUE_TYPES, ImageView, Pixels, Values
from pipeline.v4l2.pixels import Layout


class Unpacker:
    """Sees the planes of every buffer; forget it before the buffers are unmapped."""

    def __init__(self, layout: Layout, buffers: list[list[Pixels]]) -> None:
        self._planes = [
            [_plane(layout, memories, i) for i in range(len(layout.spec.format.planes))] for memories in buffers
        ]
        self._nbytes = layout.spec.pixel_bytes

    def into(self, view: ImageView, number: int) -> int:
        """Copy a buffer into a view of the same picture; bytes copied."""
        for index, plane in enumerate(self._planes[number]):
            np.copyto(view.plane(index), plane)
        return self._nbytes


def _plane(layout: Layout, memories: list[Pixels], index: int) -> Values:
    spec = layout.spec
    memory = index if len(layout.offsets) > 1 else 0
    plane, depth = spec.format.planes[index], spec.format.depth
    shape = spec.plane_shape(index)
    strides = (spec.strides[index], plane.group_bytes, spec.format.value_bytes)[: len(shape)]
    offset = spec.offsets[index] - layout.offsets[memory]
    view: Values = np.ndarray(shape, VALUE_TYPES[depth], memories[memory], offset, strides)
    return view
