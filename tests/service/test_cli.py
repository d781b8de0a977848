"""The command: what it prints, what it refuses and with which exit code."""

from __future__ import annotations

import importlib
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from kernels import registry
from kernels.device import HostDevice
from kernels.errors import InputError
from kernels.registry import all_ops
from pipeline.camera import CameraConfig
from pipeline.encoders import picture_encoders
from pipeline.engine import Engine
from pipeline.sources import all_sources, catalogue
from service.cli import announce, main
from service.config import load
from service.config_cli import camera_flags, default_cameras, missing_clip
from service.settings import Settings
from service.version import version
from tests.helpers.server import SMALL_CARD, command, environment, serve

pytestmark = pytest.mark.usefixtures("logging_as_before")


def camera_configs(cameras: tuple[str, ...], chains: tuple[str, ...]) -> tuple[CameraConfig, ...]:
    """The cameras that a command line with these flags and nothing else makes."""
    return load(camera_flags(cameras, chains), default_cameras, environment={}).cameras


def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args), capture_output=True, text=True, timeout=60, env=environment(**variables), check=False
    )


def here(*args: str) -> tuple[int, str]:
    """The exit code and what was printed, in this process; an exception that got out is a failure."""
    result = CliRunner().invoke(main, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result.exit_code, result.output


def test_version_and_help() -> None:
    runner = CliRunner()
    assert version() in runner.invoke(main, ["--version"]).output
    text = runner.invoke(main, ["serve", "--help"]).output
    for option in ("--host", "--port", "--camera", "--chain", "--memory", "--token-file", "--insecure", "--log-format"):
        assert option in text


def test_ops_lists_every_operation_with_its_parameters() -> None:
    text = CliRunner().invoke(main, ["ops"]).output
    for name in all_ops():
        assert name in text
    assert "integer, 1 to 31 px in steps of 2, default 5. Width of the window, odd." in text
    assert "no parameters" in text
    listed = json.loads(CliRunner().invoke(main, ["ops", "--json"]).output)["ops"]
    assert [op["name"] for op in listed] == list(all_ops())
    assert listed[0]["schema"]["additionalProperties"] is False


def test_ops_lists_one_by_its_name() -> None:
    code, text = here("ops", "sobel")
    assert code == 0
    assert text.startswith("sobel (stencil): ")
    assert "gamma" not in text
    code, text = here("ops", "sobbel")
    assert code == 2
    assert "did you mean 'sobel'?" in text
    assert "gaussian_blur" not in text


def test_sources_lists_every_source_with_its_settings() -> None:
    code, text = here("sources")
    assert code == 0
    for scheme, source in all_sources().items():
        assert f"{scheme}:// " in text
        assert f"for example  {source.example}" in text
        for name, schema in source.Config.model_json_schema()["properties"].items():
            assert f"    {name:<12} " in text
            assert schema["description"] in text
    assert "    loop         boolean (true, false, 1, 0), default false. Begin again when the file ends." in text
    assert "    size         352x128 to 16384x16384 px, default 1280x720. Width x height of the picture." in text
    listed = json.loads(here("sources", "--json")[1])["sources"]
    assert listed == json.loads(json.dumps(catalogue()))


def test_a_source_that_cannot_be_used_here_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_sources()["file"], "unavailable", classmethod(lambda cls: "install pinhole-vision[video]"))
    assert "    cannot be used here: install pinhole-vision[video]\n" in here("sources")[1]


BROKEN_FILES = {"op": "kernels.ops", "source": "pipeline.sources", "encoder": "pipeline.encoders"}


