"""The report of `armillary simulate` as one HTML page: sentences, lines over time, money, keys and events, or a table
of several runs. The frame of the page is in `page.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from armillary.insight.report.estimate_page import amounts, origin, points
from armillary.insight.report.page import CHART_HEIGHT, bar, line_path, page, picture, size, table, text

_EVENTS_MAX: Final = 200
_UNKNOWN: Final = "–"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.2%}"


_LINES: Final[tuple[tuple[str, str, str, Callable[[float], str]], ...]] = (
    ("bytes", "Stored", "line", size),
    ("partitions", "Partitions", "line", _count),
    ("demandRu", "Request units a second that are asked for", "line", _count),
    ("normalizedMax", "Use of its share by the hottest partition", "line", _share),
    ("refusedShare", "Share of request units refused (429)", "refused", _share),
    ("fullShare", "Share of writes refused for a full key (403)", "refused", _share),
    ("costSoFar", "Cost so far", "line", lambda value: f"{value:,.2f}"),
)


def simulation_page(content: dict[str, Any], version: str) -> str:
    """The page, of what `insight/simulation/outcome.py` answers."""
    inputs = content["inputs"]
    title = f"Simulation of {', '.join(inputs['partitionKey'])}"
    said = f"{inputs['keys']}, {inputs['days']:,.1f} days in steps of {inputs['stepSeconds']:g} s"
    return page(
        title,
        [
            f"<h1>{text(title)}</h1>",
            f"<p>{text(said)}<br><small>Made by Armillary {text(version)}</small></p>",
            *points("What happens", content["sentences"]),
            *points("Warnings", content["warnings"]),
            *_lines(content["timeline"]),
            *_money(content["money"]),
            *_keys(content["topKeys"]),
            *_events(content),
            *points("What the figures rest on", content["restsOn"].values()),
            *points("Assumptions", content["assumptions"]),
            *points("Not known here", content["notKnown"]),
        ],
    )


def _lines(timeline: list[dict[str, Any]]) -> list[str]:
    found = []
    span = f"day {timeline[0]['day']:,.1f} to {timeline[-1]['day']:,.1f}"
    for name, label, kind, shown in _LINES:
        values = [float(point[name]) for point in timeline]
        highest = max(values)
        said = f"{label}: at most {shown(highest)}, {shown(values[-1])} in the end"
        drawn = picture(CHART_HEIGHT, said, [f'<path class="{kind}" d="{line_path(values, highest)}"/>'])
        found += [f"<h2>{text(label)}</h2>", drawn, f"<p>{text(said)}.<br><small>{span}</small></p>"]
    return found


def _money(money: dict[str, Any]) -> list[str]:
    rows = [["in all", *amounts(money["whole"])], ["a month", *amounts(money["perMonth"])]]
    columns = ("money", ">throughput", ">storage", ">sum")
    return ["<h2>Money</h2>", table(columns, rows), origin(money["whole"]["prices"])]


def _keys(keys: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            text(each["key"]),
            size(each["bytes"]),
            f"{bar(each['demandShare'])} {each['demandShare']:.2%}",
            f"day {each['fullOnDay']:,.1f}" if each["fullOnDay"] is not None else _UNKNOWN,
        ]
        for each in keys
    ]
    return ["<h2>Largest keys in the end</h2>", table(("key", ">size", "share of the load", ">full on"), rows)]


def _events(content: dict[str, Any]) -> list[str]:
    events = content["events"]
    if not events:
        return []
    rows = [[f"{each['day']:,.2f}", text(each["kind"]), text(each["text"])] for each in events[:_EVENTS_MAX]]
    rest = len(events) - len(rows) + content["eventsLeftOff"]
    more = [f"<p>and {rest:,} more</p>"] if rest else []
    return ["<h2>Events</h2>", table((">day", "what", "text"), rows), *more]


def comparison_page(content: dict[str, Any], version: str) -> str:
    """The page of several runs."""
    rows = []
    for number, each in enumerate(content["runs"], 1):
        totals, bill = each["result"]["totals"], each["result"]["money"]["whole"]
        marked = set(each["differing"])
        values = ", ".join(f"{name} = {value}" for name, value in each["values"].items())
        cells = (
            ("partitions", f"{totals['partitions']:,}"),
            ("refusedShare", f"{totals['refusedShare']:.2%}"),
            ("fullShareOfWrites", f"{totals['fullShareOfWrites']:.2%}"),
            ("normalizedP99", f"{totals['normalizedP99']:.0%}"),
            ("fullKeys", f"{totals['fullKeys']:,}"),
            ("money", f"{bill['total']:,.2f}"),
        )
        shown = [f"<b>{cell}</b>" if name in marked else cell for name, cell in cells]
        rows.append([str(number), text(values), *shown])
    first = content["runs"][0]["result"]
    columns = (">run", "values", ">partitions", ">429", ">403 of writes", ">p99 hottest", ">full keys", ">money")
    title = f"Simulations of {', '.join(first['inputs']['partitionKey'])}"
    return page(
        title,
        [
            f"<h1>{text(title)}</h1>",
            f"<p><small>Made by Armillary {text(version)}. Bold: differs from run 1.</small></p>",
            table(columns, rows),
            origin(first["money"]["whole"]["prices"]),
            *points("Warnings", first["warnings"]),
            *points("What the figures rest on", first["restsOn"].values()),
            *points("Assumptions", first["assumptions"]),
            *points("Not known here", first["notKnown"]),
        ],
    )
