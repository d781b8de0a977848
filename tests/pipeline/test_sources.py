from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import BaseModel

from kernels.errors import InputError, PinholeError, UnknownNameError
from kernels.registry import PluginError
from pipeline import sources
from pipeline.sources import all_sources, catalogue, load_source, make_source, unavailable
from pipeline.sources._uri import MAX_URI_CHARS, parse_uri
from pipeline.sources.base import Source, SourceConfig
from pipeline.sources.testcard import Testcard

FOLDER = Path(sources.__file__).parent


def refusal(uri: str) -> InputError:
    with pytest.raises(InputError) as caught:
        make_source(uri, "camera.uri")
    return caught.value


def test_every_file_is_one_source_of_its_name() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"base"}
    names = {name for name in files if not name.startswith("_")}
    assert set(all_sources()) == names
    for scheme, source in all_sources().items():
        assert source.scheme == scheme
        assert source.__doc__
        assert source.example.startswith(f"{scheme}://")


def test_examples_are_accepted_as_far_as_form_goes() -> None:
    for scheme, source in all_sources().items():
        assert unavailable(scheme) is None
        made = make_source(source.example)
        assert type(made) is source


def test_settings_reach_the_source() -> None:
    source = make_source("testcard://?size=641x479&fps=30000/1001&format=YUYV")
    assert isinstance(source, Testcard)
    assert source.config.size == (641, 479)
    assert source.config.fps == Fraction(30000, 1001)
    assert source.config.format == "YUYV"
    assert isinstance(make_source("TESTCARD://?size=352x128"), Testcard)
    assert isinstance(make_source("testcard://?"), Testcard)


@pytest.mark.parametrize(
    "value",
    ["0", "0.5", "-1", "1001", "nan", "NaN", "inf", "-inf", "1e3", "1e999999999", "30/0", "0/1", "1/2/3", "true", "+30",
     "30 ", "٣٠", "9" * 5000, "0x1E", "30fps"],
)  # fmt: skip
def test_bad_fps_is_refused_with_its_path_and_range(value: str) -> None:
    error = refusal(f"testcard://?fps={value}" if len(value) < 4000 else f"testcard://?fps={value[:3000]}")
    assert error.field == "camera.uri?fps"
    assert "1 to 1000" in error.allowed
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    "value",
    ["0x0", "-1x5", "1x1", "351x128", "352x127", "16385x720", "1280x16385", "99999999x2", "1280", "1280x", "x720",
     "1280X720", "1280x720x3", "1280.5x720", "nanxnan", "1280%20x720", "１280x720"],
)  # fmt: skip
def test_bad_size_is_refused_with_its_path_and_range(value: str) -> None:
    error = refusal(f"testcard://?size={value}")
    assert error.field == "camera.uri?size"
    assert error.allowed == "352x128 to 16384x16384 px"


@pytest.mark.parametrize("size", ["352x128", "16384x16384", "353x129"])
def test_limits_of_size_are_inside(size: str) -> None:
    make_source(f"testcard://?size={size}")


@pytest.mark.parametrize(
    ("uri", "field", "kind", "hint"),
    [
        ("testcard://?format=nv12", "camera.uri?format", "format", "NV12"),
        ("testcard://?format=RGB565", "camera.uri?format", "format", None),
        ("testcard://?fsp=30", "camera.uri?fsp", "setting of testcard://", "fps"),
        ("testcard://?FPS=30", "camera.uri?FPS", "setting of testcard://", "fps"),
        ("testcard://?loop=1", "camera.uri?loop", "setting of testcard://", None),
        ("testcad://", "camera.uri", "scheme", "testcard"),
        ("nothing://u:geheim@cam/x", "camera.uri", "scheme", None),
    ],
)
def test_unknown_names_say_what_there_is_and_the_nearest(uri: str, field: str, kind: str, hint: str | None) -> None:
    error = refusal(uri)
    assert isinstance(error, UnknownNameError)
    assert error.field == field
    assert f"unknown {kind} " in error.reason
    assert error.known
    assert (f"did you mean {hint!r}" in error.reason) if hint else True
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    ("uri", "field", "says"),
    [
        ("", "camera.uri", "no scheme"),
        ("0", "camera.uri", "no scheme"),
        ("/dev/video0", "camera.uri", "no scheme"),
        ("clip.mp4", "camera.uri", "file:///"),
        ("testcard:", "camera.uri", "no scheme"),
        ("://x", "camera.uri", "no scheme"),
        ("testcard://host", "camera.uri", "nothing between"),
        ("testcard:///path", "camera.uri", "nothing between"),
        ("testcard://u:geheim@", "camera.uri", "nothing between"),
        ("testcard://#x", "camera.uri", "%23"),
        ("testcard://?fps=30&fps=30", "camera.uri?fps", "more than once"),
        ("testcard://?fps=30&f%70s=25", "camera.uri?fps", "more than once"),
        ("testcard://?fps", "camera.uri?fps", "no value"),
        ("testcard://?fps=", "camera.uri?fps", "no value"),
        ("testcard://?=30", "camera.uri", "without a name"),
        ("testcard://?fps=%", "camera.uri", "malformed"),
        ("testcard://?fps=%ff", "camera.uri", "malformed"),
        ("testcard://?fps=30\n", "camera.uri", "control"),
        ("testcard://?fps=30%0a", "camera.uri", "control"),
        ("testcard://?fps=30\udc80", "camera.uri", "broken"),
        ("\0testcard://", "camera.uri", "control"),
        ("testcard://?" + "x" * MAX_URI_CHARS, "camera.uri", str(MAX_URI_CHARS)),
    ],
)
def test_malformed_uris_are_refused(uri: str, field: str, says: str) -> None:
    error = refusal(uri)
    assert error.field == field
    assert says in str(error)
    assert "geheim" not in str(error)
    assert len(str(error)) < 300


