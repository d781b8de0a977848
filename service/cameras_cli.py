"""``pinhole cameras``: the V4L2 cameras of this machine, and what each can do."""

from __future__ import annotations

import json

import click

from pipeline.sources.v4l2 import V4l2
from pipeline.v4l2.cameras import Listed, list_cameras
from pipeline.v4l2.modes import Mode, Offered
from service.problems import to_json

MOST_SIZES = 6  # of a format, in the table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
def cameras(as_json: bool) -> None:
    """List the V4L2 cameras there are: the URI to give, formats, sizes and rates.

    A format in brackets is one that Pinhole does not take.
    """
    found = list_cameras(V4l2.system, V4l2.dev, V4l2.sysfs)
    if as_json:
        listed = {"cameras": [one.to_json() for one in found]}
        click.echo(json.dumps(json.loads(to_json(listed)), indent=2, ensure_ascii=False))
        return
    if not found:
        click.echo("no V4L2 camera here: plug one in, or hand it to the container (docker: --device /dev/video0)")
    for one in found:
        click.echo("\n".join(table(one)))


def table(camera: Listed) -> list[str]:
    """One camera's lines."""
    lines = [f"{click.style(camera.uri, bold=True)}  {camera.name}"]
    if camera.problem is not None:
        return [*lines, f"    {camera.problem}"]
    lines.append(f"    {camera.path}, driver {camera.driver}, at {camera.bus}")
    width = max((len(_name(one)) for one in camera.formats), default=0)
    lines += [f"    {_name(one):{width}}  {_sizes(one)}" for one in camera.formats if not one.emulated]
    return lines


def _name(format: Offered) -> str:
    code = format.code.strip()
    return code if format.usable else f"[{code}]"


def _sizes(format: Offered) -> str:
    if not format.modes:
        return "whatever it is set to"
    shown = [_size(mode) for mode in sorted(format.modes, key=lambda m: -m.width * m.height)[:MOST_SIZES]]
    more = len(format.modes) - len(shown)
    return ", ".join(shown) + (f" and {more} smaller" if more else "")


def _size(mode: Mode) -> str:
    size = f"{mode.width}x{mode.height}"
    if mode.until is not None:
        size += f" to {mode.until[0]}x{mode.until[1]}"
    if not mode.rates:
        return size
    fastest = f"{float(mode.rates[0]):g} fps"
    return f"{size} at {fastest}" if len(mode.rates) == 1 else f"{size} at up to {fastest}"
