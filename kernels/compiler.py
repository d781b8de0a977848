"""CUDA text → cubin by NVRTC, without a GPU, and a cache of cubins on disk.

With ``PINHOLE_CUDA_DEBUG`` set (to anything but 0) it is compiled for cuda-gdb and compute-sanitizer: unoptimised, with
symbols and lines.

The cache lies in ``PINHOLE_CACHE_DIR``, else ``XDG_CACHE_HOME``/pinhole, else ~/.cache/pinhole; where it cannot be
written, every start compiles, and nothing else changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from functools import cache as once
from pathlib import Path

from kernels.codegen import headers
from kernels.errors import CompileError
from kernels.source_lines import marks

_log = logging.getLogger("pinhole.compiler")

OPTIONS = ("--std=c++17", "--use_fast_math", "-default-device")
DEBUG_OPTIONS = ("-G", "-lineinfo")
DEBUG_VARIABLE = "PINHOLE_CUDA_DEBUG"


def compile_cubin(source: str, architecture: str, *, cache: bool = True) -> bytes:
    """The machine code of ``source`` for an architecture like "90"; blocks 0.1 to 1 s unless it is cached.

    Any thread; needs NVRTC (extra cuda12 or cuda13) but no GPU or driver.

    Raises:
        CompileError: names the op whose text the first error is in, its file and the line there.
    """
    from cupy.cuda import nvrtc

    debug = os.environ.get(DEBUG_VARIABLE, "").strip() not in ("", "0")
    if debug:
        _say_debug()
    options = (*OPTIONS, *(DEBUG_OPTIONS if debug else ()), f"-arch=sm_{architecture}")
    folder = cache_folder() if cache else None
    path = folder / f"{_key(source, options, nvrtc.getVersion())}.cubin" if folder is not None else None
    if path is not None and (found := _read(path)) is not None:
        return found
    included = headers()
    program = nvrtc.createProgram(
        source, "generated", [text.encode() for text in included.values()], [name.encode() for name in included]
    )
    try:
        nvrtc.compileProgram(program, options)
        cubin: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        log = nvrtc.getProgramLog(program)
        _log.info("the CUDA compiler's words:\n%s", log.rstrip())
        raise _error(source, log) from None
    finally:
        nvrtc.destroyProgram(program)
    if path is not None:
        _write(path, cubin)
    return cubin


@once
def _say_debug() -> None:
    _log.warning("%s is set: kernels are compiled for debuggers, without optimisation, and run slowly", DEBUG_VARIABLE)


def _error(source: str, log: str) -> CompileError:
    """What the compiler's log says first, and which op it is about."""
    found = re.search(r"^(.+)\((\d+)\): (?:catastrophic )?error: (.+)$", log, re.MULTILINE)
    if found is None:
        return CompileError("", log)
    file, line, reason = found[1], int(found[2]), found[3].strip()
    ops = list(marks(source))
    here = [(place.line, name) for name, place in ops if place.file == file and place.line <= line]
    if here:
        return CompileError(max(here)[1], log, reason=reason, file=file, line=line)
    # The fault shows where the op's function is called: its text has another form than its base class asks for.
    after = log[found.start() :]
    for words in (after.partition("\n\n")[0], after):
        for name, place in ops:
            if re.search(rf"\b{name}(_params|_state)?\b", words):
                return CompileError(name, log, reason=reason, file=place.file, line=place.line)
    return CompileError("", log, reason=reason, file=file, line=line)


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None for a user without a home folder who names no place."""
    if folder := os.environ.get("PINHOLE_CACHE_DIR"):
        return Path(folder)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "pinhole"
    try:
        return Path("~/.cache").expanduser() / "pinhole"
    except RuntimeError:  # a container's user that no password file knows
        return None


def _key(source: str, options: tuple[str, ...], version: tuple[int, int]) -> str:
    text = "\0".join([source, *headers().values(), *options, repr(version)])
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    # The digest guards against a file cut short by a full disk: the driver would refuse it with an obscure code.
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, cubin = stored[:32], stored[32:]
    return cubin if hashlib.sha256(cubin).digest() == digest else None


def _write(path: Path, cubin: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(cubin).digest() + cubin)
        os.replace(file.name, path)
    except OSError as error:
        _log.info("compiled kernels are not cached: %s", error)
