"""``pinhole bench transfer`` and ``pinhole bench frame``: what each kind of memory costs on this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kernels.bench_case import Case, make_case, size_of
from kernels.bench_frame import FrameOptions, measure_frames
from kernels.device import MEMORY_STRATEGIES, CudaDevice
from kernels.errors import DeviceFailedError, DeviceUnavailableError, InputError
from kernels.formats import pixel_format
from kernels.memory import sensible_slot_bytes
from kernels.transfer import Machine, Options, measure
from kernels.transfer_host import HostMachine
from kernels.transfer_plan import DEFAULT_SIZES, parse_size, parse_sizes
from service import bench_frame, bench_transfer
from service.bar_matrix import Picture, to_png, to_svg
from service.config_cli import NOT_ACCEPTABLE
from service.environment import LoadMeter, describe, environment
from service.html_report import Table, page
from service.interrupt import INTERRUPTED, interruptible
from service.ops_cli import ops_folder, refuse, take_folder
from service.progress import progress

CANNOT_RUN = 1
FRAME_SIZES = "640x480,1280x720,1920x1080,3840x2160"
FRAME_CHAINS = ("point", "std4")

F = TypeVar("F", bound=Callable[..., Any])


def outputs(command: F) -> F:
    """Where a report goes besides standard output."""
    for name, said in (
        ("--png", "The picture, as PNG."),
        ("--html", "The report with its picture, as one file that needs nothing else."),
        ("--json", "Every run, as JSON; - prints it instead of the tables."),
    ):
        kind = click.Path(dir_okay=False, allow_dash=name == "--json", path_type=Path)
        command = click.option(name, f"{name[2:]}_file", type=kind, metavar="FILE", help=said)(command)
    return command


@click.command()
@click.option("--sizes", default=DEFAULT_SIZES, show_default=True, metavar="LIST", help="Bytes: 1M is 10^6, 1Mi 2^20.")
@click.option("--repeat", type=click.IntRange(min=1), default=30, show_default=True, help="Runs, fewer of slow ways.")
@click.option(
    "--max-pinned", envvar="PINHOLE_LIMITS__MAX_MEMORY_BYTES", metavar="SIZE",
    help="At most that much pinned memory; else PINHOLE_LIMITS__MAX_MEMORY_BYTES, else a quarter of all memory.",
)  # fmt: skip
@outputs
def transfer(
    sizes: str, repeat: int, max_pinned: str | None,
    json_file: Path | None, html_file: Path | None, png_file: Path | None,
) -> None:  # fmt: skip
    """Time moving bytes between CPU and GPU in every kind of memory, each way, and both ways at once.

    Pageable copies are what the others are compared with. Never takes more than is free; what does not fit is skipped
    and said. Ctrl-C ends it with what was measured so far. Without a GPU: copies within host memory.
    """
    try:
        wanted = parse_sizes(sizes)
        budget = sensible_slot_bytes() if max_pinned is None else parse_size(max_pinned, "--max-pinned")
        _check_files(json_file, html_file, png_file)
    except InputError as error:
        refuse(error)
    limit = "a quarter of the memory; --max-pinned" if max_pinned is None else "--max-pinned"
    machines, absent = _machines(budget, limit)
    _say(f"no GPU: {absent}" if absent is not None else f"pinned memory: at most {budget / 1e9:.3g} GB ({limit})")
    load = LoadMeter()
    steps = len(wanted) * sum(len(machine.ways) for machine in machines)
    with interruptible() as stop, progress(steps) as say:
        figures = measure(machines, wanted, Options(repeat), say, stop.is_set)
    report = bench_transfer.to_json(figures, absent, environment(_command()), load.stop())
    _publish(
        report,
        bench_transfer.to_text(report, figures),
        lambda about: bench_transfer.picture(figures, about),
        (bench_transfer.TITLE, bench_transfer.tables(figures), list(bench_transfer.remarks(figures, absent))),
        (json_file, html_file, png_file),
    )
    broken = figures.failure or any(one.broken for one in figures.skipped)
    raise SystemExit(INTERRUPTED if figures.interrupted else CANNOT_RUN if broken else 0)


def _machines(max_pinned: int, limit: str) -> tuple[list[Machine], str | None]:
    """What there is to measure, and why there is no GPU among it, or None."""
    host = HostMachine()
    try:
        device = CudaDevice()
        from kernels.transfer_cuda import CudaMachine

        return [CudaMachine(device, max_pinned, limit), host], None
    except (DeviceUnavailableError, DeviceFailedError) as error:
        return [host], str(error)


@click.command()
@click.option("--sizes", default=FRAME_SIZES, show_default=True, metavar="LIST", help="Of the source.")
@click.option("--format", "formats", multiple=True, metavar="NAME", help="Of the source; default BGR8.")
@click.option(
    "--chain", "chains", multiple=True, metavar="TEXT",
    help=f"A chain, or the name of a standard one; default {' and '.join(FRAME_CHAINS)}.",
)  # fmt: skip
@click.option(
    "--memory",
    "memories",
    multiple=True,
    type=click.Choice(MEMORY_STRATEGIES),
    help="Default: all that this machine has.",
)
@click.option("--frames", type=click.IntRange(min=1), default=60, show_default=True, help="For each way and run.")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="The median of them counts.")
@outputs
@ops_folder
def frame(
    sizes: str, formats: tuple[str, ...], chains: tuple[str, ...], memories: tuple[str, ...], frames: int, runs: int,
    json_file: Path | None, html_file: Path | None, png_file: Path | None, ops_dir: Path | None,
) -> None:  # fmt: skip
    """Time one camera frame through a chain in each memory strategy, beside pageable copies and OpenCV by hand.

    Each way gets an eighth of a second for each run, and as many frames as that holds. Ctrl-C ends it with what was
    measured so far.
    """
    take_folder(ops_dir)
    try:
        cases = make_cases(chains or FRAME_CHAINS, sizes, formats or ("BGR8",))
        _check_files(json_file, html_file, png_file)
    except InputError as error:
        refuse(error)
    strategies = tuple(dict.fromkeys(memories)) or MEMORY_STRATEGIES
    load = LoadMeter()
    steps = runs * len(cases) * (len(strategies) + 1)
    with interruptible() as stop, progress(steps) as say:
        figures = measure_frames(cases, strategies, FrameOptions(frames, runs), say, stop.is_set)
    report = bench_frame.to_json(figures, environment(_command()), load.stop())
    _publish(
        report,
        bench_frame.to_text(report, figures),
        lambda about: bench_frame.picture(figures, about),
        (bench_frame.TITLE, bench_frame.tables(figures), list(bench_frame.remarks(figures))),
        (json_file, html_file, png_file),
    )
    asked_in_vain = [name for name in memories if name in figures.absent]
    raise SystemExit(INTERRUPTED if figures.interrupted else CANNOT_RUN if figures.failure or asked_in_vain else 0)


def make_cases(chains: Sequence[str], sizes: str, formats: Sequence[str]) -> list[Case]:
    """Every chain in every format and size. Raises InputError, which names the option."""
    cases = []
    for text in chains:
        for format in [pixel_format(name.upper(), "--format") for name in formats]:
            for width, height in [size_of(part.strip(), "--sizes") for part in sizes.split(",")]:
                try:
                    cases.append(make_case(text, format, width, height, field="--chain"))
                except InputError as error:
                    field = "--sizes" if error.field == "size" else error.field
                    raise InputError(field, error.reason, error.allowed) from None
    return cases


def _check_files(json_file: Path | None, html_file: Path | None, png_file: Path | None) -> None:
    """Said before anything is measured: a file that cannot be written. Raises InputError."""
    for option, path in (("--json", json_file), ("--html", html_file), ("--png", png_file)):
        if path is None or str(path) == "-":
            continue
        there = path.exists()
        if not os.access(path if there else path.absolute().parent, os.W_OK):
            raise InputError(option, f"{path} cannot be written", "a file in a folder that is there and can be written")


def _publish(
    report: dict[str, Any],
    text: str,
    picture: Callable[[Sequence[str]], Picture],
    parts: tuple[str, list[Table], list[str]],
    files: tuple[Path | None, Path | None, Path | None],
) -> None:
    json_file, html_file, png_file = files
    as_json = json.dumps(report, indent=1, ensure_ascii=False)
    where = describe(report["environment"])
    try:
        if html_file is not None or png_file is not None:
            drawn = picture(where.splitlines()[:1])
            title, tables, remarks = parts
            if html_file is not None:
                html_file.write_text(page(title, where, to_svg(drawn), tables, remarks), encoding="utf-8")
            if png_file is not None:
                png_file.write_bytes(to_png(drawn))
        if json_file is not None and str(json_file) != "-":
            json_file.write_text(as_json + "\n", encoding="utf-8")
    except OSError as error:
        click.echo(f"pinhole: {error.filename}: {error.strerror}", err=True)
        click.echo(text.rstrip())  # what was measured is not lost with it
        raise SystemExit(NOT_ACCEPTABLE) from None
    click.echo(as_json if str(json_file) == "-" else text.rstrip())


def _command() -> str:
    return shlex.join(["pinhole", *sys.argv[1:]])


def _say(text: str) -> None:
    click.echo(text, err=True)
