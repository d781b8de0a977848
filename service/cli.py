"""The command ``pinhole``. Exit codes: 0 done, 1 it could not run here, 2 what was asked is not acceptable."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import click
from pydantic import ValidationError

from kernels.chain import Chain, parse_chain
from kernels.device import MEMORY_STRATEGIES, open_device
from kernels.errors import InputError, PinholeError, UnknownNameError
from pipeline.camera import CameraConfig
from pipeline.engine import Engine
from pipeline.sources import clip_uri, unavailable
from service.app import create_app
from service.connection import listen
from service.doctor import doctor
from service.logs import set_up_logging
from service.problems import to_json
from service.routes.catalogue import op_catalogue
from service.server import SIGNALS, Server, check_single_owner, handled_signals
from service.settings import Limits, Settings, find_token
from service.version import version

log = logging.getLogger("pinhole.serve")

CANNOT_RUN, NOT_ACCEPTABLE = 1, 2

DEFAULT_CAMERAS = {
    "testcard": ("testcard://?size=1280x720&fps=30&format=NV12", "gaussian_blur(ksize=9) | gamma(gamma=1.4)"),
    "clip": ("", "sobel | gain_offset(gain=1.5)"),  # its URI is where the package lies
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="pinhole")
def main() -> None:
    """Watches cameras, processes every frame in the memory the camera wrote it to, and shows the result over HTTP."""


main.add_command(doctor)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--camera", "cameras", multiple=True, metavar="NAME=URI", help="A camera; may be given several times.")
@click.option("--chain", "chains", multiple=True, metavar="NAME=OPS", help='"gaussian_blur(ksize=5) | sobel"')
@click.option("--memory", metavar="STRATEGY", help=f"{', '.join(MEMORY_STRATEGIES)}; left out: what this machine can.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the token; else PINHOLE_TOKEN.")
@click.option("--insecure", is_flag=True, help="Listen on other addresses without a token.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="Another name of this service.")
@click.option("--allow-origin", "allow_origins", multiple=True, metavar="ORIGIN", help="A page that may control it.")
@click.option("--max-viewers", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]))
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
def serve(
    cameras: tuple[str, ...], chains: tuple[str, ...], memory: str | None, token_file: Path | None, max_viewers: int,
    **options: Any,
) -> None:  # fmt: skip
    """Serve cameras until SIGTERM or Ctrl-C. With no --camera: a test card and a clip."""
    try:
        check_single_owner()
        settings = Settings(token=find_token(token_file), limits=Limits(max_viewers=max_viewers), **options).check()
        configs = camera_configs(cameras, chains)
    except ValidationError as error:
        first = error.errors()[0]
        _fail(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", NOT_ACCEPTABLE)
    except InputError as error:
        _fail(error, NOT_ACCEPTABLE)
    secrets = (settings.token.get_secret_value(),) if settings.token is not None else ()
    set_up_logging(settings.log_format, settings.log_level, secrets=secrets)
    on_signal = OnSignal()
    with handled_signals(on_signal):
        try:
            run(settings, configs, memory, on_signal)
        except InputError as error:
            _fail(error, NOT_ACCEPTABLE)
        except PinholeError as error:
            _fail(error, CANNOT_RUN)
        for number in SIGNALS:  # we are leaving; one more of them must not change the exit code
            signal.signal(number, signal.SIG_IGN)
    _leave()


class OnSignal:
    """SIGTERM or Ctrl-C while the server does not handle them: the end, unless we are ``leaving`` anyway."""

    def __init__(self) -> None:
        self.leaving = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.leaving:
            self.leaving = True
            raise SystemExit(0)


def run(settings: Settings, configs: Iterable[CameraConfig], memory: str | None, on_signal: OnSignal) -> None:
    """Open the port, then the device, then the cameras; serve; give everything back.

    Raises:
        InputError: a camera or the memory strategy is not acceptable.
        PinholeError: it cannot run here: the port is taken, the device is absent, memory ran out.
    """
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        raise PinholeError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
            "stop what listens there, or choose another --host and --port"
        ) from None
    with listener:
        device, reason = open_device(memory)
        engine = Engine(device)
        try:
            for config in configs:
                _add(engine, config)
            engine.start()
            app = create_app(engine, settings, memory_reason=reason)

            def started(url: str) -> None:
                on_signal.leaving = True  # from here on the server handles them, and after it nothing may
                _announce(url, settings, engine, reason)

            Server(app, listener, stop_viewers=app.state.pinhole.hub.stop, started_at=started).serve_forever()
        finally:
            engine.stop(1.0)
    log.info("stopped")


def _announce(url: str, settings: Settings, engine: Engine, reason: str) -> None:
    device = engine.device
    fields = {"url": url, "device": device.name, "memory": device.memory, "cameras": list(engine.cameras)}
    log.info("Pinhole %s on %s; device: %s; memory: %s", version(), url, device.name, reason, extra=fields)
    if settings.insecure and settings.token is None:
        log.warning("INSECURE: whoever reaches %s can watch and control every camera; there is no token", settings.host)


def camera_configs(cameras: tuple[str, ...], chains: tuple[str, ...]) -> list[CameraConfig]:
    """The cameras of a command line; the default ones if it names none.

    Raises:
        InputError: names the option and what is wrong.
    """
    uris = _pairs("camera", cameras, "NAME=URI") or _default_uris()
    ops = _pairs("chain", chains, "NAME=OPS")
    for name in ops:
        if name not in uris:
            raise UnknownNameError(f"--chain {name}", "camera", name, uris)
    if not cameras:
        ops = {name: chain for name, (_, chain) in DEFAULT_CAMERAS.items()} | ops
    return [
        _config(name, uri, parse_chain(ops[name], field=f"--chain {name}") if name in ops else Chain())
        for name, uri in uris.items()
    ]


def _default_uris() -> dict[str, str]:
    uris = {"testcard": DEFAULT_CAMERAS["testcard"][0]}
    clip, reason = clip_uri(), unavailable("file")
    if clip is not None and reason is None:
        uris["clip"] = clip
    else:
        click.echo(f"pinhole: the camera 'clip' is left out: {reason or 'the clip is not there'}", err=True)
    return uris


def _pairs(option: str, values: tuple[str, ...], form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name:
            raise InputError(f"--{option}", f"{value[:60]!r} has no name", form)
        if name in found:
            raise InputError(f"--{option} {name[:64]}", "is given twice", "each name once")
        found[name] = rest
    return found


def _config(name: str, uri: str, chain: Chain) -> CameraConfig:
    try:
        return CameraConfig(name, uri, chain)
    except InputError as error:
        raise InputError(f"--camera {name[:64]}: {error.field}", error.reason, error.allowed) from None


def _add(engine: Engine, config: CameraConfig) -> None:
    try:
        engine.add(config, start=False)
    except InputError as error:
        raise InputError(f"--camera {config.name}: {error.field}", error.reason, error.allowed) from None


@main.command()
@click.option("--json", "as_json", is_flag=True, help="With JSON Schemas, as GET /api/v1/ops answers.")
def ops(as_json: bool) -> None:
    """List the operations: name, kind, and each parameter's type, range, default, unit and meaning."""
    catalogue = op_catalogue()
    if as_json:
        click.echo(json.dumps(json.loads(to_json({"ops": catalogue})), indent=2, ensure_ascii=False))
        return
    for op in catalogue:
        click.echo(f"{click.style(op['name'], bold=True)} ({op['kind']}): {op['summary']}")
        for name, schema in op["schema"].get("properties", {}).items():
            click.echo(f"    {name:<12} {parameter_text(schema)}")
        if not op["schema"].get("properties"):
            click.echo("    no parameters")


def parameter_text(schema: dict[str, Any]) -> str:
    """``integer, 1 to 31 px in steps of 2, default 5. Width of the window, odd.``"""
    unit = f" {schema['x-unit']}" if schema.get("x-unit") else ""
    parts = [", ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "see --json"))]
    if "minimum" in schema and "maximum" in schema:
        step = schema.get("x-step")
        whole = schema.get("type") == "integer" and step not in (None, 1)
        steps = f" in steps of {step}" if whole else ""
        parts.append(f"{schema['minimum']:g} to {schema['maximum']:g}{unit}{steps}")
    if "default" in schema:
        parts.append(f"default {schema['default']}")
    return f"{', '.join(parts)}. {schema.get('description', '')}".strip()


def _fail(error: object, code: int) -> Any:
    click.echo(f"pinhole: {error}", err=True)
    raise SystemExit(code)


def _leave() -> None:
    """End the process with code 0, also if a library's thread does not end."""
    stuck = [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    if stuck:
        log.error("threads that did not end: %s", ", ".join(stuck))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
