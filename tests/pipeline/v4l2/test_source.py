"""The source against a driver in Python: what it agrees on, whose memory it uses, and what it makes of each error."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import InputError
from pipeline.frame import Capture
from pipeline.lease import WriteLease
from pipeline.sources import make_source
from pipeline.sources.base import FormatChanged, FrameCorrupt, SourceError, WriteSlot
from pipeline.sources.v4l2 import V4l2
from pipeline.v4l2 import abi
from tests.helpers.frames import Frames
from tests.pipeline.v4l2.fake_driver import FakeCamera, FakeSystem, make_nodes

SMALL = {(64, 48): (30, 60), (128, 96): (30,), (65, 47): (30,)}
WEBCAM = {"YUYV": SMALL, "MJPG": {**SMALL, (1920, 1080): (30, 60)}, "NV12": SMALL, "GREY": SMALL}


class Bench:
    """A folder of nodes and the cameras behind them."""

    def __init__(self, folder: Path) -> None:
        self.dev = make_nodes(folder, 0)
        self.camera = FakeCamera(WEBCAM)
        self.system = FakeSystem({str(self.dev / "video0"): self.camera})

    def source(self, query: str = "", name: str = "video0") -> V4l2:
        made = make_source(f"v4l2://{self.dev}/{name}" + (f"?{query}" if query else ""))
        assert isinstance(made, V4l2)
        made.system, made.dev, made.sysfs = self.system, self.dev, self.dev
        return made

    def frames(self, query: str = "") -> Frames[V4l2]:
        return Watched(self, query)

    def refused(self, query: str = "") -> str:
        source = self.source(query)
        with pytest.raises(SourceError) as caught:
            source.open()
        source.close()
        assert self.camera.opened == 0
        return str(caught.value)


class Watched(Frames[V4l2]):
    """Nothing that the source hands on or gives back is still the driver's to write."""

    def __init__(self, bench: Bench, query: str) -> None:
        self._camera = bench.camera
        super().__init__(bench.source(query))

    def publish(self, slot: WriteSlot, capture: Capture) -> None:
        self._is_let_go(slot)
        super().publish(slot, capture)

    def give_back(self, slot: WriteSlot, reason: str | None = None) -> None:
        self._is_let_go(slot)
        super().give_back(slot, reason)

    def _is_let_go(self, slot: WriteSlot) -> None:
        camera = self._camera
        if camera.memory == abi.USERPTR and camera.count:
            assert slot.view.address not in {camera.addresses[index][0] for index in camera.queued}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "dev")


def whole(number: int, frames: Frames[V4l2]) -> bytes:
    return bytes([number]) * frames.format.image.pixel_bytes


# ---- what is agreed


@pytest.mark.parametrize(
    ("query", "code", "size", "fps"),
    [
        ("", "YUYV", (64, 48), 30),  # as the camera is set, in the format that costs least
        ("size=64x48&fps=60", "NV12", (64, 48), 60),
        ("size=128x96&format=GREY", "GREY", (128, 96), 30),
        ("size=128x96&format=gray8&fps=60", "GREY", (128, 96), 30),  # our name; a rate that it has not
        ("size=1920x1080&fps=60", "MJPG", (1920, 1080), 60),  # only its JPEG has that size
        ("size=70x50&format=YUYV", "YUYV", (64, 48), 30),  # the nearest
    ],
)
def test_asked_for_and_agreed(bench: Bench, query: str, code: str, size: tuple[int, int], fps: int) -> None:
    if not query:
        bench.camera.modes = {"YUYV": SMALL, "MJPG": SMALL}
    with bench.frames(query) as frames:
        assert (bench.camera.code, bench.camera.size, bench.camera.rate) == (code, size, fps)
        details = frames.format.details
        agreed = details["negotiated"]
        assert (agreed["format"], agreed["size"], agreed["fps"]) == (code, f"{size[0]}x{size[1]}", fps)
        assert details["requested"]["format"] == (dict(p.split("=") for p in query.split("&") if p).get("format"))
        assert frames.format.fps == fps
        assert frames.format.live


def test_b25_a_size_that_the_camera_has_not_gives_whole_frames_of_the_nearest(bench: Bench) -> None:
    for size in ("300x300", "1x1", "16384x16384"):
        with bench.frames(f"size={size}&format=GREY") as frames:
            image = frames.format.image
            assert (image.width, image.height) in SMALL
            assert frames.format.details["requested"]["size"] == size
            first = bench.camera.frames
            assert frames.read(1)[0][0].tobytes() == whole(first, frames)


