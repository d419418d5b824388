"""The verdict on a container's partition key over the control API, alone or beside other containers with the same
items. What is judged, and how, is in `insight/verdict.py`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from armillary import limits
from armillary.account.container import Container
from armillary.doors.control.call import Call
from armillary.errors import bad_request
from armillary.insight.figures import measure
from armillary.insight.verdict import WINDOW_S, Figures, Verdict, compare, judge
from armillary.model.json_members import shown
from armillary.net.http import Response

_OTHERS_MAX = 3
_SINCE_S_MIN, _SINCE_S_MAX = 10, 28 * 86_400


async def show_verdict(call: Call) -> Response:
    asked = call.query("with", "since")
    since_s = _since(asked.get("since"))
    containers = [call.container(), *_others(call, asked.get("with"))]
    judged: list[tuple[Figures, Verdict]] = []
    await call.account.refresh_figures(limits.HISTORY_KEYS_NOTED)
    for container in containers:
        figures = await measure(call.account, container, since_s)
        judged.append((figures, judge(figures)))
    content = verdict_json(*judged[0])
    content["comparison"] = []
    if len(judged) > 1:
        content["comparison"] = [verdict_json(*each) for each in judged]
        advice = compare(judged)
        content["recommendation"] = {"container": advice.better, "isTie": advice.is_tie, "why": advice.why}
    return call.answer(content)


def verdict_json(figures: Figures, verdict: Verdict) -> dict[str, Any]:
    return {
        "container": figures.name,
        "verdict": verdict.word,
        "why": verdict.why,
        "window": {"from": round(figures.from_s, 3), "to": round(figures.to_s, 3)},
        "partitions": figures.partitions,
        "items": figures.items,
        "bytes": figures.size_bytes,
        "requests": figures.requests,
        "chargedRu": round(figures.charged_ru, 2),
        "ruPerRequest": _rounded(figures.ru_per_request),
        "refused": figures.refused,
        "wouldBeRefused": figures.would_be_refused,
        "full": figures.full,
        "fullKeys": [
            {"key": each.key, "refused": each.refused, "since": round(each.since_s, 3)} for each in figures.full_keys
        ],
        "worstRefusedShare": _rounded(figures.worst_refused_share) if figures.has_load else None,
        "worstPartition": figures.worst_partition,
        "topShare": _rounded(figures.top_share),
        "topKey": figures.top_key,
        "topLoadShare": _rounded(figures.top_load_share),
        "topLoadKey": figures.top_load_key,
        "effectiveKeys": _rounded(figures.effective_keys),
        "largestOfLimit": _rounded(figures.largest_of_limit),
        "normalizedP99": _rounded(figures.normalized_p99) if figures.has_load else None,
        "laidOn": [{"partitions": count, "fullest": _rounded(ratio)} for count, ratio in figures.laid_on],
        "reasons": verdict.reasons,
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 6) if value is not None else None


def _since(text: str | None) -> float:
    if text is None:
        return WINDOW_S
    if len(text) > 9 or not text.isascii() or not text.isdigit() or not _SINCE_S_MIN <= int(text) <= _SINCE_S_MAX:
        raise bad_request(
            f"'since' must be a whole number of seconds from {_SINCE_S_MIN} to {_SINCE_S_MAX}, not '{shown(text)}'."
        )
    return float(text)


def _others(call: Call, text: str | None) -> list[Container]:
    """The containers to compare with: up to three, as DATABASE/CONTAINER, joined by commas. A comma or % in a name is
    percent-encoded."""
    if text is None:
        return []
    names = text.split(",")
    if len(names) > _OTHERS_MAX:
        raise bad_request(f"'with' names at most {_OTHERS_MAX} containers, not {len(names)}.")
    found = []
    for name in names:
        database, slash, container = unquote(name).partition("/")
        if not slash or not database or not container or "/" in container:
            raise bad_request(f"'{shown(name)}' in 'with' does not name a container: write DATABASE/CONTAINER.")
        found.append(Call(call.services, call.request, [database, container], {}).container())
    return found
