"""``PINHOLE_*``: every key as a variable, for containers.

``PINHOLE_PORT``, ``PINHOLE_LIMITS__MAX_VIEWERS``, ``PINHOLE_CAMERAS__front__URI`` (a camera's name as it is, the rest
in upper case); ``PINHOLE_CAMERAS`` or ``PINHOLE_CAMERAS__front`` whole, as YAML or JSON. Lists are separated by commas.
An empty variable counts as not set. A ``PINHOLE_*`` that is not known is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernels.errors import InputError
from service.config_file import EnvironmentLabel, compose, plain, read_text
from service.config_problems import Problems
from service.config_schema import CAMERA_KEYS, CAMERAS, LISTS, SECTIONS, Layer, Place, Value, closest, keys_under

PREFIX = "PINHOLE_"

# Variables that are no keys of the configuration, and who reads them.
PROCESS_VARIABLES = {
    "PINHOLE_CONFIG": "the configuration file, as --config",
    "PINHOLE_TOKEN": "the token itself",
    "PINHOLE_CACHE_DIR": "where compiled kernels are kept",
    "PINHOLE_CUDA_DEBUG": "kernels are compiled for cuda-gdb and compute-sanitizer",
    "PINHOLE_CUDA_EXTRA": "which CUDA extra `make` installs",
    "PINHOLE_REQUIRE_GPU": "tests: a skipped GPU test is a failure",
    "PINHOLE_COMMIT": "benchmarks: the commit where there is no git",
}

# What Kubernetes sets in every container beside a Service called "pinhole".
_KUBERNETES = re.compile(r"PINHOLE_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))")


def variable(place: Place) -> str:
    """The variable for a key: ``PINHOLE_CAMERAS__front__URI``."""
    is_camera = len(place) == 3 and place[0] == CAMERAS
    parts = [CAMERAS.upper(), place[1], place[2].upper()] if is_camera else [part.upper() for part in place]
    return PREFIX + "__".join(parts)


def read_environment(environment: Mapping[str, str], problems: Problems) -> Layer:
    """What the environment says; variables that are unknown or cannot be read are among the ``problems`` then."""
    layer: Layer = {}
    for name, text in sorted(environment.items()):
        foreign = _KUBERNETES.match(name) or (name == "PINHOLE_PORT" and text.startswith("tcp://"))
        if name.startswith(PREFIX) and name not in PROCESS_VARIABLES and not foreign and text.strip():
            with problems.collected():
                layer.update(_read(name, text, problems))
    return layer


def _read(name: str, text: str, problems: Problems) -> Layer:
    place = _place(name)
    if place in SECTIONS or (len(place) == 2 and place[0] == CAMERAS):
        return read_text(text, EnvironmentLabel(name), problems, place)
    if place[-1] in LISTS and not text.lstrip().startswith("["):
        return {place: Value([part.strip() for part in text.split(",") if part.strip()], name)}
    if place[-1] in (*LISTS, "chain") and text.lstrip().startswith("["):
        node = compose(text, EnvironmentLabel(name))
        assert node is not None  # it begins with a bracket
        return {place: Value(plain(node, name), name)}
    return {place: Value(text.strip(), name)}


def _place(name: str) -> Place:
    """The key that a variable is for; a camera's name may hold two underscores itself."""
    first, *rest = name.removeprefix(PREFIX).split("__")
    key = first.lower()
    if key == CAMERAS and len(rest) >= 2:
        camera, last = "__".join(rest[:-1]), rest[-1].lower()
        if camera and last in CAMERA_KEYS:
            return (CAMERAS, camera, last)
        raise _unknown(name, [variable((CAMERAS, camera or "NAME", known)) for known in CAMERA_KEYS])
    if key == CAMERAS and len(rest) == 1 and rest[0]:
        return (CAMERAS, rest[0])
    place = (key, *(part.lower() for part in rest))
    if place in SECTIONS and place:
        return place
    if place[-1] in keys_under(place[:-1]) and (len(place) == 1 or place[:-1] in SECTIONS):
        return place
    raise _unknown(name, known_variables())


def known_variables() -> list[str]:
    """Every variable, ``NAME`` for a camera's name."""
    top = [variable((key,)) for key in SECTIONS[()]]
    limits = [variable(("limits", key)) for key in SECTIONS["limits",]]
    return [*top, *limits, *(variable((CAMERAS, "NAME", key)) for key in CAMERA_KEYS), *PROCESS_VARIABLES]


def _unknown(name: str, known: list[str]) -> InputError:
    near = closest(name, known)
    hint = f" (did you mean {near}?)" if near else ""
    return InputError(name[:100], f"no such setting{hint}", ", ".join(known))
