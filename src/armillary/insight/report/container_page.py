"""A report on a container as one HTML page: verdict, partitions, keys, load over time and heat map. Made
from the answers of the control API; the frame of the page is in `page.py`.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from armillary.insight.report.page import CHART_HEIGHT, WIDTH, bar, line_path, page, picture, size, table, text

_COLOURS: Final = ("#00224e", "#1e3b6f", "#414d6b", "#5f606e", "#7c7b78", "#9a9772", "#bab466", "#dcd24f", "#fee838")
_HEAT_HEIGHT: Final = 320
_WORDS: Final = {"good": "good", "care": "usable with care", "poor": "poor"}
_UNKNOWN: Final = "–"


def report_page(
    container: dict[str, Any],
    partitions: dict[str, Any],
    verdict: dict[str, Any],
    history: dict[str, Any] | None,
    heat: dict[str, Any] | None,
    made_s: float,
    version: str,
) -> str:
    """The page. The first five are answers of the control API; None: no history of load is kept."""
    name = f"{container['database']}/{container['name']}"
    body = [
        f"<h1>{text(name)}</h1>",
        f"<p>{text(_summary(container))}<br><small>Made {_time(made_s)} by Armillary {text(version)}</small></p>",
        *_verdict(verdict),
        *_partitions(partitions),
        *_keys("Largest partition keys", partitions["largestKeys"], "bytes", _total(partitions, "bytes")),
        *_keys("Busiest partition keys", partitions["busiestKeys"], "chargedRu", _total(partitions, "chargedRu")),
        *(_history(history) if history is not None else ["<p>No history of load is kept.</p>"]),
        *(_heat(heat) if heat is not None else []),
    ]
    return page(name, body)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _total(partitions: dict[str, Any], field: str) -> float:
    return math.fsum(each[field] for each in partitions["partitions"])


def _summary(container: dict[str, Any]) -> str:
    key = ", ".join(container["partitionKey"]) if container["partitionKey"] else "no key (fixed)"
    throughput = container["throughput"]
    units = f"{throughput['ru']:,} RU/s" if throughput else "serverless"
    return f"By {key}: {container['items']:,} items, {size(container['bytes'])}, {units}"


def _verdict(verdict: dict[str, Any]) -> list[str]:
    if verdict["verdict"] == "none":
        return ["<h2>No verdict</h2>", f"<p>{text(verdict['why'])}</p>"]
    reasons = "".join(f"<li>{text(reason)}</li>" for reason in verdict["reasons"])
    window = f"Load from {_time(verdict['window']['from'])} to {_time(verdict['window']['to'])}."
    return [f"<h2>Verdict: {_WORDS[verdict['verdict']]}</h2>", f"<ul>{reasons}</ul><p><small>{window}</small></p>"]


def _partitions(content: dict[str, Any]) -> list[str]:
    total = _total(content, "bytes") or 1.0
    rows = []
    for each in content["partitions"]:
        share = each["bytes"] / total
        budget = f"{each['budgetRu']:,.0f}" if each["budgetRu"] else _UNKNOWN
        counts = [f"{each[field]:,}" for field in ("refused", "wouldBeRefused", "full")]
        sizes = [f"{each['items']:,}", size(each["bytes"]), f"{bar(share)} {share:.0%}"]
        rows.append([str(each["id"]), f"{text(each['low'][:8] or '00')}…", *sizes, budget, *counts])
    columns = ("partition", "hashes from", ">items", ">size", "share of bytes", ">RU/s", ">429", ">would be", ">full")
    going = [
        f"<p>A {text(each['kind'])} of {text(each['partitions'])} goes on: {text(each['point'])}.</p>"
        for each in content["reshapes"]
    ]
    return ["<h2>Partitions</h2>", table(columns, rows), *going]


def _keys(title: str, keys: Sequence[dict[str, Any]], field: str, total: float) -> list[str]:
    if not keys:
        return []
    rows = []
    for each in keys:
        amount = each.get(field, 0)
        share = amount / total if total else 0.0
        key = text(each["key"]) if each["key"] is not None else "(nothing stored)"
        shown = size(amount) if field == "bytes" else f"{amount:,.1f}"
        full = f"{each['full']:,} refused since {_time(each['fullSince'])}" if "full" in each else ""
        rows.append([key, str(each["partition"]), f"{each['items']:,}", shown, f"{bar(share)} {share:.0%}", full])
    columns = ("key", ">partition", ">items", ">size" if field == "bytes" else ">RU", "share", "full")
    return [f"<h2>{text(title)}</h2>", table(columns, rows)]


def _history(history: dict[str, Any]) -> list[str]:
    times = history["times"]
    if not times:
        return []
    step_s = history["step"]
    ru = [each / step_s if each is not None else None for each in history["ru"]]
    beyond = [
        one + other if one is not None else None
        for one, other in zip(history["refused"], history["wouldBeRefused"], strict=True)
    ]
    highest, most = max(each or 0.0 for each in ru), max(each or 0.0 for each in beyond)
    span = f"{_time(times[0])} to {_time(times[-1] + step_s)}, by {step_s} s"
    parts = [_gaps(history), f'<path class="line" d="{line_path(ru, highest)}"/>']
    if most:
        parts.append(f'<path class="refused" d="{line_path(beyond, most)}"/>')
    label = f"Request units a second, at most {highest:,.1f}; requests beyond the budget in a step, at most {most:,.0f}"
    return [
        "<h2>Load over time</h2>",
        picture(CHART_HEIGHT, label, parts),
        f"<p>{label}.<br><small>{span}</small></p>",
    ]


def _gaps(history: dict[str, Any]) -> str:
    first_s, span_s = history["times"][0], len(history["times"]) * history["step"]
    found = []
    for from_s, to_s in history["gaps"]:
        x = (from_s - first_s) / span_s * WIDTH
        width = (to_s - from_s) / span_s * WIDTH
        found.append(f'<rect class="gap" x="{x:.1f}" width="{width:.1f}" height="{CHART_HEIGHT}"/>')
    return "".join(found)


def _heat(heat: dict[str, Any]) -> list[str]:
    values = array("f", base64.b64decode(heat["values"]))
    columns, rows = len(heat["times"]) - 1, len(heat["bounds"]) - 1
    highest = math.log1p(heat["max"])
    cells: list[list[str]] = [[] for _ in _COLOURS]
    for row in range(rows):
        for column in range(columns):
            value = values[row * columns + column]
            if value > 0:
                level = min(len(_COLOURS) - 1, int(math.log1p(value) / highest * len(_COLOURS)))
                cells[level].append(f"M{column} {row}h1v1h-1z")
    paths = [
        f'<path fill="{colour}" d="{"".join(found)}"/>' for colour, found in zip(_COLOURS, cells, strict=True) if found
    ]
    scale = f'<g transform="scale({WIDTH / columns:.4f} {_HEAT_HEIGHT / rows:.4f})">'
    label = f"Request units by hash range (downwards) and time (to the right), at most {heat['max']:,.1f} in a cell"
    drawn = picture(_HEAT_HEIGHT, label, [scale, *paths, "</g>"])
    findings = "".join(f"<li><b>{text(each['kind'])}</b>: {text(each['text'])}</li>" for each in heat["findings"])
    splits = "".join(
        f"<li>{_time(each['time'])}: {text(each['parents'])} became {text(each['children'])} "
        f"({text(each['reason'])})</li>"
        for each in heat["splits"][-20:]
    )
    changes = ["<h3>Splits and merges</h3>", f"<ul>{splits}</ul>"] if splits else []
    return ["<h2>Heat map</h2>", f"<ul>{findings}</ul>", drawn, f"<p>{label}.</p>", *changes]
