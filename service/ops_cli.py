"""``pinhole ops``: what operations there are, what becomes of a chain of them, and a new one."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kernels.chain import values_of
from kernels.errors import InputError, UnknownNameError
from kernels.registry import own_ops, use_ops_folder
from service.config_cli import NOT_ACCEPTABLE
from service.op_templates import TEMPLATES
from service.ops_explain import FORMAT_NAMES, explained
from service.ops_new import write_op
from service.problems import to_json
from service.routes.catalogue import op_catalogue

F = TypeVar("F", bound=Callable[..., Any])


def _ops_option(variable: str | None, said: str) -> Callable[[F], F]:
    return click.option(
        "--ops",
        "ops_dir",
        envvar=variable,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"A folder of operations of your own{said}.",
    )


ops_folder = _ops_option("PINHOLE_OPS_DIR", "; else PINHOLE_OPS_DIR names it")
# For a command under one that has the option: there a variable would go before that one's flag.
ops_folder_again = _ops_option(None, "")


class OpsGroup(click.Group):
    """A word that is no command is an operation's name: that one alone is listed."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command

        @ops_folder_again
        def one(ops_dir: Path | None) -> None:
            list_one(cmd_name, ops_dir)

        return click.command(cmd_name)(one)


def list_one(name: str, folder: Path | None) -> None:
    """What ``pinhole ops`` says of one operation; ends the command where there is none."""
    if folder is not None:
        take_folder(folder)
    catalogue = {op["name"]: op for op in op_catalogue()}
    if name in catalogue:
        list_op(catalogue[name])
    else:
        known = [*catalogue, *ops.commands]
        listing = "what `pinhole ops` and `pinhole ops --help` list"
        refuse(UnknownNameError("ops", "operation or command", name[:60], known, listing=listing, more=own_ops()))


def list_op(op: dict[str, Any]) -> None:
    click.echo(f"{click.style(op['name'], bold=True)} ({op['kind']}): {op['summary']}")
    list_parameters(op["schema"], "no parameters")


@click.group(cls=OpsGroup, invoke_without_command=True)
@ops_folder
@click.option("--json", "as_json", is_flag=True, help="With JSON Schemas, as GET /api/v1/ops answers.")
@click.pass_context
def ops(context: click.Context, ops_dir: Path | None, as_json: bool) -> None:
    """List the operations, or the NAMEd one: name, kind, and each parameter's type, range, default, unit and meaning.

    Formulas, sources and pictures of them are in kernels/ops/README.md of the repository.
    """
    if context.invoked_subcommand != new.name:  # which may make the folder
        take_folder(ops_dir)
    if context.invoked_subcommand is not None:
        return
    catalogue = op_catalogue()
    if as_json:
        click.echo(json.dumps(json.loads(to_json({"ops": catalogue})), indent=2, ensure_ascii=False))
        return
    for op in catalogue:
        list_op(op)


def take_folder(folder: Path | None) -> None:
    """Know the operations of that folder from here on; ends the command where it is none."""
    try:
        use_ops_folder(folder)
    except InputError as error:
        refuse(InputError("--ops", error.reason, error.allowed))


def refuse(error: object) -> None:
    """End the command: what was asked is not acceptable."""
    click.echo(f"pinhole: {error}", err=True)
    raise SystemExit(NOT_ACCEPTABLE)


def list_parameters(schema: dict[str, Any], none: str) -> None:
    """A line for each parameter of a JSON Schema, or ``none``."""
    for name, parameter in schema.get("properties", {}).items():
        click.echo(f"    {name:<12} {parameter_text(parameter)}")
    if not schema.get("properties"):
        click.echo(f"    {none}")


def parameter_text(schema: dict[str, Any]) -> str:
    """``integer, 1 to 31 px in steps of 2, default 5. Width of the window, odd.``

    What a URI takes says so itself, in ``x-allowed``.
    """
    unit = f" {schema['x-unit']}" if schema.get("x-unit") else ""
    parts = [", ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "see --json"))]
    if schema.get("type") == "array" or schema.get("format") == "color":
        parts = [values_of(schema) + unit]
    if "minimum" in schema and "maximum" in schema:
        step = schema.get("x-step")
        whole = schema.get("type") == "integer" and step not in (None, 1)
        steps = f" in steps of {step}" if whole else ""
        parts.append(f"{schema['minimum']:g} to {schema['maximum']:g}{unit}{steps}")
    default = schema.get("default")
    if "x-allowed" in schema:
        kind = schema.get("type")
        parts = [f"boolean ({schema['x-allowed']})" if kind == "boolean" else schema["x-allowed"]]
        default = str(default).lower() if isinstance(default, bool) else default
    if default not in (None, ""):
        parts.append(f"default {default}")
    return f"{', '.join(parts)}. {schema.get('description', '')}".strip()


@ops.command("explain")
@click.argument("chain")
@click.option("--format", "format_name", default="NV12", show_default=True, help=f"Of the source: {FORMAT_NAMES}.")
@click.option("--size", default="1920x1080", show_default=True, help="Of the source, in pixels.")
@click.option("--target", metavar="FORMAT", help="Of the result: GRAY8, I420 or NV12; left out: what the chain makes.")
@click.option("--in-place", is_flag=True, help="Without an ingest: passes read the source themselves, halos twice.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON object.")
@click.option(
    "--dump-cuda",
    envvar="PINHOLE_DUMP_CUDA",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the plan's CUDA text there, for nvcc; else PINHOLE_DUMP_CUDA names it.",
)
@ops_folder_again
def explain_chain(
    chain: str, format_name: str, size: str, target: str | None, ops_dir: Path | None, **how: Any
) -> None:
    """Print what a chain becomes on a GPU: passes and why, bytes over the link and in device memory, halos.

    CHAIN is what --chain takes behind NAME=: "gaussian_blur(ksize=5) | gamma(gamma=1.2)". Needs no GPU.
    """
    if ops_dir is not None:
        take_folder(ops_dir)
    try:
        click.echo(explained(chain, format_name, size, target, **how))
    except InputError as error:
        refuse(error)


@ops.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(TEMPLATES)),
    default="point",
    show_default=True,
    help="; ".join(f"{kind}: {template.summary}" for kind, template in TEMPLATES.items()) + ".",
)
@click.option(
    "--dir",
    "folder",
    envvar="PINHOLE_OPS_DIR",
    default=".",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to; else PINHOLE_OPS_DIR names it, else here.",
)
def new(name: str, kind: str, folder: Path) -> None:
    """Write an operation of your own: a file that works, with its test, for you to change. Overwrites nothing."""
    try:
        op, test = write_op(name, kind, folder)
    except InputError as error:
        refuse(error)
        return
    click.echo(f"{op}\n{test}\n")
    python = shlex.quote(shown_program(sys.executable))
    click.echo(f"Its test:      {python} -m pytest {test}")
    if importlib.util.find_spec("pytest") is None:
        # pytest-timeout where DIR lies under Pinhole's own pyproject.toml, whose settings then hold.
        click.echo(
            f"               There is no pytest: make setup-dev, or {python} -m pip install pytest pytest-timeout."
        )
    click.echo(f"Its plan:      pinhole ops explain {name} --ops {folder}")
    click.echo(f'On a picture:  pinhole serve --ops {folder} --chain "testcard={name}"')


def shown_program(path: str) -> str:
    """The program's path as one would type it here: from this folder on, where it lies under it."""
    here = Path(path).absolute()
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)
