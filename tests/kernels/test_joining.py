"""Joining what hangs together, by threads that really run at once: see joining.cpp. The emulator has one at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernels.codegen import headers
from tests.programs import program

pytestmark = pytest.mark.program("c++")

_LOAD = 'asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");'
_STORE = 'asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");'


def joined(folder: Path, wrong: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What the program says; ``wrong`` is put into the text in the place of what is right."""
    text = (headers()["pinhole/common.cuh"] + headers()["pinhole/join.cuh"]).replace("#pragma once", "")
    text = text.replace('#include "pinhole/common.cuh"', "")
    assert (text.count(_LOAD), text.count(_STORE)) == (1, 1)
    text = text.replace(_LOAD, "++loads; value = __atomic_load_n(address, __ATOMIC_RELAXED);")
    text = text.replace(_STORE, "__atomic_store_n(address, value, __ATOMIC_RELAXED);")
    if wrong is not None:
        assert text.count(wrong[0]) == 1
        text = text.replace(*wrong)
    source, binary = folder / "joining.cpp", folder / "joining"
    source.write_text(Path(__file__).with_name("joining.cpp").read_text().replace("// JOIN\n", text), encoding="utf-8")
    subprocess.run([program("c++"), "-std=c++17", "-O1", "-pthread", "-o", str(binary), str(source)], check=True)
    return subprocess.run([str(binary)], capture_output=True, text=True, check=False)


def test_threads_join_as_one_floods_and_no_way_is_long(tmp_path: Path) -> None:
    """A spiral of a million pixels among them; three times ln(pixels) would be 42."""
    done = joined(tmp_path)
    assert done.returncode == 0, done.stderr
    longest, loads = done.stdout.split()
    assert int(longest) <= 42
    assert float(loads) < 30, "for each pixel"


def test_a_neighbour_that_is_left_out_shows(tmp_path: Path) -> None:
    wrong = ("if (y > 0 && x + 1 < width && known(at - width + 1)) join(labels, at, at - width + 1);", "")
    assert joined(tmp_path, wrong).returncode == 1
