"""``pinhole ops explain``: a chain's plan, for people and as JSON. Needs no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kernels.chain import Chain, parse_chain
from kernels.codegen import generate
from kernels.dump import dump, prepare_folder
from kernels.errors import InputError
from kernels.explain import ExplainedPass, Explanation, Traffic, explain
from kernels.formats import FORMATS, pixel_format
from kernels.image import ImageSpec
from kernels.plan import Plan, chain_params, make_plan, reads_in_place, slot_source_spec, unfused

SIZE = re.compile(r"(\d{1,5})[x×](\d{1,5})")


def plan_for(chain: Chain, format: str, size: str, target: str | None, *, in_place: bool) -> Plan:
    """The plan as a camera's slots would have it.

    Raises:
        InputError: names the option and what it takes.
    """
    sides = SIZE.fullmatch(size)
    if sides is None:
        raise InputError("--size", f"{size[:60]!r} is no size", "WIDTHxHEIGHT, as 1920x1080")
    result = None if target is None else pixel_format(target.upper(), "--target")
    try:
        source = ImageSpec.make(pixel_format(format.upper(), "--format"), int(sides[1]), int(sides[2]))
        plan = make_plan(chain, slot_source_spec(source), result)
    except InputError as error:
        field = {"size": "--size", "target": "--target"}.get(error.field, error.field)
        raise InputError(field, error.reason, error.allowed) from None
    return reads_in_place(plan) if in_place else plan


def explained(
    text: str, format: str, size: str, target: str | None, *, in_place: bool, as_json: bool, dump_cuda: Path | None
) -> str:
    """What the command prints; writes the CUDA text to ``dump_cuda`` if asked.

    Raises:
        InputError
    """
    chain = parse_chain(text)
    plan = plan_for(chain, format, size, target, in_place=in_place)
    if dump_cuda is not None:
        prepare_folder(dump_cuda, "--dump-cuda")
    params = chain_params(chain)
    fused, apart = explain(plan, params), explain(unfused(plan), params, fused=False)
    file = None if dump_cuda is None else dump(dump_cuda, plan, generate(plan))
    if as_json:
        answer = {"chain": str(chain), "plan": to_object(fused), "unfused": to_object(apart)}
        if file is not None:
            answer["cuda"] = str(file)
        return json.dumps(answer, indent=2, ensure_ascii=False)
    lines = [str(chain) or "the empty chain", *_plan_lines(fused), "", *_comparison(fused, apart)]
    return "\n".join([*lines, *([] if file is None else ["", f"CUDA text: {file}"])])


def to_object(explanation: Explanation) -> dict[str, Any]:
    """One plan as JSON."""
    plan = explanation.plan
    return {
        "source": _picture(plan.source),
        "result": _picture(plan.result),
        "passes": [_pass(one) for one in explanation.passes],
        "link_bytes_in": explanation.link_bytes_in,
        "link_bytes_out": explanation.link_bytes_out,
        "device_bytes": explanation.device_bytes,
        "held_bytes": explanation.held_bytes,
    }


def _picture(spec: ImageSpec) -> dict[str, Any]:
    return {"format": spec.format.name, "width": spec.width, "height": spec.height, "bytes": spec.pixel_bytes}


def _pass(one: ExplainedPass) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind.value,
        "because": one.because,
        "sweeps": [{"ops": list(sweep.ops), "halo_px": sweep.halo_px} for sweep in one.sweeps],
        "reads": _traffic(one.reads),
        "writes": None if one.writes is None else _traffic(one.writes),
        "halo_px": one.halo_px,
        "tile_px": None if one.tile_px is None else list(one.tile_px),
        "pieces": one.pieces,
        "shared_bytes": one.shared_bytes,
        "state_bytes": one.state_bytes,
        "waits_for_rows": one.waits_for_rows,
        "read_overhead": None if one.read_overhead is None else round(one.read_overhead, 4),
        "compute_overhead": round(one.compute_overhead, 4),
    }


def _traffic(traffic: Traffic) -> dict[str, Any]:
    return {"place": traffic.place, "picture": _picture(traffic.picture), "bytes": traffic.nbytes}


def _plan_lines(explanation: Explanation) -> Iterator[str]:
    plan, count = explanation.plan, len(explanation.passes)
    passes = "1 pass" if count == 1 else f"{count} passes"
    yield f"{plan.source.describe()} to {plan.result.describe()}: {passes}, one launch"
    for one in explanation.passes:
        yield ""
        yield f"{click.style(one.name, bold=True)} ({one.kind.value})"
        yield f"    why       {one.because}"
        if one.sweeps:
            yield f"    sweeps    {'; '.join(' + '.join(sweep.ops) for sweep in one.sweeps)}"
        yield f"    reads     {_said(one.reads)}{_read_more(one)}"
        if one.writes is not None:
            yield f"    writes    {_said(one.writes)}"
        if one.state_bytes:
            yield f"    remembers {megabytes(one.state_bytes)}, read and written"
        if one.tile_px is not None:
            width, height = one.tile_px
            around = f", {one.compute_overhead:+.1%} computed around them" if one.compute_overhead else ""
            rows = one.reads.picture.height
            if one.waits_for_rows == rows:
                yield f"    waits     for all {rows} rows"
            elif one.waits_for_rows:
                yield f"    waits     for {one.waits_for_rows} of {rows} rows, then works as they come"
            yield f"    works on  {one.pieces} tiles of {width}x{height} px{around}"
            yield f"    takes     {one.shared_bytes} bytes of shared memory a block"


def _said(traffic: Traffic) -> str:
    over = " over the link" if traffic.place in ("slot", "result") else ""
    picture = traffic.picture
    if traffic.place == "labels":
        pixels = f"{picture.width}x{picture.height} pixels"
        return f"device memory, labels of {pixels}: {megabytes(traffic.nbytes)}"
    size = f"{picture.width}x{picture.height} {picture.format}"
    return f"{traffic.place}, {size}: {megabytes(traffic.nbytes)}{over}"


def _read_more(one: ExplainedPass) -> str:
    if one.read_overhead is None:
        return ", if each pixel is read once"
    return f", {one.read_overhead:+.1%} by a halo of {one.halo_px} px" if one.halo_px else ""


def _comparison(fused: Explanation, apart: Explanation) -> Iterator[str]:
    yield f"{'for each frame':<26}{'this plan':>12}{'a pass an op':>15}"
    rows = (
        ("passes", *(str(len(e.passes)) for e in (fused, apart))),
        ("over the link, in", *(megabytes(e.link_bytes_in) for e in (fused, apart))),
        ("over the link, out", *(megabytes(e.link_bytes_out) for e in (fused, apart))),
        ("to and from device memory", *(megabytes(e.device_bytes) for e in (fused, apart))),
        ("device memory held", *(megabytes(e.held_bytes) for e in (fused, apart))),
    )
    for name, one, other in rows:
        yield f"{name:<26}{one:>12}{other:>15}"


def megabytes(nbytes: int) -> str:
    """``6.22 MB``; small numbers in bytes."""
    return f"{nbytes} bytes" if nbytes < 10_000 else f"{nbytes / 1e6:.2f} MB"


FORMAT_NAMES = ", ".join(FORMATS)
