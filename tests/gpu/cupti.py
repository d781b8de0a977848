"""Every copy that the driver did, as CUPTI traced it: a witness that is not our own counter.

Ctypes over the activity API (CUPTI documentation, "CUpti_ActivityMemcpy6" and before: the first 16 bytes are the same
in every version). Whole process, every stream and thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import glob
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

KIND_MEMCPY = 1
_BUFFER_BYTES = 1 << 20
_TO_DEVICE, _FROM_DEVICE = 1, 2  # CUpti_ActivityMemcpyKind


class _Memcpy(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("copy_kind", ctypes.c_uint8),
        ("source_kind", ctypes.c_uint8),
        ("target_kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("bytes", ctypes.c_uint64),
    )


_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy: which way (``to_device``, ``from_device``, ``other``), and its bytes."""

    way: str
    nbytes: int


@cache
def library() -> Any | None:
    """CUPTI of a package or a toolkit, or None where there is none."""
    places = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        places += glob.glob(f"{folder}/**/libcupti.so.*", recursive=True)
    places += glob.glob("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*")
    places += glob.glob("/usr/local/cuda*/lib64/libcupti.so*")
    if (found := ctypes.util.find_library("cupti")) is not None:
        places.append(found)
    for place in places:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(place)
    return None


_buffers: dict[int, Any] = {}
_copies: list[Copy] = []


def _on_request(buffer: Any, size: Any, most: Any) -> None:
    memory = ctypes.create_string_buffer(_BUFFER_BYTES + 8)
    address = (ctypes.addressof(memory) + 7) // 8 * 8
    _buffers[address] = memory
    buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0


def _on_complete(_context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
    cupti = library()
    assert cupti is not None
    record = ctypes.c_void_p(None)
    while cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)) == 0:
        assert record.value is not None
        one = _Memcpy.from_address(record.value)
        if one.kind == KIND_MEMCPY:
            way = {_TO_DEVICE: "to_device", _FROM_DEVICE: "from_device"}.get(one.copy_kind, "other")
            _copies.append(Copy(way, one.bytes))
    _buffers.pop(buffer, None)


# Kept: the driver calls them for as long as the process lives.
_requested, _completed = _Requested(_on_request), _Completed(_on_complete)


@cache
def _register() -> None:
    cupti = library()
    assert cupti is not None
    code = cupti.cuptiActivityRegisterCallbacks(_requested, _completed)
    assert code == 0, f"cuptiActivityRegisterCallbacks: {code}"


@contextlib.contextmanager
def traced_copies() -> Iterator[list[Copy]]:
    """The copies of the block, complete at its end; the context must be idle at both."""
    cupti = library()
    assert cupti is not None
    _register()
    _copies.clear()
    code = cupti.cuptiActivityEnable(KIND_MEMCPY)
    assert code == 0, f"cuptiActivityEnable: {code}"
    found: list[Copy] = []
    try:
        yield found
    finally:
        cupti.cuptiActivityFlushAll(1)
        cupti.cuptiActivityDisable(KIND_MEMCPY)
        found.extend(_copies)
