"""What each resource answers, asked over HTTP."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cv2
import numpy as np
import pytest
import yaml
from pydantic import SecretStr

from kernels.device import HostDevice
from kernels.registry import all_ops, use_ops_folder
from pipeline.camera import CameraConfig, CameraState
from pipeline.engine import Engine
from pipeline.sources import all_sources, make_source
from service.config import load
from service.config_schema import SECTIONS
from service.describe import STAGES
from service.queries import WIDTHS_PX
from service.routes.configuration import configuration_yaml
from service.settings import Settings
from tests.helpers.inprocess import Served
from tests.helpers.sequence_code import read_codes
from tests.pipeline.fakes import until_state

pytestmark = pytest.mark.leaks_allowed("the shared service makes its worker threads when needed; checked at its end")

READABLE = [
    "/", "/health/live", "/health/ready", "/metrics", "/api/v1/state", "/api/v1/ops", "/api/v1/sources",
    "/api/v1/cameras", "/api/v1/cameras/one", "/api/v1/cameras/one/chain", "/api/v1/cameras/one/latency",
    "/api/v1/configuration", "/cameras/one/snapshot", "/snapshot", "/?action=snapshot", "/openapi.json",
    "/static/page.js", "/static/vendor/uPlot.iife.min.js", "/favicon.ico",
]  # fmt: skip


def assert_problem(reply: Any, status: int, field: str | None = None, allowed: str = "") -> dict[str, Any]:
    """A problem details document that names the field and what is allowed."""
    assert reply.status == status, reply.body[:300]
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(reply.body, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= set(problem)
    if field is not None:
        wrong = {error["field"]: error for error in problem["errors"]}
        assert field in wrong, wrong
        assert allowed in wrong[field]["allowed"], wrong
    return problem


@pytest.mark.parametrize("path", READABLE)
def test_everything_readable_answers_get_and_head(served: Served, path: str) -> None:
    got, head = served.get(path), served.request("HEAD", path)
    assert (got.status, head.status) == (200, 200)
    assert got.body
    assert head.body == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    assert got.headers["x-content-type-options"] == "nosniff"


def test_b74_state_says_what_really_runs(served: Served) -> None:
    state = served.get("/api/v1/state").json()
    assert state["device"]["backend"] == "opencv"
    assert state["device"]["memory"] == "host"
    assert state["device"]["reason"] == "a test"
    assert state["cameras"]["one"]["state"] == "running"
    assert state["cameras"]["one"]["ready"] is True
    assert state["uptime_s"] > 0


def test_ops_and_sources_come_with_schemas(served: Served) -> None:
    ops = {op["name"]: op for op in served.get("/api/v1/ops").json()["ops"]}
    assert set(ops) == set(all_ops())
    ksize = ops["gaussian_blur"]["schema"]["properties"]["ksize"]
    assert (ksize["type"], ksize["minimum"], ksize["maximum"], ksize["default"]) == ("integer", 1, 31, 5)
    sources = {source["scheme"]: source for source in served.get("/api/v1/sources").json()["sources"]}
    assert set(sources) == set(all_sources())
    assert "size" in sources["testcard"]["schema"]["properties"]


def test_cameras_are_described(served: Served) -> None:
    cameras = served.get("/api/v1/cameras").json()["cameras"]
    assert [camera["name"] for camera in cameras] == ["one", "two"]
    one = served.get("/api/v1/cameras/one").json()
    assert one["source"] == {
        "format": "NV12", "width": 352, "height": 128, "matrix": "bt601", "range": "limited",
        "nominal_fps": 30.0, "live": True, "details": {},
    }  # fmt: skip
    assert one["result"] == {"format": "BGR8", "width": 352, "height": 128}
    assert one["frames"]["captured"] >= one["frames"]["processed"] > 0
    assert one["copied_bytes"] == {"capture": 0}
    assert 0 <= one["age_ms"] < 5000
    assert one["ring"]["slots"] == 6


def test_latency_has_every_stage_and_null_for_what_was_not_measured(served: Served) -> None:
    served.get("/cameras/one/snapshot")
    latency = served.get("/api/v1/cameras/one/latency").json()
    assert tuple(latency["stages"]) == STAGES
    total, gpu, encode = (latency["stages"][stage] for stage in ("total", "gpu", "encode"))
    assert total["count"] > 0
    assert 0 < total["min_ms"] <= total["p50_ms"] <= total["p90_ms"] <= total["p99_ms"] <= total["max_ms"]
    assert encode["count"] > 0
    assert gpu == {"count": 0, **dict.fromkeys(set(total) - {"count"})}


def test_latency_buckets_are_what_the_percentiles_are_made_of(served: Served) -> None:
    served.get("/cameras/one/snapshot")
    plain = served.get("/api/v1/cameras/one/latency").json()["stages"]
    assert all("buckets" not in stage for stage in plain.values())
    for name, stage in served.get("/api/v1/cameras/one/latency?buckets=true").json()["stages"].items():
        middles, counts = [m for m, _ in stage["buckets"]], [n for _, n in stage["buckets"]]
        assert middles == sorted(set(middles))
        assert sum(counts) == stage["count"]
        if stage["count"]:
            seen = list(itertools.accumulate(counts))
            middle = next(m for m, below in zip(middles, seen, strict=True) if below >= stage["count"] / 2)
            assert middle == pytest.approx(stage["p50_ms"], rel=1 / 16, abs=1e-3), name
    assert_problem(served.get("/api/v1/cameras/one/latency?buckets=perhaps"), 422, "buckets")
    assert_problem(served.get("/api/v1/cameras/one/latency?bucket=true"), 422, "bucket", "buckets")


def test_the_configuration_makes_the_same_cameras_again(served: Served, tmp_path: Path) -> None:
    reply = served.get("/api/v1/configuration")
    assert reply.headers["content-type"] == "application/yaml"
    file = tmp_path / "pinhole.yaml"
    file.write_bytes(reply.body)
    cameras = {camera.name: camera for camera in load({}, dict, file, {}).cameras}
    assert list(cameras) == ["one", "two"]
    for name, camera in cameras.items():
        running = served.engine.get(name)
        assert camera.uri == running.config.uri
        assert camera.chain.to_json() == running.chain.to_json()
        assert (camera.slots, camera.wait, camera.stale_after_s) == (6, "auto", running.config.stale_after_s)


def test_the_configuration_keeps_what_was_set_and_no_token(tmp_path: Path) -> None:
    """Every key once with another value than the default: what is loaded from the text is the same."""
    secret = tmp_path / "secret"
    secret.write_text("a-token-of-some-length")
    given: dict[str, Any] = {
        "host": "0.0.0.0", "port": 9000, "insecure": True, "allow_hosts": ["a.example"], "allow_origins": ["https://x"],
        "ice_servers": ["stun:a.example"], "webrtc_address": "::1",
        "limits": {"max_viewers": 5, "max_peers": 4, "max_variants": 6, "max_body_bytes": 7000,
                   "max_memory_bytes": 50_000_000, "send_deadline_s": 1.5},
        "log_format": "json", "log_level": "debug", "memory": "host", "token_file": str(secret),
        "ops_dir": str(tmp_path), "dump_cuda": str(tmp_path), "cameras": {},
    }  # fmt: skip
    assert set(given) == set(SECTIONS[()])
    assert set(given["limits"]) == set(SECTIONS["limits",])
    file = tmp_path / "pinhole.yaml"
    file.write_text(yaml.safe_dump(given))
    try:
        settings = load({}, dict, file, {}).settings
        text = configuration_yaml(settings, ())
        assert yaml.safe_load(text) == given
        assert "a-token" not in text
        file.write_text(text)
        assert load({}, dict, file, {}).settings == settings
    finally:
        use_ops_folder(None)
    by_variable = configuration_yaml(Settings(token=SecretStr("a-token-of-some-length")), ())
    assert by_variable == (
        "# The token is not in here: give it in PINHOLE_TOKEN, or in a file that token_file names.\ncameras: {}\n"
    )


def test_b77_the_configuration_shows_no_credentials_and_says_so() -> None:
    engine = Engine(HostDevice())
    engine.add(CameraConfig("door", f"opencv://?name={quote('rtsp://u:p%40ss@127.0.0.1:1/x', safe='')}"), start=False)
    engine.add(CameraConfig("card", "testcard://"), start=False)
    plain = f"opencv://?name={quote('http://127.0.0.1:1/stream?width=320&fps=10', safe='')}"
    engine.add(CameraConfig("plain", plain), start=False)
    engine.add(CameraConfig("escaped", "image:///tmp/a%20b%26c.png?fps=5"), start=False, check=False)
    text = configuration_yaml(Settings(), engine.cameras.values())
    assert "p%40ss" not in text
    assert "p@ss" not in text
    assert text.startswith("# Put the credentials back into the uri of door.\n")
    uris = {name: camera["uri"] for name, camera in yaml.safe_load(text)["cameras"].items()}
    assert uris["card"] == "testcard://"
    assert (uris["plain"], uris["escaped"]) == (plain, "image:///tmp/a%20b%26c.png?fps=5")
    filled = make_source(uris["door"].replace("***", "u:p%2540ss"))  # typed in as the comment asks
    assert filled.config.name == "rtsp://u:p%40ss@127.0.0.1:1/x"
    engine.stop()


def test_a_result_beyond_the_memory_limit_is_refused_with_the_numbers(served: Served) -> None:
    """Also where only a picture between operations is large, and without making any of it."""
    device = served.engine.device
    before = served.get("/api/v1/cameras/two/chain").json()
    held = device.ledger.held("host")
    device.max_host_bytes = 60_000_000
    try:
        for chain in ("resize(width=16384,height=16384) | rotate", "resize(width=9000,height=9000) | resize(width=64)"):
            problem = assert_problem(served.request("PUT", "/api/v1/cameras/two/chain", {"chain": chain}), 507)
            assert "limits.max_memory_bytes (60.0 MB)" in problem["detail"]
            assert re.search(r"6 slots of .*: \d+\.\d MB were asked for and \d+\.\d MB is free", problem["detail"])
        assert served.get("/api/v1/cameras/two/chain").json() == before
        assert device.ledger.held("host") == held
        assert served.request("PUT", "/api/v1/cameras/two/chain", {"chain": "resize(width=320) | sobel"}).status == 200
    finally:
        device.max_host_bytes = None


def test_a_source_beyond_the_memory_limit_fails_with_the_numbers() -> None:
    device = HostDevice()
    device.max_host_bytes = 60_000_000
    engine = Engine(device)
    camera = engine.add(CameraConfig("card", "testcard://?size=4096x4096", slots=64))
    until_state(camera, CameraState.FAILED)
    assert "64 slots of" in str(camera.cause)
    assert "limits.max_memory_bytes" in str(camera.cause)
    assert device.ledger.held("host") == 0
    engine.stop()


def test_a_chain_is_replaced_as_a_whole_and_frames_say_by_which(served: Served) -> None:
    before = served.get("/api/v1/cameras/two/chain").json()
    body = {"ops": [{"op": "gain_offset", "params": {"gain": 0.5}}, {"op": "sobel"}]}
    answer = served.request("PUT", "/api/v1/cameras/two/chain", body)
    assert answer.status == 200
    version = answer.json()["version"]
    assert version > before["version"]
    now = served.get("/api/v1/cameras/two/chain").json()
    assert now["ops"] == [
        {"op": "gain_offset", "params": {"gain": 0.5, "offset": 0.0}}, {"op": "sobel", "params": {}},
    ]  # fmt: skip
    assert now["text"] == "gain_offset(gain=0.5, offset=0.0) | sobel()"
    served.until(lambda: int(served.get("/cameras/two/snapshot").headers["x-chain-version"]) == version)
    put = {"ops": before["ops"]}
    assert served.request("PUT", "/api/v1/cameras/two/chain", put).json()["version"] > version


def test_a_chain_is_replaced_by_its_text_which_is_what_get_answers(served: Served) -> None:
    path = "/api/v1/cameras/two/chain"
    before = served.get(path).json()
    answer = served.request("PUT", path, {"chain": "gaussian_blur(ksize=5) | gamma(gamma=1.2)"})
    assert answer.status == 200
    assert answer.json()["version"] > before["version"]
    now = served.get(path).json()
    assert [(step["op"], step["params"]) for step in now["ops"]] == [
        ("gaussian_blur", {"ksize": 5, "sigma": 0.0}), ("gamma", {"gamma": 1.2}),
    ]  # fmt: skip
    again = served.request("PUT", path, {"chain": now["text"]}).json()
    assert (again["ops"], again["text"]) == (now["ops"], now["text"])
    assert served.request("PUT", path, {"chain": ""}).json()["ops"] == []
    assert served.request("PUT", path, {"chain": before["text"]}).json()["ops"] == before["ops"]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({}, "body", "neither ops nor chain"),
        ({"ops": [], "chain": "sobel"}, "chain", "beside ops"),
        ({"ops": [], "chain": None}, "chain", "beside ops"),
        ({"chain": ["sobel"]}, "chain", "list is not a text"),
        ({"chain": None}, "chain", "NoneType is not a text"),
        ({"chain": "sobl"}, "chain[0].op", "did you mean 'sobel'"),
        ({"chain": "sobel | gaussian_blur(5)"}, "chain[1]", "did you mean gaussian_blur(ksize=5)?"),
        ({"chain": "gaussian_blur(ksize=4)"}, "chain[0].params.ksize", "4"),
        ({"text": "sobel"}, "text", "unknown key"),
    ],
)
def test_b113_a_chain_that_is_not_given_just_once_or_is_wrong_is_refused(
    served: Served, body: dict[str, Any], field: str, says: str
) -> None:
    before = served.get("/api/v1/cameras/one/chain").json()
    problem = assert_problem(served.request("PUT", "/api/v1/cameras/one/chain", body), 422, field)
    assert says in problem["errors"][0]["reason"]
    assert served.get("/api/v1/cameras/one/chain").json() == before


def test_one_parameter_changes_and_the_others_stay(served: Served) -> None:
    path = "/api/v1/cameras/one/chain"
    before = served.get(path).json()
    answer = served.request("PATCH", path + "/0", {"params": {"ksize": 9}})
    assert answer.status == 200
    assert answer.json()["version"] > before["version"]
    assert served.get(path).json()["ops"][0]["params"] == {"ksize": 9, "sigma": 1.5}
    served.request("PUT", path, {"ops": before["ops"]})


def test_b117_an_empty_chain_passes_pixels_through(served: Served) -> None:
    version = served.request("PUT", "/api/v1/cameras/two/chain", {"ops": []}).json()["version"]
    served.until(lambda: int(served.get("/cameras/two/snapshot").headers["x-chain-version"]) == version)
    result = np.load(io.BytesIO(served.get("/cameras/two/snapshot?format=npy").body))
    assert result.shape == (128, 352, 3)
    assert read_codes(result)[0] is not None


def decoded(body: bytes) -> Any:
    picture = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_UNCHANGED)
    assert picture is not None
    return picture


def test_a_snapshot_is_the_frame_that_its_headers_say(served: Served) -> None:
    for path in ("/cameras/one/snapshot", "/cameras/one/snapshot?format=png", "/cameras/one/snapshot?view=source"):
        reply = served.get(path)
        headers = reply.headers
        assert headers["content-type"] == ("image/png" if "png" in path else "image/jpeg")
        assert read_codes(decoded(reply.body)) == (int(headers["x-frame-sequence"]),) * 2
        assert abs(float(headers["x-timestamp"]) - time.time()) < 5
        assert 0 <= float(headers["x-frame-age-ms"]) < 5000
        assert (headers["x-frame-width"], headers["x-frame-height"]) == ("352", "128")
        assert headers["cache-control"] == "no-store"
        assert int(headers["content-length"]) == len(reply.body)
    sequences = [int(served.get("/cameras/one/snapshot").headers["x-frame-sequence"]) for _ in range(3)]
    assert sequences == sorted(sequences)


def test_a_snapshot_is_scaled_down_and_never_up(served: Served) -> None:
    for width, expected in ((160, (58, 160, 3)), (320, (116, 320, 3)), (1920, (128, 352, 3))):
        reply = served.get(f"/cameras/one/snapshot?width={width}")
        assert decoded(reply.body).shape == expected
        assert int(reply.headers["x-frame-width"]) == expected[1]
    assert_problem(served.get("/cameras/one/snapshot?width=200"), 422, "width", "160, 320, 480")


def test_quality_changes_the_size(served: Served) -> None:
    small, large = (len(served.get(f"/cameras/one/snapshot?quality={q}").body) for q in (5, 95))
    assert small < large / 2


def test_source_as_npy_is_the_native_planes(served: Served) -> None:
    reply = served.get("/cameras/one/snapshot?format=npy&view=source")
    planes = np.load(io.BytesIO(reply.body))
    assert reply.headers["x-pixel-format"] == "NV12"
    assert planes.shape == (352 * 128 * 3 // 2,)
    luma = planes[: 352 * 128].reshape(128, 352)
    assert read_codes(luma) == (int(reply.headers["x-frame-sequence"]),) * 2
    assert_problem(served.get("/cameras/one/snapshot?format=npy&view=source&width=160"), 422, "width")


def test_the_short_forms_mean_the_first_camera(served: Served) -> None:
    for path in (
        "/snapshot",
        "/?action=snapshot",
        "/snapshot?width=160",
        "/?action=snapshot&1699999999999",
        "/snapshot?_=1",
    ):
        assert served.get(path).headers["content-type"] == "image/jpeg"
    assert_problem(served.get("/?action=steam"), 422, "action", "stream, snapshot")


def test_not_found_and_wrong_methods_are_problems(served: Served) -> None:
    for path in ("/nope", "/api/v1/nope", "/cameras", "/cameras/one", "/cameras/one/nope", "/static/nope.js", "/docs"):
        assert_problem(served.get(path), 404)
    reply = served.request("POST", "/api/v1/cameras/one/chain", {})
    assert_problem(reply, 405)
    assert set(reply.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT"}
    assert_problem(served.request("DELETE", "/cameras/one/stream"), 405)


@pytest.mark.parametrize("name", ["nine", "One", "%00", "..%2f..%2fetc%2fpasswd", "%F0%9F%93%B7", "a" * 3000])
def test_an_unknown_camera_is_404_and_the_known_ones_are_named(served: Served, name: str) -> None:
    for path in (
        "/api/v1/cameras/{}",
        "/api/v1/cameras/{}/chain",
        "/api/v1/cameras/{}/latency",
        "/cameras/{}/snapshot",
        "/cameras/{}/stream",
    ):
        reply = served.get(path.format(name))
        problem = assert_problem(reply, 404)
        if "%2f" not in name:
            assert problem["errors"][0]["allowed"] == "one, two"
        assert len(reply.body) < 8000


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2f..%2fetc%2fpasswd", "/static/%2e%2e/%2e%2e/etc/passwd", "/static/../app.py", "/static/%00",
        "/static//etc/passwd", "/static/%252e%252e%252fapp.py", "/static/page.js%00.css", "/static/", "/static/..",
        "/static/vendor/..%2fpage.js", "/static/vendor/",
        "/static/vendor%2fuPlot.iife.min.js.map", "/static/vendor/../../app.py",
        "/cameras/..%2f..%2f..%2fetc%2fpasswd/snapshot", "/cameras/%2e%2e/snapshot", "/cameras//snapshot",
        "/snapshot/..%2f..%2fetc%2fpasswd", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd",
    ],
)  # fmt: skip
def test_b78_no_request_becomes_a_path(served: Served, path: str) -> None:
    reply = served.get(path)
    assert reply.status in (404, 422)
    assert b"root:" not in reply.body
    assert b"import" not in reply.body


def test_openapi_loads_and_covers_the_routes(served: Served) -> None:
    schema = served.get("/openapi.json").json()
    paths = schema["paths"]
    assert set(paths["/api/v1/cameras/{camera}/chain"]) == {"get", "put"}
    assert set(paths["/api/v1/cameras/{camera}/chain/{index}"]) == {"patch"}
    parameters = {p["name"]: p["schema"] for p in paths["/cameras/{camera}/stream"]["get"]["parameters"]}
    of_ustreamer = {"extra_headers", "advance_headers", "dual_final_frames", "key"}
    assert set(parameters) == {"camera", "view", "quality", "width", "fps"} | of_ustreamer
    assert parameters["quality"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 80}
    assert parameters["view"]["enum"] == ["result", "source"]
    identities = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(identities) == len(set(identities))
    assert not re.search(r"NaN|Infinity", json.dumps(schema))


def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    page = served.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for match in re.findall(rb'(?:src|href)="([^"]+)"', page.body):
        path = match.decode()
        if path.startswith("#"):
            continue
        assert path.startswith("/"), path
        if path != "/stream":
            assert served.get(path).status == 200, path
    etag = served.get("/static/page.css").headers["etag"]
    assert served.get("/static/page.css", headers={"If-None-Match": etag}).status == 304


def test_the_page_s_scripts_are_small_and_the_vendored_one_is_as_published() -> None:
    scripts = {path.name: path.stat().st_size for path in STATIC.glob("*.js")}
    first = {"page.js"}  # what is fetched before anything is shown; grid, divider, zoom and transports come when needed
    while more := {name for one in first for name in imports(STATIC / one)} - first:
        first |= more
    assert sum(scripts[name] for name in first) < 65_000, first
    assert sum(scripts.values()) < 100_000, scripts
    published = hashlib.sha256((STATIC / "vendor" / "uPlot.iife.min.js").read_bytes()).hexdigest()
    assert published == UPLOT_SHA256, "uPlot 1.6.32, dist/uPlot.iife.min.js of the npm package"
    assert "MIT License" in (STATIC / "vendor" / "uPlot.LICENSE.txt").read_text()
    for path in STATIC.glob("*.*"):
        if path.suffix in (".html", ".css", ".js"):
            assert "://" not in path.read_text(), f"{path.name} names another place"


def test_the_page_asks_for_the_widths_that_are_made() -> None:
    found = re.search(r"const WIDTHS_PX = (\[.*\]);", (STATIC / "frames.js").read_text(encoding="utf-8"))
    assert found is not None
    assert tuple(json.loads(found[1])) == WIDTHS_PX


def imports(script: Path) -> list[str]:
    return re.findall(r'^import .* from "\./(\w+\.js)";$', script.read_text(encoding="utf-8"), re.MULTILINE)


STATIC = Path(__file__).parents[2] / "service" / "static"
UPLOT_SHA256 = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
