"""A camera's controls (brightness, exposure, …): what there is, with ranges and menus, read and set while it runs.

V4L2 lets a node be opened by several at once, so this opens it beside the capture: nothing here waits for a frame, and
no thread but the caller's is involved.
"""

from __future__ import annotations

import ctypes
import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.errors import InputError, UnknownNameError
from pipeline.v4l2 import abi
from pipeline.v4l2.device import CameraDevice, RequestError, opened
from pipeline.v4l2.system import System

KINDS = {
    abi.CTRL_INTEGER: "integer", abi.CTRL_BOOLEAN: "boolean", abi.CTRL_MENU: "menu", abi.CTRL_BUTTON: "button",
    abi.CTRL_INTEGER64: "integer", abi.CTRL_BITMASK: "bitmask", abi.CTRL_INTEGER_MENU: "menu",
}  # fmt: skip
MOST_CONTROLS = 512

Value = int | bool | str | None


@dataclass(frozen=True, slots=True)
class Control:
    """One control. ``name`` is a word made of the driver's label; ``value`` None for buttons and what cannot be read.

    ``menu``: by number what may be chosen; ``value`` and ``default`` are then the names.
    """

    name: str
    label: str
    id: int
    kind: str
    minimum: int
    maximum: int
    step: int
    default: Value
    value: Value
    menu: Mapping[int, str]
    read_only: bool
    inactive: bool
    is_64_bit: bool

    @property
    def allowed(self) -> str:
        """What it takes, for people."""
        if self.kind == "menu":
            return ", ".join(self.menu.values())
        if self.kind == "boolean":
            return "true, false"
        if self.kind == "button":
            return "true, to press it"
        return f"{self.minimum} to {self.maximum}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": self.name, "label": self.label, "type": self.kind, "value": self.value, "default": self.default,
            "read_only": self.read_only, "inactive": self.inactive,
        }  # fmt: skip
        if self.kind in ("integer", "bitmask"):
            shown |= {"minimum": self.minimum, "maximum": self.maximum, "step": self.step}
        if self.kind == "menu":
            shown["menu"] = list(self.menu.values())
        return shown

    def number_for(self, value: object, field: str) -> int:
        """A wanted value as the driver takes it.

        Raises:
            InputError, UnknownNameError: not what it takes; says what is.
        """
        if self.kind == "menu":
            if isinstance(value, str):
                for number, name in self.menu.items():
                    if name == value:
                        return number
                raise UnknownNameError(field, "choice", value[:60], list(self.menu.values()))
            raise InputError(field, f"{value!r} is not a name of its menu", self.allowed)
        if self.kind in ("boolean", "button"):
            if isinstance(value, bool) and (value or self.kind == "boolean"):
                return int(value)
            raise InputError(field, f"{value!r} is not what it takes", self.allowed)
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise InputError(field, f"{value!r} is not what it takes", self.allowed)
        if self.step > 1 and (value - self.minimum) % self.step:
            raise InputError(field, f"{value} is between two steps", self.allowed)
        return value


def read_controls(path: str, system: System | None = None) -> list[Control]:
    """Every control of the camera at ``path`` that is not disabled, with its value now.

    Raises:
        OSError, RequestError: the device does not open, or is gone.
    """
    with opened(path, system) as device:
        return _controls(device)


def set_controls(path: str, values: Mapping[str, Any], system: System | None = None) -> list[Control]:
    """Set some controls by name, all checked before the first is set; gives all of them as they are afterwards.

    Raises:
        InputError, UnknownNameError: nothing was set.
        RequestError: the driver refused one; those before it are set.
        OSError
    """
    with opened(path, system) as device:
        known = {control.name: control for control in _controls(device)}
        wanted = []
        for name, value in values.items():
            field = f"controls.{name[:60]}"
            if name not in known:
                raise UnknownNameError(field, "control", name[:60], known)
            control = known[name]
            if control.read_only:
                raise InputError(field, "can only be read")
            wanted.append((control, control.number_for(value, field)))
        for control, number in wanted:
            try:
                _write(device, control, number)
            except RequestError as error:
                raise _refused(control, number, error) from None
        return _controls(device)


