"""The orders of the documentation's worked example as rows of exactly 1 KB and ten index terms, with their load."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import orjson

from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.advisor import Advice, advise
from armillary.insight.advice.candidates import asked_for
from armillary.insight.advice.reading.data_profile import SYSTEM_BYTES, Profile, Profiler
from armillary.insight.advice.request_load import Load, Operation
from armillary.limits import GB

ROWS = 10_000
OPERATIONS = (
    Operation("create", 100.0),
    Operation("read", 500.0),
    Operation("query", 60.0, frozenset(("/customerId",)), rows=10),
    Operation("query", 30.0, frozenset(("/country",)), rows=20),
    Operation("query", 10.0, frozenset(("/id",)), rows=1),
)
PLAN = Plan(size_bytes=300 * GB)


def order(number: int) -> dict[str, Any]:
    part = number % 100
    row: dict[str, Any] = {
        "id": f"o-{number:05}",
        "customerId": f"c-{number * 7919 % 1000:04}",
        "country": "de" if part < 76 else "at" if part < 88 else "ch" if part < 95 else "fr",
        "day": str(date(2026, 1, 1) + timedelta(days=number // 100)),
        "lines": [1, 2, 3, 4, 5],
        "note": "",
    }
    row["note"] = "x" * (1024 - SYSTEM_BYTES - len(orjson.dumps(row)))
    return row


def profile_of(rows: list[dict[str, Any]], capacity: int = 200_000) -> Profile:
    profiler = Profiler(rows=capacity)
    for row in rows:
        profiler.add(row)
    return profiler.profile()


def advice_on_orders(profile: Profile, load: Load | None = None, plan: Plan = PLAN) -> Advice:
    asked = [asked_for("/day"), asked_for("/country")]
    return advise(profile, load if load is not None else Load(OPERATIONS, "the example"), plan, asked=asked)
