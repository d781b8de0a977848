"""The command ``pinhole``.

Exit codes: 0 done, 1 it could not run here, 2 what was asked is not acceptable, 3 the GPU was lost: start it again.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import click

from kernels.device import CudaDevice, Device, open_device
from kernels.dump import prepare_folder
from kernels.errors import DeviceLostError, InputError, PinholeError
from kernels.memory import sensible_slot_bytes
from kernels.registry import PluginError, all_ops
from pipeline.camera import CameraConfig
from pipeline.encoders import all_encoders, holds_results, where_encoded
from pipeline.engine import Engine
from pipeline.sources import all_sources
from pipeline.sources import catalogue as source_catalogue
from service.app import create_app
from service.bench_cli import bench
from service.cameras_cli import cameras
from service.config import Effective, located, where
from service.config_cli import NOT_ACCEPTABLE, config, configured, effective_of, missing_clip
from service.connection import listen
from service.doctor import doctor
from service.health import ask, default_url
from service.logs import set_up_logging
from service.machine import size
from service.ops_cli import list_parameters, ops
from service.problems import to_json
from service.server import SIGNALS, Server, check_single_owner, handled_signals
from service.settings import GOOD_TOKEN_LENGTH, Settings, is_loopback
from service.version import version

log = logging.getLogger("pinhole.serve")

# A thread that computes in Python (the metrics of many cameras) would hold up each step of a frame by Python's 5 ms.
SWITCH_INTERVAL_S = 0.0005
LAST_THREADS_S = 0.3  # for threads that end by themselves

CANNOT_RUN = 1
DEVICE_LOST = 3

LOG_LEVEL = f"{__name__}.log_level"  # in the context's meta


class Commands(click.Group):
    """The commands; a broken op, source or encoder file ends any of them with one line that says where in it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PluginError as error:
            cause, more = error.__cause__, ""
            if cause is not None and "debug" in (ctx.meta.get(LOG_LEVEL), os.environ.get("PINHOLE_LOG_LEVEL")):
                click.echo("".join(traceback.format_exception(type(cause), cause, cause.__traceback__)), err=True)
            elif cause is not None:
                more = " (PINHOLE_LOG_LEVEL=debug shows the traceback)"
            _fail(f"{error}{more}", NOT_ACCEPTABLE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="pinhole")
def main() -> None:
    """Watches cameras, processes every frame in the memory the camera wrote it to, and shows the result over HTTP."""


main.add_command(cameras)
main.add_command(doctor)
main.add_command(config)
main.add_command(ops)
main.add_command(bench)


@main.command()
@configured
@click.pass_context
def serve(context: click.Context, /, **_: Any) -> None:
    """Serve cameras until SIGTERM or Ctrl-C. With no camera given: a test card and a clip.

    Flags go before PINHOLE_* variables, these before the configuration file.
    """
    context.meta[LOG_LEVEL] = context.params["log_level"]
    try:
        check_single_owner()
        effective = effective_of(context)
        load_plugins()
        settings = effective.settings.check()
        if effective.settings.dump_cuda is not None:
            prepare_folder(effective.settings.dump_cuda, where(("dump_cuda",), effective.layer))
    except InputError as error:
        _fail(error, NOT_ACCEPTABLE)
    if effective.default_cameras and (reason := missing_clip()) is not None:
        click.echo(f"pinhole: {reason}", err=True)
    secrets = (settings.token.get_secret_value(),) if settings.token is not None else ()
    set_up_logging(settings.log_format, settings.log_level, secrets=secrets)
    on_signal = OnSignal()
    with handled_signals(on_signal):
        try:
            run(effective, on_signal)
        except InputError as error:
            _fail(error, NOT_ACCEPTABLE)
        except DeviceLostError as error:
            click.echo(f"pinhole: {error}", err=True)
            _leave_at_once(DEVICE_LOST)
        except PinholeError as error:
            _fail(error, CANNOT_RUN)
        for number in SIGNALS:  # we are leaving; one more of them must not change the exit code
            signal.signal(number, signal.SIG_IGN)
    _leave()


def load_plugins() -> None:
    """Load every op, source and encoder, so that a broken file is said at start-up, not to the first who needs it.

    Raises:
        PluginError
    """
    all_ops()
    all_sources()
    all_encoders()


class OnSignal:
    """SIGTERM or Ctrl-C while the server does not handle them: the end, unless we are ``leaving`` anyway."""

    def __init__(self) -> None:
        self.leaving = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.leaving:
            self.leaving = True
            raise SystemExit(0)


def run(effective: Effective, on_signal: OnSignal) -> None:
    """Open the port, then the device, then the cameras; serve; give everything back.

    Raises:
        InputError: a camera or the memory strategy is not acceptable.
        DeviceLostError: the device failed for good while it served.
        PinholeError: it cannot run here: the port is taken, the device is absent, memory ran out.
    """
    settings = effective.settings
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        raise PinholeError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; {_listen_remedy(error)}"
        ) from None
    with listener:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        device, reason = open_device(settings.memory)
        if settings.dump_cuda is not None:
            dump_cuda_of(device, settings.dump_cuda)
        asked = settings.limits.max_memory_bytes
        device.holds_results = holds_results(device)
        device.max_host_bytes = sensible_slot_bytes() if asked is None else asked
        engine = Engine(device)
        try:
            for config in effective.cameras:
                _add(engine, config, effective)
            engine.start()
            app = create_app(engine, settings, memory_reason=reason)

            def started(url: str) -> None:
                on_signal.leaving = True  # from here on the server handles them, and after it nothing may
                announce(url, settings, engine, reason)

            server = Server(app, listener, stop_viewers=app.state.pinhole.hub.stop, started_at=started)
            device.on_lost = server.fail
            if device.lost is not None:
                server.fail(device.lost)
            server.serve_forever()
        finally:
            engine.stop(0.1 if engine.stopped else 1.0)  # what the app could not end in time will not end now
    if (lost := device.lost) is not None:
        raise DeviceLostError(f"the GPU was lost, and the service ended to be started again: {lost}")
    log.info("stopped")


