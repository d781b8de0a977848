"""Memory on the GPU's own node, where a machine has several (Linux; does nothing elsewhere).

Sources: set_mempolicy(2), Documentation/ABI/testing/sysfs-bus-pci ("numa_node").
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_log = logging.getLogger("pinhole.numa")

# System calls by machine: glibc has no function for this one, and libnuma need not be there.
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_DEFAULT, _PREFERRED = 0, 1
_MAX_NODES = 1024
NODES = Path("/sys/devices/system/node")
PCI_DEVICES = Path("/sys/bus/pci/devices")


def node_of_pci(bus_id: str, devices: Path | None = None, nodes: Path | None = None) -> int | None:
    """The NUMA node of a PCI device ("0000:3B:00.0", any case); None where there is one node only or none is known."""
    try:
        there = [entry for entry in (nodes or NODES).iterdir() if entry.name.removeprefix("node").isdecimal()]
        text = ((devices or PCI_DEVICES) / bus_id.lower() / "numa_node").read_text(encoding="ascii")
        node = int(text)
    except (OSError, ValueError):
        return None
    return node if len(there) > 1 and 0 <= node < _MAX_NODES else None


@contextlib.contextmanager
def preferring(node: int | None) -> Iterator[None]:
    """Memory that this thread's calls get meanwhile comes from ``node`` while there is some; None changes nothing.

    What is there already stays where it is. A kernel that refuses is told once, and nothing else changes.
    """
    if node is None or not _prefer(node):
        yield
        return
    try:
        yield
    finally:
        _set_policy(_DEFAULT, None)


@cache
def _warn(code: int) -> None:
    _log.warning("slots are not kept on the GPU's NUMA node: set_mempolicy failed with error %d", code)


def _prefer(node: int) -> bool:
    mask = (ctypes.c_ulong * (_MAX_NODES // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask[node // bits] = 1 << node % bits
    code = _set_policy(_PREFERRED, mask)
    if code:
        _warn(code)
    return code == 0


def _set_policy(mode: int, mask: ctypes.Array[ctypes.c_ulong] | None) -> int:
    """0, or errno."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return 38  # ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    # One more than there are: the kernel leaves the last bit out.
    size = 0 if mask is None else _MAX_NODES + 1
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(mode), mask, ctypes.c_ulong(size)) == 0:
        return 0
    return ctypes.get_errno()
