"""OpenCV alone: read, process, encode, with nobody watching. What is left when there is no service at all.

    python -m tests.benchmarks.baselines.opencv_alone SOURCE OUT

Goes on until it is ended. Appends to OUT, for each frame: when its JPEG was ready (wall clock, a double), its length
(32 bits), both little-endian, and the JPEG.
"""

from __future__ import annotations

import struct
import sys
import time

import cv2

from tests.benchmarks.baselines.opencv_chain import QUALITY, process

RECORD = struct.Struct("<dI")


def main() -> int:
    camera = cv2.VideoCapture(sys.argv[1])
    with open(sys.argv[2], "wb") as out:
        while True:
            success, frame = camera.read()
            if not success:
                return 1
            _, buffer = cv2.imencode(".jpg", process(frame), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            out.write(RECORD.pack(time.time(), buffer.size) + buffer.tobytes())
            out.flush()


if __name__ == "__main__":
    sys.exit(main())
