"""``pinhole ops new``: what it writes works as it is, its tests can fail, and it overwrites nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.chain import Step
from kernels.errors import InputError
from kernels.formats import BGR8, GRAY8
from kernels.registry import find_op, use_ops_folder
from kernels.trial import run_once
from service.cli import main
from service.op_templates import TEMPLATES
from service.ops_cli import shown_program
from service.ops_new import check_name, device_names, write_op
from tests.kernels import host_kernels, host_windows
from tests.kernels.cases import SourceCase
from tests.programs import program

# What makes the CPU form of each template wrong.
FAULTS = {
    "point": ("src[..., ::-1]", "src[..., ::1]"),
    "table": ("- params.by, 0", "- params.by, 1"),
    "window": ("delta=128", "delta=127"),
    "pixel": ("_CHANNELS.index(params.channel), dst", "0, dst"),
    "gather": ("cv2.transpose(src, dst=dst)", "cv2.transpose(src[::-1], dst=dst)"),
}


@pytest.fixture(autouse=True)
def built_in_ops_after() -> Iterator[None]:
    yield
    use_ops_folder(None)


def here(*args: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ("ops", *args), env={"PINHOLE_OPS_DIR": "", **variables})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with an op of each kind, named after it."""
    folder = tmp_path / "mine"
    for kind in TEMPLATES:
        code, text = here("new", f"my_{kind}", "--kind", kind, "--dir", str(folder))
        assert code == 0, text
    return folder


