"""Which keys a configuration has, on every way in: file, ``PINHOLE_*`` environment, flags.

One model, :class:`Configuration`, decides; an unknown key is refused with its whole path and the nearest right one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kernels.device import MEMORY_STRATEGIES
from kernels.errors import InputError
from pipeline.config import MAX_SLOTS, MIN_SLOTS
from service.settings import Limits, Settings, SettingsModel

CAMERAS = "cameras"

Place = tuple[str, ...]  # ("cameras", "front", "uri")


@dataclass(frozen=True, slots=True)
class Value:
    """What somebody gave for one key, and where: ``pinhole.yaml:7``, ``PINHOLE_PORT``, ``--port``."""

    value: Any
    origin: str


Layer = dict[Place, Value]


class CameraSettings(SettingsModel):
    """One camera, under its name."""

    uri: str = Field(description="Where frames come from: scheme://…; GET /api/v1/sources lists the schemes.")
    chain: str | list[str | dict[str, Any]] = Field(
        default="",
        description='Operations in order: "gaussian_blur(ksize=5) | sobel", or a list of such texts or of '
        "{op: NAME, params: {…}}.",
    )
    slots: int = Field(default=6, ge=MIN_SLOTS, le=MAX_SLOTS, description="Frames in the camera's ring.")
    wait: Literal["auto", "block", "spin"] = Field(
        default="auto",
        description="How the stage waits. block: asleep; spin: with a CPU core, for the shortest wake-up; auto: asleep "
        "for the next frame, with a core for one that the GPU has for 2 ms or less.",
    )
    memory: str | None = Field(
        default=None,
        description="This camera's memory strategy; left out: the service's.",
        json_schema_extra={"enum": [*MEMORY_STRATEGIES, None]},
    )
    stale_after_s: float = Field(
        default=3.0, ge=0.1, le=3600, description="Age in seconds from which a result makes the camera unready."
    )


class Configuration(Settings):
    """Everything that ``pinhole serve`` can be told."""

    memory: str | None = Field(
        default=None,
        description="Memory strategy; left out: zero_copy where there is a GPU, else host.",
        json_schema_extra={"enum": [*MEMORY_STRATEGIES, None]},
    )
    token_file: Path | None = Field(default=None, description="A file that holds the token.")
    ops_dir: Path | None = Field(
        default=None, description="A folder of operations of your own, one file each; they run as part of the service."
    )
    dump_cuda: Path | None = Field(
        default=None, description="A folder that the CUDA text of each chain is written to, for nvcc."
    )
    cameras: dict[str, CameraSettings] | None = Field(
        default=None, description="By name; left out: a test card and a clip; {}: none."
    )


SECTIONS: Mapping[Place, tuple[str, ...]] = {
    (): tuple(name for name in Configuration.model_fields if name != "token"),
    ("limits",): tuple(Limits.model_fields),
    (CAMERAS,): (),
}
CAMERA_KEYS = tuple(CameraSettings.model_fields)
LISTS = frozenset({"allow_hosts", "allow_origins", "ice_servers"})

# Keys that people know from elsewhere, and where here says it.
_ELSEWHERE = {
    **dict.fromkeys(
        ("width", "height", "size", "resolution", "fps", "framerate", "format", "pixel_format", "loop"),
        "that is part of the camera's uri, as in testcard://?size=1280x720&fps=30",
    ),
    **dict.fromkeys(("source", "url", "device", "path", "input"), "did you mean 'uri'?"),
    **dict.fromkeys(("ops", "pipeline", "filters", "processing"), "did you mean 'chain'?"),
    **dict.fromkeys(("buffers", "buffer_size", "ring"), "did you mean 'slots'?"),
}


def keys_under(place: Place) -> tuple[str, ...]:
    """The keys that may stand under a section; any camera's name may stand under ``cameras``."""
    return CAMERA_KEYS if len(place) == 2 and place[0] == CAMERAS else SECTIONS.get(place, ())


def all_places() -> list[Place]:
    """Every key by its whole path, ``NAME`` for a camera's name."""
    top: list[Place] = [(key,) for key in SECTIONS[()] if (key,) not in SECTIONS]
    limits: list[Place] = [("limits", key) for key in SECTIONS["limits",]]
    return [*top, *limits, *((CAMERAS, "NAME", key) for key in CAMERA_KEYS)]


def check_key(place: Place, where: str) -> None:
    """Raise InputError on ``where`` unless the last part of ``place`` is a key there; says the nearest one that is."""
    *above, key = place
    section = tuple(above)
    if section == (CAMERAS,) or key in keys_under(section):
        return
    if place == ("token",):
        allowed = "token_file: PATH, or the environment's PINHOLE_TOKEN or PINHOLE_TOKEN_FILE"
        raise InputError(where, "a token does not belong into a configuration file", allowed)
    hint = _hint(section, key)
    raise InputError(where, f"unknown key {key!r}{hint}", ", ".join(keys_under(section)))


def check_camera_key(key: str, where: str) -> None:
    """Raise InputError if ``key`` looks like a camera's own key that stands where a camera's name should."""
    near = closest(key, CAMERA_KEYS)
    said = _ELSEWHERE.get(_bare(key))
    if near is not None or said is not None:
        hint = f"did you mean '{CAMERAS}.NAME.{near}'?" if said is None else said
        raise InputError(where, f"unknown key {key!r} ({hint})", "NAME: {uri: …, chain: …}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, if any is."""
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def _hint(section: Place, key: str) -> str:
    in_camera = len(section) == 2 and section[0] == CAMERAS
    if in_camera and (said := _ELSEWHERE.get(_bare(key))) is not None:
        return f" ({said})"
    prefix = f"{dotted(section)}." if section else ""
    if (near := closest(key, keys_under(section))) is not None:
        return f" (did you mean '{prefix}{near}'?)"
    elsewhere = {place[-1]: place for place in all_places()}
    if (near := closest(key, elsewhere)) is not None:
        return f" (did you mean '{dotted(elsewhere[near])}'?)"
    return ""


def _bare(key: str) -> str:
    return key.strip("_ ").lower().replace("-", "_")


def dotted(place: Place) -> str:
    """``cameras.front.chain[1].op``."""
    return ".".join(place).replace(".[", "[")
