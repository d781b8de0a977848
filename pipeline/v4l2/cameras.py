"""The cameras of this machine: their nodes, the paths that stay, and which is which after a replug.

A node's number says nothing: it is whatever was free when the camera came. ``Identity`` is what stays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import PinholeError
from pipeline.v4l2.device import CameraDevice, opened
from pipeline.v4l2.modes import Offered, offered
from pipeline.v4l2.system import System

DEV = Path("/dev")
SYSFS = Path("/sys/class/video4linux")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which camera it is. ``usb``: vendor, product and serial number, empty for others; ``bus``: where it is plugged
    in; ``node``: which of the camera's nodes.

    Two cameras of one make without serial numbers differ by their bus alone, so it must then be the same.
    """

    driver: str
    card: str
    bus: str
    usb: tuple[str, str, str]
    node: int

    def same_camera(self, other: Identity) -> bool:
        mine, others = (self.driver, self.card, self.usb, self.node), (other.driver, other.card, other.usb, other.node)
        return mine == others and (bool(self.usb[2]) or self.bus == other.bus)

    def __str__(self) -> str:
        ids = [f"usb {self.usb[0]}:{self.usb[1]}"] if self.usb[0] else []
        serial = [f"serial {self.usb[2]}"] if self.usb[2] else []
        return f"{self.card} ({', '.join([*ids, *serial, f'at {self.bus}'])})"


def identity_of(device: CameraDevice, sysfs: Path = SYSFS) -> Identity:
    """Which camera an open node is. Reads sysfs. Raises RequestError."""
    able = device.abilities()
    entry = sysfs / Path(os.path.realpath(device.path)).name
    usb = entry.joinpath("device").resolve().parent  # a node's device is an interface of it

    return Identity(
        able.driver, able.card, able.bus,
        (_read(usb / "idVendor"), _read(usb / "idProduct"), _read(usb / "serial")), int(_read(entry / "index") or 0),
    )  # fmt: skip


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def nodes(dev: Path = DEV) -> list[Path]:
    """Every video node, by number."""
    found = [path for path in dev.glob("video*") if path.name[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def find(identity: Identity, system: System | None = None, dev: Path = DEV, sysfs: Path = SYSFS) -> Path | None:
    """The node of a camera that was seen before, wherever it is now; None while it is away."""
    for path in nodes(dev):
        try:
            with opened(str(path), system) as device:
                if identity_of(device, sysfs).same_camera(identity):
                    return path
        except (OSError, PinholeError):  # not ours to use, or just going
            continue
    return None


def links_to(path: Path, dev: Path = DEV) -> list[str]:
    """The names under /dev/v4l that lead to a node and stay the same after a replug: by-id first."""
    found = []
    for folder in ("by-id", "by-path"):
        for link in sorted((dev / "v4l" / folder).glob("*")):
            if os.path.realpath(link) == os.path.realpath(path):
                found.append(str(link))
    return found


@dataclass(frozen=True, slots=True)
class Listed:
    """One camera as ``pinhole cameras`` shows it. ``problem``: why it could not be asked for more."""

    path: str
    stable: tuple[str, ...]
    name: str
    driver: str
    bus: str
    formats: tuple[Offered, ...]
    problem: str | None = None

    @property
    def uri(self) -> str:
        """What to configure: by a path that stays, where there is one."""
        return f"v4l2://{self.stable[0] if self.stable else self.path}"

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path, "uri": self.uri, "stable_paths": list(self.stable), "name": self.name,
            "driver": self.driver, "bus": self.bus, "problem": self.problem,
            "formats": [one.to_json() for one in self.formats],
        }  # fmt: skip


def list_cameras(
    system: System | None = None, dev: Path = DEV, sysfs: Path = SYSFS, *, sizes: bool = True
) -> list[Listed]:
    """Every node that captures pictures, or might and cannot be opened; no metadata, outputs or codecs.

    ``sizes`` asks each for sizes and rates, too.
    """
    found = []
    for path in nodes(dev):
        stable, name = tuple(links_to(path, dev)), _read(sysfs / path.name / "name")
        try:
            with opened(str(path), system) as device:
                able = device.abilities()
                if not (able.capture and able.streaming):
                    continue
                formats = offered(device, able.buf_type, sizes=sizes)
            found.append(Listed(str(path), stable, able.card, able.driver, able.bus, formats))
        except (OSError, PinholeError) as error:
            found.append(Listed(str(path), stable, name, "", "", (), _problem(path, error)))
    return found


def _problem(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        from pipeline.sources._files import os_error_text

        return os_error_text(path, error)
    return str(error)
