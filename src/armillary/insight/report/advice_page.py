"""The report of `armillary advise` as one HTML page: the verdict, candidates side by side, and for each its reasons and
how its keys lie on partitions. The frame of the page is in `page.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from armillary.insight.advice.advisor import Advice
from armillary.insight.advice.ranking import WORDS, Judged
from armillary.insight.advice.scores import Scores
from armillary.insight.report.estimate_page import origin, points
from armillary.insight.report.page import bar, page, size, table, text

_UNKNOWN: Final = "–"
_STRIP_WIDTH, _STRIP_HEIGHT = 640, 14
_STRIP_CELLS_MAX: Final = 256
_UNFOLDED_MAX: Final = 24  # candidates with reasons, so that the page stays small


def advice_page(advice: Advice, content: dict[str, Any], version: str) -> str:
    """`content` is what `advice_content.py` answers for the advice."""
    title = f"Partition key for {content['inputs']['source']}"
    rows = content["rows"]
    read = f"{rows['read']:,} rows, {size(rows['bytes'])} as stored"
    unfolded = [
        part
        for judged, found in list(zip(advice.judged, content["candidates"], strict=False))[:_UNFOLDED_MAX]
        for part in _candidate(judged, found)
    ]
    others = content["candidates"][_UNFOLDED_MAX:]
    return page(
        title,
        [
            f"<h1>{text(title)}</h1>",
            f"<p><strong>{text(content['text'])}</strong></p>",
            f"<p><small>{text(read)}; made by Armillary {text(version)}</small></p>",
            *points("What each is good for", content["conditions"]),
            "<h2>Candidates</h2>",
            _candidates(content),
            origin(content["inputs"]["prices"]),
            *unfolded,
            *points("Of the other keys", [f"{each['key']}: {'; '.join(each['figures'])}" for each in others]),
            *points("What would change the verdict", content["wouldChange"]),
            *points("What the figures rest on", content["restsOn"].values()),
            *points("Assumptions", content["assumptions"]),
            *points("Warnings", content["warnings"]),
        ],
    )


def _candidates(content: dict[str, Any]) -> str:
    columns = ("key", "verdict", ">RU/s", ">a month", ">largest key", "", ">full on day", ">fan-out", ">transactions")
    rows, horizon_days = [], content["inputs"]["horizonDays"]
    for each in content["candidates"]:
        scores = each["scores"]
        share = scores["topShare"]["value"]
        days = scores["daysToLimit"]["value"] if scores["daysToLimit"] is not None else None
        rows.append(
            [
                text(each["key"]),
                text(WORDS[each["verdict"]]),
                _known(each["requiredRu"], lambda ru: f"{ru:,}"),
                _known(each["monthly"], lambda bill: f"{bill['total']:,.2f}"),
                size(scores["largestBytes"]["value"]),
                bar(share),
                f"{days:,.0f}" if days is not None and days <= horizon_days else _UNKNOWN,
                f"{scores['fanOut']['value']:,.1f}",
                _known(scores["transactionsKept"], lambda found: f"{found['value']:.0%}"),
            ]
        )
    return table(columns, rows)


def _known(value: Any, shown: Any) -> str:
    return _UNKNOWN if value is None else str(shown(value))


def _candidate(judged: Judged, found: dict[str, Any]) -> list[str]:
    reasons = [
        f"<li>{'For' if reason['for'] else 'Against'}: {text(reason['text'])}"
        + (f" <small>({text(reason['example'])})</small>" if reason["example"] else "")
        + "</li>"
        for reason in found["reasons"]
    ]
    return [
        f"<h3>{text(found['key'])}: {text(WORDS[found['verdict']])}</h3>",
        _strip(judged.scores),
        f"<ul>{''.join(reasons)}</ul>" if reasons else "",
        f"<p><small>{text('; '.join(found['figures']))}</small></p>",
    ]


def _strip(scores: Scores) -> str:
    """The load of each partition, or its bytes where no load is known, as a strip of cells."""
    loads: Sequence[float] = scores.loads.demand_ru
    what = "RU/s"
    if not scores.loads.total_ru:
        loads, what = scores.laid, "bytes"
    whole, count = sum(loads), len(loads)
    if not whole or count > _STRIP_CELLS_MAX:
        return ""
    width = _STRIP_WIDTH / count
    highest = max(loads)
    cells = []
    for index, load in enumerate(loads):
        fair = load * count / whole
        kind = "bad" if fair > 1.5 else "bar"
        opacity = max(0.08, load / highest)
        cells.append(
            f'<rect class="{kind}" x="{index * width:.1f}" width="{max(0.5, width - 1):.1f}" '
            f'height="{_STRIP_HEIGHT}" opacity="{opacity:.2f}"><title>{fair:.2f} × fair</title></rect>'
        )
    label = f"{what} on {count} partitions, the hottest {highest * count / whole:.2f} times its fair share"
    return (
        f'<svg role="img" aria-label="{text(label)}" width="{_STRIP_WIDTH}" height="{_STRIP_HEIGHT}" '
        f'viewBox="0 0 {_STRIP_WIDTH} {_STRIP_HEIGHT}">{"".join(cells)}</svg><p><small>{text(label)}</small></p>'
    )
