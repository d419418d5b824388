"""What a query did, for people and programs: the summary below its rows, and with --explain its plan: indexes, the
charge by its parts, a row for each partition, and advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from armillary.languages.sql.planning.query_advisor import ADVICE_TEXTS
from armillary.tools.querying.sql_pages import Figures
from armillary.tools.screen import Screen, count, counted, size, units

_PARTITIONS_SHOWN_MAX = 50


def summary_lines(figures: Figures) -> Iterator[str]:
    """Rows, charge, partitions, refusals; then advice."""
    partitions = f", {counted(figures.partition_count, 'partition')} visited" if figures.partitions else ""
    more = "" if figures.is_complete else ", not all"
    yield f"{counted(figures.rows, 'row')}{more}, {units(figures.charge_ru)} RU{partitions}."
    if figures.refused:
        yield (
            f"{counted(figures.refused, 'request')} refused for lack of throughput (429) and repeated; not in the "
            "charge."
        )
    yield from advice_lines(figures)


def advice_lines(figures: Figures) -> Iterator[str]:
    wanted = _specs(figures, "PotentialIndexes")
    if wanted:
        yield f"An index would make this cheaper: {', '.join(wanted)}. Include it in the container's indexing policy."
    for rule in figures.advice:
        yield f"Advice {rule}: {ADVICE_TEXTS.get(rule, 'see the query advisor of Cosmos DB.')}"


def _specs(figures: Figures, name: str) -> list[str]:
    """The single and composite indexes of a list of the server's."""
    found = figures.indexes.get(name, {})
    single = [each["IndexSpec"] for each in found.get("SingleIndexes", ())]
    return [*single, *(f"({', '.join(each['IndexSpecs'])})" for each in found.get("CompositeIndexes", ()))]


def explanation(figures: Figures) -> dict[str, Any]:
    """For programs."""
    return {
        "rows": figures.rows,
        "isComplete": figures.is_complete,
        "pages": figures.pages,
        "chargeRu": round(figures.charge_ru, 2),
        "charge": [{"what": what, **_rounded(sums)} for what, sums in figures.parts.items()],
        "partitions": [_rounded(each) for each in figures.partitions.values()],
        "indexesUsed": _specs(figures, "UtilizedIndexes"),
        "indexesPossible": _specs(figures, "PotentialIndexes"),
        "advice": [{"rule": rule, "text": ADVICE_TEXTS.get(rule, rule)} for rule in figures.advice],
        "metrics": figures.metrics,
        "refused": figures.refused,
    }


def draw_plan(screen: Screen, figures: Figures) -> None:
    for line in summary_lines(figures):
        screen.say(line)
    used = _specs(figures, "UtilizedIndexes")
    screen.say(f"Indexes used: {', '.join(used) if used else 'none'}.")
    loaded, returned = figures.metrics.get("retrievedDocumentCount", 0), figures.metrics.get("outputDocumentCount", 0)
    screen.say(f"{counted(int(loaded), 'item')} loaded for {counted(int(returned), 'row')}.")
    rows = [
        [
            what,
            count(sums["count"]) if sums["count"] else "",
            size(int(sums["bytes"])) if sums["bytes"] else "",
            _ru(sums),
        ]
        for what, sums in figures.parts.items()
    ]
    screen.table(
        ("charged for", ">count", ">size", ">RU"),
        [*rows, ["total", "", "", f"{figures.charge_ru:,.2f}"]],
        f"Charge of {counted(figures.pages, 'page')}",
    )
    dearest = sorted(figures.partitions.values(), key=lambda each: -each["ru"])
    screen.table(
        ("partition", ">RU", ">loaded", ">returned", ">size", ">ms", "access"),
        [
            [
                each["id"] if each["id"] is not None else f"{each.get('count', 0)} others",
                _ru(each),
                count(each["loaded"]),
                count(each["returned"]),
                size(each["bytes"]),
                f"{each['ms']:,.1f}",
                each["by"] or "",
            ]
            for each in dearest[:_PARTITIONS_SHOWN_MAX]
        ],
        "Partitions",
        drop=("ms", "size", "returned"),
    )
    if len(dearest) > _PARTITIONS_SHOWN_MAX:
        screen.say(f"{len(dearest) - _PARTITIONS_SHOWN_MAX:,} more partitions; --output json has them all.")


def _ru(sums: dict[str, Any]) -> str:
    return f"{sums['ru']:,.2f}"


def _rounded(sums: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in sums.items()}
