"""``pinhole bench``: what chains cost on this machine."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from kernels.bench import Gpu, Options, measure
from kernels.bench_case import STANDARD, Case, make_case, missing_ops, size_of
from kernels.bench_opencv import OPENCV
from kernels.device import MEMORY_STRATEGIES, CudaDevice, Device, open_device
from kernels.errors import InputError, PinholeError
from kernels.formats import pixel_format
from service.bench import to_json, to_text, write
from service.environment import LoadMeter, environment
from service.memory_cli import frame, transfer
from service.ops_cli import ops_folder, refuse, take_folder

CANNOT_RUN = 1
SIZES = ("1920x1080", "3840x2160")
FORMATS = ("BGR8", "NV12")


@click.group()
def bench() -> None:
    """Measure what Pinhole costs on this machine."""


bench.add_command(transfer)
bench.add_command(frame)


@bench.command(
    epilog=f"OpenCV by hand has lines for {', '.join(OPENCV)}; a chain with another op is timed without that column."
)
@click.option("--chain", "chains", multiple=True, metavar="TEXT", help=f"A chain, or {', '.join(STANDARD)} (default).")
@click.option("--size", "sizes", multiple=True, metavar="WxH", help=f"Of the source; default {' and '.join(SIZES)}.")
@click.option("--format", "formats", multiple=True, metavar="NAME", help=f"Default {' and '.join(FORMATS)}.")
@click.option("--target", metavar="FORMAT", help="Of the result: GRAY8, I420, NV12; default what the chain makes.")
@click.option("--memory", type=click.Choice(MEMORY_STRATEGIES), help="Default zero_copy where there is a GPU.")
@click.option("--result", type=click.Choice(("host", "device")), default="host", help="Where the result is left.")
@click.option("--kernels", is_flag=True, help="Also the kernels alone, source and result in device memory.")
@click.option("--frames", type=click.IntRange(min=1), default=120, show_default=True, help="For each way and run.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="The median of them counts.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="For bench_chain.json, .md and .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON instead of the tables.")
@ops_folder
def chain(
    chains: tuple[str, ...], sizes: tuple[str, ...], formats: tuple[str, ...], target: str | None, memory: str | None,
    result: str, kernels: bool, frames: int, runs: int, out: Path | None, as_json: bool, ops_dir: Path | None,
) -> None:  # fmt: skip
    """Time chains beside what people write instead, in one run.

    On a GPU: fused, with a pass for each op, CuPy op by op, OpenCV; and the floor of the link, measured in the same
    run. Without one: Pinhole on the CPU beside OpenCV by hand. What runs on the CPU or in CuPy gets half a second for
    each run, and as many frames as that holds.
    """
    take_folder(ops_dir)
    try:
        cases = make_cases(chains or _standard(), sizes or SIZES, formats or FORMATS, target, result == "device")
        folder = None if out is None else _made(out)
        device, reason = open_device(memory)
        gpu = gpu_of(device)
        if gpu is None and (kernels or result == "device"):
            asked = "--kernels" if kernels else "--result device"
            raise InputError(asked, f"the memory strategy is {reason}", "a GPU and --memory zero_copy")
        _say(f"{device.name}; {reason}")
        load = LoadMeter()
        figures = measure(cases, gpu, Options(frames, runs, kernels), _say)
        device.close()
    except InputError as error:
        refuse(error)
    except PinholeError as error:
        click.echo(f"pinhole: {error}", err=True)
        raise SystemExit(CANNOT_RUN) from None
    report = to_json(figures, environment(shlex.join(["pinhole", *sys.argv[1:]])), load.stop())
    text = to_text(report, figures)
    if folder is not None:
        write(folder, report, figures, text)
        _say(f"written to {folder}")
    click.echo(json.dumps(report, indent=1, ensure_ascii=False) if as_json else text.rstrip())


def make_cases(
    chains: Sequence[str], sizes: Sequence[str], formats: Sequence[str], target: str | None, on_device: bool = False
) -> list[Case]:
    """Every chain for every size and format. Raises InputError, which names the option."""
    made = None if target is None else pixel_format(target.upper(), "--target")
    cases = []
    for format in [pixel_format(name.upper(), "--format") for name in formats]:
        for width, height in [size_of(text, "--size") for text in sizes]:
            for text in chains:
                try:
                    case = make_case(text, format, width, height, made, on_device=on_device, field="--chain")
                except InputError as error:
                    fields = {"size": "--size", "target": "--target"}
                    raise InputError(fields.get(error.field, error.field), error.reason, error.allowed) from None
                cases.append(case)
    return cases


def gpu_of(device: Device) -> Gpu | None:
    """The GPU that a device is, or None."""
    if not isinstance(device, CudaDevice):
        return None
    from kernels.bench_cuda import CudaGpu

    return CudaGpu(device)


def _standard() -> list[str]:
    """The standard chains whose operations are all there."""
    there = []
    for name in STANDARD:
        if missing := missing_ops(name):
            _say(f"{name} is left out: there is no {', '.join(missing)}")
        else:
            there.append(name)
    return there


def _made(folder: Path) -> Path:
    """The folder, made if need be and writable. Raises InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InputError("--out", f"{folder}: {error.strerror}", "a folder that can be written") from None


def _say(text: str) -> None:
    click.echo(text, err=True)
