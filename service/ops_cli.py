"""``pinhole ops``: what operations there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kernels.chain import values_of
from kernels.errors import InputError
from kernels.registry import use_ops_folder
from service.config_cli import NOT_ACCEPTABLE
from service.problems import to_json
from service.routes.catalogue import op_catalogue

ops_folder = click.option(
    "--ops",
    "ops_dir",
    envvar="PINHOLE_OPS_DIR",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder of operations of your own; else PINHOLE_OPS_DIR names it.",
)


@click.group(invoke_without_command=True)
@ops_folder
@click.option("--json", "as_json", is_flag=True, help="With JSON Schemas, as GET /api/v1/ops answers.")
@click.pass_context
def ops(context: click.Context, ops_dir: Path | None, as_json: bool) -> None:
    """List the operations: name, kind, and each parameter's type, range, default, unit and meaning."""
    take_folder(ops_dir)
    if context.invoked_subcommand is not None:
        return
    catalogue = op_catalogue()
    if as_json:
        click.echo(json.dumps(json.loads(to_json({"ops": catalogue})), indent=2, ensure_ascii=False))
        return
    for op in catalogue:
        click.echo(f"{click.style(op['name'], bold=True)} ({op['kind']}): {op['summary']}")
        list_parameters(op["schema"], "no parameters")


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
