"""An OpenCV + Flask camera page as people write it: each viewer's generator reads, processes and encodes.

    python -m tests.benchmarks.baselines.opencv_flask SOURCE PORT

The one capture is shared by all viewers, as in most such scripts, so each read takes a frame away from the others. The
lock is what they get after their first crash, since a VideoCapture is not made for several threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import cv2
from flask import Flask, Response

from tests.benchmarks.baselines.opencv_chain import QUALITY, process

app = Flask(__name__)
camera = cv2.VideoCapture(sys.argv[1])
lock = threading.Lock()


def generate() -> Iterator[bytes]:
    while True:
        with lock:
            success, frame = camera.read()
        if not success:
            break
        _, buffer = cv2.imencode(".jpg", process(frame), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        yield b"--frame\r\nContent-Type: image/jpeg\r\n\r\n" + buffer.tobytes() + b"\r\n"


@app.route("/stream")
def stream() -> Response:
    return Response(generate(), mimetype="multipart/x-mixed-replace; boundary=frame")


if __name__ == "__main__":
    app.run(host="127.0.0.1", port=int(sys.argv[2]), threaded=True)
