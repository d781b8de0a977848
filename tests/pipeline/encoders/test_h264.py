"""H.264 for live viewers, decoded again by FFmpeg."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.errors import InputError
from pipeline.encoders import h264
from pipeline.encoders.h264 import H264, H264Stream

av = pytest.importorskip("av")

TICKS = 3000  # between frames of 30 a second
SPS, PPS, IDR, SLICE = 7, 8, 5, 1
SMPTE170M, LIMITED = 6, 1  # ITU-T H.273, table 4; FFmpeg's MPEG range


def picture(width: int, height: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    """Smooth colours and one sharp square: (H, W, 3)."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin((x * (1 + c) + y + 13 * seed) / 40) for c in range(3)]
    made = np.stack(planes, axis=2).astype(np.uint8)
    made[height // 4 : height // 2, width // 4 : width // 2] = (30, 200, 90)
    return made


class Decoder:
    """What a viewer has; it must come to one picture for each access unit, at once."""

    def __init__(self) -> None:
        self._codec = av.CodecContext.create("h264", "r")
        self._codec.options = {"flags": "low_delay"}
        self._codec.thread_count = 1

    def __call__(self, data: bytes) -> Any:
        frames = self._codec.decode(av.Packet(data))
        assert len(frames) == 1, "it waits for another"
        return frames[0]


def nal_units(data: bytes) -> list[int]:
    """Their types (ITU-T H.264, table 7-1), in order."""
    return [part[0] & 31 for part in data.split(b"\x00\x00\x01")[1:]]


def push(stream: H264Stream, pixels: npt.NDArray[Any]) -> bytes:
    stream.pts += TICKS
    return stream.encode(pixels)


def luma(bgr: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """ITU-R BT.601-7, 2.5.3: codes 16 to 235 of each pixel."""
    blue, green, red = (bgr[..., c].astype(float) for c in range(3))
    return np.asarray(16 + 219 * (0.299 * red + 0.587 * green + 0.114 * blue) / 255)


@pytest.mark.parametrize(
    ("width", "height", "grey"), [(320, 240, False), (127, 95, False), (129, 66, True), (2, 2, False), (1, 1, True)]
)
def test_pictures_come_back_as_they_were(width: int, height: int, grey: bool) -> None:
    stream, decoder = H264().open(8_000_000), Decoder()
    for seed in range(4):
        given = picture(width, height, seed)
        if grey:
            given[:] = given[:, :, :1]
        frame = decoder(push(stream, given[:, :, 0] if grey else given))
        assert (frame.width, frame.height) == (width + width % 2, height + height % 2)
        assert (frame.colorspace, frame.color_range) == (SMPTE170M, LIMITED)
        shown = frame.to_ndarray()[:height, :width].astype(float)
        assert np.abs(shown - luma(given)).mean() < 3


@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (12, 130, 200)])
def test_colours_are_those_that_were_given(colour: tuple[int, int, int]) -> None:
    frame = Decoder()(push(H264().open(), np.full((48, 64, 3), colour, np.uint8)))
    assert np.abs(frame.to_ndarray(format="bgr24")[24, 32].astype(int) - colour).max() <= 3


def test_chroma_is_that_of_the_mean_of_four_pixels() -> None:
    """Stripes of one pixel, red and blue: to the eye, and in 4:2:0, they are purple whichever comes first."""
    for stripes in (((0, 0, 255), (255, 0, 0)), ((255, 0, 0), (0, 0, 255))):
        given = np.empty((64, 64, 3), np.uint8)
        given[:, 0::2], given[:, 1::2] = stripes
        planes = Decoder()(push(H264().open(20_000_000), given)).to_ndarray()
        chroma = planes[64:].reshape(2, 32, 32)[:, 8:24, 8:24].mean(axis=(1, 2))
        blue, red = 127.5, 127.5
        grey = 0.299 * red + 0.114 * blue
        expected = [128 + 224 * (blue - grey) / 1.772 / 255, 128 + 224 * (red - grey) / 1.402 / 255]
        assert np.abs(chroma - expected).max() < 3


