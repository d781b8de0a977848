"""Bars as a picture: one SVG file that needs nothing else, drawn for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 860, 230, 90  # pixels: the whole, the room for labels, the room for values
BAR, GAP, HEAD = 18, 6, 34
COLORS = ("#2f7ed8", "#8bb8ec", "#e08a2e", "#6aa84f", "#999999", "#b565a7")


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that are compared with each other: (label, value), and where a ``mark`` stands across them, if it does."""

    title: str
    bars: tuple[tuple[str, float], ...]
    mark: tuple[str, float] | None = None


def bar_chart(title: str, groups: Sequence[Group], unit: str) -> str:
    """The SVG text. Each group has its own scale from 0; a label has one colour throughout."""
    colors = {label: COLORS[i % len(COLORS)] for i, label in enumerate(_labels(groups))}
    parts: list[str] = []
    y = 40
    for group in groups:
        parts.append(f'<text class="group" x="12" y="{y + 18}">{escape(group.title)}</text>')
        y += HEAD - GAP
        most = max([value for _, value in group.bars] + ([group.mark[1]] if group.mark else []), default=0.0)
        scale = (WIDTH - LABELS - VALUES) / most if most > 0 else 0.0
        top = y
        for label, value in group.bars:
            width = max(value * scale, 1.0)
            parts.append(
                f'<text x="{LABELS - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
                f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colors[label]}"/>'
                f'<text x="{LABELS + width + 6:.1f}" y="{y + 13}">{escape(_number(value))} {escape(unit)}</text>'
            )
            y += BAR + GAP
        if group.mark is not None:
            name, value = group.mark
            x = LABELS + value * scale
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 3}" y2="{y - 3}"/>'
                f'<text class="mark" x="{x:.1f}" y="{y + 8}" text-anchor="middle">'
                f"{escape(name)} {escape(_number(value))}</text>"
            )
            y += 14
        y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" viewBox="0 0 {WIDTH} {y + 10}">\n'
        "<style>svg{background:#fff}text{font:12px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}"
        ".group{font-weight:bold}.mark{font-size:11px}line{stroke:#c00;stroke-dasharray:4 3}"
        "@media(prefers-color-scheme:dark){svg{background:#181818}text{fill:#ddd}line{stroke:#f66}}</style>\n"
        f'<text class="title" x="12" y="26">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _labels(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(label for group in groups for label, _ in group.bars))


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