def _listen_remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there: end it, or choose another --port (0 takes a free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "ports below 1024 need rights that this user does not have: choose another --port"
    if isinstance(error, socket.gaierror):
        return "that name is not known here: choose another --host"
    return "is it an address of this machine? Choose another --host or --port"


def dump_cuda_of(device: Device, folder: Path) -> None:
    """Have the CUDA text of every chain of ``device`` written to ``folder``; says so where it compiles none."""
    if isinstance(device, CudaDevice):
        device.dump_folder = folder
    else:
        log.warning("no CUDA text is written: chains run on the CPU; `pinhole ops explain --dump-cuda` needs no GPU")


def announce(url: str, settings: Settings, engine: Engine, reason: str) -> None:
    """Log where the service is, on what it runs, and who may reach it."""
    device = engine.device
    fields = {"url": url, "device": device.name, "memory": device.memory, "cameras": list(engine.cameras)}
    log.info("Pinhole %s on %s; device: %s; memory: %s", version(), url, device.name, reason, extra=fields)
    if device.backend == "cuda":
        log.info("JPEG: %s", where_encoded("jpg", device))
    if device.max_host_bytes is not None:
        of = "limits.max_memory_bytes" if settings.limits.max_memory_bytes is not None else "a quarter of the memory"
        log.info("frames may take up to %s of host memory, all cameras together (%s)", size(device.max_host_bytes), of)
    if not is_loopback(settings.host):
        how = "opened once as /?token=TOKEN" if settings.token is not None else "without a token"
        name = socket.gethostname()
        named = " and its names under --allow-host" if settings.token is None else ""
        log.info("other machines reach it at this one's addresses%s (here: %s), same port, %s", named, name, how)
    if settings.token is not None and len(settings.token.get_secret_value()) < GOOD_TOKEN_LENGTH:
        what = f"fewer than {GOOD_TOKEN_LENGTH} characters: whoever reaches {settings.host} can find it by trying"
        log.warning("WEAK TOKEN, %s, and then watch and control every camera; a good one: openssl rand -hex 16", what)
    if settings.insecure and settings.token is None:
        log.warning("INSECURE: whoever reaches %s can watch and control every camera; there is no token", settings.host)


def _add(engine: Engine, config: CameraConfig, effective: Effective) -> None:
    try:
        engine.add(config, start=False)
    except InputError as error:
        raise located(error, config.name, effective.layer) from None


@main.command()
@click.option("--url", metavar="URL", help="The service; left out: port PINHOLE_PORT (8080) of this machine.")
@click.option("--port", type=click.IntRange(1, 65535), help="The service at this port of this machine.")
@click.option("--ready", is_flag=True, help="Ask for a fresh frame of every camera, not only for the service itself.")
def health(url: str | None, port: int | None, ready: bool) -> None:
    """Ask a running service how it is; exit code 0 if it is well, else 1."""
    if url is not None and port is not None:
        _fail("--port is part of --url: one of them says it all", NOT_ACCEPTABLE)
    place = default_url() if port is None else f"http://127.0.0.1:{port}"
    healthy, text = ask(url or place, "ready" if ready else "live")
    click.echo(text)
    raise SystemExit(0 if healthy else CANNOT_RUN)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="With JSON Schemas, as GET /api/v1/sources answers.")
def sources(as_json: bool) -> None:
    """List the sources: scheme, an example, and each setting's type, values, default and meaning."""
    catalogue = source_catalogue()
    if as_json:
        click.echo(json.dumps(json.loads(to_json({"sources": catalogue})), indent=2, ensure_ascii=False))
        return
    for source in catalogue:
        click.echo(f"{click.style(source['scheme'] + '://', bold=True)} {source['summary']}")
        if not source["available"]:
            click.echo(f"    cannot be used here: {source['reason']}")
        click.echo(f"    for example  {source['example']}")
        list_parameters(source["schema"], "no settings")


def _fail(error: object, code: int) -> Any:
    click.echo(f"pinhole: {error}", err=True)
    raise SystemExit(code)


def _leave() -> None:
    """End the process with code 0, also if a library's thread does not end.

    Nor while a capture thread is inside a library: the interpreter's end would take away what that stands on.
    """
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    deadline = time.monotonic() + LAST_THREADS_S
    for thread in others:  # a pool's workers are told to end and do so a moment later
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    others = [t for t in others if t.is_alive()]
    stuck = [t.name for t in others if not t.daemon or t.name.startswith("cap-")]
    if stuck:
        log.error("threads that did not end: %s", ", ".join(stuck))
        _leave_at_once(0)


def _leave_at_once(code: int) -> None:
    """End the process as it is: nothing is taken down under threads, and nothing asks a lost context for anything."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
