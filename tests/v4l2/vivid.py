"""Cameras of the kernel's module vivid, and the tools that are not Pinhole to look at them with."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pipeline.sources import make_source
from pipeline.sources.v4l2 import V4l2
from tests.helpers.frames import Frames

IN_MACHINE = bool(os.environ.get("IN_V4L2_MACHINE"))
DRIVER = Path("/sys/bus/platform/drivers/vivid")
# A webcam, and HDMI that is scaled to any size (with crop and compose, too, an earlier format would limit the next).
CAPTURE_ONLY = {"node_types": "0x1,0x1", "num_inputs": "2,2", "input_types": "0xc,0xc", "ccs_cap_mode": "4,4"}
LOOPED = {"node_types": "0x101", "num_inputs": "2", "input_types": "0xe", "num_outputs": "2", "output_types": "0x2"}


def call(*command: str) -> str:
    """Run a program; its output. Fails the test with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def ctl(node: int, *options: str) -> str:
    """v4l2-ctl on one node."""
    return call("v4l2-ctl", "-d", f"/dev/video{node}", *options)


@contextmanager
def cameras(devices: int, options: Mapping[str, str]) -> Iterator[None]:
    """Virtual cameras, gone afterwards."""
    call("modprobe", "vivid", f"n_devs={devices}", *(f"{key}={value}" for key, value in options.items()))
    try:
        for node in range(devices):
            ctl(node, "-i1", "-c", "osd_text_mode=2")  # a still picture
        yield
    finally:
        call("modprobe", "-r", "vivid")


def unplug() -> None:
    """Take all virtual cameras away: they are one device."""
    (DRIVER / "unbind").write_text("vivid.0")


def replug() -> None:
    """Bring them back, as new nodes."""
    (DRIVER / "bind").write_text("vivid.0")


def picture_by_v4l2_ctl(node: int, code: str, width: int, height: int, folder: Path) -> bytes:
    """The picture that a camera shows now, packed, taken by another program than ours."""
    path = folder / "reference"
    ctl(
        node, f"--set-fmt-video=width={width},height={height},pixelformat={code}", "--stream-mmap", "--stream-count=1",
        "--stream-skip=1", f"--stream-to={path}",
    )  # fmt: skip
    return path.read_bytes()


@contextmanager
def playing(node: int, code: str, width: int, height: int, data: bytes, folder: Path) -> Iterator[None]:
    """Send a picture to an output again and again; vivid's loop gives it to the camera beside it."""
    path = folder / "picture"
    path.write_bytes(data * 4)
    command = [
        "v4l2-ctl", "-d", f"/dev/video{node}", f"--set-fmt-video-out=width={width},height={height},pixelformat={code}",
        "--stream-out-mmap", f"--stream-from={path}", "--stream-loop",
    ]  # fmt: skip
    player = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        player.terminate()
        player.wait(10)


def frames_of(uri: str) -> Frames[V4l2]:
    """An open camera and a ring for it."""
    source = make_source(uri)
    assert isinstance(source, V4l2)
    return Frames(source)


def random_picture(nbytes: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).tobytes()


def open_nodes() -> list[str]:
    """What of video devices this process has open or mapped."""
    held = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.append(os.readlink(f"/proc/self/fd/{fd}"))
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/video" in line]
    return [path for path in (*held, *maps) if path.startswith("/dev/video")]


def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> float:
    """Wait until it holds; seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < timeout_s, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)
    return time.monotonic() - begin
