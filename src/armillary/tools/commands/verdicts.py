"""The server's verdict on partition keys, as `armillary partitions` and `armillary report` print it: the words, the
reasons, and a table of containers side by side. What is not known is printed as a dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, percent

COMPARED_MAX = 4
UNKNOWN = "–"
_WORDS = {"good": "good", "care": "usable with care", "poor": "poor"}


def read_verdicts(server: Server, names: Sequence[str], since_s: int | None = None) -> list[dict[str, Any]]:
    """Of each container; the first one's has the comparison with the others."""
    if len(names) > COMPARED_MAX:
        raise bad_request(f"{len(names)} containers are too many to compare: give at most {COMPARED_MAX}.")
    query: dict[str, object] = {"since": since_s} if since_s is not None else {}
    others = {"with": ",".join(quote(name, safe="/") for name in names[1:])} if len(names) > 1 else {}
    first = server.get(*container_path(names[0]), "verdict", **query, **others)
    return [first, *(server.get(*container_path(name), "verdict", **query) for name in names[1:])]


def draw_verdict(screen: Screen, verdict: dict[str, Any]) -> None:
    for line in verdict_lines(verdict):
        screen.say(line)
    screen.say("")


def verdict_lines(verdict: dict[str, Any]) -> list[str]:
    if verdict["verdict"] == "none":
        return [f"No verdict: {verdict['why']}."]
    seconds = verdict["window"]["to"] - verdict["window"]["from"]
    load = f"{count(verdict['requests'])} requests of the last {seconds:.0f} s" if verdict["requests"] else "no load"
    head = f"Verdict: {_WORDS[verdict['verdict']]} (by {count(verdict['items'])} items and {load})"
    return [head, *(f"  - {reason}" for reason in verdict["reasons"])]


def draw_comparison(screen: Screen, first: dict[str, Any]) -> None:
    drops = ("RU a request", "full", "effective keys", "worst refused", "partitions")
    screen.table(*comparison_rows(first), title="Side by side", drop=drops)
    advice = first["recommendation"]
    better = advice["container"]
    screen.say(f"The better key is that of {better}: {advice['why']}." if better else f"{_upper(advice['why'])}.")


def comparison_rows(first: dict[str, Any]) -> tuple[tuple[str, ...], list[list[object]]]:
    """The columns and rows of a comparison."""
    columns = (
        "container",
        "verdict",
        ">partitions",
        ">largest key",
        ">busiest key",
        ">effective keys",
        ">worst refused",
        ">full",
        ">RU a request",
    )
    rows: list[list[object]] = []
    for each in first["comparison"]:
        is_judged = each["verdict"] != "none"
        rows.append(
            [
                each["container"],
                _WORDS.get(each["verdict"], UNKNOWN),
                each["partitions"],
                _known(each["topShare"], percent),
                _known(each["topLoadShare"], percent),
                _known(each["effectiveKeys"], lambda number: f"{number:,.1f}"),
                _known(each["worstRefusedShare"] if is_judged else None, lambda share: f"{100 * share:.1f} %"),
                count(each["full"]),
                _known(each["ruPerRequest"], lambda ru: f"{ru:,.2f}"),
            ]
        )
    return columns, rows


def _known(value: float | None, shown: Any) -> str:
    return UNKNOWN if value is None else shown(value)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
