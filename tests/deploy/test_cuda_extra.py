"""deploy/cuda_extra.py on outputs captured from machines, and on the machine at hand."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "cuda_extra.py"

H200 = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
+-----------------------------------------+------------------------+----------------------+
"""
DESKTOP = """\
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |
"""
ORIN = """\
| NVIDIA-SMI 540.4.0                Driver Version: 540.4.0      CUDA Version: 12.6     |
|   0  Orin (nvgpu)                  N/A  | N/A              N/A |                  N/A |
"""
NO_CUDA_VERSION = """\
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06    CUDA Version: N/A      |
"""
OLD = """\
| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: 11.4     |
"""
NEW_WORDING = """\
| NVIDIA-SMI 595.45.04              KMD Version: 595.45.04     CUDA UMD Version: 13.2     |
"""
BROKEN = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

MODULE_580 = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
MODULE_550 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
MODULE_470 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cuda_extra", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (H200, (True, "cuda13")),
        (DESKTOP, (True, "cuda12")),
        (ORIN, (True, "cuda12")),
        (NO_CUDA_VERSION, (True, "cuda13")),
        (NEW_WORDING, (True, "cuda13")),
        (OLD, (True, None)),
        (BROKEN, (False, None)),
        ("", (False, None)),
    ],
)
def test_nvidia_smi(script: ModuleType, text: str, expected: tuple[bool, str | None]) -> None:
    assert script.from_nvidia_smi(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(MODULE_580, (True, "cuda13")), (MODULE_550, (True, "cuda12")), (MODULE_470, (True, None)), ("", (False, None))],
)
def test_module_version(script: ModuleType, text: str, expected: tuple[bool, str | None]) -> None:
    assert script.from_module_version(text) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [(13000, (True, "cuda13")), (12060, (True, "cuda12")), (11040, (True, None)), (0, (False, None))],
)
def test_library_version(script: ModuleType, version: int, expected: tuple[bool, str | None]) -> None:
    assert script.from_library(version) == expected


@pytest.mark.parametrize(("text", "expected"), [(H200, "cuda13"), (DESKTOP, "cuda12"), (OLD, "")])
def test_the_command_prints_what_the_driver_supports(tmp_path: Path, text: str, expected: str) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "PINHOLE_CUDA_EXTRA": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == expected
    assert ("older than CUDA 12" in done.stderr) == (expected == "")


def test_a_failing_nvidia_smi_is_no_gpu(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{H200}END\nexit 9\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert script.run_nvidia_smi() == ""
