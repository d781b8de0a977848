"""Which programs ``tests/gpu/run.sh`` starts for each mode; a stand-in for python3 notes what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.sh"
GPU, COMPARE = "-m tests.benchmarks.bench_gpu --out OUT", "-m tests.benchmarks.bench_compare --out OUT"
TRANSFER = "-m service bench transfer " + " ".join(
    f"--{kind} OUT/bench_transfer.{kind}" for kind in ("json", "html", "png")
)
FRAME = TRANSFER.replace("transfer", "frame")


@pytest.mark.parametrize(
    ("arguments", "benchmarks", "tests"),
    [
        ((), [GPU], True),
        (("tests", "-k", "ring"), [], True),
        (("bench",), [GPU], False),
        (("bench", "bench_host", "bench_gpu"), [GPU.replace("gpu", "host"), GPU], False),
        (("bench", "transfer"), [TRANSFER], False),
        (("bench", "frame", "bench_host"), [FRAME, GPU.replace("gpu", "host")], False),
        (("compare",), [f"{COMPARE} --memory zero_copy --runs 3"], False),
        (("compare", "--runs", "1"), [f"{COMPARE} --memory zero_copy --runs 3 --runs 1"], False),
    ],
)
def test_each_mode_runs_its_programs(
    arguments: tuple[str, ...], benchmarks: list[str], tests: bool, tmp_path: Path
) -> None:
    asked, out = tmp_path / "asked", tmp_path / "out"
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n')
    python.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(out)}
    done = subprocess.run(["bash", SCRIPT, *arguments], env=variables, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = asked.read_text().replace(str(out), "OUT").splitlines()
    assert [line for line in lines if "tests.benchmarks.bench" in line or " bench " in line] == benchmarks
    assert any(line.startswith("-m pytest") for line in lines) == tests
