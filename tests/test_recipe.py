"""The README's recipe for an operation, followed to the letter in a copy of the tree; what ``ops new`` writes, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.op_templates import TEMPLATES
from service.ops_new import write_op
from tests.test_readme import README, ROOT, blocks

# The tables that the recipe names, each with the line before its first entry.
ORACLES = ("tests/kernels/oracles.py", "ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {\n")
CHAINS = ("tests/kernels/allocation_probe.py", "CHAINS = {\n")

# What a user would add to ``ORACLES`` for the operation of each kind that ``pinhole ops new`` writes.
TEMPLATE_ORACLES = {
    "point": "lambda v, p: v if v.ndim == 2 else v[:, :, [2, 1, 0]]",
    "table": 'point(lambda v, p: v - p["by"])',
    "window": 'lambda v, p: np.clip(128 + p["strength"] * (lambda w: w[2:, 2:] - w[:-2, :-2])('
    'np.pad(v.astype(int), ((1, 1), (1, 1), (0, 0))[: v.ndim], "reflect")), 0, 255).astype(np.uint8)',
    "pixel": 'lambda v, p: v if v.ndim == 2 else v[..., ["blue", "green", "red"].index(p["channel"])]',
    "gather": "lambda v, p: np.swapaxes(v, 0, 1)",
}

# The chains of the probe alone: how many frame-sized pieces they allocate takes its own library and half a minute.
PROBE = """
import sys
from tests.kernels.allocation_probe import CHAINS, executor_work
for name in sys.argv[1:]:
    executor_work("BGR8", CHAINS[name], 1)()
"""


# Tests of all operations at once, or beside which one of those might stand in the way.
OF_ALL = (
    "page_is_what",
    "pictures_are_what",
    "the_reference_is",
    "names_every_operation",
    "no_answer_holds",
    "listing",
)


def add_to_table(tree: Path, table: tuple[str, str], entries: list[str]) -> None:
    path, start = tree / table[0], table[1]
    text = path.read_text(encoding="utf-8")
    assert text.count(start) == 1, f"{path} begins its table in another way"
    path.write_text(text.replace(start, start + "".join(f"    {entry},\n" for entry in entries)), encoding="utf-8")


def said(name: str, table: str) -> str:
    """The README's example of an entry of that table."""
    found = re.search(rf'`{table}`[^`]*`[^`]+`[^`]*`("{name}": [^`]+)`', README)
    assert found is not None, table
    return found[1]


def run(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *args]
    # Nothing of the run that this test is part of: plug-ins of pytest take a worker's variables for their own.
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != "NOTE_FAILURES_IN"}
    return subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=110, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree in which somebody has done what the README says, and once more for each template."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("kernels", "pipeline", "service", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    (body,) = [body for before, body in blocks("python") if "`kernels/ops/darken.py`" in before]
    (tree / "kernels/ops/darken.py").write_text(body, encoding="utf-8")
    for kind in TEMPLATES:
        op, _ = write_op(f"of_kind_{kind}", kind, tmp_path / "new")
        shutil.copy(op, tree / "kernels/ops")
    made = {f"of_kind_{kind}": oracle for kind, oracle in TEMPLATE_ORACLES.items()}
    add_to_table(tree, ORACLES, [said("darken", "ORACLES"), *(f'"{name}": {text}' for name, text in made.items())])
    add_to_table(tree, CHAINS, [said("darken", "CHAINS"), *(f'"{name}": ["{name}"] * FRAMES' for name in made)])
    catalogue = run(tree, "tests.kernels.catalogue")
    assert catalogue.returncode == 0, catalogue.stderr
    reference = run(tree, "service.reference")
    assert reference.returncode == 0, reference.stderr
    (tree / "service/REFERENCE.md").write_text(reference.stdout, encoding="utf-8")
    return tree


@pytest.mark.slow
def test_an_operation_added_as_the_readme_says_passes_every_test_of_operations(tree: Path) -> None:
    assert set(TEMPLATE_ORACLES) == set(TEMPLATES)
    added = ["darken", *(f"of_kind_{kind}" for kind in TEMPLATES)]
    chosen = " or ".join([*added, *OF_ALL])
    chosen = f"({chosen}) and not share_passes"  # which emulates whole chains, for seconds each
    places = ["tests/kernels", *(f"tests/service/test_{name}.py" for name in ("reference", "bad_input", "own_ops"))]
    done = run(
        tree, "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-k", chosen, *places, "tests/test_repository.py"
    )
    assert done.returncode == 0, done.stdout[-6000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 10 * len(added)
    probed = subprocess.run(
        [sys.executable, "-c", PROBE, *added], cwd=tree, capture_output=True, text=True, check=False
    )
    assert probed.returncode == 0, probed.stderr
