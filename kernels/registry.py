"""Finds the ops: each module of :mod:`kernels.ops` whose name does not start with ``_`` is one op of that name.

So is each file of a folder that a user names (:func:`use_ops_folder`). A broken op stops the start-up with its file's
name; it is never only logged.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

from pydantic import BaseModel

from kernels import ops
from kernels.errors import InputError, PinholeError, UnknownNameError
from kernels.op import Op, OpKind, OpParams

AnyOp = Op[Any]

USER_PACKAGE = "pinhole_ops"  # the package that a user's op files are modules of
OP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class PluginError(PinholeError):
    """A file that extends Pinhole is broken. What it raised itself, if anything, is the ``__cause__``.

    ``kind`` is op, source or encoder; ``file`` its path and ``line`` where in it, None if unknown.
    """

    def __init__(self, kind: str, module: str, file: str | None, line: int | None, reason: str) -> None:
        self.kind = kind
        self.file = file
        self.line = line
        self.reason = reason
        place = "" if file is None else f" ({file})" if line is None else f" ({file}:{line})"
        super().__init__(f"{kind} file {module}{place} {reason}")


@cache
def _built_in_ops() -> dict[str, AnyOp]:
    """Ours alone. The same objects for as long as the process lives, whatever folder is taken along."""
    names = [info.name for info in pkgutil.iter_modules(ops.__path__) if not info.name.startswith("_")]
    return {name: load_op(f"{ops.__name__}.{name}", name) for name in names}


@cache
def all_ops() -> dict[str, AnyOp]:
    """Every op by name, sorted; loaded on first call.

    Raises:
        PluginError: a file under ``kernels/ops``, or of the user's folder, does not hold exactly one op named like the
            file; or a user's op has the name of one of ours.
    """
    found = dict(_built_in_ops())
    package = sys.modules.get(USER_PACKAGE)
    for info in pkgutil.iter_modules(package.__path__) if package is not None else ():
        if not (info.name.startswith("_") or info.ispkg):
            found[info.name] = _load_users_op(info.name, found)
    return dict(sorted(found.items()))


def _load_users_op(name: str, others: dict[str, AnyOp]) -> AnyOp:
    module_name = f"{USER_PACKAGE}.{name}"
    if not OP_NAME.fullmatch(name):
        reason = "must be named in small letters, digits and _, as its operation is; a file that is none begins with _"
        raise PluginError("op", module_name, _file_of(module_name), None, reason)
    op = load_op(module_name, name)
    if name in others:
        raise broken("op", type(op), f"has the name of a built-in operation, {name}: give the file and the op another")
    return op


def use_ops_folder(folder: Path | None) -> None:
    """Take a user's op files along, in place of those of an earlier call; None: the built-in ones alone.

    Each ``NAME.py`` is one op of that name, in the form of the built-in ones; files that begin with ``_`` are left out
    (``from pinhole_ops._shared import …``), and so are folders. They are loaded with the others, by :func:`all_ops`. At
    the start, before chains are read: what holds ops already keeps those it has.

    Raises:
        InputError: ``folder`` cannot be read as a folder.
    """
    if folder is None and USER_PACKAGE not in sys.modules:
        return
    if folder is not None:
        try:
            next(folder.iterdir(), None)
        except OSError as error:
            raise InputError("ops_dir", f"{folder}: {error.strerror}", "a folder of op files") from None
    for name in [name for name in sys.modules if name == USER_PACKAGE or name.startswith(f"{USER_PACKAGE}.")]:
        del sys.modules[name]
    if folder is not None:
        package = ModuleType(USER_PACKAGE, "A user's operations.")
        package.__path__ = [str(folder.resolve())]
        sys.modules[USER_PACKAGE] = package
        importlib.invalidate_caches()
    all_ops.cache_clear()


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


def load_class(kind: str, module_name: str, base: type[Any]) -> type[Any]:
    """The one class derived from ``base`` that a plug-in's module defines.

    Raises:
        PluginError: the module fails to import, or defines no such class or several.
    """
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a plug-in's border: whatever its file raises, the error names the file
        file = _file_of(module_name)
        reason = f"does not load: {type(error).__name__}: {error}"
        raise PluginError(kind, module_name, file, _line_in(file, error), reason) from error
    classes = list(dict.fromkeys(classes_of(module, base)))  # a second name for a class is no second class
    if len(classes) != 1:
        names = f": {', '.join(c.__name__ for c in classes)}" if classes else f" classes derived from {base.__name__}"
        reason = f"must define exactly one {kind}, found {len(classes)}{names}"
        line = line_of(classes[1]) if classes else None
        raise PluginError(kind, module_name, _file_of(module_name), line, reason)
    return classes[0]


def broken(kind: str, plugin: type[Any], reason: str) -> PluginError:
    """The error for a plug-in's class that is not as it must be."""
    return PluginError(kind, plugin.__module__, _file_of(plugin.__module__), line_of(plugin), reason)


def check_complete(kind: str, plugin: type[Any], model: type[BaseModel] | None = None) -> None:
    """Raise PluginError for methods that a plug-in leaves out and for a ``model`` without a JSON Schema."""
    if missing := sorted(getattr(plugin, "__abstractmethods__", ())):
        raise broken(kind, plugin, f"must define the abstract method {', '.join(missing)}")
    try:
        if model is not None:
            model.model_json_schema()
    except Exception as error:  # a plug-in's border: pydantic and the model's own hooks may raise anything
        raise broken(kind, plugin, f"has no JSON Schema: {type(error).__name__}: {error}") from error


def line_of(plugin: type[Any]) -> int | None:
    """Where a class begins in its file, or None."""
    try:
        return inspect.getsourcelines(plugin)[1]
    except (OSError, TypeError):
        return None


def _file_of(module_name: str) -> str | None:
    """The file of a module, also of one that does not import; None if there is none."""
    if (module := sys.modules.get(module_name)) is not None:
        return getattr(module, "__file__", None)
    spec = importlib.util.find_spec(module_name)
    return spec.origin if spec is not None else None


def _line_in(file: str | None, error: BaseException) -> int | None:
    """The last line of ``file`` that ``error`` went through, or the one that does not parse."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)


def load_op(module_name: str, op_name: str) -> AnyOp:
    """The one op that a module defines.

    Raises:
        PluginError: the module fails to import, defines no op or several, or one of another name.
    """
    found = load_class("op", module_name, Op)
    params = getattr(found, "Params", None)
    if getattr(found, "name", None) != op_name or not (isinstance(params, type) and issubclass(params, OpParams)):
        raise broken("op", found, f"must set name = {op_name!r} and Params to its parameter model")
    if not isinstance(getattr(found, "kind", None), OpKind):
        raise broken("op", found, f"must set kind to one of {', '.join(map(str, OpKind))}")
    check_complete("op", found, params)
    try:
        op: AnyOp = found()
    except Exception as error:  # a plug-in's border, as above
        raise broken("op", found, f"cannot be made: {type(error).__name__}: {error}") from error
    return op


def find_op(name: str, field: str = "op") -> AnyOp:
    """The op of that name.

    Raises:
        UnknownNameError: there is none; says the nearest one, or all of them.
    """
    known = all_ops()
    try:
        return known[name]
    except KeyError:
        raise UnknownNameError(field, "op", name, known, listing="what `pinhole ops` lists", more=own_ops()) from None


def own_ops() -> str:
    """How a user's operations come to be known, for errors about one that is not; "" where a folder is taken along."""
    return "" if USER_PACKAGE in sys.modules else "of your own: with --ops DIR, or ops_dir in the configuration"
