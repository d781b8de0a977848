"""What the routes share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from pipeline.engine import Engine
from service.live import Hub
from service.settings import Settings


@dataclass(slots=True)
class Context:
    """The one engine and hub of the process; ``memory_reason`` says why the device is the one it is."""

    engine: Engine
    hub: Hub
    settings: Settings
    memory_reason: str = ""
    started_ns: int = field(default_factory=time.monotonic_ns)


async def _context(request: Request) -> Context:
    context: Context = request.app.state.pinhole
    return context


Shared = Annotated[Context, Depends(_context)]
