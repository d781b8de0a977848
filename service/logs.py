"""Log lines, as text for people or as JSON for machines, that never show the token."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal, TextIO

from service.problems import to_json

LogFormat = Literal["text", "json"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def set_up_logging(
    format: LogFormat, level: str, *, secrets: tuple[str, ...] = (), stream: TextIO | None = None
) -> logging.Handler:
    """Send everything to ``stream`` (standard error); returns the handler. Start-up and stop are always logged."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    inner = JsonFormatter() if format == "json" else TextFormatter()
    handler.setFormatter(Redacting(inner, secrets))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("pinhole").setLevel(level.upper())
    logging.getLogger("pinhole.serve").setLevel(min(logging.INFO, root.level))
    for noisy in (
        "uvicorn",
        "uvicorn.error",
        "asyncio",
        "aiortc",
        "aioice",
    ):  # "Started server process", each ICE check
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    return handler


class TextFormatter(logging.Formatter):
    """``2026-11-30T12:00:00.123Z INFO pinhole.engine: text``, UTC."""

    def __init__(self) -> None:
        self.converter = time.gmtime
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, ``extra`` fields, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update((key, _plain(value)) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = record.stack_info
        return to_json(entry).decode()


class Redacting(logging.Formatter):
    """Another formatter's lines with each secret replaced, also where it arrived in an error's text."""

    def __init__(self, inner: logging.Formatter, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._inner = inner
        # In JSON a quote or backslash of the secret is escaped.
        self._secrets = sorted({s for text in secrets if text for s in (text, json.dumps(text)[1:-1])}, key=len)[::-1]

    def format(self, record: logging.LogRecord) -> str:
        line = self._inner.format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool, list, tuple, dict)) or value is None else str(value)