def test_odd_sizes_are_taken_where_planes_can_be_whole(bench: Bench) -> None:
    with bench.frames("size=65x47&format=GREY") as frames:
        assert (frames.format.image.width, frames.format.image.height) == (65, 47)
        frames.read(1)
    bench.camera.modes = {"NV12": {(65, 47): (30,), (64, 46): (30,)}}
    with bench.frames("size=65x47") as frames:
        assert (frames.format.image.width, frames.format.image.height) == (64, 46)
    bench.camera.modes = {"NV12": {(65, 47): (30,)}}
    bench.camera.size = (65, 47)
    assert "65x47" in bench.refused("size=65x47")


def test_what_is_not_there_is_said_with_what_is(bench: Bench) -> None:
    assert "YUYV, MJPG, NV12, GREY" in bench.refused("format=BGR3")
    bench.camera.modes = {"YV12": SMALL}
    bench.camera.code = "YV12"
    assert "the camera has YV12; Pinhole takes NV12" in bench.refused()
    for bad in ("size=0x5", "fps=0", "io=copy", "queue=1", "format=%00", "name=x", "sizes=64x48"):
        with pytest.raises(InputError):
            make_source(f"v4l2:///dev/video0?{bad}")
    for bad in ("v4l2://", "v4l2:///", "v4l2://cam", "v4l2://1/dev/video0"):
        with pytest.raises(InputError):
            make_source(bad)


# ---- whose memory


def test_the_driver_writes_into_slots_and_nothing_is_copied(bench: Bench) -> None:
    with bench.frames("size=64x48&format=NV12&queue=4") as frames:
        assert frames.format.layout is not None
        assert frames.format.layout.queued == 4
        for number, (pixels, capture) in enumerate(frames.read(50)):
            assert pixels.tobytes() == whole(number, frames)
            assert (capture.copied_bytes, capture.clock) == (0, "driver")
        assert frames.format.details["copies"] is None
        assert len(bench.camera.queued) == 4
        assert bench.camera.pinned <= 8, "each slot's pages are pinned once, not at each frame"


