from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels import ops as ops_package
from kernels import registry
from kernels.errors import InputError, PinholeError, UnknownNameError
from kernels.op import Op
from kernels.registry import PluginError, find_op, load_op, use_ops_folder

GOOD = '''
import numpy as np
from kernels.op import OpParams, TableOp

class NegativeParams(OpParams):
    pass

class Negative(TableOp[NegativeParams]):
    """Negative: out = 255 − in."""

    name = "negative"
    Params = NegativeParams

    def table(self, params):
        return np.arange(255, -1, -1, dtype=np.uint8)
'''

WriteOp = Callable[[str, str], str]


@pytest.fixture
def write_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteOp]:
    """Adds a file to the ops' folder as the registry sees it; returns the module's name."""
    monkeypatch.setattr(ops_package, "__path__", [*ops_package.__path__, str(tmp_path)])
    monkeypatch.setattr(registry, "all_ops", registry.all_ops.__wrapped__)
    monkeypatch.setattr(registry, "_built_in_ops", registry._built_in_ops.__wrapped__)
    written: list[str] = []

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        written.append(f"kernels.ops.{name}")
        return written[-1]

    yield write
    for module in written:
        sys.modules.pop(module, None)
        vars(ops_package).pop(module.rpartition(".")[2], None)


def test_the_ops_are_found_by_file_name() -> None:
    files = sorted(p.stem for p in Path(str(ops_package.__file__)).parent.glob("*.py") if not p.stem.startswith("_"))
    assert list(registry.all_ops()) == files
    assert {"gain_offset", "gamma", "gaussian_blur", "sobel"} <= set(files)
    assert all(op.name == name and op.summary.endswith(".") for name, op in registry.all_ops().items())


def test_a_new_op_takes_one_file(write_op: WriteOp) -> None:
    write_op("negative", GOOD)
    assert find_op("negative").summary == "Negative: out = 255 − in."


def test_an_alias_of_a_type_in_an_ops_file_is_no_op(write_op: WriteOp) -> None:
    write_op("negative", GOOD + "\nSizes = list[int]\n")  # what Python 3.10 takes for a type
    assert find_op("negative").name == "negative"


def test_files_that_start_with_an_underscore_are_no_ops(write_op: WriteOp) -> None:
    write_op("_shared", "raise RuntimeError('never imported')")
    assert "_shared" not in registry.all_ops()


