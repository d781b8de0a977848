"""A benchmark's report as one HTML file that needs nothing else: no script, no link, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_STYLE = (
    "body{font:14px/1.45 sans-serif;margin:24px;color:#222;background:#fff}h1{font-size:22px}h2{font-size:17px}"
    "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:8px 0}td,th{padding:2px 10px;"
    "border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}"
    "pre,p{white-space:pre-wrap}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "td,th{border-color:#444}}"
)


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def page(title: str, about: str, svg: str, tables: Sequence[Table], remarks: Sequence[str]) -> str:
    """The whole file: heading, what was measured where, the picture, tables, remarks."""
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(about)}</p>", svg, *map(_table, tables)]
    if remarks:
        parts.append("<ul>" + "".join(f"<li>{escape(one)}</li>" for one in remarks) + "</ul>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{rows}</table>"
