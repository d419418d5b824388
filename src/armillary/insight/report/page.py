"""The frame of reports as HTML: one page that needs no other file, no script and no network, so that it can be attached
to a design review, with tables, bars and lines as inline SVG. Every name and value is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
WIDTH, CHART_HEIGHT = 900, 120
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --bar: #3b6ea5; --bad: #b3261e; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); }
h1, h2, p, li, td { overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; }
svg { max-width: 100%; height: auto; display: block; }
td svg { max-width: none; }
.bar { fill: var(--bar); } .bad { fill: var(--bad); } .line { fill: none; stroke: var(--bar); stroke-width: 1.5; }
.refused { fill: none; stroke: var(--bad); stroke-width: 1.5; } .gap { fill: #8884; }
small { opacity: .75; }
@media print { body { margin: 0; max-width: none; } }
""".strip()


def page(title: str, body: Iterable[str]) -> str:
    """A whole page. The parts of the body are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def text(value: object) -> str:
    """Escaped, with control characters replaced."""
    return escape(_CONTROL.sub("\ufffd", str(value)))


def size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TB"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; columns whose name begins with > are numbers."""
    kinds = [' class="n"' if column.startswith(">") else "" for column in columns]
    names = [column.removeprefix(">") for column in columns]
    head = "".join(f"<th{kind}>{text(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    ]
    # Wider than a small screen, a table scrolls in its own box, by keyboard too.
    frame = f'<div class="wide" tabindex="0" role="group" aria-label="{text(names[0])}">'
    return f"{frame}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


def bar(share: float) -> str:
    width = 160 * max(0.0, min(1.0, share))
    return (
        f'<svg role="img" aria-label="{share:.0%}" width="160" height="10" viewBox="0 0 160 10">'
        f'<rect class="bar" width="{width:.1f}" height="10"/></svg>'
    )


def line_path(values: Sequence[float | None], highest: float) -> str:
    """A line through the values, with breaks where nothing is known."""
    pieces, is_drawn = [], False
    for index, value in enumerate(values):
        if value is not None:
            x = (index + 0.5) * WIDTH / len(values)
            y = CHART_HEIGHT - 1 - (value / highest if highest else 0.0) * (CHART_HEIGHT - 2)
            pieces.append(f"{'L' if is_drawn else 'M'}{x:.1f} {y:.1f}")
        is_drawn = value is not None
    return "".join(pieces)


def picture(height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg role="img" aria-label="{text(label)}" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}">{"".join(parts)}</svg>'
    )
