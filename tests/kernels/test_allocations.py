"""No frame-sized allocation per frame on the CPU, seen from below: tracemalloc does not see what OpenCV allocates."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.formats import FORMATS
from kernels.registry import all_ops
from tests.kernels.allocation_probe import CHAINS, EDGES, FRAMES, alignments_of, chains_of
from tests.programs import program

SOURCE = Path(__file__).with_name("large_allocations.c")
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.program("cc"),
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator's entry points are glibc's"),
]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Large allocations of each piece of work of the probe."""
    library = tmp_path_factory.mktemp("preload") / "large_allocations.so"
    subprocess.run([program("cc"), "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    probe = subprocess.run(
        [sys.executable, "-m", "tests.kernels.allocation_probe"],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    found: dict[str, int] = json.loads(probe.stdout)
    return found


def test_no_frame_allocates_anything_of_a_frames_size(counts: dict[str, int]) -> None:
    of_frames = {name: count for name, count in counts.items() if name.startswith(("executor", "conversion"))}
    assert len(of_frames) == sum(1 + len(alignments_of(format)) * len(chains_of(format)) for format in FORMATS)
    chains = " ".join(chain for changing in CHAINS.values() for chain in changing)
    assert [name for name in all_ops() if name not in chains] == [], "ops that no chain of the probe has"
    # cv2.Canny takes memory for what it knows of each pixel, more in noise; no other way to its result is as quick.
    edges = {name: count for name, count in of_frames.items() if f" {EDGES} " in name}
    assert len(edges) == 4
    assert all(FRAMES <= count <= 6 * FRAMES for count in edges.values())
    others = {name: count for name, count in of_frames.items() if name not in edges}
    assert others == dict.fromkeys(others, 0)


def test_the_counter_sees_what_opencv_and_numpy_allocate(counts: dict[str, int]) -> None:
    """The checker's own test: each control allocates a frame, or a third of one, at least once."""
    controls = {name: count for name, count in counts.items() if name.startswith("control")}
    assert len(controls) == 8
    assert {name for name, count in controls.items() if count == 0} == set()
    assert controls["control cv2.split, a third of a frame each"] >= 3
