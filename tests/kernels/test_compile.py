"""Every op and ingest compiles for every architecture that matters, without a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kernels import cuda_block, run_cuda
from kernels.chain import Chain, make_chain, parse_chain
from kernels.codegen import generate, headers
from kernels.compiler import OPTIONS, compile_cubin
from kernels.formats import BGR8, BGR16, FORMATS, GRAY8, GRAY16, NV12, PixelFormat
from kernels.image import ImageSpec
from kernels.plan import Plan, make_plan, unfused
from kernels.registry import all_ops
from kernels.stages import PASS_BYTES
from tests.kernels import nvrtc12
from tests.kernels.test_plan import Counts, Remembers, chain_with

nvrtc = pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13").cuda.nvrtc

# Turing, Ampere, Orin, Ada, Hopper, and Thor; what an NVRTC does not know is left out, by its own list.
ARCHITECTURES = sorted({75, 80, 87, 89, 90, 110} & set(nvrtc.getSupportedArchs()))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path / "cubins"))
    return tmp_path / "cubins"


def plan_of(format: PixelFormat, chain: Chain) -> Plan:
    return make_plan(chain, ImageSpec.make(format, 64, 48))


def test_the_architectures_of_our_boards_are_known() -> None:
    assert {87, 90} <= set(ARCHITECTURES)


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_each_format_compiles(format: PixelFormat) -> None:
    source = generate(plan_of(format, parse_chain("gamma | grayscale | sobel")))
    assert f" ingest_{format.name.lower()}_gamma_grayscale(" in source
    assert compile_cubin(source, "90").startswith(b"\x7fELF")


# NVRTC by its major version, and the boards it compiles for: Xavier, Orin and Hopper; Orin, Hopper, Thor and Blackwell.
COMPILERS = [(12, 72), (12, 87), (12, 90), (13, 87), (13, 90), (13, 110), (13, 120)]


def compiled(source: str, version: int, architecture: int) -> bytes:
    if version == nvrtc.getVersion()[0]:
        return compile_cubin(source, str(architecture), cache=False)
    if version != 12 or nvrtc12.library() is None:
        pytest.skip(f"NVRTC {version} is not installed")
    return nvrtc12.compile_cubin(source, architecture)


def catalogue_cases() -> list[tuple[str, int, int]]:
    """Each op with one compiler and board, in turn; PINHOLE_COMPILE_ALL=1 takes all of them, which is minutes."""
    ops = list(all_ops())
    if os.environ.get("PINHOLE_COMPILE_ALL", "0") != "0":
        return [(op, *case) for op in ops for case in COMPILERS]
    return [(op, *COMPILERS[index % len(COMPILERS)]) for index, op in enumerate(ops)]


@pytest.mark.parametrize(("name", "version", "architecture"), catalogue_cases())
def test_each_op_compiles(name: str, version: int, architecture: int) -> None:
    """On colour, then on grey; behind a stencil, so that it works on tiles."""
    chain = make_chain([{"op": op} for op in ("sobel", name, "grayscale", name)])
    assert compiled(generate(plan_of(NV12, chain)), version, architecture).startswith(b"\x7fELF")


def wide_cases() -> list[tuple[tuple[str, ...], PixelFormat, int, int]]:
    """The ops that take 16 bits in as many groups as there are compilers, one each, on colour and grey by turns."""
    names = [name for name, op in all_ops().items() if op.takes_16_bit and name != "levels"]
    found = [tuple(names[at :: len(COMPILERS)]) for at in range(len(COMPILERS))]
    if os.environ.get("PINHOLE_COMPILE_ALL", "0") != "0":
        return [((name,), format, *case) for name in names for format in (GRAY16, BGR16) for case in COMPILERS]
    return [(group, (BGR16, GRAY16)[at % 2], *COMPILERS[at]) for at, group in enumerate(found)]


@pytest.mark.parametrize(("names", "format", "version", "architecture"), wide_cases(), ids=str)
def test_ops_of_16_bits_compile(names: tuple[str, ...], format: PixelFormat, version: int, architecture: int) -> None:
    """Behind a stencil, so that they work on tiles, before ``levels``, and with what follows it in 8 bits."""
    chain = make_chain([{"op": op} for op in ("sobel", *names, "levels", "sharpen")])
    assert compiled(generate(plan_of(format, chain)), version, architecture).startswith(b"\x7fELF")


def test_xavier_gets_each_form_of_a_pass() -> None:
    chain = parse_chain("gamma | grayscale | gaussian_blur | invert | sharpen | flip | invert | sobel")
    for plan in (plan_of(NV12, chain), unfused(plan_of(GRAY8, chain))):
        assert compiled(generate(plan), 12, 72).startswith(b"\x7fELF")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_form_of_a_pass_compiles_for_each_architecture(architecture: int) -> None:
    chain = parse_chain("gamma | grayscale | gaussian_blur | invert | sharpen | flip | invert | sobel")
    for plan in (plan_of(NV12, chain), unfused(plan_of(GRAY8, chain))):
        assert compile_cubin(generate(plan), str(architecture)).startswith(b"\x7fELF")


def test_ops_that_remember_or_count_compile() -> None:
    chain = chain_with("sobel", Counts(), "gamma", Remembers(), "gamma", "grayscale", Counts(), Remembers())
    for plan in (plan_of(NV12, chain), unfused(plan_of(NV12, chain))):
        assert compile_cubin(generate(plan), "90").startswith(b"\x7fELF")


def test_the_text_names_the_ops_of_each_pass() -> None:
    source = generate(plan_of(NV12, parse_chain("invert | sobel | gamma | invert | flip | grayscale | sobel")))
    for name in ("ingest_nv12_invert", "pass1_sobel_gamma_invert", "pass2_flip_grayscale_sobel"):
        assert source.count(f" void {name}(") == 1
    assert "// sobel | gamma | invert" in source
    assert "sobel_params& p6" in source


def test_a_chain_that_names_an_op_twice_compiles() -> None:
    chain = parse_chain("gamma(gamma=2.0) | gaussian_blur(ksize=3) | gamma(gamma=0.5) | gaussian_blur(ksize=31)")
    assert compile_cubin(generate(plan_of(GRAY8, chain)), "90")


def test_parameters_do_not_change_the_text() -> None:
    plans = [
        plan_of(NV12, parse_chain(f"gaussian_blur(ksize={k}) | gamma(gamma={g})")) for k, g in ((3, 1.0), (31, 2.2))
    ]
    assert generate(plans[0]) == generate(plans[1])


def test_sizes_do_not_change_the_text() -> None:
    chains = [
        parse_chain(f"resize(width={w}, interpolation={how!r}) | sobel") for w, how in ((9, "area"), (640, "linear"))
    ]
    plans = [make_plan(chain, ImageSpec.make(NV12, *size)) for chain in chains for size in ((64, 48), (1280, 720))]
    whole = [generate(plan) for plan in plans if plan.result.width == 640]
    odd = [generate(plan) for plan in plans if plan.result.width == 9]
    assert len(whole) == len(odd) == 2
    assert len(set(whole)) == len(set(odd)) == 1


def test_a_second_compile_comes_from_the_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = generate(plan_of(NV12, Chain()))
    first = compile_cubin(source, "90")
    monkeypatch.setattr(nvrtc, "createProgram", None)
    assert compile_cubin(source, "90") == first
    assert len(list(cache_folder.iterdir())) == 1


def test_a_damaged_cache_file_is_compiled_again(cache_folder: Path) -> None:
    source = generate(plan_of(NV12, Chain()))
    first = compile_cubin(source, "90")
    (file,) = cache_folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert compile_cubin(source, "90") == first
    assert len(file.read_bytes()) == len(first) + 32


def test_b76_a_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert compile_cubin(generate(plan_of(NV12, Chain())), "90")


def test_no_kernel_spills(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: register spills are not checked")
    (tmp_path / "pinhole").mkdir()
    for name, text in headers().items():
        (tmp_path / name).write_text(text)
    for format in FORMATS.values():
        # Formats differ in their ingest only.
        chains = {BGR8: "gaussian_blur | gamma | sharpen | flip | sobel", NV12: "clahe | canny"}
        chain = parse_chain(chains.get(format, ""))
        (tmp_path / "plan.cu").write_text(generate(plan_of(format, chain)))
        command = [nvcc, "-std=c++17", "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-I.", "-o", "plan.cubin", "plan.cu"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        spills = [line for line in done.stderr.splitlines() if "spill" in line and " 0 bytes spill stores" not in line]
        assert "bytes stack frame" in done.stderr
        assert not spills


def test_the_host_lays_structures_out_as_the_compiler_does() -> None:
    """Size and the offset of every field."""
    for structure in (
        cuda_block.Rows, cuda_block.IngestPass, cuda_block.StatisticPass, cuda_block.TilePass, cuda_block.EgressPass,
        run_cuda.Frame,
    ):  # fmt: skip
        fields = [field for field, *_ in structure._fields_]
        offsets = [getattr(structure, field).offset for field in fields]
        assert laid_out(structure.__name__, fields) == [*offsets, ctypes.sizeof(structure)]
        assert ctypes.sizeof(structure) <= PASS_BYTES or structure is run_cuda.Frame


def laid_out(structure: str, fields: list[str]) -> list[int]:
    """Offsets of fields, then the size, in bytes, as NVRTC says: not every one knows ``offsetof``, and a pointer to a
    member *is* its offset (Itanium C++ ABI, 2.3.1), which the variable's initial bytes in the PTX show."""
    members = [f"&{structure}::{field}" for field in fields]
    text = "".join(f'#include "{name}"\n' for name in headers())
    text += "struct Layout { " + " ".join(f"decltype({member}) m{i};" for i, member in enumerate(members))
    text += " unsigned long long size; };\n"
    text += f'extern "C" __device__ const Layout layout = {{{", ".join(members)}, sizeof({structure})}};\n'
    program = nvrtc.createProgram(
        text, "layout", [header.encode() for header in headers().values()], [name.encode() for name in headers()]
    )
    try:
        nvrtc.compileProgram(program, (*OPTIONS, "-arch=compute_90"))
        ptx = nvrtc.getPTX(program).decode()
    finally:
        nvrtc.destroyProgram(program)
    found = re.search(r"\.b8 layout\[(\d+)\] = \{([^}]*)\}", ptx)
    assert found is not None
    values = bytes(map(int, found[2].split(","))).ljust(int(found[1]), b"\0")
    return list(struct.unpack(f"<{len(fields) + 1}Q", values))