def test_b59_rows_that_the_driver_pads_are_read_as_it_wrote_them(bench: Bench) -> None:
    """Any stride, whole lines or not; padding is never part of the picture."""

    def rows(stride: int) -> Callable[[int, int], bytes]:
        return lambda number, nbytes: b"".join(
            bytes(range(65)) + b"\xee" * (stride - 65) for _ in range(nbytes // stride)
        )

    for alignment, stride, query in itertools.product((96, 2), (None,), ("", "&io=mmap")):
        bench.camera.row_alignment = alignment
        bench.camera.fill = lambda number, nbytes: rows(bench.camera.stride)(number, nbytes)
        with bench.frames(f"size=65x47&format=GREY{query}") as frames:
            assert stride is None
            assert bench.camera.stride > 65
            pixels, capture = frames.read(3)[-1]
            assert pixels.tobytes() == bytes(range(65)) * 47
            assert capture.copied_bytes == (65 * 47 if query else 0)


def test_a_buffer_larger_than_the_picture_fits_the_slot(bench: Bench) -> None:
    bench.camera.extra_bytes = 4096 * 3 + 5
    with bench.frames("size=64x48&format=GREY") as frames:
        assert frames.format.layout is not None
        assert frames.format.layout.nbytes == 64 * 48 + bench.camera.extra_bytes
        frames.read(2)


def test_a_memory_for_each_plane(bench: Bench) -> None:
    bench.camera.mplane = True
    bench.camera.modes = {"NM12": SMALL}
    bench.camera.code = "NM12"
    for query in ("", "&io=mmap"):
        with bench.frames(f"size=64x48{query}") as frames:
            first = bench.camera.frames
            for number, (pixels, capture) in enumerate(frames.read(6), first):
                assert pixels.tobytes() == whole(number, frames)
                assert capture.copied_bytes == (frames.format.image.pixel_bytes if query else 0)
            bench.camera.data_offset = 16
            with pytest.raises(FrameCorrupt):
                frames.source.read(frames)
            bench.camera.data_offset = 0


@pytest.mark.parametrize("late", [False, True])
def test_no_foreign_memory_means_one_counted_copy(bench: Bench, late: bool) -> None:
    """Refused when buffers are asked for, or only once they are queued: the same, in a ring of the usual layout."""
    bench.camera.takes_userptr, bench.camera.refuses_addresses = late, late
    with bench.frames("size=64x48&format=YUYV") as frames:
        for number, (pixels, capture) in enumerate(frames.read(12)):
            assert pixels.tobytes() == whole(number, frames)
            assert capture.copied_bytes == 64 * 48 * 2
        assert frames.format.layout is None
        assert "MMAP" in frames.format.details["memory"]
        assert ("EFAULT" if late else "EINVAL") in frames.format.details["copies"]
        after = bench.source()
        after.follow(frames.source)
        assert after._refusal is not None, "a reconnect does not try again what was refused"
    bench.camera.takes_userptr = False
    assert "io=userptr cannot be had" in bench.refused("io=userptr")


def test_b39_with_every_slot_in_use_new_frames_are_dropped_and_none_is_written(bench: Bench) -> None:
    with bench.frames("size=64x48&format=GREY&queue=2") as frames:
        frames.keep = True
        frames.read_until(lambda: len(frames.kept) == 4)  # of 6; two are the driver's
        kept = [slot.view.packed().tobytes() for slot in frames.kept]
        for _ in range(20):
            frames.source.read(frames)
        assert [slot.view.packed().tobytes() for slot in frames.kept] == kept
        assert len(bench.camera.queued) == 2
        frames.keep = False
        frames.let_go()
        frames.read(5)


# ---- frames


def test_b18_a_jpeg_is_decoded_into_the_slot_and_a_damaged_one_is_a_drop(bench: Bench) -> None:
    good = simplejpeg.encode_jpeg(np.full((48, 64, 3), 77, np.uint8), quality=95, colorspace="BGR")
    other = simplejpeg.encode_jpeg(np.zeros((40, 64, 3), np.uint8), quality=50, colorspace="BGR")
    sent = iter(
        [good, good[: len(good) * 3 // 5], good + bytes(64), b"\xff\xd8\xff\xe0" + bytes(100), b"", other, good]
    )
    bench.camera.fill = lambda number, nbytes: next(sent)
    with bench.frames("size=64x48&format=MJPG") as frames:
        frames.read_until(lambda: len(frames.seen) + len(frames.corrupt) == 7)
        assert frames.corrupt == ["corrupt", "corrupt", "corrupt", "size"]
        for pixels, capture in frames.seen:
            assert abs(int(pixels[0]) - 77) <= 2
            assert capture.copied_bytes == 64 * 48 * 3
        assert len(frames.seen) == 3
        assert "MJPG is decoded" in frames.format.details["copies"]


@pytest.mark.parametrize("io", ["userptr", "mmap"])
def test_damaged_and_short_frames_are_drops_and_lost_ones_are_counted(bench: Bench, io: str) -> None:
    camera = bench.camera
    with bench.frames(f"size=64x48&format=GREY&io={io}") as frames:
        frames.read(2)
        camera.next_flags = [abi.BUF_FLAG_ERROR]
        frames.read(1)
        assert frames.corrupt == ["corrupt"]
        camera.used = lambda nbytes: nbytes - 1
        with pytest.raises(FrameCorrupt, match="3071 bytes where 3072"):
            frames.source.read(frames)
        camera.used = lambda nbytes: 0
        with pytest.raises(FrameCorrupt):
            frames.source.read(frames)
        camera.used = lambda nbytes: nbytes
        camera.sequence_step = [4, 1, 0, 1, -7, 1]
        frames.read(6)
        assert frames.lost_frames == 3, "repeated numbers and a count that begins anew are no loss"
        camera.sequence = (1 << 32) - 3
        frames.read(1)
        before = frames.lost_frames
        camera.sequence_step = [1, 3]
        frames.read(2)
        assert frames.lost_frames == before + 2, "over the end of 32 bits"


def test_b110_stamps_are_used_if_they_are_of_the_monotonic_clock_and_make_sense(bench: Bench) -> None:
    camera = bench.camera
    with bench.frames("size=64x48&format=GREY") as frames:

        def next_capture(stamp: Callable[[], int]) -> Capture:
            camera.stamp_ns = stamp
            return frames.read(1)[0][1]

        now = time.monotonic_ns
        good = next_capture(lambda: now() - 5_000_000)
        assert good.clock == "driver"
        assert 4_000_000 <= now() - good.captured_ns < 5_000_000_000
        assert abs((time.time_ns() - good.wall_ns) - (now() - good.captured_ns)) < 1_000_000_000
        for stamp in (lambda: good.captured_ns, lambda: good.captured_ns - 10**6, lambda: now() + 10**9, lambda: 1):
            before = now()
            capture = next_capture(stamp)
            assert capture.clock == "host"
            assert before <= capture.captured_ns <= now()
        stamps = frames.format.details["stamps"]
        assert (stamps["clock"], stamps["marks"], stamps["unusable"]) == ("monotonic", "end of frame", 4)
    camera.flags, camera.stamp_ns = abi.BUF_FLAG_TSTAMP_SRC_SOE, time.time_ns
    with bench.frames("size=64x48&format=GREY") as frames:
        assert frames.read(1)[0][1].clock == "host"
        stamps = frames.format.details["stamps"]
        assert "not stated" in stamps["clock"]
        assert stamps["marks"] == "start of exposure"


def test_b20_another_size_in_mid_stream_is_another_ring(bench: Bench) -> None:
    camera = bench.camera
    with bench.frames("format=GREY") as frames:
        frames.read(3)
        camera.events.append(abi.EVENT_SOURCE_CHANGE)
        frames.read(3)  # nothing else has changed: it goes on
        camera.events.append(abi.EVENT_SOURCE_CHANGE)
        camera.size = (128, 96)
        frames.read_until(lambda: frames.format.image.width == 128)
        number = camera.frames
        assert frames.read(1)[0][0].tobytes() == whole(number, frames)
        assert frames.format.image.nbytes == 128 * 96


# ---- errors


@pytest.mark.parametrize(
    ("request_", "number", "says"),
    [
        ("STREAMON", errno.ENOSPC, "USB bandwidth"),
        ("STREAMON", errno.ENOMEM, "queue=2"),
        ("STREAMON", errno.EPROTO, "cable"),
        ("DQBUF", errno.EIO, "gave up"),
        ("DQBUF", errno.ENODEV, "unplugged"),
    ],
)
def test_b30_errors_of_streaming_say_what_to_do(bench: Bench, request_: str, number: int, says: str) -> None:
    with bench.frames("size=64x48&format=GREY") as frames:
        bench.system.fail[request_] = [number]
        with pytest.raises(SourceError, match=says):
            frames.read(1)


def test_errors_of_opening_say_what_to_do(bench: Bench) -> None:
    bench.system.fail["S_FMT"] = [errno.EBUSY]
    assert "another program" in bench.refused()
    bench.system.open_error[str(bench.dev / "video0")] = errno.EBUSY
    assert "busy" in bench.refused()
    bench.system.open_error[str(bench.dev / "video0")] = errno.EACCES
    assert "join that group (docker: --group-add" in bench.refused()
    bench.system.open_error.clear()
    bench.camera.gone = True
    (bench.dev / "video0").unlink()
    assert "does not exist" in bench.refused()


def test_b15_a_silent_camera_is_given_up_and_interrupt_wakes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources.v4l2.FIRST_FRAME_S", 0.1)
    bench.camera.rate = 1000
    bench.camera.modes = {"GREY": {(64, 48): (1000,)}}
    with bench.frames("format=GREY") as frames:
        frames.read(1)
        bench.camera.paused = True
        with pytest.raises(SourceError, match=r"no frame for 0\.1 s"):
            frames.source.read(frames)
        monkeypatch.setattr("pipeline.sources.v4l2.FIRST_FRAME_S", 60.0)
        timer = threading.Timer(0.05, frames.source.interrupt)
        timer.start()
        with pytest.raises(SourceError, match="interrupted"):
            frames.source.read(frames)
        timer.join()
    frames.source.interrupt()  # also of a closed one


REQUESTS = (
    "QUERYCAP", "G_FMT", "S_FMT", "G_PARM", "ENUM_FMT", "ENUM_FRAMESIZES", "SUBSCRIBE_EVENT", "REQBUFS", "QUERYBUF",
    "QBUF", "STREAMON", "DQBUF", "STREAMOFF", "DQEVENT", "S_PARM", "G_INPUT",
)  # fmt: skip


def slots_are_where_they_should_be(bench: Bench, frames: Frames[V4l2]) -> None:
    """Each buffer is with the driver, in a lease of the source, or free; and never in two of them."""
    ring, source, camera = frames.ring, frames.source, bench.camera
    assert ring is not None
    stream = source._stream
    held = [] if stream is None else [slot for slot in stream.held if isinstance(slot, WriteLease)]
    now = ring.statistics()
    assert now.writing == len(held) + len(frames.kept)
    assert now.free + now.writing == now.slots
    if stream is not None and stream.in_slots and not camera.gone:
        with_driver = {camera.addresses[index][0] for index in camera.queued}
        assert with_driver == {slot.view.address for slot in held}
        assert not with_driver & {slot.view.address for slot in frames.kept}


@given(
    fails=st.dictionaries(
        st.sampled_from(REQUESTS),
        st.lists(st.sampled_from([0, errno.EIO, errno.EINVAL, errno.ENODEV, errno.ENOSPC, errno.EBUSY]), max_size=8),
        max_size=3,
    ),
    steps=st.lists(
        st.sampled_from(["read", "read", "keep", "let go", "change", "damage", "unplug", "pause"]), max_size=12
    ),
    query=st.sampled_from(["format=GREY", "format=NV12&queue=2", "format=GREY&io=mmap", "format=YUYV"]),
)
@settings(max_examples=150)
def test_whatever_fails_every_buffer_is_with_the_driver_in_a_lease_or_free(
    tmp_path_factory: pytest.TempPathFactory, fails: dict[str, list[int]], steps: list[str], query: str
) -> None:
    bench = Bench(tmp_path_factory.mktemp("dev"))
    bench.system.fail = fails
    camera = bench.camera
    try:
        frames = bench.frames(f"size=64x48&{query}")
    except SourceError:
        assert camera.opened == 0
        return
    with frames:
        for step in steps:
            frames.keep = step == "keep"
            if step == "let go":
                frames.let_go()
            elif step == "change":
                camera.events.append(abi.EVENT_SOURCE_CHANGE)
            elif step == "damage":
                camera.next_flags.append(abi.BUF_FLAG_ERROR)
            elif step == "unplug":
                camera.gone = True
            else:
                try:
                    frames.source.read(frames)
                except FrameCorrupt:
                    pass
                except FormatChanged as error:
                    frames.format = error.format
                    frames.make_ring()
                except SourceError:
                    break
            slots_are_where_they_should_be(bench, frames)
        frames.source.close()
        slots_are_where_they_should_be(bench, frames)
    assert camera.opened == 0
    assert all(made.closed for maps in camera.maps.values() for made in maps)


# ---- which camera it is


def test_b23_the_same_camera_is_found_under_another_number_and_another_is_never_taken(bench: Bench) -> None:
    source = bench.source("size=64x48")
    source.open()
    source.close()
    assert not source.returned(), "nothing new"

    def fresh(previous: V4l2) -> V4l2:
        made = bench.source("size=64x48")
        made.follow(previous)
        return made

    # Gone, and another one comes in its place.
    bench.camera.gone = True
    (bench.dev / "video0").unlink()
    away = fresh(source)
    with pytest.raises(SourceError, match="is away"):
        away.open()
    away.close()
    assert not away.returned()
    make_nodes(bench.dev, 0)
    bench.system.cameras[str(bench.dev / "video0")] = FakeCamera(WEBCAM, bus="usb-fake-2")
    assert away.returned()
    other = fresh(away)
    with pytest.raises(SourceError, match="is away"):
        other.open()
    other.close()
    # It comes back as another node.
    make_nodes(bench.dev, 3)
    bench.camera.gone = False
    bench.system.cameras[str(bench.dev / "video3")] = bench.camera
    assert other.returned()
    back = fresh(other)
    assert back.open().details["device"] == str(bench.dev / "video3")
    back.close()
    assert bench.system.cameras[str(bench.dev / "video0")].opened == 0


def test_a_path_that_stays_is_followed_to_where_it_leads(bench: Bench) -> None:
    (bench.dev / "by-id").mkdir()
    link = bench.dev / "by-id" / "usb-cam"
    link.symlink_to(bench.dev / "video0")
    source = bench.source("size=64x48", "by-id/usb-cam")
    source.open()
    source.close()
    make_nodes(bench.dev, 1)
    bench.system.cameras[str(bench.dev / "video1")] = bench.system.cameras.pop(str(bench.dev / "video0"))
    link.unlink()
    link.symlink_to(bench.dev / "video1")
    after = bench.source("size=64x48", "by-id/usb-cam")
    after.follow(source)
    after.open()
    assert bench.camera.opened == 1
    after.close()
