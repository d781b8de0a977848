"""The reference of all there is to ask for, made from the code: ``python -m service.reference > service/REFERENCE.md``.

HTTP from the OpenAPI schema, operations and sources from their catalogues, metrics from the collector.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from kernels.chain import values_of
from kernels.device import HostDevice
from pipeline.camera import Camera, CameraConfig
from pipeline.engine import Engine
from pipeline.latency import LogHistogram
from pipeline.sources import catalogue
from service.app import create_app
from service.inputs import field_schemas
from service.metrics import PinholeCollector, Snapshot
from service.queries import StreamQuery
from service.routes.catalogue import op_catalogue
from service.settings import Settings
from service.tally import LiveStatistics
from service.websocket import HEADER_MEANINGS

COMMAND = "python -m service.reference"


def reference() -> str:
    """The whole page, Markdown."""
    parts = [
        "# Reference",
        f"Made from the code by `{COMMAND}`; a test keeps it so.",
        "## HTTP",
        "Errors are problem details (RFC 9457) with `errors: [{field, reason, allowed}]`. Frame headers: `X-Timestamp` "
        "(wall clock of capture, seconds), `X-Frame-Sequence`, `X-Frame-Age-Ms`, `X-Chain-Version`, `X-Frame-Width`, "
        "`X-Frame-Height`; a picture that stands in for one carries `X-Pinhole-Placeholder` with the reason instead.",
        *_http(),
        "### `WS /cameras/{camera}/ws`",
        *_websocket(),
        "### WHEP's data channel",
        "A client that opens a data channel `frames` (unordered, no retransmits) with its offer is sent a JSON object "
        "for each frame, once its packets are on their way: the header of a WebSocket's message, with `rtp`, the "
        "frame's RTP time stamp (in a browser: `rtpTimestamp` of `requestVideoFrameCallback`).",
        "## Operations",
        "With formulas, their sources, and pictures: [kernels/ops/README.md](../kernels/ops/README.md).",
        *_catalogue(op_catalogue(), "kind"),
        "## Sources",
        *_catalogue(catalogue(), "example"),
        "## Metrics",
        *_metrics(),
    ]
    return "\n\n".join(parts) + "\n"


def _http() -> Iterator[str]:
    app = create_app(Engine(HostDevice()), Settings())
    for path, methods in sorted(app.openapi()["paths"].items()):
        for method, operation in methods.items():
            yield f"### `{method.upper()} {path}`"
            yield operation["summary"].rstrip(".?") + ("?" if operation["summary"].endswith("?") else ".")
            query = [p for p in operation.get("parameters", []) if p["in"] == "query"]
            if query:
                yield _table((p["name"], p["schema"], p.get("description", "")) for p in query)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                bodies = [f"`{json.dumps(e['value'])}`" for e in content.get("examples", {}).values()]
                if bodies:
                    yield f"Body: {' or '.join(bodies)}"


def _websocket() -> Iterator[str]:
    yield "The live picture, one binary message a frame; each second again while no newer one comes. No compression."
    fields = field_schemas(StreamQuery)
    yield _table((name, schema, schema.get("description", "")) for name, schema in fields.items())
    yield (
        "A message is the length of its header (4 bytes, unsigned, little endian), the header (a JSON object in "
        "UTF-8), and the picture's bytes. A ping follows each; who answers late gets fewer pictures, not older "
        "ones, and one that does not answer is cut off."
    )
    yield "\n".join(["| header | means |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in HEADER_MEANINGS.items())])
    yield (
        'A client may send text messages, JSON objects: `{"pause": true}` (a hidden tab) gives the claim on the '
        'rendition back and keeps the place until `{"pause": false}`; the parameters above change what comes from '
        "then on, null meaning the default. Refused before it opens: 422, 404, 429, 503 with Retry-After. Close codes: "
        "1001 the camera was removed or the service stops, 1008 a message that is not understood, 1013 too many "
        "renditions; the reason says which."
    )


def _catalogue(entries: list[dict[str, Any]], second: str) -> Iterator[str]:
    for entry in entries:
        name = entry.get("name") or f"{entry['scheme']}://"
        yield f"### `{name}`"
        yield f"{entry['summary'].rstrip('.')}. {second.capitalize()}: `{entry[second]}`"
        properties = entry["schema"].get("properties", {})
        if properties:
            yield _table((key, schema, schema.get("description", "")) for key, schema in properties.items())


def _metrics() -> Iterator[str]:
    device = HostDevice()
    camera = Camera(CameraConfig("front", "testcard://"), device)
    none = LogHistogram().snapshot()
    live = LiveStatistics({}, 0, none, none, {}, 0, 0, 0, 0)
    snapshot = Snapshot(device, ((camera.statistics(), live),))
    rows = ["| name | kind | meaning |", "|---|---|---|"]
    for family in sorted(PinholeCollector(snapshot).collect(), key=lambda f: f.name):
        suffix = "_total" if family.type == "counter" else ""
        rows.append(f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |")
    yield "\n".join(rows)


def _table(rows: Any) -> str:
    lines = ["| parameter | takes | default | meaning |", "|---|---|---|---|"]
    for name, schema, meaning in rows:
        default = schema.get("default")
        shown = "" if default is None else f"`{default}`"
        lines.append(f"| `{name}` | {_takes(schema)} | {shown} | {meaning} |")
    return "\n".join(lines)


def _takes(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array" or schema.get("format") == "color":
        return values_of(schema) + (f" {schema['x-unit']}" if schema.get("x-unit") else "")
    variants = [s for s in schema.get("anyOf", [schema]) if s.get("type") != "null"]
    bounds = {**variants[0], **schema}
    low, high = bounds.get("minimum", bounds.get("exclusiveMinimum")), bounds.get("maximum")
    unit = f" {schema['x-unit']}" if schema.get("x-unit") else ""
    kind = str(variants[0].get("type", "see the schema"))
    step = bounds.get("x-step")
    steps = f" in steps of {step}" if kind == "integer" and step not in (None, 1) else ""
    return kind if low is None or high is None else f"{kind}, {low:g} to {high:g}{unit}{steps}"


if __name__ == "__main__":
    sys.stdout.write(reference())
