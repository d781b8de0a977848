from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernels.errors import InputError
from service.server import check_single_owner
from service.settings import find_token


def test_the_token_comes_from_the_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert find_token(None, {}) is None
    assert find_token(None, {"PINHOLE_TOKEN": ""}) is None
    for path, environment, expected in (
        (file, {"PINHOLE_TOKEN": "from-environment"}, "from-file"),
        (None, {"PINHOLE_TOKEN": " from-environment\n"}, "from-environment"),
    ):
        token = find_token(path, environment)
        assert token is not None
        assert token.get_secret_value() == expected
        assert expected not in repr(token)


@pytest.mark.parametrize(
    "content", [b"", b"  \n", b"two words", b"\xff\xfe", "schlüssel".encode(), b"x" * 513, b"a\nb"]
)
def test_what_cannot_be_a_token_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError, match="token_file") as caught:
        find_token(file, {})
    shown = content.decode("utf-8", "replace").strip()
    assert not shown or shown not in str(caught.value)


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            find_token(path, {})


@pytest.mark.parametrize("value", ["2", "16", " 4 "])
def test_b53_several_workers_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="would each open the cameras"):
        check_single_owner({"WEB_CONCURRENCY": value})


@pytest.mark.parametrize("value", ["", "0", "1", "many"])
def test_b53_one_worker_is_fine(value: str) -> None:
    check_single_owner({"WEB_CONCURRENCY": value})
    check_single_owner({})
    assert os.environ.get("WEB_CONCURRENCY", "1") in ("", "0", "1")
