from __future__ import annotations

import io
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from kernels.errors import InputError, PinholeError, UnknownNameError
from kernels.image import Pixels
from pipeline.encoders import all_encoders, encoder_for, load_encoder

ODD = (67, 131)


def picture(*shape: int) -> Pixels:
    """A smooth picture that is the same neither mirrored, nor upside down, nor with its channels turned round."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    planes = [x * 200 / shape[1] + 20, y * 200 / shape[0] + 20, (x + y) * 100 / sum(shape[:2]), y * 0 + 128]
    stacked = np.stack(planes, axis=-1).astype(np.uint8)
    return stacked[:, :, 0] if len(shape) == 2 else stacked[:, :, : shape[2]]


def decode(data: bytes) -> Pixels:
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert decoded is not None
    return np.asarray(decoded, np.uint8)


def test_each_format_has_one_encoder() -> None:
    formats = [encoder.format for encoder in all_encoders().values()]
    assert len(formats) == len(set(formats))
    assert {"jpg", "npy", "png"} <= set(formats)
    for encoder in all_encoders().values():
        assert encoder_for(encoder.format).name == encoder.name


@pytest.mark.parametrize("shape", [ODD, (*ODD, 3), (1, 1), (1, 1, 3), (1, 64, 3), (64, 1)])
def test_jpeg_shows_the_picture(shape: tuple[int, ...]) -> None:
    source = picture(*shape)
    decoded = decode(encoder_for("jpg").encode(source, 95))
    assert decoded.shape == source.shape
    assert np.abs(decoded.astype(int) - source).mean() < 4


def test_jpeg_is_420_and_quality_matters() -> None:
    noisy = np.random.default_rng(5).integers(0, 255, (*ODD, 3), np.uint8)
    data = encoder_for("jpg").encode(noisy, 90)
    frame_header = data.index(b"\xff\xc0")
    assert data[frame_header + 11] == 0x22, "luma is sampled 2x2 for each chroma sample"
    assert len(encoder_for("jpg").encode(noisy, 30)) < len(data) / 2


@pytest.mark.parametrize("quality", [0, -1, 101, 10**9])
def test_a_quality_out_of_range_is_refused(quality: int) -> None:
    with pytest.raises(InputError, match="1 to 100"):
        encoder_for("jpg").encode(picture(*ODD), quality)


@pytest.mark.parametrize("shape", [ODD, (*ODD, 3), (*ODD, 4)])
def test_png_keeps_every_pixel(shape: tuple[int, ...]) -> None:
    source = picture(*shape)
    np.testing.assert_array_equal(decode(encoder_for("png").encode(source)), source)


def test_npy_keeps_every_byte() -> None:
    source = picture(*ODD, 3)
    np.testing.assert_array_equal(np.load(io.BytesIO(encoder_for("npy").encode(source[:, ::-1]))), source[:, ::-1])


@pytest.mark.parametrize("format", ["jpg", "png", "npy"])
@pytest.mark.parametrize("channels", [0, 3, 4])
def test_b68_any_strides_give_the_bytes_of_the_contiguous_copy(format: str, channels: int) -> None:
    source = picture(*ODD, channels) if channels else picture(*ODD)
    encoder = encoder_for(format)
    views = [source[:, ::-1], source[::-1], source[::2], source[:, ::3], np.asfortranarray(source), source[5:60, 7:90]]
    if channels == 3:
        views.append(source[..., ::-1])
    if channels == 4:
        views.append(source[..., :3])
    for view in views:
        assert encoder.encode(view) == encoder.encode(np.ascontiguousarray(view))


def test_b68_bgra_shows_the_same_colours_as_bgr() -> None:
    bgra = picture(*ODD, 4)
    assert encoder_for("jpg").encode(bgra) == encoder_for("jpg").encode(np.ascontiguousarray(bgra[..., :3]))


@pytest.mark.parametrize("format", ["jpg", "png"])
@pytest.mark.parametrize(
    "pixels",
    [
        np.linspace(0, 65535, 64 * 48).reshape(48, 64).astype(np.uint16),
        np.linspace(0, 1, 64 * 48 * 3).reshape(48, 64, 3).astype(np.float32),
        np.ones((48, 64), np.bool_),
        np.ones((48, 64), np.int8),
    ],
    ids=["uint16", "float32", "bool", "int8"],
)
def test_b129_other_depths_are_refused_by_name(format: str, pixels: Pixels) -> None:
    if encoder_for(format).takes_16_bit and pixels.dtype == np.uint16:
        decoded = cv2.imdecode(np.frombuffer(encoder_for(format).encode(pixels), np.uint8), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(decoded, pixels)
        return
    with pytest.raises(InputError, match=str(pixels.dtype)):
        encoder_for(format).encode(pixels)


@pytest.mark.parametrize("shape", [(0, 0, 3), (0, 5), (5, 0, 3), (4, 4, 2), (4, 4, 5), (4,), (2, 3, 4, 3), (1, 16385)])
@pytest.mark.parametrize("format", ["jpg", "png"])
def test_what_is_no_picture_is_refused(format: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        encoder_for(format).encode(np.zeros(shape, np.uint8))


def test_npy_refuses_objects_and_nothing() -> None:
    for pixels in (np.array([None]), np.zeros((0, 3), np.uint8)):
        with pytest.raises(InputError):
            encoder_for("npy").encode(pixels)


def test_the_picture_is_not_changed_and_not_kept() -> None:
    source = picture(*ODD, 3)
    before = source.copy()
    for encoder in all_encoders().values():
        data = encoder.encode(source)
        copy = bytes(bytearray(data))
        source[:] = 0
        assert data == copy
        source[:] = before


@pytest.mark.parametrize("channels", [0, 3])
def test_a_leased_picture_is_read_only_and_enough(channels: int) -> None:
    source = picture(*ODD, channels) if channels else picture(*ODD)
    source = np.ascontiguousarray(source)
    source.flags.writeable = False
    for encoder in all_encoders().values():
        assert encoder.encode(source) == encoder.encode(source.copy())


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'png'"):
        encoder_for("pngg")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nraise RuntimeError('no')", 2),
        ("x = 1", None),
        ("from pipeline.encoders.png import Png\nclass A(Png): name = 'other'", 2),
        ("from pipeline.encoders.base import Encoder\nclass A(Encoder): name = 'broken_encoder'", 2),
    ],
    ids=["does not load", "no encoder", "another name", "a method that is missing"],
)
def test_a_broken_encoder_file_is_named(
    text: str, line: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_encoder.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_encoder", raising=False)
    with pytest.raises(PinholeError, match=r"^encoder file broken_encoder .*/broken_encoder.py") as caught:
        load_encoder("broken_encoder", "broken_encoder")
    assert getattr(caught.value, "line", None) == line