def test_rows_with_padding_and_alpha_are_the_same_picture() -> None:
    given = picture(64, 48)
    padded = np.full((48, 80, 3), 255, np.uint8)
    padded[:, :64] = given
    alpha = np.dstack([given, np.full((48, 64), 7, np.uint8)])
    streams = [push(H264().open(), pixels) for pixels in (given, padded[:, :64], alpha)]
    assert streams[0] == streams[1] == streams[2]


def test_a_stream_begins_with_a_keyframe_and_has_another_only_when_it_is_asked_for() -> None:
    stream = H264().open()
    seen = []
    for number in range(12):
        stream.force_keyframe = number == 7
        units = nal_units(push(stream, picture(96, 64, number)))
        key = IDR in units
        assert stream.unit.keyframe == key
        assert ({SPS, PPS} <= set(units)) == key, "who joins there needs the parameter sets"
        assert key or set(units) == {SLICE}
        seen.append(key)
    assert [number for number, key in enumerate(seen) if key] == [0, 7]
    assert not stream.force_keyframe, "one, not one each"


def test_decoding_can_begin_at_a_keyframe_that_was_asked_for() -> None:
    stream = H264().open(8_000_000)
    for number in range(5):
        push(stream, picture(96, 64, number))
    stream.force_keyframe = True
    given = picture(96, 64, 9)
    frame = Decoder()(push(stream, given))
    assert np.abs(frame.to_ndarray(format="bgr24").astype(int) - given).mean() < 8


def test_a_new_size_begins_with_a_keyframe_and_needs_nobody_to_ask() -> None:
    stream, decoder = H264().open(), Decoder()
    sizes = [(96, 64), (96, 64), (128, 96), (64, 48), (64, 48)]
    keys = []
    for size in sizes:
        frame = decoder(push(stream, picture(*size)))
        assert (frame.width, frame.height) == size
        keys.append(stream.unit.keyframe)
    assert keys == [True, False, True, True, False]


def test_time_stamps_grow_whatever_the_clock_does() -> None:
    stream, stamps = H264().open(), []
    for pts in (9000, 12_000, 12_000, 500, 15_000):
        stream.pts = pts
        stream.encode(picture(32, 32))
        stamps.append(stream.unit.pts)
    assert stamps == [9000, 12_000, 12_001, 12_002, 15_000]


def test_again_is_the_last_picture_and_what_is_drawn_on_it_does_not_stay() -> None:
    stream, decoder = H264().open(8_000_000), Decoder()
    assert stream.empty
    given = picture(96, 64)
    decoder(push(stream, given))
    assert not stream.empty
    white = decoder(stream.again(lambda pixels: pixels.fill(255))).to_ndarray(format="bgr24")
    assert white.min() > 245
    shown = decoder(stream.again()).to_ndarray(format="bgr24")
    assert np.abs(shown.astype(int) - given).mean() < 8


def test_a_bit_rate_bounds_what_noise_takes() -> None:
    noise = np.random.default_rng(3)
    sizes = {}
    for rate in (500_000, 4_000_000):
        stream = H264().open(rate)
        sizes[rate] = sum(len(push(stream, noise.integers(0, 256, (240, 320, 3), np.uint8))) for _ in range(30)) * 8
    assert sizes[500_000] < sizes[4_000_000] < 4_000_000 * 2


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4, 3), np.uint16), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)]
)
def test_what_is_no_picture_is_refused_and_the_stream_goes_on(wrong: npt.NDArray[Any]) -> None:
    stream = H264().open()
    with pytest.raises(InputError):
        stream.encode(wrong)
    assert IDR in nal_units(stream.encode(picture(32, 32)))


def test_where_nvenc_is_listed_and_does_not_open_x264_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: True)
    monkeypatch.setitem(h264._NVENC, "preset", "no such preset")
    stream = H264().open()
    assert IDR in nal_units(stream.encode(picture(320, 240)))
    assert stream.name == "h264"


def test_without_pyav_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(h264.EncoderMissingError, match=r"pip install pinhole-vision\[webrtc\]"):
        H264().open()
