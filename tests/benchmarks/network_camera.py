"""A network camera for benchmarks: test cards at 1280x720, 30 fps, as MJPEG over HTTP, for whoever connects.

    python -m tests.benchmarks.network_camera

Prints one line of JSON when it is ready: its URL, when frame 0 was taken (wall clock), how many frames there are before
they begin again. Frame n is taken at ``start_s + n / FPS`` and sent at that moment; a client that does not read in time
misses frames, and gets the newest one when it reads again, as with real cameras; what the sockets hold is late.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

from kernels.formats import BGR8
from kernels.image import ImageSpec, ImageView
from pipeline.sources._card import Card

FPS = 30
FRAMES = 900  # half a minute: the oldest picture that can be told from a new one
WIDTH, HEIGHT = 1280, 720
QUALITY = 90


def draw_frames() -> list[bytes]:
    """The camera's pictures, JPEG; made before, so that the camera itself costs next to nothing."""
    spec = ImageSpec.make(BGR8, WIDTH, HEIGHT)
    card, view = Card(spec), ImageView(spec, np.zeros(spec.nbytes, np.uint8))
    frames = []
    for number in range(FRAMES):
        card.draw(view, number, number * 1_000_000_000 // FPS)
        frames.append(cv2.imencode(".jpg", view.plane(0), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes())
    return frames


class Handler(BaseHTTPRequestHandler):
    frames: list[bytes]
    start_s: float

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        number = int((time.time() - self.start_s) * FPS)
        try:
            while True:
                number = max(number + 1, int((time.time() - self.start_s) * FPS))
                time.sleep(max(0.0, self.start_s + number / FPS - time.time()))
                body = self.frames[number % FRAMES]
                head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(body)
                self.wfile.write(head + body + b"\r\n")
        except ConnectionError:
            return

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    Handler.frames = draw_frames()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.start_s = time.time()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    print(json.dumps({"url": url, "start_s": Handler.start_s, "frames": FRAMES, "fps": FPS}), flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
