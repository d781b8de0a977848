"""The doctor on machines of all kinds: what it says, that it always ends, and its exit code."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels import compiler
from kernels.probe import Answer
from service import doctor, gpu_checks, machine
from service.doctor import GROUPS, Report, examine, render
from service.machine import Check
from tests.helpers import server as serving

ABSENT = Answer("absent", "no CUDA driver or device: 35")
PROOF = Answer("ok", "42 doubled is 84", 84)
FACTS: dict[str, Any] = {
    "name": "GPU of a test", "compute_capability": "9.0", "devices": 2, "cuda_driver": "13.0", "cuda_runtime": "13.0",
    "memory_bytes": 8 << 30, "memory_free_bytes": 7 << 30,
    "attributes": {
        "CanMapHostMemory": 1, "HostRegisterSupported": 1, "CanUseHostPointerForRegisteredMem": 1, "ManagedMemory": 1,
        "ConcurrentManagedAccess": 1, "PageableMemoryAccess": 0, "Integrated": 0, "ComputeMode": 0,
    },
}  # fmt: skip


gpu_hardware, loaded_driver = gpu_checks.gpu_hardware, gpu_checks._loaded_driver


@pytest.fixture(autouse=True)
def _a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this one has; the tests that start the command see it all the same."""
    monkeypatch.setattr(gpu_checks, "gpu_hardware", lambda: "")
    monkeypatch.setattr(gpu_checks, "_loaded_driver", lambda: "")


def no_gpu(kind: str) -> Answer:
    return {"gpu": ABSENT, "host": PROOF, "nvrtc": Answer("absent", "no module named cupy")}[kind]


def with_gpu(kind: str, **other: Answer) -> Answer:
    if kind in other:
        return other[kind]
    return Answer("ok", "GPU of a test", facts=FACTS) if kind == "gpu" else PROOF


def found(report: Report, name: str) -> Check:
    (check,) = [check for check in report.checks if check.name == name]
    return check


def test_b74_without_a_gpu_it_says_what_runs_instead_and_why() -> None:
    report = examine(no_gpu)
    assert report.ok
    assert report.runs_on["backend"] == "opencv"
    assert ABSENT.found in report.runs_on["reason"]
    assert found(report, "gpu").status == "missing"
    assert report.to_json()["proof"] == {
        "cpu": 84, "device": None, "mapped": None, "registered_numpy": None, "registered_shm": None, "managed": None,
        "chain": None,
    }  # fmt: skip


def test_with_a_gpu_every_kind_of_memory_is_proven() -> None:
    report = examine(with_gpu)
    assert report.ok
    assert report.runs_on["memory"] == "zero_copy"
    proof = report.to_json()["proof"]
    assert set(proof) == {"cpu", *gpu_checks.MEMORIES}
    assert set(proof.values()) == {84}
    assert "kept on the host" in found(report, "managed memory").found
    assert not [check for check in report.checks if check.name.startswith("--memory")]


def test_what_a_gpu_does_not_offer_is_said_with_the_reason() -> None:
    lacking = {**FACTS, "attributes": {**FACTS["attributes"], "ManagedMemory": 0, "HostRegisterSupported": 0}}
    report = examine(lambda kind: with_gpu(kind, gpu=Answer("ok", "GPU of a test", facts=lacking)))
    assert "no managed memory" in found(report, "--memory unified").found
    assert "cannot register" in found(report, "--memory registered").found


@pytest.mark.parametrize("kind", ["mapped", "chain", "nvrtc"])
def test_a_gpu_that_does_not_do_its_part_is_no_place_to_run(kind: str) -> None:
    report = examine(lambda name: with_gpu(name, **{kind: Answer("failed", "ended by SIGSEGV")}))
    assert not report.ok
    check = found(report, kind)
    assert (check.status, check.required) == ("todo", True)
    assert check.remedy
    assert "cannot run here" in render(report)


@pytest.mark.parametrize("kind", ["managed", "registered_shm"])
def test_a_kind_of_memory_that_nothing_needs_may_lack(kind: str) -> None:
    absent = Answer("absent", "this device has none")
    report = examine(lambda name: with_gpu(name, **{kind: absent}))
    assert report.ok
    assert found(report, kind).status == "missing"
    assert report.to_json()["proof"][kind] is None


def test_a_gpu_that_hangs_is_not_taken_for_none() -> None:
    report = examine(lambda kind: Answer("failed", "no answer within 30 s") if kind == "gpu" else PROOF)
    assert not report.ok
    assert found(report, "gpu").status == "todo"


def test_a_look_that_breaks_or_hangs_costs_its_own_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def hangs() -> Iterator[Check]:
        yield Check("cameras", "/dev/video0", "ok", "first")
        let_go.wait(60)

    def breaks() -> Iterator[Check]:
        raise RuntimeError("odd machine")
        yield

    monkeypatch.setattr(doctor, "camera_checks", hangs)
    monkeypatch.setattr(doctor, "permission_checks", breaks)
    try:
        report = examine(no_gpu, look_s=1.0)
        assert "no answer within 1 s" in found(report, "cameras").found
        assert "odd machine" in found(report, "permissions").found
        assert found(report, "python").status == "ok"
        assert report.ok
    finally:
        let_go.set()
        for thread in threading.enumerate():
            if thread.name.startswith("look-"):
                thread.join(10)


