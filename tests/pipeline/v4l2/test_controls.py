from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kernels.errors import InputError, UnknownNameError
from pipeline.v4l2 import abi
from pipeline.v4l2.controls import read_controls, set_controls
from pipeline.v4l2.device import RequestError
from tests.pipeline.v4l2.fake_driver import FakeCamera, FakeControl, FakeSystem, Modes, make_nodes

GREY: Modes = {"GREY": {(64, 48): (30,)}}


def controls() -> list[FakeControl]:
    """One of each kind, and what has to be left out."""
    return [
        FakeControl(0x980900, "Brightness", abi.CTRL_INTEGER, -64, 64, 2, 0, 10),
        FakeControl(0x980901, "White Balance, Automatic", abi.CTRL_BOOLEAN, 0, 1, 1, 1, 1),
        FakeControl(0x980902, "Off", abi.CTRL_INTEGER, flags=abi.CTRL_FLAG_DISABLED),
        FakeControl(0x980903, "Image Controls", abi.CTRL_CTRL_CLASS),
        FakeControl(0x980904, "Reset", abi.CTRL_BUTTON, value=0),
        FakeControl(
            0x980918, "Power Line Frequency", abi.CTRL_MENU, 0, 3, 1, 0, 3, menu={0: "Disabled", 1: "50 Hz", 3: "Auto"}
        ),
        FakeControl(
            0x980919, "Link Frequency", abi.CTRL_INTEGER_MENU, 0, 1, 1, 0, 1, menu={0: "456000000", 1: "912000000"}
        ),
        FakeControl(0x98091A, "Pixel Rate", abi.CTRL_INTEGER64, 0, 1 << 40, 1, 0, 1 << 33, abi.CTRL_FLAG_READ_ONLY),
        FakeControl(0x98091B, "brightness", abi.CTRL_INTEGER, 0, 9, 1, 1, 1, abi.CTRL_FLAG_INACTIVE),
    ]


@pytest.fixture
def camera() -> FakeCamera:
    return FakeCamera(GREY, controls=controls())


@pytest.fixture
def node(tmp_path: Path) -> str:
    return str(make_nodes(tmp_path / "dev", 0) / "video0")


@pytest.fixture
def system(camera: FakeCamera, node: str) -> FakeSystem:
    return FakeSystem({node: camera})


def test_each_kind_is_read_with_what_it_takes(system: FakeSystem, camera: FakeCamera, node: str) -> None:
    found = {one.name: one for one in read_controls(node, system)}
    assert {name: one.value for name, one in found.items()} == {
        "brightness": 10, "white_balance_automatic": True, "reset": None, "power_line_frequency": "Auto",
        "link_frequency": "912000000", "pixel_rate": 1 << 33, "brightness_98091b": 1,
    }  # fmt: skip
    assert {name: one.allowed for name, one in found.items() if one.kind != "integer"} == {
        "white_balance_automatic": "true, false", "reset": "true, to press it",
        "power_line_frequency": "Disabled, 50 Hz, Auto", "link_frequency": "456000000, 912000000",
    }  # fmt: skip
    assert found["brightness"].allowed == "-64 to 64 in steps of 2"
    shown = found["power_line_frequency"].to_json()
    assert (shown["type"], shown["default"], shown["menu"]) == ("menu", "Disabled", ["Disabled", "50 Hz", "Auto"])
    assert found["brightness_98091b"].to_json()["inactive"]
    assert camera.opened == 0


def test_values_are_set_by_name(system: FakeSystem, camera: FakeCamera, node: str) -> None:
    wanted = {"brightness": -64, "white_balance_automatic": False, "power_line_frequency": "50 Hz", "reset": True}
    after = {one.name: one.value for one in set_controls(node, wanted, system)}
    assert {name: after[name] for name in wanted} == wanted | {"reset": None}
    assert [one.value for one in camera.controls if one.id in (0x980900, 0x980918, 0x980904)] == [-64, 1, 1]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("brightness", 66, "-64 to 64"),
        ("brightness", 3, "between two steps"),
        ("brightness", True, "-64 to 64"),
        ("brightness", "5", "-64 to 64"),
        ("brightness", 5.0, "-64 to 64"),
        ("white_balance_automatic", 1, "true, false"),
        ("reset", False, "to press it"),
        ("power_line_frequency", "50Hz", "did you mean '50 Hz'"),
        ("power_line_frequency", 1, "Disabled, 50 Hz, Auto"),
        ("pixel_rate", 5, "can only be read"),
        ("brighness", 5, "did you mean 'brightness'"),
    ],
)
def test_nothing_is_set_if_one_is_wrong(
    system: FakeSystem, camera: FakeCamera, node: str, name: str, value: object, says: str
) -> None:
    before = [one.value for one in camera.controls]
    with pytest.raises(InputError, match=says) as caught:
        set_controls(node, {"white_balance_automatic": False, name: value}, system)
    assert caught.value.field == f"controls.{name}"
    assert [one.value for one in camera.controls] == before
    assert camera.opened == 0


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EBUSY, "while frames are captured"), (errno.EACCES, "automatic"), (errno.ERANGE, "the driver refused 4")],
)
def test_what_the_driver_refuses_is_said_in_words(system: FakeSystem, node: str, number: int, says: str) -> None:
    system.fail["S_EXT_CTRLS"] = [number]
    with pytest.raises(InputError, match=says):
        set_controls(node, {"brightness": 4}, system)


def test_a_camera_that_goes_is_an_error_and_a_control_that_does_not_answer_is_none(
    system: FakeSystem, camera: FakeCamera, node: str
) -> None:
    system.fail["G_EXT_CTRLS"] = [errno.EIO]
    assert read_controls(node, system)[0].value is None
    system.fail["G_EXT_CTRLS"] = [errno.ENODEV]
    with pytest.raises(RequestError):
        read_controls(node, system)
    camera.gone = True
    with pytest.raises(OSError, match="no such camera"):
        set_controls(node, {}, system)
    assert camera.opened == 0


def test_unknown_is_its_own_error(system: FakeSystem, node: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        set_controls(node, {"nothing": 1}, system)
    assert "brightness" in caught.value.known
