"""Measuring what the verdict on a partition key needs: how bytes and load are spread over logical partitions, what was
refused in a window of time, and by which partition. Reads sizes, meters and the history of load; writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from armillary import limits
from armillary.account import overview
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.load_history.columns import CHARGED, FULL, REFUSED, REQUESTS, WOULD_BE_REFUSED, Column, unpack
from armillary.account.load_history.layers import ContainerHistory
from armillary.account.overview import LargestKeys, SizesOf
from armillary.account.visits.view_readings import read_again, read_view
from armillary.insight.verdict import WINDOW_S, Figures, FullKey
from armillary.model.layout import unpack_size
from armillary.partition.budget import HUNDREDTHS

_LAID_ON = 4  # partitions that the keys of a single one are laid on, to see how they would lie
_GROWN = 10  # times the size of today
_GROWTH_S = 86_400.0
_GROWTH_S_MIN = 600.0


async def measure(account: Account, container: Container, since_s: float = WINDOW_S) -> Figures:
    """What is known of a container. Load is that of the last `since_s`, or since its map has changed."""
    now_s = account.clock.now_s()
    heads = [partition.head for partition in container.partitions.values()]
    figures = Figures(
        f"{container.database.name}/{container.name}",
        len(container.partitions),
        sum(head.item_count for head in heads),
        sum(head.size_bytes for head in heads),
        now_s - since_s,
        now_s,
        limit_bytes=container.schema.logical_partition_bytes_max,
        is_history_on=account.history.is_on,
    )
    running = account.reshaper.shown(container)
    if running:
        kind = "merge" if running[0].is_merge else "split"
        parents = " and ".join(map(str, running[0].parents))
        figures.reshape = f"a {kind} of partition {parents} is under way"
    if account.history.is_on:
        history = account.history.of(container)
        await _measure_load(figures, container, history, now_s)
    largest = await overview.largest_keys(container, 1)
    _measure_bytes(figures, container, largest, account.settings.partition_storage_bytes)
    return figures


def _measure_bytes(figures: Figures, container: Container, largest: LargestKeys, partition_bytes: int) -> None:
    spread = largest.spread
    if not largest.keys or not spread.total_bytes:
        return
    top = largest.keys[0]
    figures.largest_bytes = top.size_bytes
    if not figures.has_items:
        return
    figures.top_share = top.size_bytes / spread.total_bytes
    figures.top_key = top.key_text
    figures.effective_keys = spread.total_bytes**2 / spread.squares
    if figures.partitions == 1 and container.key is not None:
        grown = 2 ** max(0, math.ceil(math.log2(_GROWN * figures.size_bytes / partition_bytes)))
        counts = sorted({_LAID_ON, min(grown, len(spread.by_hash))} - {1})
        figures.laid_on = [(count, _fullest(spread.by_hash, count)) for count in counts]


def _fullest(by_hash: Sequence[int], count: int) -> float:
    """How many times its fair share the fullest of so many equal partitions would hold."""
    parts = [0] * count
    for index, size_bytes in enumerate(by_hash):
        parts[index * count // len(by_hash)] += size_bytes
    return max(parts) * count / sum(parts)


# Load.


class _Load(NamedTuple):
    """Of one partition in the window."""

    requests: int
    charged: int
    refused: int
    would_be_refused: int


async def _measure_load(figures: Figures, container: Container, history: ContainerHistory, now_s: float) -> None:
    open_column = history.open_column(container, now_s)
    columns = [unpack(each, history.layouts) for each in history.between(figures.from_s, now_s)]
    columns.append(open_column)
    figures.full = sum(column.total(FULL) for column in columns)  # whichever partitions had the keys then
    changed_s = history.map_changed_s
    if changed_s is not None:
        figures.settled_s = now_s - changed_s
        figures.from_s = max(figures.from_s, changed_s)
    loads = {range_id: _Load(0, 0, 0, 0) for range_id in container.partitions}
    normalized: list[float] = []
    for column in columns:
        if column.end_s > figures.from_s:
            _add(column, loads, normalized, now_s)
    figures.requests = sum(load.requests for load in loads.values())
    figures.charged_ru = sum(load.charged for load in loads.values()) / HUNDREDTHS
    figures.refused = sum(load.refused for load in loads.values())
    figures.would_be_refused = sum(load.would_be_refused for load in loads.values())
    for range_id, load in loads.items():
        share = (load.refused + load.would_be_refused) / load.requests if load.requests else 0.0
        if share > figures.worst_refused_share:
            figures.worst_refused_share, figures.worst_partition = share, range_id
    if normalized:
        normalized.sort()
        figures.normalized_p99 = normalized[min(len(normalized) - 1, math.ceil(0.99 * len(normalized)) - 1)]
    figures.growth_bytes_day = _growth(history, figures.size_bytes, now_s)
    await _measure_keys(figures, container, history)


def _add(column: Column, loads: dict[int, _Load], normalized: list[float], now_s: float) -> None:
    seconds = max(1.0, min(column.end_s, now_s) - column.start_s)
    for sheet in column.sheets:
        for index, part in enumerate(sheet.layout.parts):
            load = loads.get(part.range.id)
            if load is None:
                continue  # of a partition that was split or merged since
            charged = sheet.total(CHARGED, index)
            loads[part.range.id] = _Load(
                load.requests + sheet.total(REQUESTS, index),
                load.charged + charged,
                load.refused + sheet.total(REFUSED, index),
                load.would_be_refused + sheet.total(WOULD_BE_REFUSED, index),
            )
            if sheet.shares[index]:
                normalized.append(charged / (sheet.shares[index] * seconds))


def _growth(history: ContainerHistory, size_bytes: int, now_s: float) -> float | None:
    """Bytes a day, by the oldest size of the last day that is known."""
    for packed in history.between(now_s - _GROWTH_S, now_s):
        newest = unpack(packed, history.layouts).newest
        if newest is not None:
            elapsed_s = now_s - packed.end_s
            return (size_bytes - sum(newest.size_bytes)) * 86_400.0 / elapsed_s if elapsed_s >= _GROWTH_S_MIN else None
    return None


async def _measure_keys(figures: Figures, container: Container, history: ContainerHistory) -> None:
    best_ru, best_epk = 0.0, None
    count = limits.HISTORY_KEYS_NOTED
    for range_id, partition in container.partitions.items():
        noted = history.noted_before(range_id, figures.from_s)
        for epk, charged_ru in partition.meter.top_keys(count):
            # A key that was not among those noted may have had as much as the least of them.
            before_ru = noted.charged_ru.get(epk, noted.rest_ru) if noted is not None else 0.0
            if charged_ru - before_ru > best_ru:
                best_ru, best_epk = charged_ru - before_ru, epk
    if figures.full:
        figures.full_keys = await _full_keys(container, history)
    if figures.has_load and figures.charged_ru:
        figures.top_load_share = min(1.0, best_ru / figures.charged_ru)
        figures.top_load_key = await _key_text(container, best_epk) if best_epk is not None else None


async def _full_keys(container: Container, history: ContainerHistory) -> list[FullKey]:
    """Those that were found full since the server started, by partitions that were split or merged since too."""
    found: dict[bytes, FullKey] = {}
    for full in [*history.left_full_keys, *(each for meter in container.meters for each in meter.full_keys)]:
        known = found.get(full.epk)
        if known is None:
            text = await _key_text(container, full.epk)
            found[full.epk] = FullKey(text or full.epk.hex().upper(), full.refused, full.since_s)
        else:
            known.refused += full.refused
            known.since_s = min(known.since_s, full.since_s)
    return sorted(found.values(), key=lambda each: -each.refused)


async def _key_text(container: Container, epk: bytes) -> str | None:
    clock = container.partition_for(epk).clock
    [stored] = await read_again(clock, lambda: read_view(container.partition_for(epk), SizesOf([epk])))
    return unpack_size(stored).key_text if stored is not None else None
