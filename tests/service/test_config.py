"""The configuration: file, environment, flags, which of them holds, and what each refuses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kernels.errors import InputError
from kernels.registry import use_ops_folder
from pipeline.config import CameraConfig
from pipeline.sources import make_source
from service.cli import main
from service.config import Effective, load
from service.config_cli import camera_flags, default_cameras
from service.config_environment import PROCESS_VARIABLES, known_variables
from service.config_problems import ConfigurationError
from service.config_schema import CAMERA_KEYS, Layer, Value, all_places, dotted
from service.config_show import as_json, as_yaml, json_schema
from service.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "pinhole.example.yaml"
CAMERA = "cameras:\n  front:\n    uri: testcard://\n"

# Nine aliases of nine aliases of … : a short text that would be 9⁸ values.
LAUGHS = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "pinhole.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def loaded(file: Path | None = None, environment: Mapping[str, str] | None = None, **flags: Any) -> Effective:
    layer: Layer = {(key,): Value(value, f"--{key}") for key, value in flags.items()}
    return load(layer, default_cameras, file, environment or {})


def refusal(file: Path | None = None, environment: Mapping[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(InputError) as caught:
        loaded(file, environment, **flags)
    return str(caught.value)


def test_the_example_loads_and_its_comments_tell_the_defaults() -> None:
    effective = loaded(EXAMPLE)
    assert [camera.name for camera in effective.cameras] == ["front", "back"]
    assert str(effective.cameras[0].chain) == "gaussian_blur(ksize=5, sigma=0.0) | gamma(gamma=1.2)"
    assert str(effective.cameras[1].chain) == "gain_offset(gain=1.1, offset=5.0) | sobel()"
    assert effective.settings.model_copy(update={"cameras": None}).model_dump(exclude={"memory", "cameras"}) == (
        loaded().settings.model_dump(exclude={"memory", "cameras"})
    )
    front = effective.cameras[0]
    assert front == CameraConfig("front", front.uri, front.chain)


def test_the_cameras_in_the_examples_remarks_load_without_their_comment_signs(written: Written) -> None:
    before, mark, remarks = EXAMPLE.read_text(encoding="utf-8").partition("  # Real ones;")
    assert mark
    lines = remarks.splitlines()[1:]
    assert all(line.startswith("  # ") for line in lines)
    tree = yaml.safe_load("cameras:\n" + "\n".join("  " + line.removeprefix("  # ") for line in lines))
    place = {name: camera["uri"].partition(":")[0] for name, camera in tree["cameras"].items()}
    assert place == {"webcam": "v4l2", "gate": "rtsp", "recording": "file"}
    whole = before + "\n".join("  " + line.removeprefix("  # ") for line in lines)
    cameras = {camera.name: camera for camera in load({}, dict, written(whole), {}).cameras}
    assert set(cameras) == {"front", "back", "webcam", "gate", "recording"}
    for camera in cameras.values():
        make_source(camera.uri)


def test_the_example_has_every_key() -> None:
    text = EXAMPLE.read_text()
    for place in all_places():
        assert f"{place[-1]}:" in text, f"{dotted(place)} is not in the example"
    jsonschema = pytest.importorskip("jsonschema")
    tree = yaml.safe_load(text)
    jsonschema.Draft202012Validator(json_schema()).validate(tree)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate({**tree, "prot": 1})


def test_the_schema_is_one_and_names_no_token() -> None:
    schema = json_schema()
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "token" not in schema["properties"]
    for name, field in schema["properties"].items():
        assert "description" in field or "$ref" in field or "allOf" in field, f"{name} is not described"


def test_every_field_of_a_camera_and_of_the_settings_can_be_configured() -> None:
    assert set(CAMERA_KEYS) == set(CameraConfig.__dataclass_fields__) - {"name"}
    assert {place[0] for place in all_places()} >= set(Settings.model_fields) - {"token"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # the misspelt key, its whole path, its line, and the right one
        ("cameras:\n  front:\n    uri_: x\n", ["pinhole.yaml:3", "cameras.front.uri_", "'cameras.front.uri'"]),
        ("cameras:\n  front: {uri: testcard://, chian: sobel}\n", ["cameras.front.chian", "'cameras.front.chain'"]),
        ("cameras:\n  width_: 640\n", ["pinhole.yaml:2", "cameras.width_", "uri"]),
        (CAMERA + "    width_: 640\n", ["pinhole.yaml:4", "cameras.front.width_", "size="]),
        (CAMERA + "    url: x\n", ["cameras.front.url", "did you mean 'uri'"]),
        (CAMERA + "    stale_after: 3\n", ["cameras.front.stale_after", "'cameras.front.stale_after_s'"]),
        ("prot: 80\n", ["pinhole.yaml:1: prot", "did you mean 'port'"]),
        ("limits:\n  max_viewer: 3\n", ["pinhole.yaml:2", "limits.max_viewer", "'limits.max_viewers'"]),
        ("max_viewers: 3\n", ["max_viewers", "did you mean 'limits.max_viewers'"]),
        ("camera: {}\n", ["unknown key 'camera'", "did you mean 'cameras'"]),
        ("nonsense_of_all_kinds: 1\n", ["nonsense_of_all_kinds", "allowed:", "host", "cameras"]),
        ("token: secret-token\n", ["token", "token_file", "PINHOLE_TOKEN"]),
        # keys given twice, wherever
        ("port: 1\nhost: localhost\nport: 2\n", ["pinhole.yaml:3: port", "twice", "line 1"]),
        (CAMERA + "    uri: testcard://\n", ["pinhole.yaml:4", "cameras.front.uri", "twice"]),
        (CAMERA + "  front: {uri: testcard://}\n", ["cameras.front", "twice"]),
        (CAMERA + "    chain: [{op: gamma, params: {gamma: 1, gamma: 2}}]\n", ["params.gamma", "twice"]),
        # nothing, or something else than a mapping
        ("", ["pinhole.yaml", "is empty"]), ("# only a comment\n\n", ["is empty"]), ("---\n", ["is empty"]),
        ("null\n", ["is empty"]), ("- a\n", ["a list cannot stand here"]), ("text\n", ["cannot stand here"]),
        ("cameras:\n", ["pinhole.yaml:1: cameras", "nothing cannot stand here"]),
        ("cameras: [a]\n", ["a list cannot stand here"]), ("cameras:\n  front: testcard://\n", ["cameras.front"]),
        ("limits: 3\n", ["limits", "a mapping"]),
        # values
        ("port: 70000\n", ["pinhole.yaml:1: port", "0 to 65535"]), ("port: yes\n", ["port", "not numbers"]),
        ("port: [1]\n", ["port"]), ("insecure: 7\n", ["insecure"]), ("host: 7\n", ["host"]),
        ("limits:\n  max_viewers: true\n", ["limits.max_viewers", "not numbers"]),
        ("limits:\n  send_deadline_s: .nan\n", ["limits.send_deadline_s"]),
        ("limits:\n  send_deadline_s: .inf\n", ["limits.send_deadline_s"]),
        ("memory: magic\n", ["pinhole.yaml:1: memory", "zero_copy, "]), ("log_level: loud\n", ["debug, info"]),
        (CAMERA + "    slots: 3\n", ["pinhole.yaml:4: cameras.front.slots", "4 to 64"]),
        (CAMERA + "    slots: 2.5\n", ["cameras.front.slots"]), (CAMERA + "    wait: long\n", ["auto, block, spin"]),
        (CAMERA + "    stale_after_s: 0\n", ["cameras.front.stale_after_s", "0.1 to 3600"]),
        ("cameras:\n  front:\n    chain: sobel\n", ["cameras.front.uri", "no uri is given"]),
        ("cameras:\n  a b:\n    uri: testcard://\n", ["cameras.a b", "1 to 64 of"]),
        ("cameras:\n  front:\n    uri:\n", ["cameras.front.uri"]),
        ("cameras:\n  front:\n    uri: 7\n", ["cameras.front.uri"]),
        # chains, as text and as a list
        (CAMERA + "    chain: sobl\n", ["pinhole.yaml:4: cameras.front.chain[0].op", "'sobel'"]),
        (CAMERA + "    chain: gamma(gamma=0)\n", ["cameras.front.chain[0].params.gamma"]),
        (CAMERA + "    chain: [{op: sobel}, {op: gamma, params: {gama: 1}}]\n", ["chain[1].params.gama", "'gamma'"]),
        (CAMERA + "    chain: [sobel, {op: gamma, params: {gamma: .nan}}]\n", ["chain[1].params.gamma"]),
        (CAMERA + "    chain: [{opp: sobel}]\n", ["chain[0].opp", "'op'"]),
        (CAMERA + "    chain: [7]\n", ["cameras.front.chain"]),
        (CAMERA + "    chain: 7\n", ["cameras.front.chain"]),
        # not YAML, or too much of it
        ("port: [1\n", ["not YAML"]), ("a: b: c\n", ["pinhole.yaml:1", "not YAML"]), ("\tport: 1\n", ["not YAML"]),
        ("port: 1\n---\nport: 2\n", ["not YAML"]), ("port: *nowhere\n", ["not YAML"]),
        ("host: !!python/object/apply:os.system [ls]\n", ["pinhole.yaml:1: host"]),
        ("? [a, b]\n: 1\n", ["plain text"]), ("[" * 5000, ["not YAML"]),
        (LAUGHS, ["too large"]),
        ("a: &a [*a]\n", ["deep"]),
    ],
)  # fmt: skip
def test_b119_what_is_wrong_in_a_file_is_named_with_its_path(written: Written, text: str, said: list[str]) -> None:
    message = refusal(written(text))
    for part in said:
        assert part in message, message


def test_b119_bytes_that_are_no_text_and_files_that_are_none(written: Written, tmp_path: Path) -> None:
    assert "not YAML" in refusal(written(b"port: \xff\xfe\x00"))  # type: ignore[arg-type]
    assert "not YAML" in refusal(written(b"\x00" * 100))  # type: ignore[arg-type]
    assert "larger than" in refusal(written("#" * (1 << 20) + "\nport: 1\n"))
    for path in (tmp_path, tmp_path / "nowhere.yaml"):
        assert str(path) in refusal(path)


@pytest.mark.parametrize("text", ["", "prot: 1\n", "port: 1\nport: 2\n", "cameras:\n  width_: 640\n"])
def test_b119_the_command_ends_with_code_2_before_anything_starts(written: Written, text: str) -> None:
    path = written(text)
    for command in (["serve", "--port", "0", "--config", str(path)], ["config", "show", "--config", str(path)]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2, result.output
        assert str(path) in result.output
        assert "Traceback" not in result.output


WRONG_FILE = """\
prot: 1
port: 99999
limits: {max_viewers: 0, max_viewer: 3}
cameras:
  front: {uri: testcard://, chain: sobl | gamma}
  side: {url: testcard://, chain: gamma}
  back: {chain: gamma}
  yard: {uri: testcard://, slots: 1, chain: [7]}
  door: {uri: testcard://, chain: gamma(gamma=0)}
"""


def errors_of(file: Path, environment: Mapping[str, str] | None = None, **flags: Any) -> dict[str, str]:
    """The reason of each of several errors by its field, without the file's name."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(file, environment, **flags)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{len(caught.value.errors)} things are wrong:"
    assert [f"  {error}" for error in caught.value.errors] == lines[1:]
    return {error.field.replace(f"{file}:", ""): error.reason for error in caught.value.errors}


def test_b119_everything_that_is_wrong_is_said_at_once_and_each_once(written: Written) -> None:
    reasons = errors_of(written(WRONG_FILE), {"PINHOLE_PROT": "1", "PINHOLE_LOG_LEVEL": "loud"}, host=7)
    assert set(reasons) == {
        "1: prot", "3: limits.max_viewer", "6: cameras.side.url", "PINHOLE_PROT", "7: cameras.back.uri", "--host",
        "2: port", "3: limits.max_viewers", "PINHOLE_LOG_LEVEL", "8: cameras.yard.slots", "8: cameras.yard.chain",
        "5: cameras.front.chain[0].op", "9: cameras.door.chain[0].params.gamma",
    }  # fmt: skip
    assert reasons["6: cameras.side.url"] == "unknown key 'url' (did you mean 'uri'?)"
    assert reasons["5: cameras.front.chain[0].op"] == "unknown op 'sobl' (did you mean 'sobel'?)"


def test_b119_values_that_fit_their_type_alone_are_said_at_once_too(written: Written, tmp_path: Path) -> None:
    cameras = "cameras:\n  a b: {uri: testcard://}\n  front: {uri: testcard://, chain: sobl}\n"
    reasons = errors_of(written(f"memory: magic\ntoken_file: /nowhere\n{cameras}"))
    assert list(reasons) == ["1: memory", "token_file", "4: cameras.a b", "5: cameras.front.chain[0].op"]


def test_b119_the_command_says_them_in_a_line_each(written: Written) -> None:
    for command in ("serve", "config show"):
        result = CliRunner().invoke(main, [*command.split(), "--config", str(written("prot: 1\nport: 99999\n"))])
        assert result.exit_code == 2
        assert len(result.output.splitlines()) == 3
        assert result.output.startswith("pinhole: 2 things are wrong:\n  ")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PINHOLE_PROT", "1", "did you mean PINHOLE_PORT"),
        ("PINHOLE_MAX_VIEWERS", "1", "PINHOLE_LIMITS__MAX_VIEWERS"),
        ("PINHOLE_CAMERAS__front__URL", "x", "did you mean PINHOLE_CAMERAS__front__URI"),
        ("PINHOLE_CAMERAS____URI", "x", "PINHOLE_CAMERAS__NAME__URI"),
        ("PINHOLE_TOKEN_FILES", "x", "did you mean PINHOLE_TOKEN_FILE"),
        ("PINHOLE_LIMITS__MAX_VIEWERS__X", "1", "PINHOLE_LIMITS__MAX_VIEWERS"),
        ("PINHOLE_PORT__X", "1", "PINHOLE_PORT"),
        ("PINHOLE_", "1", "no such setting"),
        ("PINHOLE_PORT", "many", "PINHOLE_PORT"),
        ("PINHOLE_PORT", "70000", "0 to 65535"),
        ("PINHOLE_INSECURE", "perhaps", "PINHOLE_INSECURE"),
        ("PINHOLE_LIMITS__SEND_DEADLINE_S", "nan", "PINHOLE_LIMITS__SEND_DEADLINE_S"),
        ("PINHOLE_CAMERAS__front__CHAIN", "sobel", "no uri is given"),
        ("PINHOLE_CAMERAS", "{front: {url: x}}", "cameras.front.url"),
        ("PINHOLE_CAMERAS", "[", "PINHOLE_CAMERAS"),
        ("PINHOLE_CAMERAS__front", "{uri: testcard://, slots: 1}", "PINHOLE_CAMERAS__front"),
        ("PINHOLE_ALLOW_HOSTS", "[a", "PINHOLE_ALLOW_HOSTS"),
    ],
)
def test_b119_what_is_wrong_in_the_environment_is_named(name: str, value: str, said: str) -> None:
    message = refusal(environment={name: value})
    assert name in message
    assert said in message


def test_every_key_has_a_variable(tmp_path: Path) -> None:
    values = {
        "PINHOLE_HOST": "127.0.0.2", "PINHOLE_PORT": " 9000 ", "PINHOLE_INSECURE": "true",
        "PINHOLE_ALLOW_HOSTS": "a.example, b.example", "PINHOLE_ALLOW_ORIGINS": '["https://x.example"]',
        "PINHOLE_LOG_FORMAT": "json", "PINHOLE_LOG_LEVEL": "debug", "PINHOLE_MEMORY": "host",
        "PINHOLE_OPS_DIR": str(tmp_path), "PINHOLE_DUMP_CUDA": str(tmp_path),
        "PINHOLE_ICE_SERVERS": "stun:a.example:3478, stun:[::1]", "PINHOLE_WEBRTC_ADDRESS": "203.0.113.7",
        "PINHOLE_LIMITS__MAX_VIEWERS": "5", "PINHOLE_LIMITS__MAX_PEERS": "4", "PINHOLE_LIMITS__MAX_VARIANTS": "6",
        "PINHOLE_LIMITS__MAX_BODY_BYTES": "7000", "PINHOLE_LIMITS__MAX_MEMORY_BYTES": "50000000",
        "PINHOLE_LIMITS__SEND_DEADLINE_S": "1.5",
        "PINHOLE_CAMERAS__Front__URI": "testcard://", "PINHOLE_CAMERAS__Front__CHAIN": "sobel | invert",
        "PINHOLE_CAMERAS__Front__SLOTS": "8", "PINHOLE_CAMERAS__Front__WAIT": "spin",
        "PINHOLE_CAMERAS__Front__STALE_AFTER_S": "9", "PINHOLE_CAMERAS__Front__MEMORY": "host",
        "PINHOLE_CAMERAS__two__parts__URI": "testcard://?fps=5",
        "PINHOLE_CAMERAS__two__parts__CHAIN": '[{"op": "sobel"}]',
        "PINHOLE_CAMERAS__whole": '{"uri": "testcard://", "slots": 5}',
    }  # fmt: skip
    values = {name: value.replace(" | invert", " | gamma") for name, value in values.items()}
    effective = loaded(environment=values)
    use_ops_folder(None)
    given = {name.replace("Front", "NAME") for name in values}
    whole = {"PINHOLE_LIMITS", "PINHOLE_CAMERAS", "PINHOLE_TOKEN_FILE"}
    assert set(known_variables()) - set(PROCESS_VARIABLES) - whole <= given
    settings = effective.settings
    assert (settings.host, settings.port, settings.insecure, settings.memory) == ("127.0.0.2", 9000, True, "host")
    assert settings.allow_hosts == ("a.example", "b.example")
    assert settings.allow_origins == ("https://x.example",)
    assert settings.ice_servers == ("stun:a.example:3478", "stun:[::1]")
    assert settings.webrtc_address == "203.0.113.7"
    assert (settings.log_format, settings.log_level) == ("json", "debug")
    assert settings.limits.model_dump() == {
        "max_viewers": 5, "max_peers": 4, "max_variants": 6, "max_body_bytes": 7000, "max_memory_bytes": 50_000_000,
        "send_deadline_s": 1.5,
    }  # fmt: skip
    cameras = {camera.name: camera for camera in effective.cameras}
    assert set(cameras) == {"Front", "two__parts", "whole"}
    assert (cameras["Front"].slots, cameras["Front"].wait, cameras["Front"].stale_after_s) == (8, "spin", 9.0)
    assert cameras["Front"].memory == "host"
    assert str(cameras["Front"].chain) == "sobel() | gamma(gamma=1.0)"
    assert str(cameras["two__parts"].chain) == "sobel()"
    assert cameras["whole"].slots == 5


@pytest.mark.parametrize(
    ("text", "flags", "field"),
    [
        ("port: eighty\n", {("port",): Value(80, "--port")}, "pinhole.yaml:1: port"),
        ("limits: {max_viewers: 0}\n", {("limits", "max_viewers"): Value(3, "--max-viewers")}, "limits.max_viewers"),
        (
            "cameras: {a: {uri: 'testcard://', slots: 1}}\n",
            {("cameras", "a", "slots"): Value(4, "--slots")},
            "cameras.a.slots",
        ),
    ],
)
def test_a_wrong_value_is_refused_also_where_another_goes_before_it(
    tmp_path: Path, text: str, flags: Layer, field: str
) -> None:
    file = tmp_path / "pinhole.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(field)):
        load(flags, dict, file, {})


def test_variables_that_are_no_settings_are_left_alone() -> None:
    kubernetes = {
        "PINHOLE_SERVICE_HOST": "10.0.0.1", "PINHOLE_SERVICE_PORT": "80", "PINHOLE_SERVICE_PORT_HTTP": "80",
        "PINHOLE_PORT": "tcp://10.0.0.1:80", "PINHOLE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PINHOLE_PORT_80_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    process = dict.fromkeys(set(PROCESS_VARIABLES) - {"PINHOLE_CONFIG", "PINHOLE_TOKEN"}, "x")
    effective = loaded(environment={**kubernetes, **process, "PINHOLE_HOST": "", "pinhole_port": "x", "PATH": "/"})
    assert (effective.settings.host, effective.settings.port) == ("127.0.0.1", 8080)


def test_flags_go_before_environment_before_file_before_defaults(written: Written) -> None:
    file = written("host: 127.0.0.3\nport: 1\nlog_level: debug\n" + CAMERA + "    slots: 7\n    chain: sobel\n")
    environment = {"PINHOLE_PORT": "2", "PINHOLE_HOST": "127.0.0.4", "PINHOLE_CAMERAS__front__SLOTS": "8"}
    settings = loaded(file).settings
    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.3", 1, "debug")
    settings = loaded(file, environment).settings
    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.4", 2, "debug")
    effective = loaded(file, environment, port=3)
    settings = effective.settings
    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.4", 3, "debug")
    assert effective.cameras[0].slots == 8
    chains = camera_flags((), ("front=gamma(gamma=2)",))
    assert str(load(chains, default_cameras, file, environment).cameras[0].chain) == "gamma(gamma=2.0)"
    both = load(camera_flags(("side=testcard://",), ()), default_cameras, file, {})
    assert [camera.name for camera in both.cameras] == ["front", "side"]
    origins = {line["key"]: line["from"] for line in as_json(effective)["settings"]}
    assert origins["port"] == "--port"
    assert origins["host"] == "PINHOLE_HOST"
    assert origins["log_level"] == f"{file}:3"
    assert origins["limits.max_viewers"] == "default"
    assert origins["cameras.front.slots"] == "PINHOLE_CAMERAS__front__SLOTS"
    assert origins["cameras.front.uri"] == f"{file}:6"


def test_the_environment_can_name_the_file(written: Written) -> None:
    assert loaded(environment={"PINHOLE_CONFIG": str(written("port: 5\n"))}).settings.port == 5
    assert "/nowhere.yaml" in refusal(environment={"PINHOLE_CONFIG": "/nowhere.yaml"})


def test_default_cameras_hold_until_somebody_names_one(written: Written) -> None:
    assert loaded().default_cameras
    tuned = loaded(written("cameras:\n  testcard:\n    slots: 9\n"))
    assert {camera.name: camera.slots for camera in tuned.cameras}["testcard"] == 9
    assert len(tuned.cameras) == len(loaded().cameras)
    assert [camera.name for camera in loaded(written(CAMERA)).cameras] == ["front"]
    assert not loaded(written(CAMERA)).default_cameras
    assert loaded(written("cameras: {}\n")).cameras == ()


def test_a_list_of_texts_is_a_chain_too(written: Written) -> None:
    effective = loaded(written(CAMERA + "    chain: [sobel, 'gamma(gamma=2) | sobel', {op: sobel}]\n"))
    assert str(effective.cameras[0].chain) == "sobel() | gamma(gamma=2.0) | sobel() | sobel()"
    assert str(loaded(written(CAMERA + "    chain: []\n")).cameras[0].chain) == ""


def test_the_token_comes_from_a_file_or_the_environment_and_is_never_shown(written: Written, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-the-file\n")
    file = written(f"token_file: {secret}\n" + CAMERA)
    for environment, expected in (
        ({}, "from-the-file"),
        ({"PINHOLE_TOKEN": "from-environment"}, "from-environment"),
        ({"PINHOLE_TOKEN": "from-environment", "PINHOLE_TOKEN_FILE": str(secret)}, "from-the-file"),
    ):
        effective = loaded(file, environment)
        assert effective.settings.token is not None
        assert effective.settings.token.get_secret_value() == expected
        for text in (as_yaml(effective), json.dumps(as_json(effective)), repr(effective)):
            assert "from-environment" not in text
            assert "from-the-file" not in text
        assert "# A token is set" in as_yaml(effective)


def test_an_empty_token_file_means_none_only_to_who_says_that_none_is_needed(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    environment = {"PINHOLE_TOKEN_FILE": str(empty)}
    assert "cannot be a token" in refusal(environment=environment)
    assert loaded(environment={**environment, "PINHOLE_INSECURE": "true"}).settings.token is None


def test_b80_passwords_are_in_no_message_and_not_shown(written: Written) -> None:
    uri = "rtsp://user:pass%40word@cam.example/x?token=geheim&passphrase=hidden"
    good = written('cameras: {front: {uri: "testcard://?size=640x480&fps=5"}}\n')
    assert "fps=5" in as_yaml(loaded(good))
    for text in (
        f'cameras: {{front: {{uri: "{uri}", slots: 1}}}}\n',
        f'cameras: {{front: {{uri: ["{uri}"]}}}}\n',
        f'cameras:\n  front:\n    uri: "{uri}\n',
        f'cameras: {{front: {{uri: "{uri}", urj: 1}}}}\n',
        f"cameras: {{front: {uri}}}\n",
    ):
        message = refusal(written(text))
        for secret in ("pass%40word", "pass@word", "geheim", "hidden"):
            assert secret not in message, message
    effective = loaded(written(f'cameras: {{front: {{uri: "{uri}"}}}}\n'))
    for shown in (as_yaml(effective), json.dumps(as_json(effective))):
        for secret in ("pass%40word", "geheim", "hidden"):
            assert secret not in shown


def test_what_is_shown_can_be_loaded_again(written: Written) -> None:
    names = 'cameras:\n  "007": {uri: "testcard://?fps=5", chain: sobel}\n  "no": {uri: testcard://, slots: 9}\n'
    first = loaded(written("port: 7\nallow_hosts: [a, b]\n" + names))
    again = loaded(written(as_yaml(first)))
    assert again.settings.model_copy(update={"cameras": None}) == first.settings.model_copy(update={"cameras": None})
    assert again.cameras == first.cameras
    assert loaded(written(as_yaml(loaded(written("cameras: {}\n"))))).cameras == ()


def test_config_show_takes_the_flags_of_serve() -> None:
    runner = CliRunner(env={name: None for name in os.environ if name.startswith("PINHOLE_")})
    args = ["config", "show", "--port", "9", "--camera", "a=testcard://", "--max-viewers", "3", "--insecure"]
    result = runner.invoke(main, args)
    assert result.exit_code == 0, result.output
    assert "port: 9  # --port" in result.output
    assert "max_viewers: 3  # --max-viewers" in result.output
    assert 'uri: "testcard://"  # --camera a' in result.output
    plain = json.loads(runner.invoke(main, [*args, "--json"]).output)
    assert {"key": "insecure", "value": True, "from": "--insecure"} in plain["settings"]
    assert json.loads(runner.invoke(main, ["config", "schema"]).output) == json_schema()
    assert runner.invoke(main, ["config", "show", "--host", "0.0.0.0"]).exit_code == 2
