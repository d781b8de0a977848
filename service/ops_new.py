"""``pinhole ops new``: writes an operation's file and its test, for its user to change."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from kernels.codegen import KERNEL_NAME, headers
from kernels.errors import InputError
from kernels.registry import OP_NAME, all_ops
from service.op_templates import TEMPLATES, TEST

# Words of C++ that are none of Python's, and so could be a function's name here.
_CPP_WORDS = """
alignas alignof asm auto bool case catch char const constexpr decltype default delete do double enum explicit export
extern float friend goto inline int long mutable namespace new noexcept nullptr operator private protected public
register short signed sizeof static struct switch template this throw true false typedef typeid typename union
unsigned using virtual void volatile
"""
_DEVICE_NAME = re.compile(r"^(?:__device__[^(]*?|typedef [\w ]+ |extern [^(]*\) )(\w+)(?=[(;\[])", re.MULTILINE)


def check_name(name: str) -> str:
    """The same name, if an operation of a user's may have it.

    Raises:
        InputError: says what is wrong with it.
    """
    if not OP_NAME.fullmatch(name):
        raise InputError(
            "NAME", f"{name[:60]!r} is no name", "a small letter, then small letters, digits and _; up to 64"
        )
    if name in all_ops():
        raise InputError("NAME", f"{name} is an operation already", "a name of its own")
    if keyword.iskeyword(name) or name in _CPP_WORDS.split():
        raise InputError("NAME", f"{name} is a word of Python's or C++'s own", "another name")
    if name in device_names():
        raise InputError("NAME", f"{name} is a name of the shared device code", "another name")
    return name


def device_names() -> frozenset[str]:
    """What the shared device code names at its top level, where an op's function would be in the way."""
    return frozenset({KERNEL_NAME}).union(name for text in headers().values() for name in _DEVICE_NAME.findall(text))


def write_op(name: str, kind: str, folder: Path) -> tuple[Path, Path]:
    """Write ``NAME.py`` and ``tests/test_NAME.py`` under ``folder``, which is made if it is missing; their paths.

    Raises:
        InputError: the name cannot be an operation's, a file is there already, or cannot be written; nothing is then.
    """
    check_name(name)
    template = TEMPLATES[kind]
    class_name = "".join(part.capitalize() for part in name.split("_")) or name
    files = {
        folder / f"{name}.py": template.op,
        folder / "tests" / f"test_{name}.py": TEST.replace("@oracle@", template.oracle),
    }
    for path in files:
        if path.exists():
            raise InputError("NAME", f"{path} is there already", "a name that is free")
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text.replace("@name@", name).replace("@Name@", class_name))
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise InputError("--dir", f"{error.filename or folder}: {error.strerror}", "a folder to write to") from None
    op, test = files
    return op, test
