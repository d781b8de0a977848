from __future__ import annotations

import io
import json
import logging

import pytest

from service.logs import LogFormat, set_up_logging

SECRET = 'pass"word\\1'


pytestmark = pytest.mark.usefixtures("logging_as_before")


def logged(format: LogFormat, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    set_up_logging(format, level, secrets=(SECRET,), stream=stream)
    return logging.getLogger("pinhole.test"), stream


def test_json_lines_are_one_valid_object_each() -> None:
    log, stream = logged("json")
    log.info("two\nlines, %s and \ud800", "ünïcode", extra={"url": "http://x", "age": float("nan"), "what": object()})
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    entries = [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]
    assert len(entries) == 2
    assert entries[0]["message"].startswith("two\nlines, ünïcode")
    assert entries[0]["level"] == "info"
    assert entries[0]["logger"] == "pinhole.test"
    assert entries[0]["url"] == "http://x"
    assert entries[0]["age"] is None
    assert "ValueError: broken" in entries[1]["exception"]


def test_text_lines_say_when_what_and_who() -> None:
    log, stream = logged("text")
    log.warning("careful")
    when, level, who, what = stream.getvalue().split(None, 3)
    assert when.endswith("Z")
    assert (level, who, what) == ("WARNING", "pinhole.test:", "careful\n")


@pytest.mark.parametrize("format", ["text", "json"])
def test_the_token_never_shows(format: LogFormat) -> None:
    log, stream = logged(format)
    log.error("GET /stream?token=%s", SECRET, extra={"query": SECRET})
    try:
        raise ValueError(f"refused {SECRET}")
    except ValueError:
        log.exception(SECRET)
    text = stream.getvalue()
    assert "***" in text
    assert SECRET not in text
    assert json.dumps(SECRET)[1:-1] not in text


def test_levels_hold_but_the_start_is_always_told() -> None:
    log, stream = logged("text", "error")
    log.warning("not this")
    logging.getLogger("uvicorn.error").info("nor this")
    logging.getLogger("pinhole.serve").info("but this")
    log.error("and this")
    assert [line.split(": ")[-1] for line in stream.getvalue().splitlines()] == ["but this", "and this"]
