"""deploy/install.py: what is installed adds up, and a second run does nothing; with a pip that only records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"

# Stands where the environment's Python would: answers `-m pip` by noting its arguments.
FAKE_PYTHON = """\
#!/bin/sh
[ "$*" = "-m pip --version" ] && exit 0
echo "$@" >> "{log}"
echo "  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16 MB)"
exit ${{FAKE_PIP_EXIT:-0}}
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder like a fresh clone whose virtual environment only records what pip is asked."""

    root: Path

    def install(self, *arguments: str, gpu: str = "none", fail: bool = False) -> tuple[int, list[str], str]:
        """Run the script; returns its exit code, pip's command lines and what was printed."""
        log = self.root / "pip.log"
        log.write_text("")
        done = subprocess.run(
            [sys.executable, str(self.root / "deploy" / "install.py"), *arguments],
            env={**os.environ, "PINHOLE_CUDA_EXTRA": gpu, "FAKE_PIP_EXIT": "1" if fail else "0", "PIP_NO_INDEX": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, log.read_text().splitlines(), done.stdout + done.stderr

    def extras(self) -> list[str]:
        stamp = json.loads((self.root / ".venv" / "pinhole-installed.json").read_text())
        return list(stamp["extras"])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON.format(log=tmp_path / "pip.log"))
    python.chmod(0o755)
    return Project(tmp_path)


def test_a_second_run_calls_no_pip(project: Project) -> None:
    code, calls, output = project.install("video")
    assert code == 0, output
    assert len(calls) == 1
    assert f"--editable {project.root}[video]" in calls[0]
    assert "numpy 2.4.6 (16 MB)" in output, "long work shows progress"
    assert project.install("video") == (0, [], "")


def test_extras_add_up_and_none_undoes_another(project: Project) -> None:
    project.install("video")
    _, calls, _ = project.install("video", "dev", "--cuda", "any")
    assert f"{project.root}[cuda13,dev,video]" in calls[0]
    assert project.install("video", "--cuda", "fit") == (0, [], "")
    assert project.install("video", "dev", "--cuda", "any") == (0, [], "")


def test_a_changed_pyproject_installs_again(project: Project) -> None:
    project.install("video", "dev")
    (project.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    _, calls, _ = project.install("video")
    assert f"{project.root}[dev,video]" in calls[0]


@pytest.mark.parametrize("gpu", ["cuda13", "cuda12"])
def test_the_cuda_extra_fits_the_driver(project: Project, gpu: str) -> None:
    project.install("--cuda", "fit", gpu=gpu)
    assert project.extras() == [gpu]
    assert project.install("--cuda", "any", gpu=gpu) == (0, [], "")


def test_another_driver_replaces_the_cuda_extra(project: Project) -> None:
    project.install("dev", "--cuda", "any")
    code, calls, output = project.install("--cuda", "fit", gpu="cuda12")
    assert code == 0, output
    assert "uninstall --yes cupy-cuda13x" in calls[0]
    assert f"{project.root}[cuda12,dev]" in calls[1]
    assert project.install("dev", "--cuda", "any") == (0, [], "")


def test_a_failed_install_says_why_and_is_tried_again(project: Project) -> None:
    code, _, output = project.install("video", fail=True)
    assert code != 0
    assert "pip failed (1)" in output
    code, calls, _ = project.install("video")
    assert code == 0
    assert len(calls) == 1


def test_a_moved_folder_gets_a_new_environment(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    project.install()
    moved = Project(tmp_path_factory.mktemp("moved") / "project")
    shutil.move(project.root, moved.root)
    _, _, output = moved.install()  # a real environment, whose pip finds no index and fails
    assert "making .venv" in output
    assert "pip failed" in output


def test_an_unknown_choice_is_refused_by_name(project: Project) -> None:
    code, calls, output = project.install("--cuda", "fit", gpu="cuda11")
    assert code != 0
    assert calls == []
    assert "allowed: none, cuda12, cuda13" in output