@pytest.fixture
def broken_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file of the kind that is asked for which raises in its third line, as the registries see it; its name."""
    package = importlib.import_module(BROKEN_FILES[request.param])
    (tmp_path / "broken.py").write_text("# mine\n\nopen('/nowhere/settings')\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    caches = (registry._built_in_ops, all_ops, all_sources, picture_encoders)
    for cache in caches:
        cache.cache_clear()
    yield str(tmp_path / "broken.py")
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("broken_file", "command"),
    [
        ("op", ("serve", "--port", "0")),
        ("source", ("serve", "--port", "0", "--camera", f"a={SMALL_CARD}")),
        ("encoder", ("serve", "--port", "0")),
        ("op", ("ops",)),
        ("op", ("config", "show")),
        ("source", ("sources", "--json")),
        ("source", ("config", "show")),
    ],
    indirect=["broken_file"],
)
def test_a_broken_file_ends_a_command_with_one_line_that_says_where(
    broken_file: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINHOLE_LOG_LEVEL", raising=False)
    code, text = here(*command)
    assert code == 2
    (line,) = text.splitlines()
    assert f"({broken_file}:3) does not load: FileNotFoundError: " in line
    assert line.endswith("'/nowhere/settings' (PINHOLE_LOG_LEVEL=debug shows the traceback)")


@pytest.mark.parametrize("broken_file", ["op"], indirect=True)
@pytest.mark.parametrize(("level", "flags"), [("debug", ()), ("", ("--log-level", "debug"))])
def test_the_log_level_debug_adds_the_traceback(
    broken_file: str, level: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINHOLE_LOG_LEVEL", level)
    result = CliRunner().invoke(main, ["serve", "--port", "0", *flags])
    assert result.exit_code == 2
    assert f'File "{broken_file}", line 3' in result.output
    assert result.output.splitlines()[-1].startswith("pinhole: op file kernels.ops.broken ")


@pytest.mark.slow
def test_a_broken_op_does_not_break_the_import_of_the_command() -> None:
    """What the command loads before it can say anything is independent of the ops."""
    code = "import service.cli, sys; sys.exit(any(m.startswith('kernels.ops.') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_no_camera_means_a_card_and_a_clip_each_with_a_chain_one_can_see() -> None:
    configs = {config.name: config for config in camera_configs((), ())}
    assert configs["testcard"].uri == "testcard://?size=1280x720&fps=30&format=NV12"
    assert all(config.chain.steps for config in configs.values())
    assert next(iter(configs)) == "testcard"


def test_the_clip_is_left_out_with_a_line_where_files_cannot_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.config_cli.clip_uri", lambda: None)
    monkeypatch.setattr("service.config_cli.unavailable", lambda scheme: f"{scheme} needs the extra video")
    assert [config.name for config in camera_configs((), ())] == ["testcard"]
    assert missing_clip() == "the camera 'clip' is left out: file needs the extra video"


def test_cameras_and_chains_of_the_command_line() -> None:
    configs = camera_configs(("a=testcard://?fps=5", "b=testcard://"), ("b=sobel | gamma(gamma=2)",))
    assert [(c.name, c.uri, str(c.chain)) for c in configs] == [
        ("a", "testcard://?fps=5", ""), ("b", "testcard://", "sobel() | gamma(gamma=2.0)"),
    ]  # fmt: skip
    assert str(camera_configs((), ("testcard=sobel",))[0].chain) == "sobel()"


@pytest.mark.parametrize(
    ("cameras", "chains", "message"),
    [
        (("testcard://",), (), "has no name"), (("=x",), (), "has no name"), (("a=t", "a=u"), (), "given twice"),
        (("a b=testcard://",), (), "1 to 64 of"), (("a=",), (), "uri"), (("../a=t",), (), "1 to 64 of"),
        (("a=t",), ("b=sobel",), "unknown camera 'b'; allowed: a"), (("a=t",), ("a=sobl",), "did you mean 'sobel'"),
        (("a=t",), ("a=gamma(gamma=0)",), r"--chain a\[0\].params.gamma"), (("a=t",), ("a=gamma(2)",), "NAME"),
        (("a=t",), ("a=__import__('os')",), "unknown op '__import__'"), (("a=t",), ("a",), "has no name"),
        (("a=t",), ("a=gamma(gamma=nan)",), "nan"), (("a=t",), ("a=gamma(gamma=1e999)",), "finite"),
    ],
)  # fmt: skip
def test_a_wrong_camera_or_chain_is_named(cameras: tuple[str, ...], chains: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        camera_configs(cameras, chains)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--camera", "a=testcard://?size=0x0"], "--camera a: uri?size"),
        (["--camera", "a=testcard://?size=99999x99999"], "--camera a: uri?size"),
        (["--camera", "a=testcard://?fps=nan"], "--camera a: uri?fps"),
        (["--camera", "a=testcard://?colour=red"], "uri?colour"),
        (["--camera", "a=testcard://?format=RGB565"], "BGR8"),
        (["--camera", "a=tescard://"], "did you mean 'testcard'"),
        (["--camera", "a=exec:ls"], "--camera a"),
        (["--camera", "a=file:///nowhere/x.mp4"], "--camera a: uri: /nowhere/x.mp4 does not exist"),
        (["--camera", "a=image:///nowhere/x.png"], "--camera a: uri: /nowhere/x.png does not exist"),
        (["--camera", "a=opencv:///nowhere/x.mp4"], "--camera a: uri: /nowhere/x.mp4 does not exist"),
        (["--camera", "a=file:///dev"], "--camera a: uri: /dev is a folder"),
        (["--memory", "magic"], "allowed: zero_copy, "),
        (["--port", "70000"], "65535"),
        (["--log-level", "loud"], "debug"),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--token-file", "/nowhere/token"], "/nowhere/token"),
    ],
)
def test_bad_input_ends_with_code_2_and_says_what_is_allowed(args: list[str], message: str) -> None:
    code, text = here("serve", "--port", "0", *args)
    assert code == 2, text
    assert message in text


def test_b77_a_saved_file_without_its_credentials_is_refused_in_words_of_its_own_comment(tmp_path: Path) -> None:
    uri = "opencv://?name=rtsp://***@127.0.0.1:1/x"
    file = tmp_path / "saved.yaml"
    file.write_text(f"# Put the credentials back into the uri of door.\ncameras:\n  door:\n    uri: {uri}\n")
    ways: list[tuple[list[str], dict[str, str], str]] = [
        (["--config", str(file)], {}, f"{file}:4: cameras.door.uri"),
        (["--camera", f"door={uri}"], {}, "--camera door: uri"),
        ([], {"PINHOLE_CAMERAS__door__URI": uri}, "PINHOLE_CAMERAS__door__URI"),
    ]
    for args, variables, where in ways:
        result = CliRunner().invoke(main, ["serve", "--port", "0", *args], env=variables)
        assert result.exit_code == 2, result.output
        assert f"{where}: *** stands where a credential was hidden: put the credentials back" in result.output


def test_b53_several_workers_are_refused_before_a_camera_is_opened() -> None:
    done = run("serve", "--port", "0", "--camera", f"a={SMALL_CARD}", WEB_CONCURRENCY="2")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "would each open the cameras" in done.stderr
    assert "starting" not in done.stderr


def test_b53_uvicorn_cannot_make_several_owners_of_it() -> None:
    with pytest.raises(RuntimeError, match="pinhole serve"):
        from service.app import app  # noqa: F401


def test_a_port_in_use_is_an_error_of_the_place_not_of_the_input() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = here("serve", "--port", str(port), "--camera", f"a={SMALL_CARD}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; another program listens there" in text
    assert "address of this machine" not in text
    assert "starting" not in text, "no camera is opened before the port is ours"


def test_an_address_that_is_not_ours_is_an_error_of_the_place() -> None:
    for host in ("192.0.2.1", "no-such-host.invalid"):
        code, text = here("serve", "--port", "0", "--host", host, "--insecure")
        assert code == 1, text
        assert f"cannot listen on {host}" in text
    assert "that name is not known here" in text
    code, text = here("serve", "--port", "0", "--host", "no-such-host.invalid")
    assert code == 2
    assert "'no-such-host.invalid' is not a name or address that is known here" in text
    assert "other machines" not in text


def test_a_short_token_beyond_the_loopback_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for token, warned in (("Geheim-1", True), ("a-token-of-a-length", False)):
        caplog.clear()
        settings = Settings(host="0.0.0.0", token=SecretStr(token))
        with caplog.at_level(logging.INFO, "pinhole.serve"):
            announce("http://127.0.0.1:8080", settings, Engine(HostDevice()), "host")
        assert (
            "WEAK TOKEN, fewer than 16 characters: whoever reaches 0.0.0.0 can find it by trying" in caplog.text
        ) is warned
        assert ("openssl rand -hex 16" in caplog.text) is warned
        assert token not in caplog.text
        assert socket.gethostname() in caplog.text


def test_b74_a_gpu_that_was_asked_for_by_name_and_is_absent_is_refused() -> None:
    done = run("serve", "--port", "0", "--memory", "zero_copy", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "--memory host" in done.stderr
    assert "Traceback" not in done.stderr


def test_b74_without_a_gpu_the_default_runs_on_the_cpu_and_says_so_everywhere() -> None:
    with serve("--camera", f"a={SMALL_CARD}", CUDA_VISIBLE_DEVICES="") as server:
        state = server.get("/api/v1/state").json()["device"]
        assert (state["backend"], state["memory"]) == ("opencv", "host")
        assert "no usable GPU" in state["reason"]
        assert "no usable GPU" in server.log
        assert server.metric("pinhole_build_info", backend="opencv", memory="host") == 1


def test_the_token_guards_and_is_never_logged(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("very-secret-token\n")
    args = ("--camera", f"a={SMALL_CARD}", "--token-file", str(file), "--host", "0.0.0.0", "--log-level", "debug")
    with serve(*args) as server:
        for path in ("/snapshot?token=very-secret-token", "/?token=very-secret-token", "/nope?token=very-secret-token"):
            server.get(path)
        assert server.get("/snapshot").status == 401
        assert server.get("/snapshot?token=very-secret-token").status == 200
        assert server.get("/api/v1/state", headers={"Authorization": "Bearer very-secret-token"}).status == 200
        server.end()
    assert "very-secret" not in server.log
    assert "INSECURE" not in server.log


def test_insecure_is_said_loudly() -> None:
    with serve("--camera", f"a={SMALL_CARD}", "--host", "0.0.0.0", "--insecure") as server:
        assert server.get("/snapshot").status == 200
    assert "INSECURE" in server.log


def test_json_logs_are_json_from_the_first_line_to_the_last() -> None:
    with serve("--camera", f"a={SMALL_CARD}", "--log-format", "json") as server:
        server.end()
    entries = [json.loads(line) for line in server.lines]
    start = next(entry for entry in entries if "url" in entry)
    assert start["url"] == server.url
    assert start["cameras"] == ["a"]
    assert entries[-1]["message"] == "stopped"