def test_uri_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError):
        parse_uri(5)  # type: ignore[arg-type]


def test_catalogue_is_json_and_complete() -> None:
    entries = json.loads(json.dumps(catalogue(), allow_nan=False))
    assert [entry["scheme"] for entry in entries] == sorted(all_sources())
    for entry in entries:
        assert entry["summary"].endswith(".")
        assert entry["available"] is True
        assert entry["reason"] is None
        for name, schema in entry["schema"]["properties"].items():
            assert schema["description"], name
            assert {"default", "enum", "x-allowed"} & set(schema), name


def test_a_choice_among_numbers_is_one_of_their_texts() -> None:
    assert make_source("image:///a.png?depth=16").config.model_dump()["depth"] == 16
    with pytest.raises(InputError, match=r"uri\?depth.*'12'.*allowed: 16, 8"):
        make_source("image:///a.png?depth=12")


def test_defaults_of_the_catalogue_are_values_that_a_query_takes() -> None:
    for entry in catalogue():
        for name, schema in entry["schema"]["properties"].items():
            default = schema["default"]
            if default in (None, ""):  # what is not given
                continue
            text = str(default).lower() if isinstance(default, bool) else str(default)
            separator = "&" if "?" in entry["example"] else "?"
            if f"{name}=" not in entry["example"]:
                make_source(f"{entry['example']}{separator}{name}={text}")


def test_an_ampersand_of_a_url_that_was_not_escaped_is_said() -> None:
    with pytest.raises(InputError, match=r"uri\?subtype: .*written %26"):
        make_source("opencv://?name=rtsp://cam/x?channel=1&subtype=0")


class NoSchema(SourceConfig):
    what: Callable[[], int] = int


class Absent(Source):
    """A source whose library is missing."""

    scheme = "absent"
    Config = SourceConfig
    example = "absent://"

    @classmethod
    def unavailable(cls) -> str | None:
        return "libfoo is not installed; install pinhole-vision[foo]"


def test_source_without_its_library_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "all_sources", lambda: {"absent": Absent})
    (entry,) = catalogue()
    assert entry["available"] is False
    assert "pinhole-vision[foo]" in entry["reason"]
    assert unavailable("absent") == entry["reason"]
    assert "pinhole-vision[foo]" in str(refusal("absent://"))


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "exactly one source, found 0"),
        ({"A": {"scheme": "other", "Config": SourceConfig}}, "set scheme = 'broken'"),
        ({"A": {"scheme": "broken", "Config": BaseModel}}, "Config"),
        ({"A": {"scheme": "broken"}}, "Config"),
        ({"A": {"scheme": "broken", "Config": SourceConfig}, "B": {}}, "found 2: A, B"),
        ({"A": {"scheme": "broken", "Config": SourceConfig}}, "set example to a URI"),
        (
            {"A": {"scheme": "broken", "Config": SourceConfig, "example": "broken://", "open": None, "fill": None}},
            "abstract method close",
        ),
        (
            {"A": {**dict.fromkeys(("open", "fill", "close")), "scheme": "broken", "Config": NoSchema, "example": "x"}},
            "no JSON Schema",
        ),
    ],
)
def test_broken_source_file_stops_the_start_up(
    members: dict[str, dict[str, object]], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("broken_source")
    for name, attributes in members.items():
        setattr(module, name, type(name, (Source,), {**attributes, "__module__": "broken_source"}))
    monkeypatch.setitem(sys.modules, "broken_source", module)
    with pytest.raises(PinholeError, match="broken_source") as caught:
        load_source("broken_source", "broken")
    assert says in str(caught.value)


def test_source_file_that_does_not_import_stops_the_start_up() -> None:
    with pytest.raises(PinholeError, match="ModuleNotFoundError"):
        load_source("pipeline.sources.nowhere", "nowhere")


def test_source_file_that_raises_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising_source.py").write_text("import json\n\njson.loads('{')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError) as caught:
        load_source("raising_source", "raising_source")
    assert (caught.value.kind, caught.value.line) == ("source", 3)
    assert f"({tmp_path}/raising_source.py:3) does not load: JSONDecodeError: " in str(caught.value)


@pytest.mark.parametrize("uri", ["rtmp://u:geheim@cam/x", "srt://cam/stream"])
def test_what_opencv_may_open_is_said_to_be_so(uri: str) -> None:
    error = refusal(uri)
    assert error.field == "camera.uri"
    assert "opencv://" in error.allowed
    assert "geheim" not in str(error)
