"""The repository itself: its layout, its layers, what it ships, and what it must not name."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("service", "pipeline", "kernels")
GIVEN = {"pyproject.toml", "service", "pipeline", "kernels", "deploy", "tests", "README.md", "docker-compose.yml"}
USUAL = {"CHANGELOG.md", "LICENSE", "Makefile"}
MADE = {"build", "dist", "shared"}  # by commands, or laid beside the project where it is worked on
MADE_FOLDERS = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"}


def own_files(folder: Path) -> Iterator[Path]:
    """Every file under ``folder`` that is the project's own, not made by a command."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in MADE_FOLDERS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from own_files(path)
        elif path.suffix != ".pyc":
            yield path


def all_own_files() -> Iterator[Path]:
    for path in sorted(ROOT.iterdir()):
        if path.name in GIVEN | USUAL | {".ci"}:
            yield from own_files(path) if path.is_dir() else [path]
        elif path.is_file() and path.name.startswith("."):
            yield path


def production_modules() -> list[Path]:
    return [path for package in PACKAGES for path in own_files(ROOT / package) if path.suffix == ".py"]


def pyproject_value(key: str) -> str:
    """A string of pyproject.toml by its name (tomllib is not there before Python 3.11)."""
    found = re.search(rf'^{key} = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def top_level_names() -> set[str]:
    """The top level as git sees it, ignored entries left out; as it lies there where git does not know the folder."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return {path.name for path in ROOT.iterdir()}
    listed = {line.partition("/")[0] for line in done.stdout.splitlines()} if done.returncode == 0 else set()
    return {path.name for path in ROOT.iterdir() if not listed or path.name in listed}


def test_top_level_is_as_agreed() -> None:
    names = {name for name in top_level_names() if not name.startswith(".")} - MADE - MADE_FOLDERS
    assert names - GIVEN - USUAL == set(), "new top-level entries need the owner's word"
    assert names >= GIVEN | USUAL


def test_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_only_the_seam_calls_cupy() -> None:
    """CuPy behind kernels/device.py and kernels/memory.py, except to compile, to launch and to encode."""
    allowed = {
        "kernels/device.py",
        "kernels/memory.py",
        "kernels/compiler.py",
        "kernels/run_cuda.py",
        "kernels/proof.py",
        "kernels/bench_cuda.py",
        "kernels/transfer_cuda.py",
        "kernels/transfer_memory.py",
        "kernels/cuda_copies.py",
        "kernels/cuda_events.py",
        "kernels/cuda_wait.py",
        "kernels/nvjpeg.py",
    }
    importers = {
        str(path.relative_to(ROOT))
        for path in production_modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if name.partition(".")[0] in ("cupy", "cupy_backends", "cupyx")
    }
    assert importers <= allowed


# Distributions whose modules are called otherwise.
DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "cupy": "cupy-cuda13x",
    "cupy_backends": "cupy-cuda13x",
    "cupyx": "cupy-cuda13x",
    "yaml": "pyyaml",
}


def test_what_is_imported_is_declared() -> None:
    """Nothing is imported that only comes along as another package's dependency."""
    text = (ROOT / "pyproject.toml").read_text()
    declared = set(re.findall(r'"([a-z0-9][a-z0-9-]*)(?=[><=])', text))
    imported = {
        name.partition(".")[0]
        for path in production_modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    foreign = imported - set(sys.stdlib_module_names) - set(PACKAGES) - {""}
    assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign} <= declared


@pytest.mark.parametrize("module", production_modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(module: Path) -> None:
    """A docstring of its own; a plug-in's file may leave that to its public class, whose text is shown to users."""
    tree = ast.parse(module.read_text())
    public = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    documented = ast.get_docstring(tree) or any(ast.get_docstring(node) for node in public)
    assert documented or not tree.body, f"{module} has no docstring"


def test_nothing_leans_on_the_place_it_was_written_in() -> None:
    # Put together here, so that this file does not name them either.
    places = re.compile(rb"(?<![\w.])/" + rb"work/|\.\./" + rb"shared\b|/tmp/" + rb"HELPER")
    naming = [path for path in all_own_files() if places.search(path.read_bytes())]
    assert naming == []


def test_version_is_one() -> None:
    from service import __version__

    version = pyproject_value("version")
    headings = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]?", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == version
    assert __version__ == version


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    # The text as the Apache Software Foundation publishes it (LICENSE-2.0.txt), white space aside.
    assert hashlib.sha256(" ".join(text.split()).encode()).hexdigest() == LICENCE_SHA256
    assert pyproject_value("license") == "Apache-2.0"


LICENCE_SHA256 = "0ffddef9e48f8a09aed5caf2d44f7ba1c1be2d9b8e0a6f693b1635b2d5566645"


def test_wheel_carries_everything(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"pinhole_vision-{pyproject_value('version')}-py3-none-any")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        entry_points = archive.read(next(name for name in inside if name.endswith("entry_points.txt"))).decode()
        licences = [name for name in inside if "/licenses/" in name]
    expected = {str(path.relative_to(ROOT)) for package in PACKAGES for path in own_files(ROOT / package)}
    left_out = {name for name in expected if name.startswith(("kernels/ops/README.md", "kernels/ops/pictures/"))}
    assert left_out
    assert expected - inside == left_out
    assert {name.split("/")[0] for name in inside} == {
        *PACKAGES,
        f"{wheel.name[: -len('-py3-none-any.whl')]}.dist-info",
    }
    assert "pinhole = service.cli:main" in entry_points
    assert any(name.endswith("/LICENSE") for name in licences)
    # What the walk above would miss if it were not there at all:
    for kind in ("kernels/ops/sobel.py", "pipeline/sources/testcard.py", ".cuh", ".html", ".mp4", "ATTRIBUTION.md"):
        assert any(name.endswith(kind) for name in inside), f"no {kind} in the wheel"
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
