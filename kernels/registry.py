"""Finds the ops: each module of :mod:`kernels.ops` whose name does not start with ``_`` is one op of that name.

A broken op stops the start-up with its file's name; it is never only logged.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import GenericAlias, ModuleType
from typing import Any

from kernels import ops
from kernels.errors import PinholeError, UnknownNameError
from kernels.op import Op, OpParams

AnyOp = Op[Any]


@cache
def all_ops() -> dict[str, AnyOp]:
    """Every op by name, sorted; loaded on first call.

    Raises:
        PinholeError: a file under ``kernels/ops`` does not hold exactly one op named like the file.
    """
    found: dict[str, AnyOp] = {}
    for info in sorted(pkgutil.iter_modules(ops.__path__), key=lambda m: m.name):
        if not info.name.startswith("_"):
            found[info.name] = load_op(f"{ops.__name__}.{info.name}", info.name)
    return found


def classes_of(module: ModuleType, base: type[Any]) -> list[type[Any]]:
    """The classes derived from ``base`` that ``module`` itself defines; imported names are not among them."""
    return [
        value
        for value in vars(module).values()
        # In Python 3.10 an alias like list[int] passes for a type, and issubclass then raises.
        if isinstance(value, type)
        and not isinstance(value, GenericAlias)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    ]


def load_op(module_name: str, op_name: str) -> AnyOp:
    """The one op that a module defines.

    Raises:
        PinholeError: the module fails to import, defines no op or several, or one of another name.
    """
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a plug-in's border: whatever its file raises, the error names the file
        raise PinholeError(f"op file {module_name} does not load: {type(error).__name__}: {error}") from error
    classes = classes_of(module, Op)
    if len(classes) != 1:
        raise PinholeError(f"op file {module_name} must define exactly one op, found {len(classes)}")
    try:
        op: AnyOp = classes[0]()
    except TypeError as error:
        raise PinholeError(f"op file {module_name}: {error}") from error
    params = getattr(op, "Params", None)
    if getattr(op, "name", None) != op_name or not (isinstance(params, type) and issubclass(params, OpParams)):
        raise PinholeError(f"op file {module_name}: set name = {op_name!r} and Params to its parameter model")
    return op


def find_op(name: str, field: str = "op") -> AnyOp:
    """The op of that name.

    Raises:
        UnknownNameError: there is none; lists the known ones.
    """
    known = all_ops()
    try:
        return known[name]
    except KeyError:
        raise UnknownNameError(field, "op", name, known) from None
