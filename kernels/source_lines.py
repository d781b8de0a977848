"""Where an op's CUDA text stands in its file, so that the compiler names file and line as editors have them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels import ops
from kernels.op import Op


@dataclass(frozen=True, slots=True)
class Place:
    """Where CUDA text begins: the file's name for people, and the line, from 1."""

    file: str
    line: int


def cuda_text(op: Op[Any]) -> str:
    """The CUDA text of an op, without empty lines around it; "" for forms that have none."""
    return str(getattr(op, "cuda_source", "")).strip("\n")


@cache
def cuda_place(op_class: type[Op[Any]]) -> Place:
    """Where the CUDA text of an op stands: ``ops/NAME.py`` for a built-in one, the whole path for a user's.

    Text that does not stand in its file as it is (put together from parts) has lines of its own, from 1, and a
    file's name that says so.
    """
    name = op_class.name
    try:
        file = inspect.getfile(op_class)
        source = Path(file).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError):
        file, source = f"ops/{name}.py", ""
    if op_class.__module__ == f"{ops.__name__}.{name}":
        file = f"ops/{name}.py"
    text = str(getattr(op_class, "cuda_source", "")).strip("\n")
    at = source.find(text)
    return Place(f"{file}: cuda_source", 1) if not text or at < 0 else Place(file, source.count("\n", 0, at) + 1)


def marked(op: Op[Any]) -> str:
    """The CUDA text of an op behind a line that says where it is from, for the compiler and for :func:`marks`."""
    place = cuda_place(type(op))
    file = place.file.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {place.line} "{file}"  // {op.name}\n{cuda_text(op)}'


_MARK = re.compile(r'^#line (\d+) "((?:[^"\\]|\\.)+)"  // (\w+)$', re.MULTILINE)


def marks(source: str) -> Iterator[tuple[str, Place]]:
    """Each op whose text is in a plan's CUDA text, by name, with where it is from."""
    for line, file, name in _MARK.findall(source):
        yield name, Place(re.sub(r"\\(.)", r"\1", file), int(line))
