"""``python -m service.health``: asks a running service how it is; the health check of the containers.

The standard library alone, as it starts every few seconds beside the service: 0.1 s of a core instead of 1.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

PATHS = {"live": "/health/live", "ready": "/health/ready"}
MAX_ANSWER_BYTES = 65_536


def default_url(environment: Mapping[str, str] = os.environ) -> str:
    """Where the service of this container listens: the loopback address, and the port of ``PINHOLE_PORT``."""
    port = environment.get("PINHOLE_PORT", "")
    return f"http://127.0.0.1:{port if port.isdecimal() else '8080'}"


def ask(url: str, what: str = "live", timeout_s: float = 3.0) -> tuple[bool, str]:
    """(healthy, what the service said) from ``url``'s ``live`` or ``ready`` route; blocks up to the time-out.

    No proxy is asked: what is checked is a service of this machine.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + PATHS[what], timeout=timeout_s) as answer:
            return True, _text(answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return False, f"{error.code}: {_text(error.read(MAX_ANSWER_BYTES))}"
    except (OSError, ValueError) as error:  # refused, timed out, or a URL that is none
        return False, f"no answer from {url}: {getattr(error, 'reason', error)}"


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    healthy, text = ask(default_url())
    print(text)  # noqa: T201 - what it prints is its result, shown by `docker inspect`
    sys.exit(0 if healthy else 1)
