from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import Colorspace

from kernels.errors import InputError
from kernels.formats import FORMATS, I420, Matrix, PixelFormat, Range
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import slot_source_spec
from pipeline.frame import Capture
from pipeline.sources import clip_uri, make_source, unavailable
from pipeline.sources.base import FormatChanged, SourceEnded, SourceError
from pipeline.sources.file import File, FileConfig
from tests.helpers.fake_time import START_NS
from tests.helpers.open_source import Opener, opener
from tests.helpers.videos import Planes, Stream, packets_of, turn_by_metadata, write_video, zeroed

CLIP_FRAMES = 132
MS = 1_000_000


def clip_path() -> Path:
    uri = clip_uri()
    assert uri is not None
    return make_file(uri).path


def make_file(uri_or_path: str | Path, **settings: object) -> File:
    if isinstance(uri_or_path, str):
        source = make_source(uri_or_path)
        assert isinstance(source, File)
        return source
    return File(uri_or_path.as_uri(), FileConfig.model_validate(settings))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    yield from opener(monkeypatch)


def noise(shape: tuple[int, int], seed: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def random_planes(format: PixelFormat, width: int, height: int, seed: int) -> list[Pixels]:
    """Rows of bytes for each plane."""
    return [noise((p.rows(height), p.row_bytes(width)), seed + i) for i, p in enumerate(format.planes)]


def i420_rows(frame: av.VideoFrame) -> list[Pixels]:
    """The planes of a yuv420p frame by PyAV's own conversion."""
    packed = frame.to_ndarray()
    height, width = frame.height, frame.width
    chroma = packed[height:].reshape(2, height // 2, width // 2)
    return [packed[:height], chroma[0], chroma[1]]


def grey_pictures(levels: Sequence[int], width: int = 64, height: int = 48) -> list[Planes]:
    return [[np.full((height, width), level, np.uint8)] for level in levels]


def assert_planes_equal(planes: Planes, expected: Planes) -> None:
    assert len(planes) == len(expected)
    for plane, other in zip(planes, expected, strict=True):
        np.testing.assert_array_equal(plane, other)


# ---- pixels


def test_clip_equals_pyavs_own_decode_plane_by_plane(opened: Opener) -> None:
    file = opened(make_file(clip_path()))
    with av.open(str(clip_path())) as container:
        for index, frame in enumerate(container.decode(video=0)):
            planes, capture = file.fill()
            assert_planes_equal(planes, i420_rows(frame))
            assert capture.pts_s == frame.time
            assert capture.copied_bytes == 1280 * 720 * 3 // 2
            if index == 40:
                break
    assert file.spec.format is I420


def test_clip_has_all_its_frames_and_ends(opened: Opener) -> None:
    file = opened(make_file(clip_path()))
    assert len(file.fill_all()) == CLIP_FRAMES
    assert file.corrupt == 0


DIRECT = {"yuv420p": "I420", "nv12": "NV12", "yuyv422": "YUYV", "gray": "GRAY8", "bgr24": "BGR8"}


@pytest.mark.parametrize("size", [(640, 480), (641, 479), (49, 35)])
@pytest.mark.parametrize("pix_fmt", DIRECT)
def test_planes_come_as_they_are_also_at_odd_sizes(
    pix_fmt: str, size: tuple[int, int], tmp_path: Path, opened: Opener
) -> None:
    if pix_fmt == "yuyv422" and size[0] % 2:
        size = (size[0] + 1, size[1])  # FFmpeg's raw video has whole pairs only
    format = FORMATS[DIRECT[pix_fmt]]
    pictures = [random_planes(format, *size, seed) for seed in (1, 20, 300)]
    file = opened(make_file(write_video(tmp_path / "clip.nut", pictures, *size, Stream(pix_fmt))))
    assert (file.spec.format, file.spec.width, file.spec.height) == (format, *size)
    for (planes, capture), expected in zip(file.fill_all(), pictures, strict=True):
        assert_planes_equal(planes, expected)
        assert capture.copied_bytes == sum(plane.size for plane in expected)


@pytest.mark.parametrize(("pix_fmt", "step"), [("yuv422p", (2, 1)), ("yuv444p", (1, 1)), ("yuv410p", (4, 4))])
@pytest.mark.parametrize("color_range", [1, 2])
def test_other_yuv_formats_keep_their_luma_and_colour(
    pix_fmt: str, step: tuple[int, int], color_range: int, tmp_path: Path, opened: Opener
) -> None:
    width, height = 64, 48
    chroma = (height // step[1], width // step[0])
    luma = noise((height, width), 5)
    picture = [luma, np.full(chroma, 60, np.uint8), np.full(chroma, 200, np.uint8)]
    stream = Stream(pix_fmt, "ffv1", color_range=color_range, colorspace=1)
    file = opened(make_file(write_video(tmp_path / "clip.mkv", [picture], width, height, stream)))
    planes, capture = file.fill()
    assert (file.spec.format, file.spec.range) == (I420, Range.LIMITED if color_range == 1 else Range.FULL)
    np.testing.assert_array_equal(planes[0], luma)
    assert (planes[1] == 60).all()
    assert (planes[2] == 200).all()
    assert capture.copied_bytes == 2 * 64 * 48 * 3 // 2


def test_ten_bit_video_is_scaled_to_eight(tmp_path: Path, opened: Opener) -> None:
    ramp = np.arange(1024, dtype="<u2").reshape(16, 64)
    flat = np.full((8, 32), 512, "<u2")
    picture = [plane.view(np.uint8).reshape(plane.shape[0], -1) for plane in (ramp, flat, flat)]
    path = write_video(tmp_path / "c.mkv", [picture], 64, 16, Stream("yuv420p10le", "ffv1"))
    planes, _ = opened(make_file(path)).fill()
    assert np.abs(planes[0].astype(int) - (ramp.astype(int) >> 2)).max() <= 1
    assert (planes[1] == 128).all()


@pytest.mark.parametrize(("pix_fmt", "order"), [("rgb24", (2, 1, 0)), ("bgra", (0, 1, 2)), ("gbrp", None)])
def test_rgb_formats_become_bgr(
    pix_fmt: str, order: tuple[int, int, int] | None, tmp_path: Path, opened: Opener
) -> None:
    width, height = 32, 24
    bgr = noise((height, width * 3), 9).reshape(height, width, 3)
    if order is None:
        picture = [bgr[:, :, 1], bgr[:, :, 0], bgr[:, :, 2]]
    else:
        pixels = bgr[:, :, list(order)]
        if pix_fmt == "bgra":
            pixels = np.dstack([pixels, noise((height, width), 4)])  # any alpha: it is dropped
        picture = [np.ascontiguousarray(pixels).reshape(height, -1)]
    file = opened(make_file(write_video(tmp_path / "clip.nut", [picture], width, height, Stream(pix_fmt))))
    planes, _ = file.fill()
    assert file.spec.format.name == "BGR8"
    np.testing.assert_array_equal(planes[0].reshape(height, width, 3), bgr)


def test_b61_rows_stored_from_the_bottom_up_come_from_the_top(tmp_path: Path, opened: Opener) -> None:
    picture = random_planes(FORMATS["BGR8"], 31, 23, 8)  # AVI pads rows to 4 bytes
    file = opened(make_file(write_video(tmp_path / "clip.avi", [picture], 31, 23, Stream("bgr24"))))
    assert_planes_equal(file.fill()[0], picture)


def test_b98_grey_with_limited_range_is_not_taken_for_full(tmp_path: Path, opened: Opener) -> None:
    luma = noise((48, 64), 3)
    file = opened(make_file(write_video(tmp_path / "clip.mkv", [[luma]], 64, 48, Stream("gray", color_range=1))))
    planes, _ = file.fill()
    assert (file.spec.format, file.spec.range) == (I420, Range.LIMITED)
    np.testing.assert_array_equal(planes[0], luma)
    assert (planes[1] == 128).all()
    assert (planes[2] == 128).all()


@pytest.mark.parametrize(
    ("colorspace", "height", "matrix"),
    [
        (None, 480, Matrix.BT601), (None, 720, Matrix.BT709), (1, 480, Matrix.BT709), (5, 720, Matrix.BT601),
        (6, 720, Matrix.BT601),
    ],
)  # fmt: skip
@pytest.mark.parametrize("color_range", [None, 1, 2])
def test_b100_matrix_and_range_are_the_streams_own(
    colorspace: int | None, height: int, matrix: Matrix, color_range: int | None, tmp_path: Path, opened: Opener
) -> None:
    picture = [np.full((height, 64), 90, np.uint8), *[np.full((height // 2, 32), 128, np.uint8)] * 2]
    stream = Stream("yuv420p", "libx264", colorspace=colorspace, color_range=color_range)
    file = opened(make_file(write_video(tmp_path / "clip.mp4", [picture], 64, height, stream)))
    assert file.spec.matrix is matrix
    assert file.spec.range is (Range.FULL if color_range == 2 else Range.LIMITED)


@pytest.mark.parametrize(("colorspace", "kr", "kb"), [(9, 0.2627, 0.0593), (7, 0.212, 0.087)])
def test_b100_matrices_that_no_slot_can_name_become_bgr(
    colorspace: int, kr: float, kb: float, tmp_path: Path, opened: Opener
) -> None:
    y, u, v = 120, 100, 160
    picture = [np.full((48, 64), y, np.uint8), np.full((24, 32), u, np.uint8), np.full((24, 32), v, np.uint8)]
    path = write_video(
        tmp_path / "c.mp4", [picture], 64, 48, Stream(codec="libx264", colorspace=colorspace, options={"qp": "0"})
    )
    if colorspace not in {known.value for known in Colorspace}:  # older PyAVs lack BT.2020
        with pytest.raises(SourceError, match="newer"):
            opened(make_file(path))
        return
    planes, _ = opened(make_file(path)).fill()
    luma, cb, cr = (y - 16) * 255 / 219, (u - 128) * 255 / 224, (v - 128) * 255 / 224
    blue, red = luma + 2 * (1 - kb) * cb, luma + 2 * (1 - kr) * cr
    green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    assert np.abs(planes[0].reshape(48, 64, 3) - np.array([blue, green, red])).max() <= 2.0


@pytest.mark.parametrize("colorspace", [8, 14])
def test_colour_matrix_that_nobody_converts_is_refused(colorspace: int, tmp_path: Path) -> None:
    picture = [np.full((48, 64), 90, np.uint8), *[np.full((24, 32), 128, np.uint8)] * 2]
    path = write_video(tmp_path / "c.mp4", [picture], 64, 48, Stream(codec="libx264", colorspace=colorspace))
    source = make_file(path)
    with pytest.raises(SourceError, match="colour matrix"):
        source.open()
    source.close()


# ---- upright pictures

# a, b, c, d of the display matrix, and how to turn the stored picture. Phones write (0, 1, -1, 0) when held upright:
# "to be turned clockwise by 90 degrees".
TURNS: dict[str, tuple[tuple[int, int, int, int], Callable[[Pixels], Pixels]]] = {
    "upright": ((1, 0, 0, 1), lambda p: p),
    "clockwise": ((0, 1, -1, 0), lambda p: np.rot90(p, -1)),
    "half": ((-1, 0, 0, -1), lambda p: np.rot90(p, 2)),
    "counterclockwise": ((0, -1, 1, 0), lambda p: np.rot90(p, 1)),
    "mirrored": ((-1, 0, 0, 1), lambda p: p[:, ::-1]),
    "upside down": ((1, 0, 0, -1), lambda p: p[::-1]),
    "transposed": ((0, 1, 1, 0), lambda p: p.swapaxes(0, 1)),
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("size", [(64, 48), (62, 46)])
def test_b124_picture_is_upright_once(turn: str, size: tuple[int, int], tmp_path: Path, opened: Opener) -> None:
    matrix, turned = TURNS[turn]
    width, height = size
    picture = asymmetric_picture(width, height)
    options = {"qp": "0", "preset": "ultrafast"}  # lossless
    path = write_video(tmp_path / "clip.mp4", [picture], width, height, Stream(codec="libx264", options=options))
    file = opened(make_file(turn_by_metadata(path, matrix)))
    planes, _ = file.fill()
    assert (file.spec.height, file.spec.width) == turned(picture[0]).shape
    assert_planes_equal(planes, [turned(plane) for plane in picture])


def asymmetric_picture(width: int, height: int) -> list[Pixels]:
    planes = [noise((height, width), 1), noise((height // 2, width // 2), 2), noise((height // 2, width // 2), 3)]
    planes[0][: height // 4, : width // 3] = 16
    return planes


@pytest.mark.program("ffmpeg")
@pytest.mark.parametrize("turn", TURNS)
def test_b124_agrees_with_ffmpegs_own_autorotation(turn: str, tmp_path: Path, opened: Opener) -> None:
    import subprocess

    from tests.programs import program

    stream = Stream(codec="libx264", options={"qp": "0", "preset": "ultrafast"})
    path = turn_by_metadata(
        write_video(tmp_path / "clip.mp4", [asymmetric_picture(64, 48)], 64, 48, stream), TURNS[turn][0]
    )
    command = [program("ffmpeg"), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "yuv420p", "-"]
    raw = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    planes, _ = opened(make_file(path)).fill()
    assert b"".join(plane.tobytes() for plane in planes) == raw


def test_b124_other_turns_are_refused(tmp_path: Path) -> None:
    stream = Stream(codec="libx264")
    path = write_video(tmp_path / "clip.mp4", [asymmetric_picture(64, 48)], 64, 48, stream)
    source = make_file(turn_by_metadata(path, (1, 1, -1, 1)))
    with pytest.raises(SourceError, match="quarter turns"):
        source.open()
    source.close()


def test_b124_pairs_of_pixels_are_turned_too(tmp_path: Path, opened: Opener) -> None:
    rows = np.repeat(np.arange(16, 64, dtype=np.uint8)[:, None], 64, axis=1)
    yuyv = np.full((48, 64, 2), 128, np.uint8)
    yuyv[:, :, 0] = rows
    stream = Stream("yuyv422")
    path = write_video(tmp_path / "clip.mov", [[yuyv.reshape(48, -1)]], 64, 48, stream)
    file = opened(make_file(turn_by_metadata(path, TURNS["clockwise"][0])))
    planes, _ = file.fill()
    assert (file.spec.format, file.spec.width, file.spec.height) == (I420, 48, 64)
    np.testing.assert_array_equal(planes[0], np.rot90(rows, -1))


# ---- time


@pytest.mark.parametrize("gaps_ms", [(10, 200, 40), (40, 40, 40), (1, 999, 3, 5000), (3000,)])
def test_b112_playback_and_stamps_follow_pts(gaps_ms: tuple[int, ...], tmp_path: Path, opened: Opener) -> None:
    pts_ms = [sum(gaps_ms[:i]) for i in range(len(gaps_ms) + 1)]
    path = write_video(tmp_path / "c.mkv", grey_pictures(range(len(pts_ms))), 64, 48, Stream("gray"), pts_ms=pts_ms)
    file = opened(make_file(path))
    frames = file.fill_all()
    assert [planes[0][0, 0] for planes, _ in frames] == list(range(len(pts_ms)))
    assert [capture.pts_s for _, capture in frames] == [ms / 1000 for ms in pts_ms]
    assert file.time.waited_for == [START_NS + ms * MS for ms in pts_ms]
    assert [capture.captured_ns for _, capture in frames] == file.time.waited_for


def test_b112_first_stamp_may_be_anything(tmp_path: Path, opened: Opener) -> None:
    path = write_video(tmp_path / "c.mkv", grey_pictures([1, 2]), 64, 48, Stream("gray"), pts_ms=[7_200_000, 7_200_120])
    file = opened(make_file(path))
    file.fill_all()
    assert file.time.waited_for == [START_NS, START_NS + 120 * MS]


def test_file_without_stamps_plays_at_its_nominal_rate(tmp_path: Path, opened: Opener) -> None:
    pictures = [[np.full((48, 64), 50, np.uint8), *[np.full((24, 32), 128, np.uint8)] * 2]] * 6
    stream = Stream(codec="libx264", options={"bf": "0"})
    file = opened(make_file(write_video(tmp_path / "clip.h264", pictures, 64, 48, stream)))
    assert len(file.fill_all()) == 6
    assert file.time.waited_for == [START_NS + i * 40 * MS for i in range(6)]


def test_slow_reader_slows_the_playback_down_and_loses_nothing(tmp_path: Path, opened: Opener) -> None:
    file = opened(make_file(write_video(tmp_path / "c.mkv", grey_pictures(range(10)), 64, 48, Stream("gray"))))
    levels = []
    for index in range(10):
        levels.append(file.fill()[0][0][0, 0])
        file.time.now_ns += 1000 * MS if index < 5 else 0
    assert levels == list(range(10))
    last = file.time.waited_for[5:]
    assert [b - a for a, b in itertools.pairwise(last)] == [40 * MS] * 4  # no burst to catch up


def test_b110_stamps_are_on_the_monotonic_clock_and_say_so(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(make_file(write_video(tmp_path / "c.mkv", grey_pictures([1]), 64, 48, Stream("gray"))))
    monkeypatch.setattr("pipeline.sources.file.time.time_ns", lambda: 1_490_845_341_000_000_000)
    _, capture = file.fill()
    assert capture == Capture(START_NS, 1_490_845_341_000_000_000, "host", copied_bytes=64 * 48, pts_s=0.0)


# ---- the end


def ten_frames(tmp_path: Path) -> Path:
    return write_video(tmp_path / "ten.mp4", [asymmetric_picture(64, 48)] * 10, 64, 48, Stream(codec="libx264"))


def test_b21_file_ends_once_and_for_all(tmp_path: Path, opened: Opener) -> None:
    file = opened(make_file(ten_frames(tmp_path)))
    assert len(file.fill_all()) == 10
    for _ in range(3):
        with pytest.raises(SourceEnded):
            file.fill()
    assert len(file.time.waited_for) == 10


def test_b21_loop_goes_on_without_a_gap(tmp_path: Path, opened: Opener) -> None:
    file = opened(make_file(ten_frames(tmp_path), loop=True))
    captures = [file.fill()[1] for _ in range(25)]
    assert [capture.pts_s for capture in captures] == [(i % 10) / 25 for i in range(25)]
    assert file.time.waited_for == [START_NS + i * 40 * MS for i in range(25)]


def test_looped_file_that_vanishes_is_an_error_and_may_come_back(tmp_path: Path, opened: Opener) -> None:
    path = ten_frames(tmp_path)
    file = opened(make_file(path, loop=True))
    for _ in range(10):
        file.fill()
    away = path.rename(tmp_path / "away.mp4")
    with pytest.raises(SourceError, match="does not exist"):
        file.fill()
    file.source.close()
    away.rename(path)
    file.source.open()
    assert file.fill()[1].pts_s == 0.0


# ---- damage


def holes_of(seed: int, path: Path) -> list[tuple[int, int]]:
    """Three zeroed blocks, each inside one packet that is not the first."""
    random = np.random.default_rng(seed)
    packets = packets_of(path)
    chosen = random.choice(np.arange(1, len(packets)), 3, replace=False)
    holes = []
    for position, size in (packets[i] for i in chosen):
        length = int(random.integers(min(16, size // 2), max(17, size // 2)))
        holes.append((position + int(random.integers(0, size - length)), length))
    return holes


@pytest.mark.parametrize("seed", range(6))
def test_b34_zeroed_packets_are_counted_and_the_stream_goes_on(seed: int, tmp_path: Path, opened: Opener) -> None:
    """With CABAC, as here, FFmpeg alone passes about half of these as good."""
    holes = holes_of(seed, clip_path())
    damaged = {
        index
        for index, (start, size) in enumerate(packets_of(clip_path()))
        for position, _ in holes
        if start <= position < start + size
    }
    file = opened(make_file(zeroed(clip_path(), tmp_path / "bad.mp4", holes)))
    shown = [round((capture.pts_s or 0) * 25) for _, capture in file.fill_all()]
    assert shown == sorted(set(range(CLIP_FRAMES)) - damaged)
    assert file.corrupt == len(damaged) == 3


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "h264", "hevc"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_undamaged_files_have_no_damage(codec: str, suffix: str, tmp_path: Path, opened: Opener) -> None:
    if suffix in ("h264", "hevc") and (suffix == "h264") != (codec == "libx264"):
        suffix = "avi" if codec == "libx264" else "mov"
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    # A dark and a bright run of frames: long runs of equal bits, where encoders escape the most.
    pictures = [picture_of(128, 96, 16 if i < 20 else 235) for i in range(40)]
    stream = Stream(codec=codec, options=options)
    file = opened(make_file(write_video(tmp_path / f"clip.{suffix}", pictures, 128, 96, stream)))
    assert len(file.fill_all()) == 40
    assert file.corrupt == 0


@pytest.mark.parametrize("codec", ["mpeg4", "libx264", "libx265", "mjpeg"])
def test_b34_a_block_over_several_packets(codec: str, tmp_path: Path, opened: Opener) -> None:
    pictures = [[noise((96, 128), i), *[np.full((48, 64), 100 + i, np.uint8)] * 2] for i in range(12)]
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    path = write_video(tmp_path / "good.mov", pictures, 128, 96, Stream(pix_fmt, codec, options=options))
    position, size = packets_of(path)[5]
    file = opened(make_file(zeroed(path, tmp_path / "bad.mov", [(position + size // 3, size)])))
    frames = file.fill_all()
    assert file.corrupt >= 1
    assert len(frames) >= 8
    assert frames[-1][1].pts_s == pytest.approx(11 / 25, abs=0.002)


def test_b34_damaged_frame_is_left_out_and_the_good_ones_are_whole(tmp_path: Path, opened: Opener) -> None:
    position, size = packets_of(clip_path())[60]
    file = opened(make_file(zeroed(clip_path(), tmp_path / "bad.mp4", [(position + size // 2, 64)])))
    shown = {round((capture.pts_s or 0) * 25): planes for planes, capture in file.fill_all()}
    assert file.corrupt == 1
    assert sorted(set(range(CLIP_FRAMES)) - set(shown)) == [60]
    with av.open(str(clip_path())) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index in (0, 30, 59):
                assert_planes_equal(shown[index], i420_rows(frame))


def test_b34_corrupt_frames_take_their_time_and_do_not_spin(tmp_path: Path, opened: Opener) -> None:
    holes = [(position + size // 2, size // 2) for position, size in packets_of(clip_path())[10:40]]
    file = opened(make_file(zeroed(clip_path(), tmp_path / "bad.mp4", holes)))
    file.fill_all()
    assert file.corrupt >= 25
    assert file.time.waited_for[-1] >= START_NS + (CLIP_FRAMES - 5) * 40 * MS


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_b34_file_cut_off_shows_what_is_there(keep: float, tmp_path: Path, opened: Opener) -> None:
    pictures = [[noise((96, 128), i), *[np.full((48, 64), 100 + i, np.uint8)] * 2] for i in range(12)]
    path = write_video(tmp_path / "good.mkv", pictures, 128, 96, Stream(codec="libx264", options={"bf": "0"}))
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    file = opened(make_file(cut))
    frames = file.fill_all()
    assert 12 * keep - 2 <= len(frames) + file.corrupt <= 12


def test_b21_file_without_a_good_frame_is_an_error_not_a_storm(tmp_path: Path) -> None:
    holes = packets_of(clip_path())
    for loop in (False, True):
        source = make_file(zeroed(clip_path(), tmp_path / "bad.mp4", holes), loop=loop)
        with pytest.raises(SourceError, match="no picture that can be decoded"):
            source.open()
        source.close()


# ---- change of size


def picture_of(width: int, height: int, level: int) -> list[Pixels]:
    return [np.full((height, width), level, np.uint8), *[np.full((height // 2, width // 2), 128, np.uint8)] * 2]


@pytest.mark.parametrize("suffix", ["h264", "ts"])
def test_b20_size_change_is_told_before_anything_is_written(suffix: str, tmp_path: Path, opened: Opener) -> None:
    sizes = [(640, 480), (1280, 720), (320, 240)]
    path = tmp_path / f"joined.{suffix}"
    with path.open("wb") as joined:
        for level, size in zip((60, 120, 180), sizes, strict=True):
            stream = Stream(codec="libx264", options={"bf": "0"})
            part = write_video(tmp_path / f"part.{suffix}", [picture_of(*size, level)] * 10, *size, stream)
            joined.write(part.read_bytes())
    file = opened(make_file(path))
    seen: list[tuple[int, int, int]] = []
    changes = []
    while True:
        try:
            planes, _ = file.fill()
        except FormatChanged as change:
            assert file.is_untouched()
            changes.append((change.format.image.width, change.format.image.height))
            file.use(change.format.image)
            continue
        except SourceEnded:
            break
        level = int(np.median(planes[0]))
        assert np.abs(planes[0].astype(int) - level).max() <= 3  # nothing of another size is left at the edges
        seen.append((file.spec.width, file.spec.height, round(level / 60)))
    assert changes == sizes[1:]
    assert [s[:2] for s in seen if s[2] == 1] == [sizes[0]] * 10
    assert [s[:2] for s in seen if s[2] == 2] == [sizes[1]] * 10
    assert [s[:2] for s in seen if s[2] == 3] == [sizes[2]] * 10
    assert all(b > a for a, b in itertools.pairwise(file.time.waited_for) if b != a)


def test_b20_slot_of_another_size_is_never_written(tmp_path: Path, opened: Opener) -> None:
    file = opened(make_file(ten_frames(tmp_path)))
    right = file.spec
    for wrong in (ImageSpec.make(I420, 62, 48), ImageSpec.make(FORMATS["NV12"], 64, 48)):
        file.use(wrong)
        for _ in range(2):
            with pytest.raises(FormatChanged) as caught:
                file.fill()
            assert file.is_untouched()
            assert (caught.value.format.image.width, caught.value.format.image.format) == (64, I420)
    file.use(right)
    assert file.fill()[1].pts_s == 0.0


# ---- opening and closing


def test_format_says_rate_and_that_nothing_is_lost(tmp_path: Path) -> None:
    source = make_file(ten_frames(tmp_path))
    format = source.open()
    assert format.fps == pytest.approx(25, rel=0.01)
    assert format.live is False
    source.skip()  # loses nothing
    view = ImageView(format.image, np.empty(format.image.nbytes, np.uint8))
    assert source.fill(view).pts_s == 0.0
    source.close()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("missing", "does not exist"),
        ("folder", "is a folder"),
        ("empty", "not a video that FFmpeg can read"),
        ("text", "not a video that FFmpeg can read"),
        ("pipe", "not a regular file"),
        ("below a file", "is a file, not a folder"),
        ("sound", "has no video in it"),
        ("playlist", "/clip"),
    ],
)
def test_what_is_no_video_is_refused_with_its_path(kind: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "clip"
    match kind:
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("hello\n" * 1000)
        case "pipe":
            os.mkfifo(path)
        case "below a file":
            path.touch()
            path = path / "clip.mp4"
        case "sound":
            write_sound(path)
        case "playlist":
            path.write_text(f"#EXTM3U\n#EXTINF:5,\nhttp://127.0.0.1:9/{tmp_path.name}.ts\n#EXT-X-ENDLIST\n")
    source = make_file(path)
    with pytest.raises(SourceError, match=says) as caught:
        source.open()
    assert str(path) in str(caught.value)
    source.close()
    if kind in ("missing", "folder", "pipe", "below a file"):
        with pytest.raises(InputError, match=says) as refused:
            source.check("camera.uri")
        assert refused.value.field == "camera.uri"
    else:
        source.check()


def write_sound(path: Path) -> None:
    with av.open(str(path), "w", format="wav") as container:
        out = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        container.mux(out.encode(frame))
        container.mux(out.encode(None))


@pytest.mark.parametrize("how", ["access", "open"])
def test_b132_no_permission_names_path_ids_and_group(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ten_frames(tmp_path)
    path.chmod(0o000)
    if how == "access":  # root may read anything
        monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)
    else:

        def refuse(*args: object, **kwargs: object) -> None:
            raise av.error.PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(os, "access", lambda *args, **kwargs: True)
        monkeypatch.setattr(av, "open", refuse)
    source = make_file(path)
    with pytest.raises(SourceError) as caught:
        source.open()
    text = str(caught.value)
    for fact in (str(path), f"uid {os.geteuid()}", f"gid {os.getegid()}", "mode is 000", "--group-add"):
        assert fact in text
    source.close()


def test_names_of_any_bytes_are_opened(tmp_path: Path) -> None:
    name = os.fsdecode("ä ?#%41&=+".encode() + b"\xff.mp4")
    path = ten_frames(tmp_path).rename(tmp_path / name)
    source = make_source(path.as_uri() + "?loop=0")
    assert isinstance(source, File)
    assert os.fspath(source.path) == os.fspath(path)
    source.open()
    source.close()


@pytest.mark.parametrize(
    ("uri", "field", "says"),
    [
        ("file://clip.mp4", "uri", "three slashes"),
        ("file://server/clip.mp4", "uri", "three slashes"),
        ("file://", "uri", "three slashes"),
        ("file:///", "uri", "names no file"),
        ("file:///a%00b", "uri", "%00"),
        ("file:///a%zz", "uri", "malformed"),
        ("file:///a?loop=maybe", "uri?loop", "true, false, 1, 0"),
        ("file:///a?loop=True", "uri?loop", "true, false, 1, 0"),
        ("file:///a?lop=true", "uri?lop", "did you mean 'loop'"),
        ("file:///a?fps=30", "uri?fps", "unknown setting"),
        ("file:///a#b", "uri", "%23"),
    ],
)
def test_bad_uris_are_refused(uri: str, field: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        make_source(uri)
    assert caught.value.field == field
    assert says in str(caught.value)


@pytest.mark.parametrize(("text", "loop"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_loop_is_read(text: str, loop: bool) -> None:
    source = make_source(f"file:///a.mp4?loop={text}")
    assert source.config.loop is loop
    assert make_source("file://localhost/a.mp4").config.loop is False


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    assert "pinhole-vision[video]" in (unavailable("file") or "")
    assert clip_uri() is None
    with pytest.raises(InputError, match=r"pinhole-vision\[video\]"):
        make_source("file:///a.mp4")


def native_threads() -> set[str]:
    """The kernel's ids of this process's threads, those of libav among them."""
    return set(os.listdir("/proc/self/task"))


def assert_none_since(threads: set[str]) -> None:
    """No thread is here that was not among ``threads``; one that was joined may take a moment to leave the list."""
    deadline = time.monotonic() + 2
    while (left := native_threads() - threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def test_b19_twenty_rounds_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    path = clip_path()
    source = make_file(path)
    buffer = np.empty(1280 * 720 * 3 // 2, np.uint8)
    descriptors, threads = set(os.listdir("/proc/self/fd")), native_threads()
    seen: set[str] = set()
    for _ in range(20):
        format = source.open()
        source.fill(ImageView(format.image, buffer))
        seen |= native_threads()
        source.close()
        source.close()
    assert seen - threads or len(os.sched_getaffinity(0)) == 1
    assert_none_since(threads)
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_failed_open_leaves_nothing(tmp_path: Path) -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), native_threads()
    bad = zeroed(clip_path(), tmp_path / "bad.mp4", packets_of(clip_path()))
    source = make_file(bad)
    for _ in range(3):
        with pytest.raises(SourceError):
            source.open()
        source.close()
    assert_none_since(threads)
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_interrupt_wakes_a_waiting_fill(tmp_path: Path) -> None:
    path = write_video(tmp_path / "c.mkv", grey_pictures([1, 2]), 64, 48, Stream("gray"), pts_ms=[0, 9000])
    source = make_file(path)
    format = source.open()
    view = ImageView(format.image, np.empty(format.image.nbytes, np.uint8))
    source.fill(view)
    waker = threading.Timer(0.05, source.interrupt)
    waker.start()
    with pytest.raises(SourceError, match="interrupted"):
        source.fill(view)
    waker.join()
    source.close()
    source.open()  # an interrupted file can be opened again
    source.fill(view)
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.fill(view)


def test_rate_of_the_clip_is_known() -> None:
    source = make_file(clip_path())
    assert source.open().fps == float(Fraction(25))
    source.close()


def test_frames_are_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is megabytes, and the collector counts objects: waiting for it means hundreds of megabytes."""
    uri = clip_uri()
    assert uri is not None
    source = make_source(f"{uri.partition('?')[0]}?loop=true")
    monkeypatch.setattr(source, "wait_until", lambda due_ns: None)
    format = source.open()
    spec = slot_source_spec(format.image)
    view = ImageView(spec, np.empty(spec.nbytes, np.uint8))
    gc.collect()
    gc.disable()
    try:
        for _ in range(150):  # more than one round
            source.fill(view)
        alive = sum(isinstance(found, av.VideoFrame) for found in gc.get_objects())
    finally:
        gc.enable()
        source.close()
    assert alive < 10
