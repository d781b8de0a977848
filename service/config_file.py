"""YAML with the line of every value, each key once, and bounds on what a file can make of itself.

A value is placed in a :class:`Layer` under its whole path; whether a path may exist is the schema's matter
(:mod:`service.config_schema`), whether a value may is the model's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernels.errors import InputError
from service.config_problems import Problems
from service.config_schema import CAMERAS, SECTIONS, Layer, Place, Value, check_camera_key, check_key, dotted

MAX_FILE_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 32

Label = Callable[[int], str]  # where a line is, for people: "pinhole.yaml:7"


def read_file(path: Path, problems: Problems) -> Layer:
    """What a configuration file says; what no key is for is among the ``problems`` then, with file and line.

    Raises:
        InputError: it cannot be read, is not YAML, or is empty; names file and line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError("--config", f"{path} cannot be read: {error.strerror}", "a YAML file") from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError("--config", f"{path} is larger than {MAX_FILE_BYTES} bytes", "a YAML file")
    return read_text(data, lambda line: f"{path}:{line + 1}", problems)


def read_text(data: bytes | str, label: Label, problems: Problems, prefix: Place = ()) -> Layer:
    """What YAML says of what lies under ``prefix``: () for everything, ("cameras", "front") for one camera.

    Raises:
        InputError: it is not YAML, or empty. What cannot stand where it does is among the ``problems`` then.
    """
    root = compose(data, label)
    layer: Layer = {}
    if root is None:
        where = label(0).removesuffix(":1")
        raise InputError(where, "is empty", f"at least one of {', '.join(SECTIONS[()])}")
    _check_tree(root, label, prefix)
    with problems.collected():
        _place(root, prefix, layer, label, problems)
    return layer


def compose(data: bytes | str, label: Label) -> yaml.Node | None:
    """The tree of one YAML document; nothing in it is constructed yet. None if there is none."""
    try:
        root: yaml.Node | None = yaml.compose(data, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Never the snippet that the error carries: there may be a password in it.
        reason = f"not YAML: {error.problem or error.context or 'it cannot be parsed'}"
        raise InputError(label(mark.line if mark is not None else 0), reason) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else "it is not text in UTF-8"
        raise InputError(label(0), f"not YAML: {what}") from None
    if isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null":
        return None
    return root


def _check_tree(root: yaml.Node, label: Label, prefix: Place) -> None:
    """Each key once and plain; not too many nodes, not too deep, however often aliases repeat them."""
    visited = 0
    pending: list[tuple[yaml.Node, Place]] = [(root, prefix)]
    while pending:
        node, place = pending.pop()
        visited += 1
        if visited > MAX_NODES or len(place) > MAX_DEPTH:
            raise InputError(label(node.start_mark.line), "too large or nested too deep", f"up to {MAX_NODES} values")
        if isinstance(node, yaml.SequenceNode):
            pending += [(item, (*place, f"[{index}]")) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(f"{label(line)}: {dotted(place)}".rstrip(": "), "a key must be plain text")
            inner = (*place, key.value)
            if key.value in lines:
                reason = f"the key is given twice, first in line {lines[key.value] + 1}"
                raise InputError(f"{label(line)}: {dotted(inner)}", reason, "each key once")
            lines[key.value] = line
            pending.append((value, inner))


def _place(node: yaml.Node, place: Place, layer: Layer, label: Label, problems: Problems) -> None:
    where = f"{label(node.start_mark.line)}: {dotted(place)}" if place else label(node.start_mark.line)
    is_camera = len(place) == 2 and place[0] == CAMERAS
    section = place in SECTIONS or is_camera
    if not section:
        layer[place] = Value(plain(node, where), label(node.start_mark.line))
        return
    if not isinstance(node, yaml.MappingNode):
        shape = "NAME: {uri: …, chain: …}" if place == (CAMERAS,) else "{uri: …}" if is_camera else "a mapping of keys"
        if is_camera:
            check_camera_key(place[1], where)  # a camera's own key, one level too high
        raise InputError(where, f"{_kind(node)} cannot stand here", shape)
    if place == (CAMERAS,) and not node.value:
        layer[place] = Value({}, label(node.start_mark.line))  # no camera, also none of the default ones
    for key, value in node.value:
        inner = (*place, key.value)
        with problems.collected():
            check_key(inner, f"{label(key.start_mark.line)}: {dotted(inner)}")
            _place(value, inner, layer, label, problems)


def plain(node: yaml.Node, where: str) -> Any:
    """The value of a node: text, numbers, booleans, lists and mappings of them; no other tag is followed."""
    constructor = yaml.constructor.SafeConstructor()
    try:
        return constructor.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError) as error:
        problem = getattr(error, "problem", None) or "cannot be understood"
        raise InputError(where, str(problem), "plain YAML values") from None


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == "tag:yaml.org,2002:null":
        return "nothing"
    return "a single value"


@dataclass(frozen=True, slots=True)
class EnvironmentLabel:
    """The label of a variable's value, whose lines are of no use to anybody."""

    name: str

    def __call__(self, line: int) -> str:
        return self.name
