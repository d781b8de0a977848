"""``pinhole ops explain`` and ``--dump-cuda``: what is printed, the JSON, what is written, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernels.device import CudaDevice, HostDevice
from kernels.registry import use_ops_folder
from service.cli import dump_cuda_of, main
from tests.helpers.server import SMALL_CARD, serve
from tests.service.test_own_ops import DARKEN

pytestmark = pytest.mark.usefixtures("logging_as_before")

STD4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5.0) | sharpen"


@pytest.fixture(autouse=True)
def built_in_ops_after() -> Iterator[None]:
    yield
    use_ops_folder(None)


def here(*args: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ("ops", "explain", *args), env={"PINHOLE_DUMP_CUDA": "", **variables})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_plan_is_told_pass_by_pass_and_beside_one_with_a_pass_an_op() -> None:
    code, text = here(STD4, "--format", "NV12", "--size", "1920x1080")
    assert code == 0
    for line in (
        "gaussian_blur(ksize=5, sigma=0.0) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5.0) | sharpen()",
        "1920x1080 NV12 bt709 limited to 1920x1080 BGR8: 2 passes, one launch",
        "ingest_nv12 (ingest)",
        "    reads     slot, 1920x1080 NV12: 3.11 MB over the link",
        "    writes    device memory, 1920x1080 BGR8: 6.22 MB",
        "pass1_gaussian_blur_gamma_gain_offset_sharpen (tiles)",
        "    why       gaussian_blur reads around a pixel: it works on tiles",
        "    sweeps    gaussian_blur + gamma + gain_offset; sharpen",
        "    reads     device memory, 1920x1080 BGR8: 8.97 MB, +44.2% by a halo of 3 px",
        "    writes    result, 1920x1080 BGR8: 6.22 MB over the link",
        "    works on  1020 tiles of 128x16 px, +7.2% computed around them",
        "passes                               2              5",
        "over the link, out             6.22 MB        6.22 MB",
        "to and from device memory     15.19 MB       52.47 MB",
    ):
        assert line in text.splitlines(), line


def test_the_same_as_json() -> None:
    code, text = here("resize(width=641) | invert", "--format", "gray8", "--size", "1280x720", "--json")
    assert code == 0
    answer = json.loads(text)
    assert list(answer) == ["chain", "plan", "unfused"]
    ingest, gather, egress = answer["plan"]["passes"]
    assert [one["kind"] for one in (ingest, gather, egress)] == ["ingest", "tiles", "egress"]
    assert gather["sweeps"] == [{"ops": ["resize", "invert"], "halo_px": 0}]
    assert (gather["read_overhead"], gather["tile_px"]) == (None, [384, 16])
    assert egress["writes"] == {"place": "result", "picture": answer["plan"]["result"], "bytes": 641 * 361}
    assert answer["plan"]["source"] == {"format": "GRAY8", "width": 1280, "height": 720, "bytes": 1280 * 720}
    assert len(answer["unfused"]["passes"]) == 4


def test_the_format_of_the_result_and_the_kind_of_gpu_are_taken_into_account() -> None:
    text = here("sobel", "--format", "bgr8", "--target", "i420", "--in-place")[1]
    assert "1920x1080 BGR8 to 1920x1080 I420 bt601 full: 1 pass, one launch" in text
    assert "is read where it lies" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("sobl",), "chain[0].op: unknown op 'sobl' (did you mean 'sobel'?)"),
        (("sobel", "--format", "NV21"), "--format: unknown pixel format 'NV21' (did you mean 'NV12'?)"),
        (("sobel", "--size", "big"), "--size: 'big' is no size; allowed: WIDTHxHEIGHT"),
        (("sobel", "--size", "0x10"), "--size: 0x10 is not a size; allowed: 1x1 to 16384x16384 px"),
        (("sobel", "--size", "20000x10"), "--size: 20000x10 is not a size"),
        (("sobel", "--target", "YUYV"), "--target: YUYV cannot be made of BGR8; allowed: BGR8, GRAY8, I420, NV12"),
        (("sobel", "--target", "RGB"), "--target: unknown pixel format 'RGB'"),
        (("sobel", "--dump-cuda", "/proc/nowhere"), "--dump-cuda: /proc/nowhere cannot be written: "),
        (("sobel", "--ops", "/nowhere"), "--ops: /nowhere: No such file or directory"),
    ],
)
def test_what_is_not_acceptable_ends_with_code_2_and_one_line(args: tuple[str, ...], message: str) -> None:
    code, text = here(*args)
    assert code == 2
    assert text.startswith(f"pinhole: {message}")
    assert len(text.splitlines()) == 1


def test_a_chain_may_name_operations_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "own_darken.py").write_text(DARKEN)
    assert "sobel + own_darken" in here("sobel | own_darken", "--ops", str(tmp_path))[1]
    assert "sobel + own_darken" in here("sobel | own_darken", PINHOLE_OPS_DIR=str(tmp_path))[1]
    before = ("ops", "--ops", str(tmp_path), "explain", "sobel | own_darken")
    assert CliRunner().invoke(main, before, env={"PINHOLE_OPS_DIR": "/nowhere"}).exit_code == 0


def test_the_cuda_text_is_written_by_flag_and_by_variable(tmp_path: Path) -> None:
    for folder, args, variables in (
        (tmp_path / "a" / "b", ("--dump-cuda", str(tmp_path / "a" / "b")), {}),
        (tmp_path / "c", (), {"PINHOLE_DUMP_CUDA": str(tmp_path / "c")}),
    ):
        code, text = here("invert | sobel", "--format", "GRAY8", *args, **variables)
        assert code == 0
        (file,) = folder.iterdir()
        assert text.endswith(f"\nCUDA text: {file}\n")
        assert file.name.startswith("gray8_invert_sobel_")
        assert "void pass1_sobel(" in file.read_text()
    assert json.loads(here("", "--json", "--dump-cuda", str(tmp_path / "d"))[1])["cuda"].startswith(f"{tmp_path}/d/")


def test_serve_refuses_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    file = tmp_path / "pinhole.yaml"
    file.write_text(f"dump_cuda: {tmp_path}/file\ncameras: {{}}\n")
    for args, variables, where in (
        (("--dump-cuda", str(tmp_path / "file")), {}, "--dump-cuda"),
        ((), {"PINHOLE_DUMP_CUDA": str(tmp_path / "file")}, "PINHOLE_DUMP_CUDA"),
        (("--config", str(file)), {}, f"{file}:1: dump_cuda"),
    ):
        result = CliRunner().invoke(main, ("serve", "--port", "0", *args), env=variables)
        assert result.exit_code == 2, result.output
        assert result.output.startswith(f"pinhole: {where}: {tmp_path}/file cannot be written: ")


def test_a_gpu_is_told_where_to_write_and_without_one_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = CudaDevice.__new__(CudaDevice)  # there is none here
    dump_cuda_of(device, tmp_path)
    assert device.dump_folder == tmp_path
    assert not caplog.records
    dump_cuda_of(HostDevice(), tmp_path)
    assert "chains run on the CPU" in caplog.text


def test_serve_makes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "cuda"
    with serve("--camera", f"a={SMALL_CARD}", "--dump-cuda", str(folder), CUDA_VISIBLE_DEVICES="") as server:
        assert folder.is_dir()
        assert "no CUDA text is written" in server.log
