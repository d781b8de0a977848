"""Finds damage in H.264 and H.265 packets that a decoder cannot see.

With CABAC any bytes decode to something, so FFmpeg passes many damaged packets as good. But no NAL unit ever contains
three zero bytes followed by anything else than a start code (ITU-T H.264, 7.4.1 "emulation prevention"; H.265, 7.4.2),
and in MP4 and Matroska the units' lengths must add up. Blocks of zeros are what lost sectors and packets leave.
"""

from __future__ import annotations

import re

CODECS = ("h264", "hevc")

_ZERO_RUN = re.compile(rb"\0\0\0+[\x02-\xff]")


def length_size(codec: str, extradata: bytes | None) -> int | None:
    """Bytes of the length before each unit (avcC, hvcC), or None where start codes separate them (Annex B)."""
    if not extradata or extradata[0] != 1:
        return None
    at = {"h264": 4, "hevc": 21}[codec]
    return (extradata[at] & 3) + 1 if len(extradata) > at else None


def is_damaged(packet: bytes, length_bytes: int | None) -> bool:
    """True if the packet cannot be what an encoder wrote. False proves nothing."""
    if length_bytes is None:
        return _ZERO_RUN.search(packet) is not None
    position = 0
    while position < len(packet):
        start = position + length_bytes
        size = int.from_bytes(packet[position:start], "big")
        position = start + size
        if size == 0 or position > len(packet) or _ZERO_RUN.search(packet, start, position):
            return True
    return False
