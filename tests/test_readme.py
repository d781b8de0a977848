"""Every command in the README runs and every example in it loads; every file it names is there."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import yaml
from pydantic import BaseModel

from kernels.registry import load_op
from pipeline.encoders import Encoder, load_encoder
from pipeline.sources import clip_uri, load_source, make_source
from service.config import load
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import Server, serve
from tests.programs import program

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[tuple[str, str]]:
    """Code blocks of a language, each with the paragraph before it."""
    parts = README.split("```")  # text and blocks by turns
    return [
        (text.strip().rpartition("\n\n")[2], block.partition("\n")[2])
        for text, block in zip(parts[::2], parts[1::2], strict=False)
        if block.partition("\n")[0] == language
    ]


def commands() -> list[str]:
    """Every line of the shell blocks, continued ones joined and remarks taken off."""
    text = "\n".join(body for _, body in blocks("sh")).replace("\\\n", " ")
    return [command for line in text.splitlines() if (command := line.partition("  #")[0].strip())]


def starting(word: str) -> list[str]:
    return [command for command in commands() if command.startswith(word)]


def test_every_command_is_of_a_kind_that_is_tested_here() -> None:
    tested = ("make ", "pinhole serve", "docker compose", "CONFIG=", "CAMERA=", "curl ", "ffplay ", "ffmpeg ")
    assert [command for command in commands() if not command.startswith(tested)] == []
    assert all(starting(word) for word in tested)


@pytest.mark.parametrize("command", starting("make "))
def test_make_has_the_target(command: str) -> None:
    subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", starting("docker compose"))
def test_compose_has_the_profiles(command: str) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    known = {profile for service in services for profile in service.get("profiles", [])}
    assert set(re.findall(r"--profile (\w+)", command)) <= known


@pytest.mark.parametrize("command", [*starting("CONFIG="), *starting("CAMERA=")])
def test_compose_files_are_there_and_take_the_variable(command: str) -> None:
    texts = [(ROOT / name).read_text() for name in re.findall(r"-f (\S+)", command)]
    assert len(texts) == 2
    assert f"${{{command.partition('=')[0]}:-" in texts[1]


def test_the_configuration_loads(tmp_path: Path) -> None:
    (body,) = [body for _, body in blocks("yaml")]
    (tmp_path / "pinhole.yaml").write_text(body)
    (camera,) = load({}, dict, tmp_path / "pinhole.yaml", {}).cameras
    assert camera.chain.steps
    make_source(camera.uri)


@pytest.mark.parametrize("command", starting("pinhole serve"))
def test_the_service_starts(command: str) -> None:
    clip = (clip_uri() or "").partition("?")[0]
    arguments = shlex.split(command.replace("file:///path/to/video.mp4", clip))[2:]
    arguments = [str(ROOT / a) if a.startswith("deploy/") else a for a in arguments]
    with serve(*arguments) as server:
        assert server.get("/api/v1/cameras").json()["cameras"]
        assert server.end()[0] == 0


@pytest.fixture(scope="module")
def default_service() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.mark.program("curl", "ffmpeg")
@pytest.mark.leaks_allowed("the module's service")
@pytest.mark.parametrize("command", [*starting("curl "), *starting("ffplay ")])
def test_the_clients_are_answered(command: str, default_service: Server, tmp_path: Path) -> None:
    # There is no screen to play on: the same FFmpeg opens the same URL.
    command = command.replace("ffplay", "ffprobe").replace("http://127.0.0.1:8080", default_service.url)
    words = shlex.split(command)
    words[1:1] = ["--fail"] if words[0] == "curl" else []
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert all(file.stat().st_size > 1000 for file in tmp_path.iterdir())


def frame_times_s(file: Path) -> list[float]:
    args = ["-v", "error", "-select_streams", "v", "-show_entries", "packet=pts_time", "-of", "csv=p=0", str(file)]
    done = subprocess.run([program("ffprobe"), *args], check=True, capture_output=True, text=True, timeout=30)
    return sorted(float(line.strip(",")) for line in done.stdout.split())


@pytest.mark.program("ffmpeg", "ffprobe")
@pytest.mark.leaks_allowed("the module's service")
def test_a_recording_keeps_each_frame_and_its_time(default_service: Server, tmp_path: Path) -> None:
    record, shrink = (c.replace("http://127.0.0.1:8080", default_service.url) for c in starting("ffmpeg "))
    sent = "pinhole_viewer_frames_sent_total"
    before = default_service.metric(sent, camera="testcard")
    quiet = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(shlex.split(record), **quiet) as recorder:  # type: ignore[call-overload]
        default_service.until(lambda: default_service.metric(sent, camera="testcard") >= before + 50, 60)
        recorder.send_signal(signal.SIGINT)
    recorded = frame_times_s(tmp_path / "rec.mp4")
    assert len(recorded) > 30, "the last ones may still be on their way when it ends"
    assert len({round(time_s * 1000) % 40 for time_s in recorded}) > 4, "not in steps of 25 a second"
    subprocess.run(shlex.split(shrink), check=True, timeout=60, **quiet)  # type: ignore[call-overload]
    assert frame_times_s(tmp_path / "small.mp4") == pytest.approx(recorded, abs=0.0011)
    seen = cv2.VideoCapture(str(tmp_path / "rec.mp4"))
    sequences = [read_codes(picture)[0] or -1 for _, picture in iter(seen.read, (False, None))]
    seen.release()
    assert len(sequences) >= len(recorded) - 1
    assert sequences == sorted(set(sequences)), "each frame once and in order"


def example(path: str, tmp_path: Path) -> ModuleType:
    """The example whose paragraph names ``path`` as its file, as a module of its name."""
    (body,) = [body for before, body in blocks("python") if f"`{path}`" in before]
    name = Path(path).stem
    (tmp_path / f"{name}.py").write_text(body, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_operation_loads_and_runs(tmp_path: Path) -> None:
    example("kernels/ops/darken.py", tmp_path)
    op = load_op("darken", "darken")
    assert op.table(op.Params(by=10))[[0, 10, 255]].tolist() == [0, 0, 245]  # type: ignore[attr-defined]


def test_the_source_loads_and_delivers(tmp_path: Path) -> None:
    from kernels.image import ImageView

    example("pipeline/sources/grey.py", tmp_path)
    source_class = load_source("grey", "grey")
    source = source_class("grey://?level=200", source_class.Config(level=200))  # type: ignore[call-arg]
    spec = source.open().image
    view = ImageView(spec, np.empty(spec.nbytes, np.uint8))
    source.fill(view)
    assert (view.plane(0) == 200).all()
    source.close()


def test_the_encoder_loads_and_encodes(tmp_path: Path) -> None:
    example("pipeline/encoders/bmp.py", tmp_path)
    encoder = load_encoder("bmp", "bmp")
    assert isinstance(encoder, Encoder)
    assert encoder.encode(np.zeros((4, 5, 3), np.uint8)).startswith(b"BM")


def test_the_examples_are_as_complete_as_the_tests_and_mypy_ask(tmp_path: Path) -> None:
    """A file dropped into its folder fails no test: each setting says what it means, each argument its type."""
    for path in ("kernels/ops/darken.py", "pipeline/sources/grey.py", "pipeline/encoders/bmp.py"):
        module = example(path, tmp_path)
        classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
        for model in (c for c in classes if issubclass(c, BaseModel)):
            for name, schema in model.model_json_schema()["properties"].items():
                assert schema["description"], f"{path}: {name}"
        for function in (f for c in classes for f in vars(c).values() if inspect.isfunction(f)):
            missing = {*inspect.signature(function).parameters, "return"} - {"self"} - set(function.__annotations__)
            assert not missing, f"{path}: {function.__name__}: {missing}"


def test_the_command_is_called_one_way() -> None:
    prose, said = README.partition("`source .venv/bin/activate`")[::2]
    assert prose.count(".venv/bin/pinhole") == 1
    assert ".venv/bin/pinhole" not in said


def test_every_file_it_names_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
