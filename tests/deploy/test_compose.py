"""docker-compose.yml: by the specification's schema, and against what it refers to: images, files, settings, .env."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.sources import make_source
from service.config import load
from service.config_environment import PROCESS_VARIABLES, known_variables
from tests.deploy.dockerfile import ROOT, Build, parse

FILES = ("docker-compose.yml", "deploy/compose.camera.yml", "deploy/compose.config.yml")
PER_COMMAND = ("CAMERA", "CONFIG")  # which device and file: said with the command, as there is no default for all
OURS = ("pinhole", "pinhole-gpu", "pinhole-jetson")
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def env_file() -> dict[str, str]:
    lines = (ROOT / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def interpolated(text: str) -> str:
    """As Compose does it with nothing in the shell's environment but .env."""
    return VARIABLE.sub(lambda found: env_file().get(found[1], found[2] or ""), text)


def composed(name: str = FILES[0]) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(interpolated((ROOT / name).read_text()))
    return loaded


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = composed()["services"][name]
    return found


def schema_validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    return jsonschema.Draft201909Validator(schema)


@pytest.mark.parametrize("name", FILES)
def test_the_specification_accepts_it(name: str) -> None:
    errors = [error.message for error in schema_validator().iter_errors(composed(name))]
    assert errors == []


def test_the_specification_would_refuse_what_is_wrong() -> None:
    broken = composed()
    broken["services"]["pinhole"]["shm_sise"] = "1g"
    assert not schema_validator().is_valid(broken)


def test_a_bare_up_starts_the_cpu_service_alone() -> None:
    services = composed()["services"]
    by_profile = {p: sorted(n for n, s in services.items() if p in s["profiles"]) for p in PROFILES}
    assert by_profile == {
        "cpu": ["pinhole"], "gpu": ["pinhole-gpu"], "jetson": ["pinhole-jetson"],
        "monitoring": ["grafana", "prometheus"],
    }  # fmt: skip
    assert all(len(one["profiles"]) == 1 for one in services.values())
    assert env_file()["COMPOSE_PROFILES"] == "cpu"


PROFILES = ("cpu", "gpu", "jetson", "monitoring")


def test_every_variable_has_one_default_and_is_in_env() -> None:
    text = "".join((ROOT / name).read_text() for name in FILES)
    env = env_file()
    used = {name: default for name, default in VARIABLE.findall(text) if name not in PER_COMMAND}
    assert set(used) == set(env) - {"COMPOSE_PROFILES"}
    for name, default in used.items():
        assert default == env[name], name


def test_no_secret_is_committed() -> None:
    assert (ROOT / env_file()["TOKEN_FILE"]).read_bytes() == b""
    assert "PINHOLE_TOKEN" not in env_file()


def test_env_can_be_sourced_beside_the_command() -> None:
    """A PINHOLE_* that is no setting would be refused by `pinhole serve` in the same shell."""
    ours = {name: value for name, value in env_file().items() if name.startswith("PINHOLE_")}
    assert load({}, dict, environment=ours).settings.insecure is True


def test_everything_is_published_on_the_loopback_address_alone() -> None:
    ports = [port for one in composed()["services"].values() for port in one["ports"]]
    assert len(ports) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_with_no_more_rights_than_it_needs(name: str) -> None:
    one = service(name)
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in one
    assert "user" not in one, "the image's own user"
    assert one["group_add"] == [env_file()["VIDEO_GID"]]
    assert one["stop_grace_period"] == "5s", "the service itself takes up to 2 s"
    assert one["shm_size"] == "256m"
    assert one["ulimits"]["memlock"] == -1
    assert one["ulimits"].get("rtprio") == (None if name == "pinhole" else 99)


def test_a_gpu_is_asked_for_where_one_is_used() -> None:
    (device,) = service("pinhole-gpu")["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert service("pinhole-jetson")["runtime"] == "nvidia"
    assert "deploy" not in service("pinhole")
    for name in OURS[1:]:
        assert service(name)["environment"]["PINHOLE_MEMORY"] == "zero_copy", "never silently on the CPU"
        assert service(name)["environment"].items() >= service("pinhole")["environment"].items()


@pytest.mark.parametrize("name", OURS)
def test_build_and_settings_fit_image_and_product(name: str, tmp_path: Path) -> None:
    one = service(name)
    path = ROOT / one["build"]["dockerfile"]
    arguments = one["build"].get("args", {})
    declared = {
        step.text.partition("=")[0]: step.text.partition("=")[2]
        for step in parse(path.read_text())
        if step.name == "ARG"
    }
    for key, value in arguments.items():
        assert declared[key] in ("", value) or env_file()[key] == value
    image = Build(path, tmp_path, arguments, execute=False).image
    variables = {**image.env, **one["environment"]}
    for key in variables:
        assert not key.startswith("PINHOLE_") or key in {*known_variables(), *PROCESS_VARIABLES}, key
    token = tmp_path / "token"
    token.write_text("")
    held = {**variables, "PINHOLE_TOKEN_FILE": str(token)}
    settings = load({}, dict, environment=held).settings
    settings.check()
    assert settings.token is None
    token.write_text("a-token")
    protected = load({}, dict, environment={**held, "PINHOLE_INSECURE": "false"}).settings
    protected.check()
    assert protected.token is not None
    # What it writes lies where it may write; what it listens on is what is published and asked.
    assert [volume.split(":")[1] for volume in one["volumes"]] == [settings_cache(variables)]
    assert one["ports"][0].endswith(f":{settings.port}")
    assert one["environment"]["PINHOLE_TOKEN_FILE"] == f"/run/secrets/{one['secrets'][0]}"


def settings_cache(variables: dict[str, str]) -> str:
    return variables["PINHOLE_CACHE_DIR"]


def test_a_camera_is_added_to_whichever_service_runs() -> None:
    services = composed("deploy/compose.camera.yml")["services"]
    assert set(services) == set(OURS)
    for one in services.values():
        assert one["devices"] == ["/dev/video0:/dev/video0"]
        assert set(one) == {"devices", "environment"}
        (camera,) = load({}, dict, environment=one["environment"]).cameras
        assert make_source(camera.uri).path == "/dev/video0"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OURS)
def test_a_configuration_file_names_the_cameras_of_whichever_service_runs(name: str, tmp_path: Path) -> None:
    """The mounted file is the one that the variable names, and what the Compose file sets goes before it."""
    added = composed("deploy/compose.config.yml")["services"]
    assert set(added) == set(OURS)
    (volume,) = added[name]["volumes"]
    assert volume == f"./pinhole.yaml:{added[name]['environment']['PINHOLE_CONFIG']}:ro"
    file, token = tmp_path / "pinhole.yaml", tmp_path / "token"
    file.write_text("host: 127.0.0.1\nport: 9\ncameras: {gate: {uri: 'opencv://?name=rtsp%3A%2F%2F192.0.2.7%2Fx'}}\n")
    token.write_text("")
    variables = {**service(name)["environment"], "PINHOLE_CONFIG": str(file), "PINHOLE_TOKEN_FILE": str(token)}
    effective = load({}, dict, environment=variables)
    assert [camera.name for camera in effective.cameras] == ["gate"]
    assert (effective.settings.host, effective.settings.port) == ("0.0.0.0", 8080)


def test_mounted_files_are_there() -> None:
    for one in composed()["services"].values():
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), source
            assert source.startswith(".") or source in composed()["volumes"], source
    assert set(composed()["secrets"]) == {"pinhole_token"}