BROKEN = {
    "a syntax error": (GOOD.replace("class Negative(", "class Negative["), "does not load: SyntaxError"),
    "a missing import": ("import no_such_module\n" + GOOD, "does not load: ModuleNotFoundError"),
    "an error while it loads": (GOOD + "\n1 / 0\n", "does not load: ZeroDivisionError"),
    "no op": ("x = 1\n", "exactly one op, found 0"),
    "only an imported op": ("from kernels.ops.gamma import Gamma\n", "exactly one op, found 0"),
    "two ops": (GOOD + "\nclass Second(Negative):\n    pass\n", "exactly one op, found 2"),
    "another name": (GOOD.replace('name = "negative"', 'name = "negate"'), "set name = 'negative'"),
    "no name": (GOOD.replace('    name = "negative"\n', ""), "set name = 'negative'"),
    "no parameters": (GOOD.replace("    Params = NegativeParams\n", ""), "Params to its parameter model"),
    "parameters of a foreign class": (GOOD.replace("Params = NegativeParams", "Params = dict"), "its parameter model"),
    "a method that is missing": (GOOD.replace("def table", "def tabel"), "abstract method"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_op_stops_the_start_up_and_names_its_file(write_op: WriteOp, fault: str) -> None:
    text, message = BROKEN[fault]
    module = write_op("negative", text)
    with pytest.raises(PinholeError, match=module) as caught:
        registry.all_ops()
    assert message in str(caught.value)
    with pytest.raises(PinholeError, match=module):
        load_op(module, "negative")


HELPER = "from kernels.ops._helper import table  # HERE\n"

PLACES = {
    "raised at the top": GOOD + "\n1 / 0  # HERE\n",
    "raised by a function that is called there": "def f():\n    raise KeyError('x')  # HERE\n\nf()\n" + GOOD,
    "raised by a library": "import json\n" + GOOD + "\njson.loads('{')  # HERE\n",
    "raised by pydantic for a parameter": GOOD.replace("    pass", "    by: object() = 1").replace(
        "class NegativeParams(OpParams):", "class NegativeParams(OpParams):  # HERE"
    ),
    "raised in a file that it imports": HELPER + GOOD,
    "a program's own end": "import sys\nsys.exit('no GPU here')  # HERE\n" + GOOD,
    "text that is no Python": GOOD.replace(
        "class Negative(TableOp[NegativeParams]):", "class Negative(TableOp:  # HERE"
    ),
    "two ops": GOOD + "\nclass Second(Negative):  # HERE\n    pass\n",
    "another name": GOOD.replace('name = "negative"', 'name = "negate"').replace(
        "class Negative(TableOp[NegativeParams]):", "class Negative(TableOp[NegativeParams]):  # HERE"
    ),
    "a method that is missing": GOOD.replace("def table", "def tabel").replace(
        "class Negative(TableOp[NegativeParams]):", "class Negative(TableOp[NegativeParams]):  # HERE"
    ),
    "no kind": GOOD.replace("TableOp", "Op").replace(
        "class Negative(Op[NegativeParams]):", "class Negative(Op[NegativeParams]):  # HERE"
    ),
    "parameters without a schema": GOOD.replace("    pass", "    by: Callable[[], int] = int")
    .replace("import numpy as np", "import numpy as np\nfrom collections.abc import Callable")
    .replace("class Negative(TableOp[NegativeParams]):", "class Negative(TableOp[NegativeParams]):  # HERE"),
    "an op that cannot be made": GOOD.replace(
        "class Negative(TableOp[NegativeParams]):", "class Negative(TableOp[NegativeParams]):  # HERE"
    ).replace("    def table", "    def __init__(self):\n        raise OSError('no')\n\n    def table"),
    "no op": "x = 1\n",
}


@pytest.mark.parametrize("fault", PLACES)
def test_a_broken_op_is_named_by_file_and_line(write_op: WriteOp, tmp_path: Path, fault: str) -> None:
    text = PLACES[fault]
    (tmp_path / "_helper.py").write_text("1 / 0\n")
    module = write_op("negative", text)
    with pytest.raises(PluginError) as caught:
        registry.all_ops()
    sys.modules.pop("kernels.ops._helper", None)
    line = next((number for number, code in enumerate(text.splitlines(), 1) if "# HERE" in code), None)
    assert (caught.value.kind, caught.value.file) == ("op", str(tmp_path / "negative.py"))
    assert caught.value.line == line
    place = f"{tmp_path}/negative.py:{line}" if line else f"{tmp_path}/negative.py"
    assert str(caught.value).startswith(f"op file {module} ({place}) ")


def test_a_second_name_for_an_op_is_no_second_op(write_op: WriteOp) -> None:
    write_op("negative", GOOD + "\nInverse = Negative\n")
    assert find_op("negative").name == "negative"


def test_an_unknown_op_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sobel'") as caught:
        find_op("sobl", "chain[2].op")
    assert caught.value.field == "chain[2].op"
    assert caught.value.known == tuple(registry.all_ops())


def test_what_the_registry_returns_are_ops() -> None:
    assert all(isinstance(op, Op) for op in registry.all_ops().values())


# ---- a user's folder


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for op files; the built-in ops alone are known afterwards."""
    folder = tmp_path / "own"
    folder.mkdir()
    yield folder
    use_ops_folder(None)
    assert registry.USER_PACKAGE not in sys.modules


def test_ops_of_a_users_folder_stand_among_the_others(own: Path) -> None:
    (own / "negative.py").write_text(GOOD)
    use_ops_folder(own)
    assert find_op("negative").summary == "Negative: out = 255 − in."
    assert list(registry.all_ops()) == sorted(registry.all_ops())
    assert "sobel" in registry.all_ops()
    use_ops_folder(None)
    with pytest.raises(UnknownNameError):
        find_op("negative")


def test_a_users_op_may_take_what_another_file_of_the_folder_has(own: Path) -> None:
    (own / "_shared.py").write_text("import numpy as np\n\nTABLE = np.arange(255, -1, -1, dtype=np.uint8)\n")
    text = GOOD.replace("np.arange(255, -1, -1, dtype=np.uint8)", "TABLE")
    (own / "negative.py").write_text("from pinhole_ops._shared import TABLE\n" + text)
    use_ops_folder(own)
    assert find_op("negative").table(find_op("negative").Params())[0] == 255  # type: ignore[attr-defined]


def test_what_is_no_op_file_is_left_alone(own: Path) -> None:
    (own / "negative.py").write_text(GOOD)
    for folder in (own / "tests", own / "package"):
        folder.mkdir()
        (folder / "__init__.py").write_text("1 / 0")
    (own / "README.md").write_text("Mine.")
    (own / "_old.py").write_text("1 / 0")
    before = set(registry.all_ops())
    use_ops_folder(own)
    assert set(registry.all_ops()) == before | {"negative"}


def test_a_file_that_changed_is_loaded_anew(own: Path) -> None:
    (own / "negative.py").write_text(GOOD)
    use_ops_folder(own)
    first = find_op("negative")
    (own / "negative.py").write_text(GOOD.replace("Negative: out", "The negative: out"))
    assert find_op("negative") is first, "not while it is in use"
    use_ops_folder(own)
    assert find_op("negative").summary == "The negative: out = 255 − in."


USERS_FAULTS = {
    "a name of ours": (
        "invert",
        GOOD.replace('"negative"', '"invert"').replace("class Negative(", "class Negative(  # HERE\n    "),
        "has the name of a built-in operation, invert",
    ),
    "another name": ("negativ", GOOD.replace("class Negative(", "class Negative(  # HERE\n    "), "'negativ'"),
    "a name that chains cannot hold": ("Negative", GOOD, "must be named in small letters"),
    "a test beside the ops": ("test_negative", "def test():\n    pass\n", "must define exactly one op, found 0"),
    "an error in it": ("negative", GOOD + "\n1 / 0  # HERE\n", "does not load: ZeroDivisionError"),
}


@pytest.mark.parametrize("fault", USERS_FAULTS)
def test_a_broken_file_of_a_users_folder_is_named_by_its_path_and_line(own: Path, fault: str) -> None:
    name, text, reason = USERS_FAULTS[fault]
    (own / f"{name}.py").write_text(text)
    use_ops_folder(own)
    with pytest.raises(PluginError) as caught:
        registry.all_ops()
    line = next((number for number, code in enumerate(text.splitlines(), 1) if "# HERE" in code), None)
    assert (caught.value.file, caught.value.line) == (str(own / f"{name}.py"), line)
    assert reason in str(caught.value)


@pytest.mark.parametrize("place", ["missing", "file.py"])
def test_a_folder_that_is_none_is_refused_and_the_one_before_stays(own: Path, place: str) -> None:
    (own / "negative.py").write_text(GOOD)
    (own.parent / "file.py").write_text(GOOD)
    use_ops_folder(own)
    with pytest.raises(InputError, match=f"{place}: N.*a folder of op files") as caught:
        use_ops_folder(own.parent / place)
    assert caught.value.field == "ops_dir"
    assert find_op("negative")
