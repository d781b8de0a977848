"""The rules of tests/conftest.py, each in a run of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_pytest(folder: Path, text: str, **environment: str) -> tuple[int, str]:
    """Run the tests of ``text`` under this project's conftest and settings; returns exit code and output."""
    (folder / "test_it.py").write_text(text)
    # Nothing of the run that this test is part of: it may be a worker's (xdist), and its failures noted.
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != "NOTE_FAILURES_IN"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:benchmark"),
            *("-c", "pyproject.toml", "--rootdir", str(folder), str(folder / "test_it.py")),
        ],
        cwd=ROOT,
        env={**environ, "CUDA_VISIBLE_DEVICES": "", "PINHOLE_REQUIRE_GPU": "", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


GPU_TESTS = """
import pytest

@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 3])
def test_on_the_gpu(n): ...

@pytest.mark.gpu
def test_other(): ...

def test_anywhere(): ...
"""


def test_gpu_tests_are_skipped_counted_and_named_without_a_gpu(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, GPU_TESTS)
    assert code == 0, output
    assert "1 passed, 4 skipped" in output
    assert "GPU tests skipped: 4" in output
    assert "test_it.py::test_on_the_gpu (3 cases)" in output
    assert "test_it.py::test_other" in output


def test_gpu_skips_are_failures_where_a_gpu_is_required(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, GPU_TESTS, PINHOLE_REQUIRE_GPU="1")
    assert code == 1, output
    assert "4 failed" in output or "4 errors" in output, output
    assert "1 passed" in output
    assert "PINHOLE_REQUIRE_GPU is set" in output


def test_a_gpu_test_that_skips_itself_is_a_failure_where_a_gpu_is_required(tmp_path: Path) -> None:
    text = """
import pytest
from tests import conftest
conftest.gpu_absence = lambda: None

@pytest.mark.gpu
def test_it(): pytest.skip("I would rather not")

@pytest.mark.gpu
@pytest.mark.xfail
def test_known(): assert False
"""
    code, output = run_pytest(tmp_path, text, PINHOLE_REQUIRE_GPU="1")
    assert code == 1, output
    assert "1 failed, 1 xfailed" in output
    assert "I would rather not" in output


def test_tests_of_a_missing_program_are_skipped_by_its_name(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.mark.program("no-such-program")
def test_it(): assert False

@pytest.mark.program("sh")
def test_sh(): ...
"""
    code, output = run_pytest(tmp_path, text)
    assert code == 0, output
    assert "1 passed, 1 skipped" in output
    assert "tests skipped: 1 (the program no-such-program is not installed)" in output


def test_a_test_that_leaves_a_thread_is_an_error(tmp_path: Path) -> None:
    text = """
import threading, pytest

def leave():
    threading.Thread(target=threading.Event().wait, name="left-over", daemon=True).start()

def test_it(): leave()

@pytest.mark.leaks_allowed("it is meant")
def test_allowed(): leave()
"""
    code, output = run_pytest(tmp_path, text)
    assert code == 1, output
    assert "2 passed, 1 error" in output
    assert "LeakError" in output
    assert "left-over" in output


def test_an_unclosed_file_is_an_error(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "def test_it():\n    open('/dev/null')\n")
    assert code == 1, output
    assert "ResourceWarning" in output


def test_a_marker_that_is_not_declared_is_an_error(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "import pytest\n@pytest.mark.gpo\ndef test_it(): ...\n")
    assert code != 0, output
    assert "gpo" in output
