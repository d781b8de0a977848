"""Writes the CUDA text of plans to a folder, for people and for `nvcc`: one file each, with its headers inside."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from pathlib import Path

from kernels.codegen import headers
from kernels.errors import InputError
from kernels.plan import Plan

_log = logging.getLogger("pinhole.compiler")

MAX_NAME_CHARS = 120
_INCLUDE = re.compile(r'^#include "(pinhole/\w+\.cuh)"$', re.MULTILINE)


def prepare_folder(folder: Path, field: str = "dump_cuda") -> None:
    """Make the folder if it is missing.

    Raises:
        InputError: it cannot be made, or not written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(field, f"{folder} cannot be written: {error.strerror}", "a folder") from None


def dump(folder: Path, plan: Plan, source: str) -> Path | None:
    """Write the text ``source`` of a plan; its file, or None where that is not possible, which is logged.

    The name is made of the source's format and the ops; plans of the same text have the same file.
    """
    ops = "_".join(op.name for op in plan.ops) or "nothing"
    digest = hashlib.sha256(source.encode()).hexdigest()[:8]
    path = folder / f"{f'{plan.source.format.name.lower()}_{ops}'[:MAX_NAME_CHARS]}_{digest}.cu"
    chain = " | ".join(op.name for op in plan.ops) or "the empty chain"
    head = (
        f"// {chain}, from {plan.source.format} to {plan.result.format}\n"
        f"// nvcc -std=c++17 -arch=sm_90 -cubin {path.name}\n"
    )
    try:
        # Whole or not at all: somebody may be reading the one before.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            file.write(head + with_headers(source))
        Path(file.name).chmod(0o644)
        os.replace(file.name, path)
    except OSError as error:
        _log.warning("CUDA text is not written to %s: %s", path, error)
        return None
    return path


def with_headers(source: str) -> str:
    """The text with each of the shared headers in place of its first ``#include``; it then stands alone."""
    texts, seen = headers(), set[str]()

    def inline(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return f"// {name} stands above"
        seen.add(name)
        text = texts[name].replace("#pragma once\n", "").strip("\n")
        return f"// ---- {name}\n{_INCLUDE.sub(inline, text)}"

    return _INCLUDE.sub(inline, source)
