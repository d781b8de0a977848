"""Operations of a user's folder: by flag, variable and file, in chains and over HTTP, and when they are broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernels.chain import parse_chain
from kernels.codegen import generate
from kernels.compiler import compile_cubin
from kernels.device import Executor, HostDevice, WaitMode
from kernels.plan import Plan
from kernels.registry import use_ops_folder
from service.cli import main
from tests.helpers.inprocess import serving
from tests.helpers.server import SMALL_CARD, serve

pytestmark = pytest.mark.usefixtures("logging_as_before")

DARKEN = '''
import numpy as np
from pydantic import Field

from kernels.op import OpParams, TableOp


class OwnDarkenParams(OpParams):
    by: int = Field(default=10, ge=0, le=255, description="Subtracted.", json_schema_extra={"x-unit": "levels"})


class OwnDarken(TableOp[OwnDarkenParams]):
    """Subtract a constant, saturated at 0."""

    name = "own_darken"
    Params = OwnDarkenParams

    def table(self, params):
        return np.clip(np.arange(256) - params.by, 0, 255).astype(np.uint8)
'''

EDGE = '''
import cv2

from kernels.op import OpParams, WindowOp


class Edge(WindowOp[OpParams]):
    """Edges; its CUDA text does not compile, its CPU form works."""

    name = "edge"
    Params = OpParams
    fixed_radius = 1
    cuda_source = """
struct edge_params {};
template <class At> __device__ int edge(At at, const edge_params&) { return at(0, 0) - nothing; }
"""

    def constants(self, params):
        return b""

    def run_cpu(self, src, dst, params, scratch):
        cv2.Laplacian(src, -1, dst=dst)
'''
EDGE_LINE = EDGE.splitlines().index(next(line for line in EDGE.splitlines() if "nothing" in line)) + 1


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    own = tmp_path / "own"
    own.mkdir()
    (own / "own_darken.py").write_text(DARKEN)
    yield own
    use_ops_folder(None)


def here(*args: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, args, env=variables)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_listing_has_them_by_flag_and_by_variable(folder: Path) -> None:
    said = (
        "own_darken (point): Subtract a constant, saturated at 0.\n    by           integer, 0 to 255 levels, default"
    )
    for arguments, variables in ((("ops", "--ops", str(folder)), {}), (("ops",), {"PINHOLE_OPS_DIR": str(folder)})):
        code, text = here(*arguments, **variables)
        assert code == 0
        assert said in text
        assert "\nsobel (stencil): " in text
    assert "own_darken" in [op["name"] for op in json.loads(here("ops", "--ops", str(folder), "--json")[1])["ops"]]
    assert "\nown_darken (" not in here("ops")[1]


def test_chains_of_the_command_line_and_of_a_file_name_them(folder: Path, tmp_path: Path) -> None:
    camera = ("--camera", "a=testcard://", "--chain", "a=own_darken(by=20) | sobel")
    code, text = here("config", "show", "--ops", str(folder), *camera)
    assert code == 0, text
    assert f'ops_dir: "{folder}"  # --ops' in text
    assert 'chain: "own_darken(by=20) | sobel()"' in text
    file = tmp_path / "pinhole.yaml"
    file.write_text(f"ops_dir: {folder}\ncameras:\n  a: {{uri: 'testcard://', chain: own_darken}}\n")
    code, text = here("config", "show", "--config", str(file))
    assert code == 0, text
    assert f"{file}:1" in text
    code, text = here("config", "show", *camera)
    assert code == 2
    assert "unknown op 'own_darken'" in text
    assert "of your own: with --ops DIR, or ops_dir" in text
    code, text = here("ops", "explain", "own_darken")
    assert code == 2
    assert "of your own: with --ops DIR, or ops_dir" in text


@pytest.mark.parametrize("command", [("ops",), ("config", "show"), ("serve", "--port", "0")])
def test_a_folder_that_is_not_there_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    code, text = here(*command, "--ops", str(tmp_path / "nowhere"))
    assert code == 2
    assert text == f"pinhole: --ops: {tmp_path}/nowhere: No such file or directory; allowed: a folder of op files\n"


@pytest.mark.parametrize("command", [("ops",), ("config", "show"), ("serve", "--port", "0")])
def test_a_broken_file_ends_the_command_with_its_path_and_line(command: tuple[str, ...], folder: Path) -> None:
    (folder / "worse.py").write_text("x = 1\n\n1 / 0\n")
    code, text = here(*command, "--ops", str(folder))
    assert code == 2
    assert text.startswith(f"pinhole: op file pinhole_ops.worse ({folder}/worse.py:3) does not load: ZeroDivisionError")
    assert len(text.splitlines()) == 1


def test_the_service_runs_them_shows_their_schema_and_keeps_them(folder: Path, tmp_path: Path) -> None:
    arguments = ("--camera", f"a={SMALL_CARD}&format=GRAY8", "--chain", "a=own_darken(by=255)", "--ops", str(folder))
    with serve(*arguments) as server:
        (op,) = [op for op in server.get("/api/v1/ops").json()["ops"] if op["name"] == "own_darken"]
        assert op["schema"]["properties"]["by"]["x-unit"] == "levels"
        schema = json.dumps(server.get("/openapi.json").json())
        assert "Subtract a constant, saturated at 0." in schema
        server.until(lambda: server.get("/health/ready").status == 200, 20)
        picture = server.get("/cameras/a/snapshot?format=npy").body
        assert not any(picture[-320:]), "255 less than anything is 0"
        saved = server.get("/api/v1/configuration").body
    file = tmp_path / "saved.yaml"
    file.write_bytes(saved)
    with serve("--config", str(file)) as server:
        assert server.get("/api/v1/cameras/a/chain").json()["text"] == "own_darken(by=255)"


class Compiling(HostDevice):
    """The CPU, once the CUDA text has compiled: what a GPU's executor does before a chain goes live."""

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        compile_cubin(generate(plan), "90")
        return super().make_executor(plan, wait)


def test_a_chain_that_does_not_compile_is_one_clear_problem_and_the_old_one_runs_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13")
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path / "cubins"))
    (folder / "edge.py").write_text(EDGE)
    use_ops_folder(folder)
    path = "/api/v1/cameras/cam/chain"
    with serving({"cam": SMALL_CARD}, chains={"cam": parse_chain("own_darken")}, device=Compiling()) as served:
        answer = served.request("PUT", path, {"chain": "own_darken | edge"})
        problem = answer.json()
        assert answer.status == 422
        assert problem["type"] == "urn:pinhole:does-not-compile"
        place = f"{folder}/edge.py:{EDGE_LINE}"
        said = f'CUDA code of edge does not compile ({place}): identifier "nothing" is undefined'
        assert problem["detail"] == said
        assert (problem["op"], problem["file"], problem["line"]) == ("edge", str(folder / "edge.py"), EDGE_LINE)
        assert served.get(path).json()["text"] == "own_darken(by=10)"
        assert served.get(path).json()["version"] == 1
        camera = served.engine.get("cam")
        processed = camera.statistics().processed
        served.until(lambda: camera.statistics().processed > processed + 3, 20)
        assert served.get("/health/ready").status == 200
        assert served.request("PUT", path, {"chain": "own_darken | sobel"}).status == 200
