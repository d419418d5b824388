"""Prices as data: a TOML file in the wheel, which another one may replace. Each amount that is made of them is shown
with their date and source; old prices get a warning. The sums are in `money.py`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from typing import Any, Final

from armillary.errors import bad_request
from armillary.insight.planning.toml_tables import Table

OLD_DAYS: Final = 400


@dataclass(frozen=True, slots=True)
class Prices:
    as_of: date
    source: str
    currency: str
    manual_100_ru_hour: float
    autoscale_100_ru_hour: float
    storage_gb_month: float
    month_hours: float
    serverless_million_ru: float

    @property
    def origin(self) -> str:
        """What goes with every amount."""
        return f"prices of {self.as_of.isoformat()}: {self.source}"

    def warning(self, today: date) -> str | None:
        if (today - self.as_of).days <= OLD_DAYS:
            return None
        return f"The prices are of {self.as_of.isoformat()}, more than {OLD_DAYS} days ago: check them."

    def to_json(self) -> dict[str, Any]:
        return {"asOf": self.as_of.isoformat(), "source": self.source, "currency": self.currency}


def own_prices() -> Prices:
    """Those of the wheel."""
    return parse_prices((files(__package__) / "prices.toml").read_text("utf-8"))


def parse_prices(text: str) -> Prices:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise bad_request(f"The prices are not valid TOML: {error}.") from None
    as_of = document.pop("as_of", None)
    if type(as_of) is not date:
        raise bad_request("as_of of the prices is missing or not a date; expected one such as 2024-07-01.")
    top = Table(document, "")
    hourly, monthly = top.table("per_hour", is_needed=True), top.table("per_month", is_needed=True)
    prices = Prices(
        as_of,
        top.text("source", None),
        top.text("currency", None),
        hourly.number("manual_100_ru", None),
        hourly.number("autoscale_100_ru", None),
        monthly.number("storage_gb", None),
        monthly.number("hours", None, 1.0, 800.0),
        top.number("serverless_million_ru", None),
    )
    for table in (hourly, monthly, top):
        table.end()
    return prices
