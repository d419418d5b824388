"""What another throughput would do to a container: how many partitions it would have, the share of each, how much of
the last hour's load would have been beyond those shares, and what it would cost a month in Azure.

The load comes from the history, in columns of ten seconds or more, laid onto the partitions that there would be. A
column counts as refused what it has beyond its seconds' share. Load that is uneven within a column is refused earlier,
so the result is a lower bound. Requests that were refused at the time count as asked for, at the average charge of
those that were served; clients that repeated them make that too much.
"""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import Any, Final

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.load_history.columns import CHARGED, REFUSED, REQUESTS, Column
from armillary.account.throughput.provisioning import Throughput
from armillary.insight.heat import Painter
from armillary.insight.planning.money import autoscale_hours, manual_month
from armillary.insight.planning.prices import own_prices
from armillary.insight.timeline import columns_of, open_end
from armillary.model.charges import THROTTLED_RU
from armillary.model.ranges import midpoint
from armillary.partition.budget import HUNDREDTHS

WINDOW_S: Final = 3_600.0


async def preview(account: Account, container: Container, wanted: Throughput) -> dict[str, Any]:
    """The answer of the control API."""
    now_s = account.clock.now_s()
    to_s = open_end(now_s)
    needed = -(-wanted.ru // account.settings.partition_throughput_ru) if container.key is not None else 1
    bounds = future_bounds(container, needed)
    painter = Painter(bounds, _version(container))
    share_ru = wanted.ru / painter.rows
    asked, beyond, coarsest_s = [0.0] * painter.rows, [0.0] * painter.rows, 0
    async for column in columns_of(account, container, to_s - WINDOW_S, to_s):
        coarsest_s = max(coarsest_s, column.seconds)
        seconds = max(1.0, min(column.end_s, now_s) - column.start_s)
        for row, (requests, charged) in enumerate(_asked(painter, column)):
            asked[row] += requests
            over = charged - share_ru * HUNDREDTHS * seconds
            if over > 0:
                beyond[row] += requests * over / charged
    worst = max(range(painter.rows), key=lambda row: _share(beyond[row], asked[row]) or 0.0)
    return {
        "ru": wanted.ru,
        "partitions": painter.rows,
        "partitionsNow": len(container.map.ranges),
        "shareRu": round(share_ru, 2),
        "from": to_s - WINDOW_S,
        "to": to_s,
        "columnSeconds": coarsest_s or None,
        "requests": round(sum(asked)),
        "refused": round(sum(beyond)),
        "refusedShare": _share(sum(beyond), sum(asked)),
        "worst": {
            "low": bounds[worst].hex().upper(),
            "high": bounds[worst + 1].hex().upper(),
            "requests": round(asked[worst]),
            "refused": round(beyond[worst]),
            "refusedShare": _share(beyond[worst], asked[worst]),
        },
        "monthly": _monthly(wanted, account.clock.now_s()),
    }


def _monthly(wanted: Throughput, now_s: float) -> dict[str, Any]:
    """Without storage, in one region. Of autoscale: when it is idle, and when each hour needs the maximum."""
    prices = own_prices()
    if wanted.is_autoscale:
        least, most = (autoscale_hours(prices, [ru]) * prices.month_hours for ru in (wanted.ru / 10, wanted.ru))
    else:
        least = most = manual_month(prices, wanted.ru)
    warning = prices.warning(datetime.fromtimestamp(now_s, UTC).date())
    return {"least": round(least, 2), "most": round(most, 2), "prices": prices.to_json(), "warning": warning}


def future_bounds(container: Container, wanted: int) -> list[bytes]:
    """The bounds of so many partitions: the largest are split, in the middle of their hashes, as bytes within a
    partition are not looked at. Partitions are never fewer than now."""
    version, ranges = _version(container), container.map.ranges
    levels = len(container.key.paths) if container.key is not None else 1
    sizes = {range_id: each.head.size_bytes for range_id, each in container.partitions.items()}
    # The largest first; of equal ones, those that were split least often.
    pieces = [(-float(sizes.get(each.id, 0)), 0, each.low, each.high) for each in ranges]
    inner: set[bytes] = set()
    heapify(pieces)
    while pieces and len(ranges) + len(inner) < wanted:
        size, depth, low, high = heappop(pieces)
        middle = midpoint(low, high, version, levels)
        if middle is not None:
            inner.add(middle)
            heappush(pieces, (size / 2, depth + 1, low, middle))
            heappush(pieces, (size / 2, depth + 1, middle, high))
    return [*sorted({*(each.low for each in ranges), *inner}), ranges[-1].high]


def _asked(painter: Painter, column: Column) -> list[tuple[float, float]]:
    """Requests and hundredths of request units that were asked for, by partition."""
    found = [[0.0] * painter.rows for _ in range(3)]
    for sheet in column.sheets:
        for numbers, measure in zip(found, (REQUESTS, CHARGED, REFUSED), strict=True):
            for row, amount in painter.counts(sheet, measure):
                numbers[row] += amount
    asked = []
    for requests, charged, refused in zip(*found, strict=True):
        served, spent = requests - refused, charged - refused * THROTTLED_RU * HUNDREDTHS
        asked.append((requests, spent * requests / served if served > 0 else charged))
    return asked


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None


def _version(container: Container) -> int:
    return container.key.version if container.key is not None else 2
