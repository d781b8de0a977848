"""Real V4L2: the kernel's virtual cameras in a virtual machine. Run by ``make test-v4l2``; skipped anywhere else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels.device import HostDevice
from kernels.errors import UnknownNameError
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.sources.base import SourceError
from pipeline.sources.v4l2 import V4l2
from pipeline.v4l2.cameras import list_cameras
from pipeline.v4l2.controls import read_controls, set_controls
from tests.helpers.frames import Frames
from tests.v4l2 import vivid

pytestmark = pytest.mark.skipif(not vivid.IN_MACHINE, reason="no virtual cameras here; make test-v4l2 has them")

HD = 1280 * 720
NBYTES = {"YUYV": HD * 2, "NV12": HD * 3 // 2, "BGR3": HD * 3, "GREY": HD}


@pytest.fixture(scope="class")
def looped() -> Iterator[None]:
    with vivid.cameras(1, vivid.LOOPED):
        vivid.ctl(1, "-o1")
        vivid.ctl(0, "-c", "loop_video=1")
        yield


@pytest.mark.usefixtures("looped")
class TestLoop:
    @pytest.mark.parametrize("code", NBYTES)
    def test_known_pictures_come_byte_for_byte_into_the_slots(self, code: str, tmp_path: Path) -> None:
        picture = vivid.random_picture(NBYTES[code], seed=len(code) + NBYTES[code])
        with (
            vivid.playing(1, code, 1280, 720, picture, tmp_path),
            vivid.frames_of(f"v4l2:///dev/video0?input=1&size=1280x720&format={code}") as frames,
        ):
            frames.read_until(lambda: bool(frames.seen) and frames.seen[-1][0].tobytes() == picture)
            assert frames.format.details["copies"] is None
            for pixels, capture in frames.read(4):
                assert pixels.tobytes() == picture
                assert capture.copied_bytes == 0


# Rows of 641, 1917 and 644 bytes become 768, 1920 and 768; NV12 with half a row of chroma is asked for one row smaller.
ODD = [("GREY", 641, 479, 479), ("BGR3", 639, 361, 361), ("YUYV", 322, 239, 239), ("NV12", 640, 479, 478)]


def both_ways(node: int, code: str, width: int, height: int, folder: Path) -> Frames[V4l2]:
    expected = vivid.picture_by_v4l2_ctl(node, code, width, height, folder)
    frames = vivid.frames_of(f"v4l2:///dev/video{node}?input=1&size={width}x{height}&format={code}")
    with frames:
        for pixels, _ in frames.read(2):
            assert pixels.tobytes() == expected
    return frames


@pytest.fixture(scope="class")
def two() -> Iterator[None]:
    with vivid.cameras(2, vivid.CAPTURE_ONLY | {"multiplanar": "1,2"}):
        yield


def make_camera(number: int) -> Camera:
    uri = f"v4l2:///dev/video{number}?input=1&size=160x120&format=GREY"
    return Camera(CameraConfig(f"cam{number}", uri), HostDevice())


@pytest.mark.usefixtures("two")
class TestTwoCameras:
    def test_padded_rows_and_odd_sizes(self, tmp_path: Path) -> None:
        for code, width, height, taken in ODD:
            expected = vivid.picture_by_v4l2_ctl(0, code, width, taken, tmp_path)
            with vivid.frames_of(f"v4l2:///dev/video0?input=1&size={width}x{height}&format={code}") as frames:
                assert (frames.format.image.width, frames.format.image.height) == (width, taken)
                assert frames.format.layout is not None
                assert frames.format.layout.spec.strides[0] % 128 == 0
                for pixels, _ in frames.read(2):
                    assert pixels.tobytes() == expected, code

    def test_a_memory_for_each_plane(self, tmp_path: Path) -> None:
        for code in ("NM12", "YM12", "NV12"):
            frames = both_ways(1, code, 324, 240, tmp_path)
            assert frames.format.details["copies"] is None
            assert all(capture.copied_bytes == 0 for _, capture in frames.seen)

    def test_injected_errors_are_drops_or_a_reconnect(self) -> None:
        with vivid.frames_of("v4l2:///dev/video0?input=1&size=320x240&format=GREY") as frames:
            frames.read(2)
            vivid.ctl(0, "-c", "inject_v4l2_buf_flag_error=1")
            frames.read_until(lambda: "corrupt" in frames.corrupt)
            vivid.ctl(0, "-c", "percentage_of_dropped_buffers=50")
            before = frames.lost_frames
            frames.read_until(lambda: frames.lost_frames > before)
            vivid.ctl(0, "-c", "percentage_of_dropped_buffers=0,inject_fatal_streaming_error=1")
            with pytest.raises(SourceError):
                frames.read(10)

    def test_another_signal_on_the_cable_is_another_format(self) -> None:
        with vivid.frames_of("v4l2:///dev/video0?input=1&format=GREY") as frames:
            before = frames.format.image
            frames.read(2)
            timings = int(vivid.ctl(0, "--get-ctrl=dv_timings").split()[1])
            vivid.ctl(0, "-c", f"dv_timings_signal_mode=4,dv_timings={timings + 5}")
            frames.read_until(lambda: frames.format.image != before)
            pixels, _ = frames.read(2)[-1]
            assert pixels.nbytes == frames.format.image.nbytes
            vivid.ctl(0, "-c", "dv_timings_signal_mode=0")

    def test_controls_are_read_and_set_while_frames_come(self) -> None:
        with vivid.frames_of("v4l2:///dev/video0?input=1&size=64x48&format=GREY") as frames:
            known = {control.name: control for control in read_controls("/dev/video0")}
            assert (known["brightness"].minimum, known["brightness"].maximum) == (128, 383)
            assert "75% Colorbar" in known["test_pattern"].allowed
            picture = frames.read(1)[0][0]
            after = {c.name: c.value for c in set_controls("/dev/video0", {"vertical_flip": True, "brightness": 200})}
            assert (after["vertical_flip"], after["brightness"]) == (True, 200)
            set_controls("/dev/video0", {"horizontal_flip": True, "vertical_flip": False, "brightness": 256})
            flipped = frames.read(5)[-1][0]
            assert flipped.tobytes() != picture.tobytes()
            set_controls("/dev/video0", {"horizontal_flip": False})
            assert frames.read(5)[-1][0].tobytes() == picture.tobytes()
            with pytest.raises(UnknownNameError, match="brightness"):
                set_controls("/dev/video0", {"brihtness": 1})
        listed = {one.path: one for one in list_cameras(sizes=False)}
        assert {"/dev/video0", "/dev/video1"} <= set(listed)
        assert "NM12" in {one.code for one in listed["/dev/video1"].formats}

    def test_unplugged_and_replugged_twenty_times_while_somebody_watches(self) -> None:
        cameras, over = [make_camera(0), make_camera(1)], threading.Event()
        seen = [0, 0]

        def watch(index: int) -> None:
            newest = -1
            while not over.is_set():
                if (lease := cameras[index].wait_newer(newest, 0.2)) is not None:
                    with lease:
                        newest = lease.frame.sequence
                        seen[index] += int(np.asarray(lease.source.plane(0)).size > 0)

        viewers = [threading.Thread(target=watch, args=(index,)) for index in (0, 1)]
        try:
            for camera, viewer in zip(cameras, viewers, strict=True):
                camera.start()
                viewer.start()
            for camera in cameras:
                vivid.until(lambda camera=camera: camera.state is CameraState.RUNNING, "the first frame")  # type: ignore[misc]
            back = []
            for round_ in range(20):
                vivid.unplug()
                vivid.until(lambda: cameras[0].state is CameraState.RECONNECTING, "the loss")
                vivid.until(lambda: cameras[1].state is CameraState.RECONNECTING, "the other one's loss")
                assert "gone" in (cameras[0].cause or ""), cameras[0].cause
                vivid.until(lambda: not vivid.open_nodes(), f"all closed, in round {round_}")
                vivid.replug()
                back.append(vivid.until(lambda: all(c.state is CameraState.RUNNING for c in cameras), "the return"))
            assert max(back) < 10, "2 s, on an emulated CPU"
            assert [camera.statistics().reconnects for camera in cameras] == [20, 20]
            for round_ in range(3):  # one alone; it comes back as soon as everything of it is closed
                vivid.ctl(0, "-c", "disconnect=1")
                vivid.until(lambda rounds=round_: cameras[0].statistics().reconnects == 21 + rounds, "the return")  # type: ignore[misc]
            assert cameras[1].statistics().reconnects == 20, "the other one did not notice"
            count = list(seen)
            vivid.until(lambda: seen[0] > count[0] and seen[1] > count[1], "both viewers see new frames")
        finally:
            over.set()
            for viewer in viewers:
                viewer.join()
            stopped = [camera.stop(10) for camera in cameras]
        assert stopped == [True, True]
        assert vivid.open_nodes() == []


def test_a_driver_that_takes_no_foreign_memory_is_copied_from_once(tmp_path: Path) -> None:
    with vivid.cameras(1, vivid.CAPTURE_ONLY | {"allocators": "1"}):
        for code, width, height in (("YUYV", 322, 240), ("GREY", 641, 479), ("NV12", 320, 240)):
            frames = both_ways(0, code, width, height, tmp_path)
            assert "MMAP" in frames.format.details["memory"]
            assert all(c.copied_bytes == frames.format.image.pixel_bytes for _, c in frames.seen)
            assert "EINVAL" in frames.format.details["copies"]
        with pytest.raises(SourceError, match="io=userptr"):
            vivid.frames_of("v4l2:///dev/video0?input=1&size=320x240&format=GREY&io=userptr")