def test_every_line_is_ok_or_missing_or_says_what_to_do() -> None:
    for ask in (no_gpu, with_gpu):
        report = examine(ask)
        assert {check.group for check in report.checks} <= set(GROUPS)
        assert {check.status for check in report.checks} <= {"ok", "missing", "todo"}
        assert [check for check in report.checks if check.status == "todo" and not check.remedy] == []
        text = render(report)
        for check in report.checks:
            assert check.found in text
            assert check.remedy in text


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", "doctor", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_the_command_prints_json_of_the_documented_shape() -> None:
    done = command("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert set(report) == {"schema", "version", "ok", "runs_on", "checks", "proof", "gpu", "recommendation"}
    assert (report["schema"], report["ok"]) == (1, True)
    assert set(report["runs_on"]) == {"backend", "memory", "reason"}
    for check in report["checks"]:
        assert set(check) == {"group", "name", "status", "found", "remedy", "required"}
    assert report["proof"]["cpu"] == 84
    assert set(report["recommendation"]) == {"memory", "reason", "figures"}
    assert report["recommendation"]["memory"] == "host"
    assert report["recommendation"]["figures"]["frame"]["p50_us"]["host"] > 0
    for key in (*report, *report["runs_on"], *report["checks"][0], *report["recommendation"]):
        assert f"``{key}``" in (doctor.__doc__ or ""), f"{key} is not documented"


def test_the_command_is_readable_where_there_is_no_terminal() -> None:
    done = command()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b[" not in done.stdout
    assert "can run here on the CPU" in done.stdout
    assert "42 doubled is 84" in done.stdout
    last = done.stdout.rstrip().splitlines()[-2:]
    assert last[0] == "recommendation"
    assert last[1].startswith("  --memory host: it is what there is: a 1920x1080 BGR8 frame through std4 takes ")


def test_what_to_use_is_asked_of_the_gpu_only_where_there_is_one() -> None:
    asked: list[str] = []

    def advise(kind: str) -> Answer:
        asked.append(kind)
        return Answer("ok", "188 µs, 86 % less; staged 210", facts={"memory": "zero_copy"})

    def hangs(kind: str) -> Answer:
        return Answer("failed", "no answer within 30 s") if kind == "gpu" else PROOF

    for ask in (with_gpu, no_gpu, hangs):
        report = examine(ask, advise=advise)
    assert asked == ["gpu", "host", "host"], "a GPU that hangs is not asked again"
    assert "--memory zero_copy: 188 µs, 86 % less; staged 210" in render(report)
    plain = report.to_json()["recommendation"]
    assert (plain["memory"], plain["reason"]) == ("zero_copy", "188 µs, 86 % less; staged 210")
    failed = examine(with_gpu, advise=lambda kind: Answer("failed", "no answer within 30 s"))
    assert failed.ok, "it runs all the same"
    assert failed.to_json()["recommendation"] == {"memory": None, "reason": "no answer within 30 s", "figures": {}}
    assert "none: no answer within 30 s" in render(failed)


def test_b76_a_kernel_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    check = machine.cache_check(file / "cache")
    assert check.status == "todo"
    assert str(file) in check.found
    assert "PINHOLE_CACHE_DIR" in check.remedy
    assert machine.cache_check(tmp_path / "new" / "cache").status == "ok"


def test_b76_a_user_without_a_home_can_compile_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINHOLE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.expanduser", lambda path: (_ for _ in ()).throw(RuntimeError("no home")))
    assert compiler.cache_folder() is None
    assert machine.cache_check(None).status == "todo"


def refusing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def opened(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.open", opened)


def test_b132_a_camera_without_permission_names_device_user_and_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "video7"
    device.touch()
    os.chown(device, -1, os.getgid())
    device.chmod(0o660)
    monkeypatch.setattr(machine, "in_container", lambda: False)
    monkeypatch.setattr("os.getegid", lambda: 12345)
    monkeypatch.setattr("os.getgroups", list)
    refusing(monkeypatch, errno.EACCES)
    (check,) = machine.camera_checks(str(tmp_path))
    assert check.status == "todo"
    for said in (str(device), f"uid {os.geteuid()}", f"gid {os.getgid()}", "mode 660"):
        assert said in check.found
    assert check.remedy.startswith("sudo usermod -aG ")
    monkeypatch.setattr(machine, "in_container", lambda: True)
    (check,) = machine.camera_checks(str(tmp_path))
    assert f"--group-add {os.getgid()}" in check.remedy
    device.chmod(0)
    (check,) = machine.camera_checks(str(tmp_path))
    assert f"chmod g+rw {device}" in check.remedy


def test_a_camera_that_somebody_has_is_not_called_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "video10").touch()
    (tmp_path / "video9").touch()
    assert [Path(check.name).name for check in machine.camera_checks(str(tmp_path))] == ["video9", "video10"]
    refusing(monkeypatch, errno.EBUSY)
    for check in machine.camera_checks(str(tmp_path)):
        assert check.status == "todo"
        assert "busy" in check.found


def test_no_camera_is_missing_and_nothing_to_mend(tmp_path: Path) -> None:
    (check,) = machine.camera_checks(str(tmp_path))
    assert check.status == "missing"


def test_b134_a_small_shared_memory_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def mounted(blocks: int) -> None:
        fields = (4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255)
        monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result(fields))

    mounted(16)
    monkeypatch.setattr(machine, "in_container", lambda: True)
    check = machine.shm_check()
    assert check.status == "todo"
    assert "64 KiB" in check.found
    assert "--shm-size" in check.remedy
    monkeypatch.setattr(machine, "in_container", lambda: False)
    assert "mount -o remount" in machine.shm_check().remedy
    mounted(machine.SMALL_SHM_BYTES // 4096)
    assert machine.shm_check().status == "ok"
    mounted(0)  # no limit
    assert machine.shm_check().status == "ok"
    assert machine.shm_check("/nowhere/shm").status in ("ok", "todo")


TINY = 'mount -t tmpfs -o size=64k shm /dev/shm; exec "$@"'


def test_b134_doctor_and_service_run_where_shared_memory_is_tiny() -> None:
    """The ring does not lie there: a /dev/shm smaller than any frame is said, and harms nothing."""
    mounting = ["unshare", "--mount", "--propagation=private", "sh", "-ec", TINY, "sh"]
    try:
        done = subprocess.run([*mounting, "true"], capture_output=True, timeout=20, check=False)
    except OSError:
        pytest.skip("unshare is not installed")
    if done.returncode != 0:
        pytest.skip("a mount namespace of its own (unshare --mount) is not permitted here")
    told = subprocess.run(
        [*mounting, sys.executable, "-m", "service", "doctor", "--json"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    report = json.loads(told.stdout)
    (shm,) = [check for check in report["checks"] if check["name"] == "shm"]
    assert shm["status"] == "todo"
    assert "64 KiB" in shm["found"]
    assert shm["remedy"]
    assert report["proof"]["cpu"] == 84
    process = subprocess.Popen(
        [*mounting, *serving.command("serve", "--port", "0", "--camera", "a=testcard://?size=1920x1080&fps=10")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=serving.environment(),
    )  # fmt: skip
    assert process.stderr is not None
    with process.stderr:
        try:
            line = next(line for line in process.stderr if " on http://" in line)
            client = serving.Client(line.partition(" on ")[2].partition(";")[0])
            client.until(lambda: client.get("/snapshot").status == 200, 30)
        finally:
            process.terminate()
            process.stderr.read()
            code = process.wait(20)
    assert code == 0


def test_gpu_hardware_without_a_driver_is_seen_on_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, vendor, kind in (("0000:01:00.0", "0x10de", "0x030200"), ("0000:02:00.0", "0x10de", "0x040300")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    text = gpu_hardware(str(tmp_path))
    assert "0000:01:00.0" in text
    assert "0000:02:00.0" not in text, "a GPU's sound device is no GPU"
    assert gpu_hardware(str(tmp_path / "none")) == ""
    monkeypatch.setattr(gpu_checks, "gpu_hardware", lambda: text)
    report = examine(no_gpu)
    assert found(report, "gpu").status == "todo"
    assert found(report, "gpu").remedy
    assert report.ok, "it runs on the CPU all the same"
    monkeypatch.setattr(gpu_checks, "cupy_package", lambda: None)
    report = examine(no_gpu)
    for name in ("gpu", "cupy"):
        assert found(report, name).status == "todo"
        assert "pip install 'pinhole-vision[cuda" in found(report, name).remedy


def test_a_driver_that_is_loaded_decides_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "_loaded_driver", loaded_driver)
    for branch, extra in (("570.124.06", "cuda12"), ("580.159.04", "cuda13"), ("535.1.2", "cuda12")):
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {branch}  Tue Mar 1\nGCC version: gcc 12.2.0\n"
        monkeypatch.setattr(gpu_checks, "_read", lambda path, text=text: text)
        assert gpu_checks.fitting_extra() == extra
        report = examine(no_gpu)
        assert found(report, "driver").status == "ok"
        assert found(report, "gpu").status == "todo"
    monkeypatch.setattr(gpu_checks, "_read", lambda path: "")
    assert gpu_checks.fitting_extra() == "cuda13"


def test_sizes_are_as_people_write_them() -> None:
    assert [machine.size(n) for n in (0, 4096, 64 << 20, 3 << 29)] == ["0 bytes", "4 KiB", "64 MiB", "1.5 GiB"]