def pytest_in(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """``pytest`` as a user has it: in the folder, without our configuration."""
    environment = {**os.environ, "PINHOLE_CACHE_DIR": str(folder / "cubins"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rf", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_is_written_is_listed_explained_and_passes_its_tests(written: Path) -> None:
    assert sorted(p.name for p in written.glob("*.py")) == sorted(f"my_{kind}.py" for kind in TEMPLATES)
    for order in (("--ops", str(written), "my_point"), ("my_point", "--ops", str(written))):
        code, text = here(*order)
        assert code == 0, text
        assert text.startswith("my_point (point): ")
        use_ops_folder(None)
    listed = here("--ops", str(written))[1]
    for kind in TEMPLATES:
        assert f"\nmy_{kind} (" in listed
    code, text = here("explain", " | ".join(f"my_{kind}" for kind in TEMPLATES), "--ops", str(written))
    assert code == 0
    assert "my_gather gathers" in text
    done = pytest_in(written)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 10 * len(TEMPLATES)


def test_the_tests_that_are_written_fail_where_the_op_is_wrong(written: Path) -> None:
    for kind, (good, bad) in FAULTS.items():
        file = written / f"my_{kind}.py"
        text = file.read_text()
        assert text.count(good) == 1
        file.write_text(text.replace(good, bad))
    done = pytest_in(written, "-k", "cpu")
    assert done.returncode == 1
    assert set(re.findall(r"FAILED tests/test_my_(\w+)\.py", done.stdout)) == set(TEMPLATES), done.stdout


@pytest.mark.program("c++")
def test_the_cuda_text_of_the_templates_does_what_their_cpu_forms_do(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by the processor: see host_kernels.py."""
    use_ops_folder(written)
    pixel_ops = {f"my_{kind}": find_op(f"my_{kind}") for kind in ("point", "pixel", "gather")}
    monkeypatch.setattr(host_kernels, "PIXEL_OPS", pixel_ops)
    monkeypatch.setattr(host_kernels, "TEMPORAL_OPS", {})
    monkeypatch.setattr(host_windows, "WINDOW_OPS", {"my_window": find_op("my_window")})
    pixels, windows = (host.build(program("c++"), tmp_path) for host in (host_kernels, host_windows))
    for format in (BGR8, GRAY8):
        for name, op in pixel_ops.items():
            for values in [{}] if name != "my_pixel" else [{}, {"channel": "blue"}]:
                step = Step(op, op.Params(**values))
                picture, result = host_kernels.run(pixels, step, SourceCase(format, 43, 17))
                np.testing.assert_array_equal(result, run_once(op, picture, values), f"{name} {format}")
        window = find_op("my_window")
        for strength in (0, 1, 8):
            picture = np.random.default_rng(1).integers(0, 256, (17, 43, 3)[: 2 + (format is BGR8)], np.uint8)
            made = host_windows.run(windows, Step(window, window.Params(strength=strength)), picture)
            np.testing.assert_array_equal(made, run_once(window, picture, {"strength": strength}))


def test_the_command_that_is_named_for_the_test_works_or_what_it_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = here("new", "mine", "--dir", "ops")[1]
    assert "no pytest" not in text
    (command,) = [line.removeprefix("Its test:").strip() for line in text.splitlines() if line.startswith("Its test:")]
    subprocess.run([*shlex.split(command), "--collect-only"], check=True, capture_output=True, timeout=60)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pytest" else found(name))
    text = here("new", "other", "--dir", "ops")[1]
    python = shlex.quote(sys.executable)
    assert f"There is no pytest: make setup-dev, or {python} -m pip install pytest pytest-timeout." in text


def test_a_program_under_this_folder_is_named_from_here_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_program(str(tmp_path / ".venv" / "bin" / "python")) == ".venv/bin/python"
    assert shown_program("/usr/bin/python3") == "/usr/bin/python3"


def test_a_point_op_is_four_lines_of_cuda_and_one_of_python(written: Path) -> None:
    text = (written / "my_point.py").read_text()
    cuda = text.split('"""')[3].strip().splitlines()
    assert len(cuda) == 5  # the fifth closes the brace
    assert cuda[-1] == "}"
    assert len(text.partition("def run_cpu")[2].splitlines()) == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for place in ("mine.py", "tests/test_mine.py"):
        folder = tmp_path / place.replace("/", "_")
        path = folder / place
        path.parent.mkdir(parents=True)
        path.write_text("precious")
        code, text = here("new", "mine", "--dir", str(folder))
        assert code == 2
        assert text == f"pinhole: NAME: {path} is there already; allowed: a name that is free\n"
        assert path.read_text() == "precious"
        assert [p for p in folder.rglob("*") if p.is_file()] == [path]


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "tests").write_text("a file where the tests' folder would be")
    code, text = here("new", "mine", "--dir", str(tmp_path))
    assert code == 2
    assert text.startswith("pinhole: --dir: ")
    assert [p.name for p in tmp_path.iterdir()] == ["tests"]


def test_the_folder_is_that_of_the_variable_which_need_not_be_there_yet(tmp_path: Path) -> None:
    code, text = here("new", "mine", PINHOLE_OPS_DIR=str(tmp_path / "new"))
    assert code == 0
    assert text.splitlines()[:2] == [f"{tmp_path}/new/mine.py", f"{tmp_path}/new/tests/test_mine.py"]
    assert 'name = "mine"' in (tmp_path / "new" / "mine.py").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Mine", "no name"), ("my-op", "no name"), ("_mine", "no name"), ("9lives", "no name"), ("", "no name"),
        ("../mine", "no name"), ("a" * 65, "no name"), ("mine\n", "no name"), ("sobel", "is an operation already"),
        ("lambda", "word of"), ("float", "word of"), ("reflect101", "shared device code"),
        ("uint8", "shared device code"), ("frame", "shared device code"), ("egress", "shared device code"),
    ],
)  # fmt: skip
def test_a_name_that_an_op_cannot_have_is_refused_before_anything_is_written(
    name: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        write_op(name, "point", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_names_inside_device_functions_are_free() -> None:
    assert {"window", "ingest", "saturate8"} <= device_names()
    for name in ("own_darken", "row", "at", "picture", "mine_2"):
        assert check_name(name) == name
