from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import InputError
from kernels.formats import BGR8, BGR16, GRAY8, GRAY16
from kernels.image import ImageSpec, ImageView, Pixels
from pipeline.frame import Capture
from pipeline.sources import make_source
from pipeline.sources._picture_file import DamagedPictureError, decode_picture
from pipeline.sources.base import FormatChanged, FrameCorrupt, SourceEnded, SourceError
from pipeline.sources.image import Image, ImageConfig
from tests.helpers.fake_time import START_NS
from tests.helpers.open_source import Opener, OpenSource, opener

MS = 1_000_000
Turn = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def smooth(width: int, height: int, seed: int = 1, channels: int = 3) -> Pixels:
    """A picture with content everywhere that JPEG keeps well."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return np.asarray(cv2.GaussianBlur(noise, (0, 0), 4), np.uint8).reshape(height, width, channels)


def encode(picture: npt.NDArray[Any], suffix: str, *options: int) -> bytes:
    ok, data = cv2.imencode(suffix, picture, options)
    assert ok
    return data.tobytes()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width: int, height: int, kind: int, depth: int, rows: bytes, extra: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def with_exif(picture: bytes, orientation: int, order: str = ">") -> bytes:
    """A JPEG, PNG or (lossy) WebP with an EXIF orientation put into it, after an unrelated tag."""
    fields = (8, 2, 0x010F, 2, 1, 0x41000000, 0x0112, 3, 1, orientation, 0, 0)
    tiff = (b"MM\0*" if order == ">" else b"II*\0") + struct.pack(f"{order}IHHHIIHHIHHI", *fields)
    if picture.startswith(b"\xff\xd8"):
        body = b"Exif\0\0" + tiff
        return picture[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + picture[2:]
    if picture.startswith(b"\x89PNG"):
        return picture[:33] + chunk(b"eXIf", tiff) + picture[33:]
    width, height = (int.from_bytes(picture[at : at + 2], "little") - 1 for at in (26, 28))
    size = width.to_bytes(3, "little") + height.to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x08\0\0\0" + size + picture[12:]
    body += b"EXIF" + struct.pack("<I", len(tiff)) + tiff
    return b"RIFF" + struct.pack("<I", len(body)) + body


def make_image(path: Path, **settings: object) -> Image:
    return Image(path.as_uri(), ImageConfig.model_validate(settings))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    yield from opener(monkeypatch)


def fill(image: OpenSource) -> tuple[Pixels, Capture]:
    """The next picture, (H, W) or (H, W, 3)."""
    (rows,), capture = image.fill()
    return rows if image.spec.format is GRAY8 else rows.reshape(image.spec.height, image.spec.width, 3), capture


def fill_through_changes(image: OpenSource) -> tuple[Pixels, bool]:
    """The next picture, and whether the format changed before it; nothing is written when it does."""
    try:
        return fill(image)[0], False
    except FormatChanged as change:
        assert image.is_untouched()
        image.use(change.format.image)
        return fill(image)[0], True


# ---- pixels


@pytest.mark.parametrize("size", [(640, 480), (641, 479), (1, 1), (3, 200)])
@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm"])
def test_lossless_pictures_arrive_exactly(suffix: str, size: tuple[int, int], tmp_path: Path, opened: Opener) -> None:
    expected = smooth(*size)
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(encode(expected, suffix))
    image = opened(make_image(path))
    picture, capture = fill(image)
    np.testing.assert_array_equal(picture, expected)
    assert image.spec.format is BGR8
    assert capture.copied_bytes == expected.nbytes


@pytest.mark.parametrize(
    ("suffix", "options"), [(".jpg", ()), (".webp", (cv2.IMWRITE_WEBP_QUALITY, 80)), (".webp", ())]
)
def test_pictures_equal_opencvs_own_decode(
    suffix: str, options: tuple[int, ...], tmp_path: Path, opened: Opener
) -> None:
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(encode(smooth(201, 133), suffix, *options))
    np.testing.assert_array_equal(fill(opened(make_image(path)))[0], cv2.imread(str(path), cv2.IMREAD_COLOR))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".pgm", ".bmp"])
def test_grey_stays_grey(suffix: str, tmp_path: Path, opened: Opener) -> None:
    expected = smooth(65, 43, channels=1)[:, :, 0]
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(
        encode(expected, suffix, cv2.IMWRITE_JPEG_QUALITY, 100) if suffix == ".jpg" else encode(expected, suffix)
    )
    image = opened(make_image(path))
    picture, capture = fill(image)
    # A BMP of greys has a palette, which is colour to OpenCV or not, by version: the levels are the same.
    grey = picture if picture.ndim == 2 else picture[:, :, 0]
    assert suffix == ".bmp" or image.spec.format is GRAY8
    assert np.abs(grey.astype(int) - expected).max() <= (2 if suffix == ".jpg" else 0)
    assert capture.copied_bytes == picture.nbytes


@pytest.mark.parametrize("channels", [1, 3])
def test_b65_sixteen_bits_become_eight_by_a_shift(channels: int) -> None:
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    picture = ramp if channels == 1 else np.dstack([ramp, ramp[::-1], ramp.T])
    np.testing.assert_array_equal(decode_picture(encode(picture, ".png")), picture >> 8)


@pytest.mark.parametrize(("largest", "bits"), [(65535, 16), (4095, 12), (1023, 10), (511, 9)])
@pytest.mark.parametrize("kind", [b"P5", b"P6"])
def test_b65_netpbm_uses_the_bits_that_it_says(largest: int, bits: int, kind: bytes) -> None:
    values = np.linspace(0, largest, 12 * 3 * 2).astype(np.uint16)
    header = kind + b" # a comment\n12 %d\n%d\n" % (6 if kind == b"P5" else 2, largest)
    picture = decode_picture(header + values.astype(">u2").tobytes())
    expected = (values >> (bits - 8)).astype(np.uint8)
    shown = picture.ravel() if kind == b"P5" else picture[:, :, ::-1].ravel()
    np.testing.assert_array_equal(shown, expected)
    assert (shown[0], shown[-1]) == (0, 255)


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_stay_where_they_are_asked_for(opened: Opener, tmp_path: Path, channels: int) -> None:
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    picture = ramp if channels == 1 else np.dstack([ramp, ramp[::-1], ramp.T])
    path = tmp_path / "deep.png"
    path.write_bytes(encode(picture, ".png"))
    image = opened(make_image(path, depth="16"))
    assert image.spec.format is (GRAY16 if channels == 1 else BGR16)
    (rows,), _ = image.fill()
    np.testing.assert_array_equal(np.ascontiguousarray(rows).view(np.uint16).reshape(picture.shape), picture)
    few_bits = b"P5 3 1 1023\n" + np.array([0, 1023, 5000], ">u2").tobytes()
    assert decode_picture(few_bits, 16).tolist() == [[0, 1023, 1023]], (
        "as they are, but for what is above their maximum"
    )
    assert decode_picture(b"P5 2 1 255\n\x01\xff", 16).tolist() == [[257, 65535]]
    eight = (picture >> 8).astype(np.uint8)
    np.testing.assert_array_equal(decode_picture(encode(eight, ".png"), 16), eight.astype(np.uint16) * 257)
    with pytest.raises(ValueError, match="neither 8 nor 16"):
        make_image(path, depth=12)


def test_b65_netpbm_of_few_levels_is_spread_out() -> None:
    assert decode_picture(b"P5 4 1 3\n" + bytes([0, 1, 2, 3])).tolist() == [[0, 85, 170, 255]]
    assert decode_picture(b"P5 4 1 255\n" + bytes([0, 1, 2, 255])).tolist() == [[0, 1, 2, 255]]
    assert decode_picture(b"P5 2 1 1023\n\xff\xff\x03\xff").tolist() == [[255, 255]]  # above its own maximum


def test_b68_transparency_is_dropped_and_the_stored_colour_shown() -> None:
    colour = smooth(40, 30)
    alpha = np.random.default_rng(3).integers(0, 256, (30, 40), np.uint8)
    for suffix in (".png", ".webp"):
        options = (cv2.IMWRITE_WEBP_QUALITY, 101) if suffix == ".webp" else ()
        data = encode(np.dstack([colour, np.maximum(alpha, 1)]), suffix, *options)
        np.testing.assert_array_equal(decode_picture(data), colour)
    rows = b"".join(b"\0" + bytes([50 + x for _ in "ga" for x in (y,)]) * 4 for y in range(3))
    assert np.unique(decode_picture(png_of(4, 3, 4, 8, rows))).tolist() == [50, 51, 52]  # grey with alpha


def test_palettes_and_single_bits_are_expanded() -> None:
    palette = chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0]))
    two_rows = b"\0\x40" * 2  # pixels 0, 1 of one bit each
    picture = decode_picture(png_of(2, 2, 3, 1, two_rows, palette))
    assert picture.tolist() == [[[0, 0, 255], [0, 255, 0]]] * 2
    assert decode_picture(png_of(2, 2, 0, 1, two_rows)).tolist() == [[0, 255]] * 2


def test_cmyk_jpeg_is_decoded() -> None:
    cmyk = np.dstack([smooth(64, 48), np.full((48, 64), 255, np.uint8)])
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(cmyk), colorspace="CMYK", colorsubsampling="444")
    assert decode_picture(data).shape == (48, 64, 3)


# EXIF 2.3, "Orientation": where the stored picture's row 0 and column 0 are to be seen.
ORIENTATIONS: dict[int, Turn] = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.swapaxes(0, 1),
    6: lambda p: np.rot90(p, -1),
    7: lambda p: np.rot90(p, 2).swapaxes(0, 1),
    8: lambda p: np.rot90(p, 1),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
@pytest.mark.parametrize("order", [">", "<"])
def test_b124_exif_orientation_is_applied_once(
    orientation: int, suffix: str, order: str, tmp_path: Path, opened: Opener
) -> None:
    path = tmp_path / f"picture{suffix}"
    stored = encode(smooth(65, 43), suffix, *((cv2.IMWRITE_WEBP_QUALITY, 80) if suffix == ".webp" else ()))
    path.write_bytes(with_exif(stored, orientation, order))
    image = opened(make_image(path))
    expected = ORIENTATIONS[orientation](decode_picture(stored))
    np.testing.assert_array_equal(fill(image)[0], expected)
    assert (image.spec.height, image.spec.width) == expected.shape[:2]


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_b124_orientations_that_do_not_exist_are_upright(orientation: int) -> None:
    stored = encode(smooth(40, 30), ".jpg")
    np.testing.assert_array_equal(decode_picture(with_exif(stored, orientation)), decode_picture(stored))


@given(st.binary(max_size=60))
def test_b124_any_exif_data_is_survived(tiff: bytes) -> None:
    body = b"Exif\0\0" + tiff
    jpeg = encode(smooth(16, 8), ".jpg")
    data = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]
    assert decode_picture(data).shape in ((8, 16, 3), (16, 8, 3))


# ---- damage


def jpeg_with_restarts(width: int = 320, height: int = 240) -> bytes:
    return encode(smooth(width, height), ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 5)


def scan_of(jpeg: bytes) -> int:
    return jpeg.index(b"\xff\xda") + 14


def broken_pictures() -> dict[str, bytes]:
    jpeg, marked = encode(smooth(320, 240), ".jpg"), jpeg_with_restarts()
    progressive = encode(smooth(320, 240), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    png, bmp, webp = (encode(smooth(64, 48), suffix) for suffix in (".png", ".bmp", ".webp"))
    middle = (scan_of(jpeg) + len(jpeg)) // 2
    restart = marked.index(b"\xff\xd3")
    return {
        "empty": b"",
        "one byte": b"\xff",
        "text": b"hello, this is not a picture\n" * 50,
        "zeros": bytes(5000),
        "jpeg cut at 60 %": jpeg[: len(jpeg) * 6 // 10],
        "jpeg cut at 99 %": jpeg[: len(jpeg) * 99 // 100],
        "jpeg without its end": jpeg[:-2],
        "jpeg header alone": jpeg[: scan_of(jpeg)],
        "jpeg start alone": jpeg[:4],
        "jpeg with bytes deleted": jpeg[:middle] + jpeg[middle + 400 :],
        "jpeg with a block of zeros": jpeg[:middle] + bytes(800) + jpeg[middle + 800 :],
        "jpeg with junk before a restart": marked[:restart] + b"abc" + marked[restart:],
        "jpeg without a restart": marked[:restart] + marked[restart + 2 :],
        "progressive jpeg cut": progressive[: len(progressive) // 2],
        "png cut": png[: len(png) // 2],
        "png without its end": png[:-12],
        "png with a changed bit": png[: len(png) // 2] + bytes([png[len(png) // 2] ^ 1]) + png[len(png) // 2 + 1 :],
        "png of nothing": png_of(0, 0, 0, 8, b""),
        "png too short for its size": png_of(4000, 4000, 0, 8, b"\0" * 100),
        "bmp cut": bmp[:-100],
        "bmp header": bmp[:20],
        "webp cut": webp[:-3],
        "webp start": webp[:16],
        "ppm cut": b"P6 10 10 255\n" + bytes(299),
        "ppm without a maximum": b"P6 10 10 0\n" + bytes(300),
        "ppm of nothing": b"P5 0 0 255\n",
        "text ppm": b"P3 1 1 255\n1 2 3\n",
        "tiff": encode(smooth(64, 48), ".tiff"),
    }


@pytest.mark.parametrize("name", broken_pictures())
def test_b18_b25_broken_pictures_are_refused(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DamagedPictureError):
        decode_picture(broken_pictures()[name])
    if name != "png too short for its size":  # its checksums are right
        assert capfd.readouterr().err == ""  # no library writes to the log of its own


@pytest.mark.parametrize("name", broken_pictures())
def test_b18_b25_in_a_folder_they_are_counted_and_the_rest_is_shown(name: str, tmp_path: Path, opened: Opener) -> None:
    good = [smooth(40, 30, seed) for seed in (1, 2)]
    (tmp_path / "a0.jpg").write_bytes(broken_pictures()[name])
    (tmp_path / "a1.png").write_bytes(encode(good[0], ".png"))
    (tmp_path / "a2.jpg").write_bytes(broken_pictures()[name])
    (tmp_path / "a10.png").write_bytes(encode(good[1], ".png"))
    folder = opened(make_image(tmp_path))
    for _ in range(2):
        for expected in good:
            with pytest.raises(FrameCorrupt) as caught:
                fill(folder)
            assert caught.value.reason == "corrupt"
            assert str(tmp_path) in str(caught.value)
            np.testing.assert_array_equal(fill(folder)[0], expected)
    assert folder.time.waited_for == [START_NS + i * 200 * MS for i in range(8)]  # damage takes its time, no spinning


@pytest.mark.parametrize("name", ["empty", "text", "jpeg cut at 60 %"])
def test_b25_the_only_picture_broken_is_an_error_until_it_is_whole(name: str, tmp_path: Path, opened: Opener) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(broken_pictures()[name])
    source = make_image(path)
    with pytest.raises(SourceError, match=r"picture\.png"):
        source.open()
    source.close()
    whole = smooth(40, 30)
    path.write_bytes(encode(whole, ".png"))
    image = opened(make_image(path))
    path.write_bytes(broken_pictures()[name])
    with pytest.raises(FrameCorrupt):
        fill(image)
    path.write_bytes(encode(whole[::-1], ".png"))
    np.testing.assert_array_equal(fill(image)[0], whole[::-1])


def test_whole_pictures_with_a_tail_or_comments_are_not_broken() -> None:
    jpeg = jpeg_with_restarts()
    comment = jpeg[:2] + b"\xff\xfe\x00\x0chello you!" + jpeg[2:]
    for data in (
        jpeg,
        jpeg + b"tail" * 100,
        comment,
        encode(smooth(320, 240), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    ):
        assert decode_picture(data).shape == (240, 320, 3)


@pytest.mark.parametrize(
    "data",
    [
        png_of(16385, 1, 0, 1, b""),
        png_of(1, 16385, 0, 1, b""),
        png_of(2**31 - 1, 2**31 - 1, 0, 1, b""),
        b"P5 99999999 99999999 255\n",
        b"BM" + struct.pack("<IIIIiiHHI", 0, 0, 54, 40, 30000, -30000, 1, 24, 0) + bytes(30),
        b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff" * 6,
    ],
)
def test_huge_pictures_are_refused_before_they_are_decoded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not_run(*args: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(cv2, "imdecode", must_not_run)
    with pytest.raises(DamagedPictureError, match="16384x16384"):
        decode_picture(data)


def test_huge_jpeg_is_refused_by_its_header() -> None:
    jpeg = bytearray(encode(smooth(64, 48), ".jpg"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 65000, 65000)
    with pytest.raises(DamagedPictureError, match="16384x16384"):
        decode_picture(bytes(jpeg))


def test_netpbm_headers_cannot_hang_the_parser() -> None:
    for body in (b" " * 200_000, b"#\n" * 100_000, b"\t \n" * 70_000 + b"x"):
        with pytest.raises(DamagedPictureError):
            decode_picture(b"P5" + body)


# ---- folders


def write_folder(folder: Path, names: list[str]) -> None:
    for level, name in enumerate(names):
        (folder / name).write_bytes(encode(np.full((8, 12), level, np.uint8), ".png"))


def test_folder_is_sorted_as_people_count(tmp_path: Path, opened: Opener) -> None:
    names = ["1.png", "2.png", "10.png", "a1.png", "a2.png", "A03.png", "a10.png", "b.png", "b1x2.PNG", "b1x10.png"]
    expected = ["1.png", "2.png", "10.png", "a1.png", "a2.png", "A03.png", "a10.png", "b1x2.PNG", "b1x10.png", "b.png"]
    write_folder(tmp_path, names)
    (tmp_path / "README.md").write_text("not a picture")
    (tmp_path / "sub.png").mkdir()
    folder = opened(make_image(tmp_path))
    shown = [names[int(fill(folder)[0][0, 0])] for _ in range(2 * len(names))]
    assert shown == expected * 2


def test_folder_shows_each_picture_for_its_period_and_ends(tmp_path: Path, opened: Opener) -> None:
    write_folder(tmp_path, [f"{i}.png" for i in range(4)])
    folder = opened(make_image(tmp_path, fps="30000/1001", loop="false"))
    assert [int(fill(folder)[0][0, 0]) for _ in range(4)] == [0, 1, 2, 3]
    assert folder.time.waited_for == [START_NS + i * 1001 * 1_000_000_000 // 30000 for i in range(4)]
    for _ in range(2):
        with pytest.raises(SourceEnded):
            fill(folder)


def test_b20_b27_pictures_of_other_sizes_change_the_format(tmp_path: Path, opened: Opener) -> None:
    sizes = [(640, 480), (640, 480), (1280, 720), (320, 240), (321, 239)]
    for index, size in enumerate(sizes):
        level = 255 if index % 2 == 0 else 0
        (tmp_path / f"{index}.png").write_bytes(encode(np.full((size[1], size[0], 3), level, np.uint8), ".png"))
    folder = opened(make_image(tmp_path))
    for index, size in enumerate(sizes * 2):
        picture, changed = fill_through_changes(folder)
        assert (picture.shape[1], picture.shape[0]) == size
        assert (picture == (255 if index % 5 % 2 == 0 else 0)).all()  # nothing is left of the one before
        assert changed == (index > 0 and size != sizes[(index - 1) % 5])


def test_b20_grey_and_colour_in_one_folder_change_the_format(tmp_path: Path, opened: Opener) -> None:
    (tmp_path / "0.png").write_bytes(encode(np.full((30, 40), 77, np.uint8), ".png"))
    (tmp_path / "1.png").write_bytes(encode(smooth(40, 30), ".png"))
    folder = opened(make_image(tmp_path))
    assert fill_through_changes(folder)[0].shape == (30, 40)
    picture, changed = fill_through_changes(folder)
    assert changed
    np.testing.assert_array_equal(picture, smooth(40, 30))


def test_folder_is_listed_anew_in_each_round(tmp_path: Path, opened: Opener) -> None:
    write_folder(tmp_path, ["0.png", "1.png"])
    folder = opened(make_image(tmp_path))
    assert [int(fill(folder)[0][0, 0]) for _ in range(2)] == [0, 1]
    write_folder(tmp_path, ["0.png", "1.png", "2.png"])
    (tmp_path / "0.png").unlink()
    assert [int(fill(folder)[0][0, 0]) for _ in range(2)] == [1, 2]


def test_picture_of_a_folder_that_vanishes_is_counted(tmp_path: Path, opened: Opener) -> None:
    write_folder(tmp_path, ["0.png", "1.png", "2.png"])
    folder = opened(make_image(tmp_path))
    fill(folder)
    (tmp_path / "1.png").unlink()
    with pytest.raises(FrameCorrupt, match="does not exist"):
        fill(folder)
    assert fill(folder)[0][0, 0] == 2


def test_folder_without_pictures_says_what_it_wants(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=f"uri: the folder {tmp_path} holds no picture"):
        make_image(tmp_path).check()
    with pytest.raises(SourceError, match="holds no picture") as caught:
        make_image(tmp_path).open()
    assert "JPEG" in str(caught.value)
    (tmp_path / "a.jpg").write_bytes(b"")
    (tmp_path / "b.jpg").write_bytes(b"x")
    make_image(tmp_path).check()  # what files hold is not looked at before they are shown
    with pytest.raises(SourceError, match="none of the 2 pictures"):
        make_image(tmp_path).open()


# ---- a still


def still(opened: Opener, tmp_path: Path, **settings: object) -> OpenSource:
    path = tmp_path / "still.png"
    path.write_bytes(encode(smooth(40, 30), ".png"))
    return opened(make_image(path, **settings))


def test_still_is_repeated_at_its_rate_and_decoded_once(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = still(opened, tmp_path, fps=10)
    monkeypatch.setattr("pipeline.sources.image.decode_picture", None)
    for _ in range(5):
        np.testing.assert_array_equal(fill(image)[0], smooth(40, 30))
    assert image.time.waited_for == [START_NS + i * 100 * MS for i in range(5)]


def test_still_that_is_replaced_is_read_again(tmp_path: Path, opened: Opener) -> None:
    image = still(opened, tmp_path)
    fill(image)
    (tmp_path / "still.png").write_bytes(encode(smooth(50, 20, 9), ".png"))
    picture, changed = fill_through_changes(image)
    assert changed
    np.testing.assert_array_equal(picture, smooth(50, 20, 9))


def test_still_that_vanishes_is_an_error(tmp_path: Path, opened: Opener) -> None:
    image = still(opened, tmp_path)
    fill(image)
    (tmp_path / "still.png").unlink()
    with pytest.raises(SourceError, match="does not exist"):
        fill(image)


def test_still_without_loop_is_shown_once(tmp_path: Path, opened: Opener) -> None:
    image = still(opened, tmp_path, loop="0")
    fill(image)
    with pytest.raises(SourceEnded):
        fill(image)


def test_b110_stamps_are_on_the_monotonic_clock_and_say_so(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = still(opened, tmp_path)
    monkeypatch.setattr("pipeline.sources.image.time.time_ns", lambda: 1_490_845_341_000_000_000)
    assert fill(image)[1] == Capture(START_NS, 1_490_845_341_000_000_000, "host", copied_bytes=40 * 30 * 3)


# ---- opening and closing


@pytest.mark.parametrize(
    ("uri", "field", "says"),
    [
        ("image://a.png", "uri", "three slashes"),
        ("image:///", "uri", "names no file"),
        ("image:///a.png?fps=0", "uri?fps", "0.01 to 1000"),
        ("image:///a.png?fps=0.001", "uri?fps", "0.01 to 1000"),
        ("image:///a.png?fps=-1", "uri?fps", "0.01 to 1000"),
        ("image:///a.png?fps=nan", "uri?fps", "0.01 to 1000"),
        ("image:///a.png?fps=1001", "uri?fps", "0.01 to 1000"),
        ("image:///a.png?loop=yes", "uri?loop", "true, false, 1, 0"),
        ("image:///a.png?size=1x1", "uri?size", "unknown setting"),
    ],
)
def test_bad_uris_are_refused(uri: str, field: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        make_source(uri)
    assert caught.value.field == field
    assert says in str(caught.value)


def test_defaults_and_format(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(encode(smooth(40, 30), ".png"))
    source = make_source((tmp_path / "p.png").as_uri().replace("file:", "image:"))
    format = source.open()
    assert (format.image, format.fps, format.live) == (ImageSpec.make(BGR8, 40, 30), 5.0, False)
    source.close()


@pytest.mark.parametrize(("kind", "says"), [("missing", "does not exist"), ("pipe", "not a regular file or folder")])
def test_missing_and_special_files_are_refused_with_their_path(kind: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    if kind == "pipe":
        os.mkfifo(path)
    source = make_image(path)
    with pytest.raises(SourceError, match=says) as caught:
        source.open()
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match=says):
        source.check()
    source.close()


def test_pipes_in_a_folder_are_left_alone(tmp_path: Path, opened: Opener) -> None:
    os.mkfifo(tmp_path / "0.png")
    write_folder(tmp_path, ["1.png"])
    assert fill(opened(make_image(tmp_path)))[0][0, 0] == 0


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_b132_no_permission_names_path_ids_and_group(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    if kind == "file":
        path.write_bytes(encode(smooth(40, 30), ".png"))
    else:
        path.mkdir()
    path.chmod(0o000)
    monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)  # root may read anything
    with pytest.raises(SourceError) as caught:
        make_image(path).open()
    for fact in (str(path), f"uid {os.geteuid()}", f"gid {os.getegid()}", "mode is 000", "--group-add"):
        assert fact in str(caught.value)


def test_b19_twenty_rounds_leave_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path, ["0.png", "1.png"])
    source = make_image(tmp_path)
    view = ImageView(ImageSpec.make(GRAY8, 12, 8), np.empty(96, np.uint8))
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(20):
        source.open()
        source.fill(view)
        source.close()
        source.close()
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert set(threading.enumerate()) == threads
    with pytest.raises(SourceError, match="closed"):
        source.fill(view)


def test_interrupt_wakes_a_waiting_fill(tmp_path: Path) -> None:
    write_folder(tmp_path, ["0.png"])
    source = make_image(tmp_path, fps="0.01")
    source.open()
    view = ImageView(ImageSpec.make(GRAY8, 12, 8), np.empty(96, np.uint8))
    source.fill(view)
    waker = threading.Timer(0.05, source.interrupt)
    waker.start()
    with pytest.raises(SourceError, match="interrupted"):
        source.fill(view)
    waker.join()
    source.close()
    source.open()
    source.fill(view)
    source.close()
