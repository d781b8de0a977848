"""Makes the font's file anew, with FFmpeg: ``python -m kernels.fonts.make DejaVuSansMono-Bold.ttf > mono_16x32.txt``.

A line for each glyph, in the order of their codes; in it 8 hexadecimal digits for each row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from kernels.fonts import CELL_HEIGHT, CELL_WIDTH, FIRST, FULL, LAST

_SIZE_PX = 27  # of DejaVu Sans Mono: hinted, it advances by 16 px
_BASELINE = 24  # rows of the cell above it


def make(font: Path) -> str:
    """The file's text."""
    with TemporaryDirectory() as folder:
        text = Path(folder, "text")
        text.write_text("".join(map(chr, range(FIRST, LAST + 1))))
        options = f"textfile={text}:expansion=none:fontsize={_SIZE_PX}:fontcolor=white:x=0:y={_BASELINE}-ascent"
        width = CELL_WIDTH * (LAST + 1 - FIRST)
        command = [
            "ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"color=black:s={width}x{CELL_HEIGHT}:d=1", "-vf",
            f"format=gray,drawtext=fontfile={font}:{options}", "-frames:v", "1", "-f", "rawvideo", "-",
        ]  # fmt: skip
        picture = np.frombuffer(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, np.uint8)
    levels = (picture.reshape(CELL_HEIGHT, -1, CELL_WIDTH).astype(np.int64) * FULL + 127) // 255
    words = (levels << 2 * np.arange(CELL_WIDTH)).sum(axis=2)
    return "".join("".join(f"{word:08x}" for word in rows) + "\n" for rows in words.T)


if __name__ == "__main__":
    sys.stdout.write(make(Path(sys.argv[1])))
