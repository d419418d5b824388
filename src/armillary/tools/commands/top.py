"""`armillary top`: the containers of a server by what they spend, again and again: request units and requests a second,
the busiest partition by its own share of the budget, and what is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path
from armillary.tools.commands.partitions import pace, refuse_beside
from armillary.tools.commands.verdicts import UNKNOWN
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, percent, units

_SHOWN_DEFAULT, _SHOWN_MAX = 20, 1_000
_SORTS = ("ru", "requests", "refused", "full", "budget")


class _Row(NamedTuple):
    name: str
    partitions: int
    ru: float  # a second
    requests: float  # since the last frame
    budget: float | None  # the most that a partition has used of its share
    hottest: int | None
    refused: int
    would_be: int
    full: int


def show_top(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    shown, sort = arguments.get("top", _SHOWN_DEFAULT), arguments.get("sort", _SORTS[0])
    if not 1 <= shown <= _SHOWN_MAX:
        raise bad_request(f"--top is {shown}; expected a number from 1 to {_SHOWN_MAX}.")
    before: dict[str, int] = {}

    def rows() -> list[_Row]:
        found = [_row(server, each, before) for each in server.get("containers")["containers"]]
        return sorted((each for each in found if each is not None), key=lambda row: -(getattr(row, sort) or 0.0))

    if screen.is_json:
        refuse_beside("--json, which asks once", arguments, "every", "times")
        screen.content({"containers": [row._asdict() for row in rows()[:shown]]})
        return
    every_s, times = pace(arguments)
    columns = ("container", ">partitions", ">RU/s", ">requests", "hottest partition", ">refused", ">would be", ">full")

    def frame() -> list[Any]:
        found = rows()
        drawn = [_drawn(screen, row) for row in found[:shown]]
        left = f"{len(found) - shown:,} more containers are not shown." if len(found) > shown else ""
        return [
            screen.made_table(columns, drawn, drop=("full", "would be", "partitions", "requests")),
            *([left] if left else []),
        ]

    screen.watch(frame, every_s, times)


def _row(server: Server, container: dict[str, Any], before: dict[str, int]) -> _Row | None:
    name = f"{container['database']}/{container['name']}"
    partitions = server.get(*container_path(name), "partitions", keys="none")["partitions"]
    requests = sum(each["requests"] for each in partitions)
    used = [(each["spentRu"] / each["budgetRu"], each["id"]) for each in partitions if each["budgetRu"]]
    budget, hottest = max(used) if used else (None, None)
    since = requests - before.get(name, requests)
    before[name] = requests
    totals = [sum(each[field] for each in partitions) for field in ("refused", "wouldBeRefused", "full")]
    spent = sum(each["spentRu"] for each in partitions)
    return _Row(name, len(partitions), spent, max(0, since), budget, hottest, *totals)


def _drawn(screen: Screen, row: _Row) -> list[object]:
    hottest = UNKNOWN
    if row.budget is not None:
        hottest = f"{screen.bar(row.budget, 10)} {percent(row.budget)} of partition {row.hottest}"
    cells = [count(row.refused), count(row.would_be), count(row.full)]
    return [row.name, row.partitions, units(row.ru), count(row.requests), hottest, *cells]
