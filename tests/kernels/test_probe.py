"""A probe's process may crash, hang or talk nonsense; whoever asked gets an answer all the same."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from kernels import proof
from kernels.probe import run_probe, signal_name


def test_the_cpu_proves_itself_by_the_products_own_path() -> None:
    answer = run_probe("host")
    assert (answer.status, answer.read) == ("ok", 84)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 7)", "SIGBUS"),
        ("import os; os._exit(3)", "code 3"),
        ("raise SystemExit('driver is odd')", "driver is odd"),
        ("print('no JSON')", "code 0"),
        ("print('{}')", "code 0"),
        ("print('[1]')", "code 0"),
        ("print()", "code 0"),
    ],
)
def test_a_probe_that_dies_is_a_failed_answer(code: str, said: str) -> None:
    answer = run_probe("mapped", arguments=("-c", code))
    assert answer.status == "failed"
    assert said in answer.found
    assert answer.read is None


def test_a_probe_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    started = time.monotonic()
    answer = run_probe("mapped", 2.0, arguments=("-c", code))
    assert answer.status == "failed"
    assert answer.found == "no answer within 2 s"
    assert time.monotonic() - started < 20
    assert not Path(f"/proc/{file.read_text()}").exists()


def test_an_unknown_probe_is_a_failed_answer() -> None:
    assert run_probe("nonsense").status == "failed"


def test_the_judge_is_not_satisfied_by_anything_else() -> None:
    right = np.full(9, 84, np.int32)
    assert proof._judge(right, "x").status == "ok"
    for wrong in (42, 85, 0):
        values = right.copy()
        values[7] = wrong
        answer = proof._judge(values, "x")
        assert (answer.status, answer.read) == ("failed", wrong)
    assert proof._judge(right * 0, "x").read == 0


def test_no_more_than_a_page_of_managed_memory_is_ever_asked_for() -> None:
    source = Path(proof.__file__).read_text()
    assert re.findall(r"mallocManaged\((.*?)\)", source) == ["NBYTES"]
    assert proof.NBYTES == 4096


def test_a_full_shared_memory_is_said_and_nothing_is_left_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of B134: the size is asked for before anything is written."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    before = set(Path("/dev/shm").iterdir())
    answer = proof.answer("registered_shm")
    assert answer.status == "failed"
    assert "/dev/shm is full" in answer.found
    assert set(Path("/dev/shm").iterdir()) == before


def test_a_signal_has_a_name() -> None:
    assert (signal_name(11), signal_name(99)) == ("SIGSEGV", "signal 99")
