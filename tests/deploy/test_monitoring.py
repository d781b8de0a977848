"""Prometheus, Grafana, systemd: each refers to what the running service really has."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.cli import main
from service.config_environment import PROCESS_VARIABLES, known_variables
from tests.deploy.dockerfile import ROOT
from tests.deploy.test_compose import composed
from tests.helpers.server import SMALL_CARD, Client, serve
from tests.programs import program

DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
NAME = re.compile(r"\b(?:pinhole|process)_\w+")


def prometheus() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


class Families:
    """What a scrape holds: families, and the label names of each that has samples."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(text):
            names = [family.name]
            if family.type == "counter":
                names = [f"{family.name}_total"]
            elif family.type == "histogram":
                names = [f"{family.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
            for name in names:
                self.samples.setdefault(name, set())
            for sample in family.samples:
                self.samples.setdefault(sample.name, set()).update(sample.labels)

    def missing(self, expression: str) -> list[str]:
        """The metric names and labels of an expression that are not there; labels of an empty family are not known."""
        missing = []
        for name in NAME.findall(expression):
            if name not in self.samples:
                missing.append(name)
        for name, matchers in re.findall(r"\b((?:pinhole|process)_\w+)\{([^}]*)\}", expression):
            has = self.samples.get(name, set())
            missing += [
                f"{name}{{{label}}}" for label in re.findall(r"(\w+)\s*[=!]~?", matchers) if has and label not in has
            ]
        return missing


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Families]:
    """The metrics of a real service with a token and a viewer, got as Prometheus gets them."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("a-token\n")
    (job,) = prometheus()["scrape_configs"]
    headers = {
        "Authorization": f"{job['authorization']['type']} a-token",
        "Host": job["static_configs"][0]["targets"][0],
    }
    args = ("--camera", f"a={SMALL_CARD}", "--chain", "a=gamma(gamma=1.2)", "--token-file", str(token))
    with serve(*args, PINHOLE_ALLOW_HOSTS="pinhole") as server, watching(server):
        path = job["metrics_path"]
        server.until(lambda: server.get("/snapshot", headers=headers).status == 200)
        server.until(lambda: b'stage="deliver"' in server.get(path, headers=headers).body)
        assert server.get(path, headers={"Host": headers["Host"]}).status == 401
        yield Families(server.get(path, headers=headers).body.decode())


def watching(server: Client) -> Any:
    return urllib.request.urlopen(f"{server.url}/stream?token=a-token", timeout=10)


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_shows_what_the_service_measures(panel: dict[str, Any], scraped: Families) -> None:
    assert expressions(panel)
    for expression in expressions(panel):
        assert NAME.search(expression), "a panel without a metric of ours"
        assert scraped.missing(expression) == []
    for target in panel["targets"]:
        known = set().union(*(scraped.samples[name] for name in NAME.findall(target["expr"])))
        empty = [name for name in NAME.findall(target["expr"]) if not scraped.samples[name]]
        labels = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        assert empty or labels <= known, f"{target['legendFormat']}: {known}"


def test_the_check_sees_a_metric_or_label_that_is_not_there(scraped: Families) -> None:
    assert scraped.missing("rate(pinhole_frames_captured_totals[1m])") == ["pinhole_frames_captured_totals"]
    assert scraped.missing('pinhole_viewers{camra="a"}') == ["pinhole_viewers{camra}"]
    assert scraped.missing("pinhole_stage_seconds") == ["pinhole_stage_seconds"]


def test_every_metric_of_ours_is_on_a_panel(scraped: Families) -> None:
    shown = {name for panel in panels() for expression in expressions(panel) for name in NAME.findall(expression)}
    ours = {name for name in scraped.samples if name.startswith("pinhole_")}
    assert ours - shown - {f"pinhole_stage_seconds{suffix}" for suffix in ("_sum", "_count")} == set()


def test_without_a_token_prometheus_is_let_in_by_the_name_it_asks_for() -> None:
    """As the compose file runs it unless told otherwise: an empty token is sent, and none is needed."""
    headers = {"Host": "pinhole:8080", "Authorization": "Bearer "}
    with serve("--camera", f"a={SMALL_CARD}", "--insecure", PINHOLE_ALLOW_HOSTS="pinhole") as server:
        assert server.get("/metrics", headers=headers).status == 200
        assert server.get("/metrics", headers={"Host": "elsewhere:8080"}).status == 403


def test_prometheus_asks_the_services_of_the_compose_file() -> None:
    (job,) = prometheus()["scrape_configs"]
    services = composed()["services"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    name, _, port = job["static_configs"][0]["targets"][0].partition(":")
    for one in ("pinhole", "pinhole-gpu", "pinhole-jetson"):
        assert services[one]["networks"]["default"]["aliases"] == [name]
        assert name in services[one]["environment"]["PINHOLE_ALLOW_HOSTS"].split(",")
        assert services[one]["ports"][0].endswith(f":{port}")


def test_grafana_is_provisioned_with_this_prometheus_and_these_dashboards() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    uids = {p["datasource"]["uid"] for p in panels()} | {t["datasource"]["uid"] for p in panels() for t in p["targets"]}
    assert uids == {source["uid"]}
    (provider,) = yaml.safe_load((folder / "dashboards" / "pinhole.yml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in composed()["services"]["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = composed()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).name in {path.name for path in DASHBOARDS}
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)


UNIT = ROOT / "deploy" / "systemd" / "pinhole.service"


def unit() -> configparser.ConfigParser:
    class Multiple(dict[str, Any]):
        """Keeps the first of several lines of one name, which systemd allows and configparser does not."""

        def __setitem__(self, key: str, value: Any) -> None:
            if not (key in self and isinstance(value, list)):
                super().__setitem__(key, value)

    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=Multiple)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_the_unit_starts_the_command_with_options_that_exist() -> None:
    section = unit()["Service"]
    path, command, *arguments = shlex.split(section["ExecStart"])
    assert Path(path).name == "pinhole"
    found = main.commands[command]
    with found.make_context(command, arguments) as context:
        assert str(context.params["config"]) == "/etc/pinhole/pinhole.yaml"
    assert isinstance(found, click.Command)
    for variable in shlex.split(section["Environment"]):
        name = variable.partition("=")[0]
        assert not name.startswith("PINHOLE_") or name in {*known_variables(), *PROCESS_VARIABLES}
    for commented in re.findall(r"^#Environment=(\w+)=", UNIT.read_text(), re.MULTILINE):
        assert commented in known_variables()
    assert section["RestartPreventExitStatus"] == "2"


@pytest.mark.program("systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "pinhole.service"
    copy.write_text(UNIT.read_text().replace("/opt/pinhole/bin/pinhole", "/bin/true"))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
