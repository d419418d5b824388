"""The partitions of a container over the control API: what each holds, spends and refuses, and which keys stand out."""

from __future__ import annotations

from typing import Any

import orjson

from armillary import limits
from armillary.account import overview
from armillary.account.container import Container
from armillary.account.overview import KeyFigures, LargestKeys, PartitionFigures
from armillary.doors.control.call import Call
from armillary.doors.control.reshapes import of_container
from armillary.errors import bad_request
from armillary.model.json_members import shown
from armillary.net.http import Response


async def show_partitions(call: Call) -> Response:
    asked = call.query("top", "keys")
    count = call.whole("top", limits.OVERVIEW_TOP_DEFAULT, 1, limits.OVERVIEW_TOP_MAX)
    if asked.get("keys", "all") not in ("all", "none"):
        raise bad_request(f"'keys' must be all or none, not '{shown(asked['keys'])}'.")
    container = call.container()
    since = _beginnings(call, container)
    content: dict[str, Any] = {
        "database": container.database.name,
        "container": container.name,
        "partitions": [_partition(call, each, since) for each in overview.partition_figures(container)],
        "ancestors": _ancestors(container),
        "reshapes": of_container(call, container),
    }
    if asked.get("keys") != "none":  # looking for the largest reads up to a million entries
        await call.account.refresh_figures(count)
        largest = await overview.largest_keys(container, count)
        keys_of_range = largest.spread.keys_of_range
        for each in content["partitions"]:
            each["keys"] = keys_of_range.get(each["id"], 0) if largest.is_complete else None
        content |= await _keys(container, largest, count)
    return call.answer(content)


async def show_keys(call: Call) -> Response:
    count = call.count("top", limits.OVERVIEW_TOP_DEFAULT, limits.OVERVIEW_TOP_MAX)
    container = call.container()
    names = {"database": container.database.name, "container": container.name}
    await call.account.refresh_figures(count)
    largest = await overview.largest_keys(container, count)
    return call.answer({**names, **await _keys(container, largest, count)})


async def _keys(container: Container, largest: LargestKeys, count: int) -> dict[str, Any]:
    return {
        "largestKeys": [_key(each) for each in largest.keys],
        "isLargestComplete": largest.is_complete,
        "busiestKeys": [_key(each) for each in await overview.busiest_keys(container, count)],
    }


def _ancestors(container: Container) -> list[dict[str, Any]]:
    """Of the present partitions, as far as their bounds are still known. A merge has two parents, so the lists of
    `parents` alone do not tell which partition came from which; the bounds do."""
    wanted = {parent for each in container.map.ranges for parent in each.parents}
    return [
        {"id": each.id, "low": each.low.hex().upper(), "high": each.high.hex().upper()}
        for each in container.state.past
        if each.id in wanted
    ]


def _beginnings(call: Call, container: Container) -> dict[int, float]:
    """When each partition took over from its parents, as far as the history of splits and merges goes back."""
    history = call.account.history
    if not history.is_on:
        return {}
    return {child: each.time_s for each in history.of(container).reshapes for child in each.children}


def _partition(call: Call, figures: PartitionFigures, since: dict[int, float]) -> dict[str, Any]:
    spent = figures.spent_ru
    content = {
        "id": figures.range.id,
        "low": figures.range.low.hex().upper(),
        "high": figures.range.high.hex().upper(),
        "parents": list(figures.range.parents),
        "since": round(since[figures.range.id], 3) if figures.range.id in since else None,
        "items": figures.item_count,
        "bytes": figures.size_bytes,
        "lsn": figures.lsn,
        "budgetRu": figures.budget_ru,
        "spentRuPerSecond": spent,
        "spentRu": round(sum(spent) / len(spent), 2) if spent else 0.0,
        "requests": figures.totals.requests,
        "chargedRu": round(figures.totals.charged_ru, 2),
        "refused": figures.totals.refused,
        "wouldBeRefused": figures.totals.would_be_refused,
        "full": figures.totals.full,
    }
    if call.account.stand_ins is not None:
        content["process"] = figures.process
    return content


def _key(figures: KeyFigures) -> dict[str, Any]:
    content: dict[str, Any] = {
        "key": orjson.loads(figures.key_text) if figures.key_text is not None else None,
        "partition": figures.range_id,
        "items": figures.item_count,
        "bytes": figures.size_bytes,
    }
    if figures.charged_ru is not None:
        content["chargedRu"] = round(figures.charged_ru, 2)
    if figures.full is not None:
        content |= {"full": figures.full.refused, "fullSince": round(figures.full.since_s, 3)}
    return content
