"""The worked example of the documentation: 10,000 orders of 1 KB, with the load of a shop, under four keys."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

from armillary.insight.planning import operation_charges
from armillary.insight.planning.distributions import KeyShares, KeyValue
from armillary.insight.planning.needs import Demand, FannedDemand, KeyedDemand
from armillary.insight.planning.operation_charges import ItemShape, QueryShape
from armillary.insight.planning.placement import PlacedKeys
from armillary.limits import GB

ROWS = 10_000
SIZE_BYTES = 300 * GB
ITEM = ItemShape(1024, 10)


def _country(row: int) -> str:
    part = row % 100
    return "de" if part < 76 else "at" if part < 88 else "ch" if part < 95 else "fr"


def _counted(values: list[str]) -> dict[KeyValue, float]:
    return {value: float(count) for value, count in Counter(values).items()}


IDS = _counted([f"o-{row:05}" for row in range(ROWS)])
CUSTOMERS = _counted([f"c-{row * 7919 % 1000:04}" for row in range(ROWS)])
COUNTRIES = _counted([_country(row) for row in range(ROWS)])
DAYS = _counted([str(date(2026, 1, 1) + timedelta(days=row // 100)) for row in range(ROWS)])
KEYS = {"/customerId": CUSTOMERS, "/id": IDS, "/day": DAYS, "/country": COUNTRIES}
LAST_DAY = "2026-04-10"
# Rate, the path that is pinned, rows.
QUERIES = ((60.0, "/customerId", 10), (30.0, "/country", 20), (10.0, "/id", 1))


def shares(key: str) -> KeyShares:
    return KeyShares.of_weights(KEYS[key])


def demands(key: str) -> list[Demand]:
    """100 creates, 500 point reads and 100 queries a second."""
    stored = PlacedKeys.of(shares(key))
    written = PlacedKeys.of(KeyShares(((LAST_DAY, 1.0),))) if key == "/day" else stored
    found: list[Demand] = [
        KeyedDemand(100.0, operation_charges.create_ru(ITEM), written),
        KeyedDemand(500.0, operation_charges.read_ru(ITEM), stored),
    ]
    for rate, path, rows in QUERIES:
        query = QueryShape(rows=rows, seeks=1)
        if path == key:
            found.append(KeyedDemand(rate, operation_charges.query_ru(query, ITEM), stored))
        else:
            visit_ru = operation_charges.query_visit_ru(query)
            rows_ru = operation_charges.query_rows_ru(query, ITEM)
            found.append(FannedDemand(rate, visit_ru, rows_ru, float))
    return found
