"""What a compile error says, what a cached cubin is kept under, and how kernels for debuggers are made."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernels.ops
from kernels import compiler
from kernels.chain import make_chain, parse_chain
from kernels.codegen import generate
from kernels.compiler import compile_cubin
from kernels.errors import CompileError
from kernels.formats import GRAY8
from kernels.image import ImageSpec
from kernels.plan import make_plan
from kernels.registry import all_ops, use_ops_folder
from kernels.source_lines import cuda_place, cuda_text

nvrtc = pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13").cuda.nvrtc


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path / "cubins"))
    monkeypatch.delenv("PINHOLE_CUDA_DEBUG", raising=False)
    return tmp_path / "cubins"


@pytest.fixture(autouse=True)
def built_in_ops_after() -> Iterator[None]:
    yield
    use_ops_folder(None)


# ---- errors


def test_the_text_of_each_built_in_op_is_placed_where_it_stands() -> None:
    placed = 0
    for name, op in all_ops().items():
        if not cuda_text(op):
            continue
        place = cuda_place(type(op))
        if place.file == f"ops/{name}.py: cuda_source":
            assert place.line == 1  # put together
            continue
        file = Path(kernels.ops.__path__[0]) / f"{name}.py"
        assert place.file == f"ops/{name}.py"
        assert file.read_text().splitlines()[place.line - 1] == cuda_text(op).splitlines()[0]
        placed += 1
    assert placed > 10


OP = '''
from kernels.op import OpParams, WindowOp


class Broken(WindowOp[OpParams]):
    """Does not compile."""

    name = "broken"
    Params = OpParams
    fixed_radius = 1
    cuda_source = """
