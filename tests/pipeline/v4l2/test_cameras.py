"""Listing cameras, and telling them apart."""

from __future__ import annotations

import errno
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.v4l2.cameras import Identity, find, identity_of, links_to, list_cameras, nodes
from pipeline.v4l2.device import CameraDevice
from pipeline.v4l2.modes import Mode
from tests.pipeline.v4l2.fake_driver import FakeCamera, FakeSystem, Modes, make_nodes

MODES: Modes = {"YUYV": {(64, 48): (30, 60), (128, 96): (15,)}, "YV12": {(64, 48): (30,)}}


def usb(sysfs: Path, node: str, vendor: str, product: str, serial: str = "", index: int = 0) -> None:
    """What sysfs says of a node of a USB camera: its device is an interface, whose parent has the identifiers."""
    camera = sysfs / "usb" / node
    (camera / "1-1:1.0").mkdir(parents=True)
    for name, text in (("idVendor", vendor), ("idProduct", product), ("serial", serial)):
        if text:
            (camera / name).write_text(f"{text}\n")
    entry = sysfs / node
    entry.mkdir()
    (entry / "device").symlink_to(camera / "1-1:1.0")
    (entry / "index").write_text(f"{index}\n")
    (entry / "name").write_text("A webcam\n")


def identity(system: FakeSystem, path: Path, sysfs: Path) -> Identity:
    device = CameraDevice(str(path), system)
    try:
        return identity_of(device, sysfs)
    finally:
        device.close()


def test_listed_with_formats_and_a_uri_that_stays(tmp_path: Path) -> None:
    dev, sysfs = make_nodes(tmp_path / "dev", 0, 2, 10), tmp_path
    (dev / "videos").touch()
    for folder in ("by-path", "by-id"):
        (dev / "v4l" / folder).mkdir(parents=True)
        (dev / "v4l" / folder / "cam-index0").symlink_to(dev / "video2")
    usb(sysfs, "video10", "1", "2")
    system = FakeSystem({str(dev / f"video{n}"): FakeCamera(MODES, card=f"cam {n}") for n in (0, 2, 10)})
    system.open_error[str(dev / "video10")] = errno.EBUSY
    assert [path.name for path in nodes(dev)] == ["video0", "video2", "video10"]
    first, second, third = list_cameras(system, dev, sysfs)
    assert (first.name, first.uri, first.problem) == ("cam 0", f"v4l2://{dev}/video0", None)
    assert second.uri == f"v4l2://{dev}/v4l/by-id/cam-index0"
    assert second.stable == tuple(links_to(dev / "video2", dev))
    assert (third.name, third.formats) == ("A webcam", ())
    assert "video10" in str(third.problem)
    shown = first.to_json()
    assert [(one["format"], one["usable"]) for one in shown["formats"]] == [("YUYV", True), ("YV12", False)]
    assert shown["formats"][0]["sizes"] == [
        {"width": 64, "height": 48, "fps": [60.0, 30.0]}, {"width": 128, "height": 96, "fps": [15.0]},
    ]  # fmt: skip
    assert all(camera.opened == 0 for camera in system.cameras.values())


def test_a_serial_number_is_enough_and_without_one_the_place_counts(tmp_path: Path) -> None:
    dev = make_nodes(tmp_path / "dev", 0, 1, 2, 3)
    for node, serial, index in (("video0", "A1", 0), ("video1", "A1", 1), ("video2", "", 0), ("video3", "", 0)):
        usb(tmp_path, node, "046d", "085e", serial, index)
    cameras = [FakeCamera(MODES, bus=f"usb-{n}") for n in (1, 1, 2, 3)]
    system = FakeSystem({str(dev / f"video{n}"): camera for n, camera in enumerate(cameras)})
    with_serial, other_node, plain, twin = (identity(system, dev / f"video{n}", tmp_path) for n in range(4))
    assert with_serial.usb == ("046d", "085e", "A1")
    assert not with_serial.same_camera(other_node), "metadata and picture are two nodes of one camera"
    assert not plain.same_camera(twin)
    assert not plain.same_camera(with_serial)
    cameras[0].bus, cameras[2].bus = "usb-7", "usb-8"  # both are plugged in elsewhere
    assert find(with_serial, system, dev, tmp_path) == dev / "video0"
    assert find(plain, system, dev, tmp_path) is None
    assert "serial A1" in str(with_serial)
    assert "usb-2" in str(plain)


@pytest.mark.parametrize(
    ("mode", "size", "has"),
    [
        (Mode(64, 48, ()), (64, 48), True),
        (Mode(64, 48, ()), (64, 49), False),
        (Mode(16, 16, (), (64, 48), (2, 4)), (18, 20), True),
        (Mode(16, 16, (), (64, 48), (2, 4)), (17, 20), False),
        (Mode(16, 16, (), (64, 48), (2, 4)), (66, 48), False),
    ],
)
def test_sizes_of_a_range_go_by_its_steps(mode: Mode, size: tuple[int, int], has: bool) -> None:
    assert mode.has_size(*size) is has


def test_rates_are_those_listed_or_between_bounds() -> None:
    listed = Mode(1, 1, (Fraction(30000, 1001), Fraction(15)))
    assert listed.has_rate(Fraction(30))
    assert not listed.has_rate(Fraction(25))
    between = Mode(1, 1, (Fraction(60), Fraction(5)), rates_are_bounds=True)
    assert between.has_rate(Fraction(25))
    assert not between.has_rate(Fraction(61))
    assert Mode(1, 1, ()).has_rate(Fraction(1))
