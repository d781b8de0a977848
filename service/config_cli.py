"""The flags that every command about the configuration takes, and ``pinhole config``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from kernels.device import MEMORY_STRATEGIES
from kernels.errors import InputError
from pipeline.sources import clip_uri, unavailable
from service.config import DEFAULT, Effective, load
from service.config_schema import CAMERAS, Layer, Value
from service.config_show import as_json, as_yaml, json_schema

F = TypeVar("F", bound=Callable[..., Any])

NOT_ACCEPTABLE = 2

DEFAULT_CAMERAS = {
    "testcard": ("testcard://?size=1280x720&fps=30&format=NV12", "gaussian_blur(ksize=9) | gamma(gamma=1.4)"),
    "clip": ("", "sobel | gain_offset(gain=1.5)"),  # its URI is where the package lies
}

# The parameters below that are a key each; cameras and chains are apart.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "host": ("host",),
    "port": ("port",),
    "memory": ("memory",),
    "token_file": ("token_file",),
    "ops_dir": ("ops_dir",),
    "dump_cuda": ("dump_cuda",),
    "insecure": ("insecure",),
    "allow_hosts": ("allow_hosts",),
    "allow_origins": ("allow_origins",),
    "max_viewers": ("limits", "max_viewers"),
    "log_format": ("log_format",),
    "log_level": ("log_level",),
}

_FLAGS = (
    click.option("--config", type=click.Path(path_type=Path), help="A YAML file; else PINHOLE_CONFIG names it."),
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token."),
    click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."),
    click.option(
        "--camera", "cameras", multiple=True, metavar="NAME=URI", help="A camera; may be given several times."
    ),
    click.option("--chain", "chains", multiple=True, metavar="NAME=OPS", help='"gaussian_blur(ksize=5) | sobel"'),
    click.option(
        "--memory", metavar="STRATEGY", help=f"{', '.join(MEMORY_STRATEGIES)}; left out: what this machine can."
    ),
    click.option("--token-file", type=click.Path(path_type=Path), help="A file with the token; else PINHOLE_TOKEN."),
    click.option(
        "--ops", "ops_dir", type=click.Path(path_type=Path), metavar="DIR", help="A folder of operations of your own."
    ),
    click.option(
        "--dump-cuda", type=click.Path(path_type=Path), metavar="DIR", help="Write the CUDA text of each chain there."
    ),
    click.option("--insecure", is_flag=True, help="Listen on other addresses without a token."),
    click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="Another name of this service."),
    click.option(
        "--allow-origin", "allow_origins", multiple=True, metavar="ORIGIN", help="A page that may control it."
    ),
    click.option("--max-viewers", default=100, show_default=True, type=click.IntRange(1, 10_000)),
    click.option("--log-format", default="text", show_default=True, type=click.Choice(["text", "json"])),
    click.option(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"]),
    ),
)


def configured(command: F) -> F:
    """Give a command every flag of the configuration; :func:`effective_of` reads them."""
    for option in reversed(_FLAGS):
        command = option(command)
    return command


def effective_of(context: click.Context) -> Effective:
    """What holds for the flags of a command, the environment and the file.

    Raises:
        InputError
    """
    given = context.params
    flags: Layer = {}
    for name, place in _PLACES.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(p.opts[0] for p in context.command.params if p.name == name)
            flags[place] = Value(given[name], option)
    flags |= camera_flags(given["cameras"], given["chains"])
    return load(flags, default_cameras, given["config"])


def camera_flags(cameras: tuple[str, ...], chains: tuple[str, ...]) -> Layer:
    """``--camera`` and ``--chain``.

    Raises:
        InputError: names the option and what is wrong.
    """
    layer: Layer = {}
    for option, key, values, form in (("camera", "uri", cameras, "NAME=URI"), ("chain", "chain", chains, "NAME=OPS")):
        for value in values:
            name, equals, rest = value.partition("=")
            if not equals or not name:
                raise InputError(f"--{option}", f"{value[:60]!r} has no name", form)
            if (CAMERAS, name, key) in layer:
                raise InputError(f"--{option} {name[:64]}", "is given twice", "each name once")
            layer[CAMERAS, name, key] = Value(rest, f"--{option} {name[:64]}")
    return layer


def default_cameras() -> Layer:
    """A test card, and a clip where files can be played; each with a chain one can see."""
    uris = {"testcard": DEFAULT_CAMERAS["testcard"][0]}
    clip = clip_uri() if unavailable("file") is None else None
    if clip is not None:
        uris["clip"] = clip
    return {
        place: Value(value, DEFAULT)
        for name, uri in uris.items()
        for place, value in (((CAMERAS, name, "uri"), uri), ((CAMERAS, name, "chain"), DEFAULT_CAMERAS[name][1]))
    }


def missing_clip() -> str | None:
    """Why the clip is not among the default cameras, or None if it is."""
    if (reason := unavailable("file")) is None and clip_uri() is not None:
        return None
    return f"the camera 'clip' is left out: {reason or 'the clip is not there'}"


@click.group()
def config() -> None:
    """Show the configuration that holds, or the schema of its file."""


@config.command()
@configured
@click.option("--json", "as_object", is_flag=True, help="One JSON object: key, value and origin of each.")
@click.pass_context
def show(context: click.Context, /, as_object: bool, **_: Any) -> None:
    """Print what `pinhole serve` would take with the same flags, and where each value came from. No secrets."""
    try:
        effective = effective_of(context)
        effective.settings.check()
    except InputError as error:
        click.echo(f"pinhole: {error}", err=True)
        raise SystemExit(NOT_ACCEPTABLE) from None
    if as_object:
        click.echo(json.dumps(as_json(effective), indent=2, ensure_ascii=False))
    else:
        click.echo(as_yaml(effective))


@config.command()
def schema() -> None:
    """Print the JSON Schema of a configuration file."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
