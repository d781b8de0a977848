"""The strict reader refuses what it should: a reader that accepts everything proves nothing."""

from __future__ import annotations

import pytest

from tests.helpers.mjpeg import MultipartError, MultipartReader

GOOD = b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: 3\r\nX-Frame-Sequence: 1\r\n\r\nabc\r\n--b\r\n"
TYPE = "multipart/x-mixed-replace; boundary=b"


def read(data: bytes, step: int = 1000) -> list[bytes]:
    reader = MultipartReader(TYPE)
    return [p.body for i in range(0, len(data), step) for p in reader.feed(data[i : i + step])]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_parts_come_out_whatever_the_chunks(step: int) -> None:
    assert read(GOOD + GOOD[5:], step) == [b"abc", b"abc"]
    assert read(GOOD[:-1], step) == [], "not before the next delimiter is whole"


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n" + GOOD, GOOD[5:], b"--c" + GOOD[3:], GOOD.replace(b"--b\r\nC", b"--b\nC"),
        GOOD.replace(b"Content-Length: 3\r\n", b""), GOOD.replace(b": 3", b": 2"), GOOD.replace(b": 3", b": 4"),
        GOOD.replace(b"abc\r\n", b"abc\n"), GOOD.replace(b"abc\r\n", b"abc"), GOOD.replace(b": 3", b": x"),
        GOOD.replace(b"Content-Type: image/jpeg\r\n", b""), GOOD.replace(b"X-Frame-Sequence: 1", b"nonsense"),
        GOOD.replace(b"X-Frame-Sequence: 1", b"X: 1\nY: 2"),
    ],
)  # fmt: skip
def test_a_breach_is_refused(data: bytes) -> None:
    with pytest.raises(MultipartError):
        read(data + GOOD[5:])


@pytest.mark.parametrize(
    "content_type", ["image/jpeg", TYPE.partition(";")[0], TYPE[:-1], TYPE + " c", TYPE[:-1] + '"b"']
)
def test_a_content_type_that_is_none_is_refused(content_type: str) -> None:
    with pytest.raises(MultipartError):
        MultipartReader(content_type)
