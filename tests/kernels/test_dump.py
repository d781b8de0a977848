"""What is written of a plan's CUDA text: under which name, as a whole, and compilable as it lies there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kernels.chain import parse_chain
from kernels.codegen import generate, headers
from kernels.device import CudaDevice
from kernels.dump import dump, prepare_folder, with_headers
from kernels.errors import CompileError, InputError
from kernels.formats import BGR8, NV12, PixelFormat
from kernels.image import ImageSpec
from kernels.plan import Plan, make_plan, unfused


def plan_of(text: str, format: PixelFormat = NV12, width: int = 64) -> Plan:
    return make_plan(parse_chain(text), ImageSpec.make(format, width, 48))


def written(folder: Path, plan: Plan) -> Path:
    path = dump(folder, plan, generate(plan))
    assert path is not None
    return path


def test_a_file_is_named_by_the_format_and_the_ops(tmp_path: Path) -> None:
    path = written(tmp_path, plan_of("gaussian_blur(ksize=3) | gamma"))
    assert path.parent == tmp_path
    assert path.name.startswith("nv12_gaussian_blur_gamma_")
    text = path.read_text()
    assert text.startswith("// gaussian_blur | gamma, from NV12 to BGR8\n")
    assert path.name in text.splitlines()[1]
    assert written(tmp_path, plan_of("")).name.startswith("nv12_nothing_")


def test_there_is_one_file_for_each_text(tmp_path: Path) -> None:
    blur = plan_of("gaussian_blur(ksize=3)")
    same = written(tmp_path, blur)
    assert written(tmp_path, plan_of("gaussian_blur(ksize=31, sigma=2.0)")) == same, "values are no text"
    others = [unfused(plan_of("sobel | sharpen")), plan_of("sobel | sharpen"), plan_of("sobel | sharpen", width=63)]
    paths = {written(tmp_path, plan) for plan in others}
    assert len(paths) == 3
    assert set(tmp_path.iterdir()) == {same, *paths}


def test_a_long_chain_has_a_name_that_file_systems_take(tmp_path: Path) -> None:
    path = written(tmp_path, plan_of(" | ".join(["gaussian_blur"] * 64)))
    other = written(tmp_path, plan_of(" | ".join(["gaussian_blur"] * 63 + ["sobel"])))
    assert path != other
    assert len(path.name.encode()) < 200


def test_the_text_stands_alone_and_has_each_header_once() -> None:
    text = with_headers(generate(plan_of("sobel | flip")))
    assert "#include" not in text
    assert "#pragma once" not in text
    for name in headers():
        assert text.count(f"// ---- {name}\n") == 1
    assert text.count("struct Picture") == 1
    # What a header needs comes before it.
    assert text.index("// ---- pinhole/common.cuh") < text.index("struct Frame") < text.index("struct IngestPass")


def test_nvcc_compiles_a_file_as_it_lies_there(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: dumped text is compiled by NVRTC only")
    path = written(tmp_path, plan_of("gamma | sobel | gain_offset | flip", BGR8))
    command = [nvcc, "-std=c++17", "-arch=sm_90", "-cubin", "-o", str(tmp_path / "out.cubin"), str(path)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.cubin").read_bytes().startswith(b"\x7fELF")


def test_nvrtc_compiles_a_file_without_headers(tmp_path: Path) -> None:
    nvrtc = pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13").cuda.nvrtc
    text = written(tmp_path, plan_of("gamma | sobel | gain_offset | flip", BGR8)).read_text()
    program = nvrtc.createProgram(text, "dumped", [], [])
    try:
        nvrtc.compileProgram(program, ("--std=c++17", "-default-device", "-arch=sm_90"))
        assert nvrtc.getCUBIN(program).startswith(b"\x7fELF")
    finally:
        nvrtc.destroyProgram(program)


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert not list((tmp_path / "a" / "b").iterdir())


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError, match="cannot be written") as caught:
            prepare_folder(folder, "--dump-cuda")
        assert caught.value.field == "--dump-cuda"
        assert str(folder) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Permission denied"):
        prepare_folder(tmp_path)


def test_a_folder_that_vanishes_is_logged_and_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_of("sobel")
    assert dump(tmp_path / "gone", plan, generate(plan)) is None
    assert "is not written to" in caplog.text


def test_an_executor_writes_its_text_before_it_compiles_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that text which does not compile can be looked at."""
    pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13")
    from kernels import run_cuda

    def refuse(source: str, architecture: str) -> bytes:
        raise CompileError("sobel", "no")

    monkeypatch.setattr(run_cuda, "_cubin", refuse)
    plan = plan_of("sobel")
    for folder in (tmp_path, None):
        device = SimpleNamespace(architecture="90", integrated=False, dump_folder=folder)
        with pytest.raises(CompileError):
            run_cuda.CudaExecutor(cast(CudaDevice, device), plan, "block")
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("nv12_sobel_")
    assert with_headers(generate(plan)) in file.read_text()
