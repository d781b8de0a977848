"""``python -m tests.kernels.catalogue``: writes kernels/ops/README.md, the catalogue of ops, and its pictures.

All of it follows from the registry: docstrings, parameter models, and the examples of ``catalogue_pictures``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernels.chain import parse_chain
from kernels.op import OpKind
from kernels.registry import AnyOp, all_ops
from tests.kernels.catalogue_pictures import FOLDER, PHOTOGRAPH, example_of, pictures, plan_of, read, write

PAGE = FOLDER.parent / "README.md"
SCALE = 5 / 6  # of pictures on the page: two fit beside each other
_LINE_CHARS = 110

# What a kind means for fusion, in a word and in a sentence.
FUSION = {
    OpKind.POINT: ("free", "reads one pixel, and runs in whatever pass stands before or after it"),
    OpKind.STENCIL: ("halo", "reads a window; shares a pass with its neighbours while windows reach 16 px together"),
    OpKind.GATHER: ("first", "reads from elsewhere, so it begins a pass; what follows shares it"),
    OpKind.TEMPORAL: ("last", "remembers earlier frames; shares a pass, but a stencil behind it begins another"),
    OpKind.GLOBAL: ("counted", "needs the whole picture's values first: a pass counts them, another uses them"),
}


def catalogue() -> str:
    """The whole page, Markdown."""
    ops = list(all_ops().values())
    return "\n\n".join([*_introduction(ops), *(part for op in ops for part in _entry(op))]) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    PAGE.write_text(catalogue(), encoding="utf-8")
    made = dict(pictures(list(all_ops().values())))
    for name, picture in made.items():
        write(name, picture)
    for path in FOLDER.glob("*.jpg"):
        if path.stem not in {PHOTOGRAPH.file, *made}:
            path.unlink()


def _introduction(ops: list[AnyOp]) -> Iterator[str]:
    yield "# Operations"
    yield (
        f"All {len(ops)} of them, made from the code by `python -m tests.kernels.catalogue`; a test keeps it so. Each "
        "has a CUDA form and a CPU form, which agree as its text says, and works on BGR8 and GRAY8; those that say so "
        "on BGR16 and GRAY16 too, where values go to 65535 and a level, also of a colour, is 257 of them. In formulas "
        "v and in are a value, 0–255, out is what becomes of it, // divides rounding down and >> shifts right. An "
        "example is a chain as `--chain`, the page and `PUT …/chain` take it; `pinhole ops explain` says what becomes "
        "of one on a GPU. Rules of rounding and borders that hold for all are in [DESIGN.md](../DESIGN.md)."
    )
    rows = ["| kind | fusion | operations |", "|---|---|---|"]
    for kind, (word, meaning) in FUSION.items():
        names = ", ".join(f"[{op.name}](#{op.name})" for op in ops if op.kind is kind)
        rows.append(f"| {kind.value} | **{word}**: {meaning} | {names} |")
    yield "\n".join(rows)
    yield (
        f"![Where the pictures come from](pictures/{PHOTOGRAPH.file}.jpg)\n\n"
        "The photograph that all pictures are made of is by danielbuechele, CC BY 2.0 "
        "([whole attribution](pictures/ATTRIBUTION.md))."
    )


def _entry(op: AnyOp) -> Iterator[str]:
    example = example_of(op)
    photograph = read(PHOTOGRAPH.file)
    before_px, after_px = photograph.shape[1], plan_of(parse_chain(example.chain), photograph).result.width
    yield f"## {op.name}"
    yield from paragraphs(type(op).__doc__ or "")
    bits = "8 and 16 bits" if op.takes_16_bit else "8 bits"
    yield f"Kind: {op.kind.value}, fusion: {FUSION[op.kind][0]}. Takes {bits}."
    yield parameter_table(op.Params.model_json_schema())
    yield f"```\n{example.chain}\n```"
    yield f"{_image(example.given.file, before_px, 'before')} {_image(op.name, after_px, 'after')}"
    if example.given is not PHOTOGRAPH:
        yield f"Left: {example.given.told}."


def _image(file: str, width_px: int, alternative: str) -> str:
    return f'<img src="pictures/{file}.jpg" width="{width_px * SCALE:.0f}" alt="{alternative}">'


def paragraphs(docstring: str) -> Iterator[str]:
    """A docstring as Markdown; a line that ends with a sentence or part of one, though more would fit, ends there."""
    first, _, rest = docstring.strip().partition("\n")
    yield f"**{first}**"
    for paragraph in re.split(r"\n\s*\n", rest):
        lines = [line.strip() for line in paragraph.strip().split("\n")]
        text = ""
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            more_fits = len(line) + 1 + len(following.partition(" ")[0]) <= _LINE_CHARS
            broken = bool(following) and line.endswith((".", ":", ";")) and more_fits
            text += line + ("\\\n" if broken else "\n" if following else "")
        if text:
            yield text.replace("*", r"\*").replace("<", "&lt;")


def parameter_table(schema: Mapping[str, Any]) -> str:
    """A row for each parameter of a JSON Schema."""
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    if not properties:
        return "No parameters."
    rows = ["| parameter | type | default | range | unit | meaning |", "|---|---|---|---|---|---|"]
    for name, value in properties.items():
        kind, range = _type_and_range(value)
        cells = (f"`{name}`", kind, f"`{_written(value['default'])}`", range, value.get("x-unit", ""))
        written = (cell.replace("|", r"\|") for cell in (*cells, value.get("description", "")))
        rows.append(f"| {' | '.join(written)} |")
    return "\n".join(rows)


def _type_and_range(schema: Mapping[str, Any]) -> tuple[str, str]:
    if "enum" in schema:
        return "one of", ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "color":
        return "colour", "`#rrggbb`"
    if schema["type"] == "array":
        kind, range = _type_and_range(schema["items"])
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        count = f"{least} to {most}" if least else f"up to {most}"
        count = f"{least} or more" if most is None else f"{most}" if least == most else count
        return f"list of {count}: {kind}", range
    if "minimum" in schema and "maximum" in schema:
        step = schema.get("multipleOf") or (schema.get("x-step") if schema["type"] == "integer" else None)
        steps = f" in steps of {step}" if step not in (None, 1) else ""
        return schema["type"], f"{schema['minimum']:g} to {schema['maximum']:g}{steps}"
    if "maxLength" in schema:
        return schema["type"], f"up to {schema['maxLength']} characters"
    return schema["type"], ""


def _written(value: object) -> str:
    """A value as chain text has it."""
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


if __name__ == "__main__":
    main()