struct broken_params {};
template <class At>
__device__ int broken(At at, const broken_params&) {
  return at(0, 0);
}
"""

    def constants(self, params):
        return b""

    def run_cpu(self, src, dst, params, scratch):
        dst[...] = src
'''
TEXT_LINE = OP.splitlines().index("struct broken_params {};") + 1
RETURN_LINE = OP.splitlines().index("  return at(0, 0);") + 1

FAULTS = {
    "an unknown word": ("at(0, 0)", "nothing", RETURN_LINE, 'identifier "nothing" is undefined'),
    "a missing sign": ("at(0, 0);", "at(0, 0)", RETURN_LINE + 1, 'expected a ";"'),
    "a wrong call": ("at(0, 0)", "at(0)", RETURN_LINE, "cannot be called with the given argument list"),
    "another name": ("int broken(", "int brokn(", TEXT_LINE, 'identifier "broken" is undefined'),
    "parameters of another name": ("broken_params", "brokn_params", TEXT_LINE, 'identifier "broken_params"'),
    "another form": (
        "int broken(At at,",
        "int broken(At at, int more,",
        TEXT_LINE,
        "no instance of function template",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_compile_error_names_the_op_its_file_and_line_there(fault: str, tmp_path: Path) -> None:
    good, bad, line, reason = FAULTS[fault]
    # A folder of any name, with signs in it that C++ texts escape.
    folder = tmp_path / 'my "ops"'
    folder.mkdir()
    (folder / "broken.py").write_text(OP.replace(good, bad))
    use_ops_folder(folder)
    chain = make_chain([{"op": name} for name in ("sobel", "broken", "grayscale")])
    with pytest.raises(CompileError) as caught:
        compile_cubin(generate(make_plan(chain, ImageSpec.make(GRAY8, 64, 48))), "90")
    error = caught.value
    assert (error.op, error.file, error.line) == ("broken", str(folder / "broken.py"), line), error.log
    assert reason in error.reason
    assert str(error) == f"CUDA code of broken does not compile ({folder}/broken.py:{line}): {error.reason}"
    assert "\n" not in str(error)
    assert error.reason in error.log


def test_the_compilers_words_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken.py").write_text(OP.replace("at(0, 0)", "nothing"))
    use_ops_folder(tmp_path)
    with caplog.at_level(logging.INFO, "pinhole.compiler"), pytest.raises(CompileError) as caught:
        compile_cubin(generate(make_plan(parse_chain("broken"), ImageSpec.make(GRAY8, 64, 48))), "90")
    assert caught.value.log.rstrip() in caplog.text


def test_text_that_is_put_together_has_lines_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(OP.replace('"""\n\n    def', '""".replace("at(0, 0)", "nothing")\n\n    def'))
    use_ops_folder(tmp_path)
    with pytest.raises(CompileError) as caught:
        compile_cubin(generate(make_plan(parse_chain("broken"), ImageSpec.make(GRAY8, 64, 48))), "90")
    assert (caught.value.op, caught.value.line) == ("broken", 4)
    assert caught.value.file == f"{tmp_path}/broken.py: cuda_source"


def test_an_error_in_the_shared_code_is_not_laid_at_an_ops_door() -> None:
    source = generate(make_plan(parse_chain("sobel"), ImageSpec.make(GRAY8, 64, 48)))
    with pytest.raises(CompileError, match=r"the shared headers .*\(generated:") as caught:
        compile_cubin(source + "int x = nothing;\n", "90")
    assert caught.value.op == ""


# ---- the cache's key

SOURCE = 'extern "C" __global__ void f(int* out) { *out = 1; }'


def compiled(source: str = SOURCE, architecture: str = "90") -> bytes:
    return compile_cubin(source, architecture)


def test_a_cubin_is_kept_for_each_source(cache_folder: Path) -> None:
    first = compiled()
    assert compiled(SOURCE.replace("= 1", "= 2")) != first
    assert len(list(cache_folder.iterdir())) == 2


def test_a_cubin_is_kept_for_each_text_of_the_headers(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = '#include "pinhole/a.cuh"\nextern "C" __global__ void f(int* out) { *out = VALUE; }'
    made = []
    for value in (1, 2):
        included = {"pinhole/a.cuh": f"#define VALUE {value}"}
        monkeypatch.setattr(compiler, "headers", lambda included=included: included)
        made.append(compiled(source))
    assert made[0] != made[1]
    assert len(list(cache_folder.iterdir())) == 2


def test_a_cubin_is_kept_for_each_architecture(cache_folder: Path) -> None:
    assert compiled(architecture="90") != compiled(architecture="87")
    assert len(list(cache_folder.iterdir())) == 2


def test_a_cubin_is_kept_for_each_set_of_options(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void f(int* out) { *out = VALUE; }'
    made = []
    for value in (1, 2):
        monkeypatch.setattr(compiler, "OPTIONS", ("--std=c++17", f"-DVALUE={value}"))
        made.append(compiled(source))
    assert made[0] != made[1]
    assert len(list(cache_folder.iterdir())) == 2


def test_a_cubin_is_kept_for_each_nvrtc(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ((12, 6), (13, 0), (13, 1)):
        monkeypatch.setattr(nvrtc, "getVersion", lambda version=version: version)
        compiled()
    assert len(list(cache_folder.iterdir())) == 3


# ---- for debuggers


def test_kernels_for_debuggers_have_symbols_and_are_kept_apart(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler._say_debug.cache_clear()
    plain = compiled()
    for off in ("", "0", " "):
        monkeypatch.setenv("PINHOLE_CUDA_DEBUG", off)
        assert compiled() == plain
    assert not caplog.records
    monkeypatch.setenv("PINHOLE_CUDA_DEBUG", "1")
    debug = compiled()
    assert b".debug_info" in debug
    assert b".debug_info" not in plain
    assert len(list(cache_folder.iterdir())) == 2
    compiled(SOURCE.replace("= 1", "= 2"))
    (said,) = [record for record in caplog.records if "PINHOLE_CUDA_DEBUG" in record.getMessage()]
    assert said.levelno == logging.WARNING
    monkeypatch.delenv("PINHOLE_CUDA_DEBUG")
    assert compiled() == plain


def test_a_whole_plan_compiles_for_debuggers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINHOLE_CUDA_DEBUG", "1")
    plan = make_plan(parse_chain("gamma | sharpen | flip"), ImageSpec.make(GRAY8, 64, 48))
    assert compile_cubin(generate(plan), "90").startswith(b"\x7fELF")