def _refused(control: Control, number: int, error: RequestError) -> Exception:
    field = f"controls.{control.name}"
    if error.number == errno.EBUSY:
        return InputError(field, "cannot be changed now: the driver holds it while frames are captured")
    if error.number in (errno.EACCES, errno.EPERM):
        return InputError(field, "may not be set: another control decides, such as an automatic one")
    if error.number in (errno.ERANGE, errno.EINVAL, errno.EILSEQ):
        return InputError(field, f"the driver refused {number}", control.allowed)
    return error


def _controls(device: CameraDevice) -> list[Control]:
    found: list[Control] = []
    names: set[str] = set()
    query = abi.QueryExtCtrl(id=abi.CTRL_FLAG_NEXT_CTRL)
    for _ in range(MOST_CONTROLS):
        if not device.tries("QUERY_EXT_CTRL", abi.QUERY_EXT_CTRL, query):
            break
        if query.type in KINDS and not query.flags & abi.CTRL_FLAG_DISABLED and query.nr_of_dims == 0:
            control = _control(device, query)
            if control.name in names:  # two labels that make one word
                control = _control(device, query, suffix=f"_{query.id:x}")
            names.add(control.name)
            found.append(control)
        query = abi.QueryExtCtrl(id=query.id | abi.CTRL_FLAG_NEXT_CTRL)
    return found


def _control(device: CameraDevice, query: abi.QueryExtCtrl, suffix: str = "") -> Control:
    kind = KINDS[query.type]
    wide = query.type == abi.CTRL_INTEGER64
    menu = _menu(device, query) if kind == "menu" else {}
    readable = kind != "button" and not query.flags & abi.CTRL_FLAG_WRITE_ONLY
    number = _read(device, query.id, wide) if readable else None
    label = query.name.decode(errors="replace")
    return Control(
        name=(re.sub("[^a-z0-9]+", "_", label.lower()).strip("_") or f"control_{query.id:x}") + suffix,
        label=label, id=query.id, kind=kind, minimum=query.minimum, maximum=query.maximum, step=int(query.step),
        default=None if kind == "button" else _shown(kind, menu, query.default_value),
        value=None if number is None else _shown(kind, menu, number),
        menu=menu, read_only=bool(query.flags & abi.CTRL_FLAG_READ_ONLY),
        inactive=bool(query.flags & abi.CTRL_FLAG_INACTIVE), is_64_bit=wide,
    )  # fmt: skip


def _shown(kind: str, menu: Mapping[int, str], number: int) -> Value:
    if kind == "boolean":
        return bool(number)
    return menu.get(number, str(number)) if kind == "menu" else number


def _menu(device: CameraDevice, query: abi.QueryExtCtrl) -> dict[int, str]:
    menu: dict[int, str] = {}
    for index in range(query.minimum, min(query.maximum, query.minimum + 255) + 1):
        item = abi.QueryMenu(id=query.id, index=index)
        if device.tries("QUERYMENU", abi.QUERYMENU, item):
            integer = query.type == abi.CTRL_INTEGER_MENU
            menu[index] = str(item.u.value) if integer else item.u.name.decode(errors="replace")
    return menu


def _one(id: int, number: int = 0, wide: bool = False) -> tuple[abi.ExtControls, abi.ExtControl]:
    one = abi.ExtControl(id=id)
    if wide:
        one.u.value64 = number
    else:
        one.u.value = ctypes.c_int32(number).value  # a bitmask's highest bit is a sign here
    return abi.ExtControls(count=1, controls=ctypes.pointer(one)), one


def _read(device: CameraDevice, id: int, wide: bool) -> int | None:
    request, one = _one(id)
    try:
        device.call("G_EXT_CTRLS", abi.G_EXT_CTRLS, request)
    except RequestError as error:
        if error.number in (errno.ENODEV, errno.ENXIO):
            raise
        return None  # write-only, or a camera that does not answer for this one
    return int(one.u.value64) if wide else int(one.u.value)


def _write(device: CameraDevice, control: Control, number: int) -> None:
    request, _ = _one(control.id, number, control.is_64_bit)
    device.call("S_EXT_CTRLS", abi.S_EXT_CTRLS, request)
