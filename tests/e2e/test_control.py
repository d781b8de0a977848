"""Changes while it runs: whole parameter sets only, viewers stay, the loop stays free."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline.encoders.jpeg_cpu import JpegCpu
from pipeline.encoders.png import Png
from tests.helpers.inprocess import serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD


def test_b120_fifty_changes_a_second_from_four_threads_while_viewers_read() -> None:
    """gain and offset always change together; a frame made of one's old and the other's new value would show."""
    uri = "testcard://?size=352x128&fps=60&format=BGR8"
    made: dict[int, int] = {}
    faults: list[str] = []
    stop = threading.Event()

    with serving({"cam": uri}) as served:
        path = "/api/v1/cameras/cam/chain"

        def level_ops(level: int) -> dict[str, Any]:
            """Gain 0 and that offset: every pixel of the result is ``level``."""
            return {"ops": [{"op": "gain_offset", "params": {"gain": 0.0, "offset": float(level)}}]}

        first = served.request("PUT", path, level_ops(100)).json()
        made[first["version"]] = 100
        served.until(lambda: int(served.get("/snapshot").headers["x-chain-version"]) >= first["version"])

        def change(seed: int) -> None:
            random_ = random.Random(seed)
            while not stop.is_set():
                level = random_.randint(0, 255)
                if random_.random() < 0.5:
                    reply = served.request("PUT", path, level_ops(level))
                else:
                    reply = served.request("PATCH", path + "/0", {"params": {"offset": float(level), "gain": 0.0}})
                if reply.status != 200:
                    faults.append(f"{reply.status} {reply.body[:200]!r}")
                made[reply.json()["version"]] = level
                time.sleep(0.08)

        seen: list[tuple[int, int, int]] = []

        def watch(query: str) -> None:
            with StreamClient(served.port, f"/stream{query}") as client:
                for part in client.parts():
                    picture = cv2.imdecode(np.frombuffer(part.body, np.uint8), cv2.IMREAD_COLOR)
                    if picture is None:
                        faults.append("not a picture")
                        return
                    if int(picture.max()) - int(picture.min()) > 2:
                        faults.append("a mixed frame")
                    seen.append((int(part.headers["x-chain-version"]), int(picture.mean() + 0.5), len(seen)))
                    if stop.is_set():
                        return
            if not stop.is_set():
                faults.append("a viewer was dropped")

        writers = [threading.Thread(target=change, args=(seed,)) for seed in range(4)]
        readers = [threading.Thread(target=watch, args=(query,)) for query in ("", "?quality=95", "?width=160")]
        for thread in (*readers, *writers):
            thread.start()
        time.sleep(3.0)
        stop.set()
        for thread in (*writers, *readers):
            thread.join(10)
        assert faults == []
        assert len(made) > 60
        versions = {version for version, _, _ in seen}
        assert len(versions) > 20
        assert versions <= set(made), "every frame says by which of the sets that were given it was made"
        wrong = [(v, level, made[v]) for v, level, _ in seen if abs(level - made[v]) > 2]
        assert wrong == [], "each frame uses the whole set whose version it carries"
        assert served.engine.get("cam").statistics().reconnects == 0


@pytest.mark.parametrize("path", ["/snapshot", "/snapshot?format=png"])
def test_b49_a_slow_encoder_holds_nobody_else_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_class = Png if "png" in path else JpegCpu
    encode = slow_class.encode
    busy = threading.Event()

    def slow(self: Any, *args: Any) -> bytes:
        busy.set()
        time.sleep(0.5)
        return encode(self, *args)

    with serving({"cam": SMALL_CARD}) as served:
        monkeypatch.setattr(slow_class, "encode", slow)
        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(served.get(path).status))
        thread.start()
        assert busy.wait(5)
        times = []
        while thread.is_alive():
            started = time.monotonic()
            assert served.get("/health/live").status == 200
            times.append(time.monotonic() - started)
        thread.join()
        assert statuses == [200]
        assert len(times) >= 3
        assert sorted(times)[int(len(times) * 0.9)] < 0.2, times


def test_a_slow_still_does_not_delay_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    encode = Png.encode

    def held(self: Any, *args: Any) -> bytes:
        go.wait(10)
        return encode(self, *args)

    with serving({"cam": SMALL_CARD}) as served:
        monkeypatch.setattr(Png, "encode", held)
        thread = threading.Thread(target=served.get, args=("/snapshot?format=png",))
        thread.start()
        with StreamClient(served.port, "/stream") as client:
            sequences = [int(p.headers["x-frame-sequence"]) for p in itertools.islice(client.parts(), 10)]
        go.set()
        thread.join()
    assert sequences == sorted(set(sequences))
