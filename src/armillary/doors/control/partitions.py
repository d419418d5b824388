"""The partitions of a container over the control API: what each holds, spends and refuses, and which keys stand out."""

from __future__ import annotations

from typing import Any

import orjson

from armillary import limits
from armillary.account import overview
from armillary.account.overview import KeyFigures, PartitionFigures
from armillary.doors.control.call import Call
from armillary.doors.control.reshapes import of_container
from armillary.net.http import Response


async def show_partitions(call: Call) -> Response:
    count = call.count("top", limits.OVERVIEW_TOP_DEFAULT, limits.OVERVIEW_TOP_MAX)
    container = call.container()
    largest = await overview.largest_keys(container, count, call.account.clock)
    busiest = await overview.busiest_keys(container, count)
    return call.answer(
        {
            "database": container.database.name,
            "container": container.name,
            "partitions": [_partition(each) for each in overview.partition_figures(container)],
            "reshapes": of_container(call, container),
            "largestKeys": [_key(each) for each in largest.keys],
            "isLargestComplete": largest.is_complete,
            "busiestKeys": [_key(each) for each in busiest],
        }
    )


async def show_keys(call: Call) -> Response:
    count = call.count("top", limits.OVERVIEW_TOP_DEFAULT, limits.OVERVIEW_TOP_MAX)
    container = call.container()
    largest = await overview.largest_keys(container, count, call.account.clock)
    return call.answer(
        {
            "database": container.database.name,
            "container": container.name,
            "largestKeys": [_key(each) for each in largest.keys],
            "isLargestComplete": largest.is_complete,
            "busiestKeys": [_key(each) for each in await overview.busiest_keys(container, count)],
        }
    )


def _partition(figures: PartitionFigures) -> dict[str, Any]:
    spent = figures.spent_ru
    return {
        "id": figures.range.id,
        "low": figures.range.low.hex().upper(),
        "high": figures.range.high.hex().upper(),
        "parents": list(figures.range.parents),
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
    }


def _key(figures: KeyFigures) -> dict[str, Any]:
    content: dict[str, Any] = {
        "key": orjson.loads(figures.key_text) if figures.key_text is not None else None,
        "partition": figures.range_id,
        "items": figures.item_count,
        "bytes": figures.size_bytes,
    }
    if figures.charged_ru is not None:
        content["chargedRu"] = round(figures.charged_ru, 2)
    return content
