"""Prices and what is made of them, against worked examples."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from armillary.errors import Failure
from armillary.insight.planning import money
from armillary.insight.planning.prices import OLD_DAYS, own_prices, parse_prices

PRICES = own_prices()
TEXT = """
as_of = 2026-01-01
source = "a contract"
currency = "EUR"
per_hour = { manual_100_ru = 0.01, autoscale_100_ru = 0.02 }
per_month = { storage_gb = 0.5, hours = 720 }
serverless_million_ru = 0.5
"""


@pytest.mark.parametrize(
    ("throughput_ru", "month"), [(4_500, 262.80), (5_500, 321.20), (12_100, 706.64), (12_700, 741.68), (500, 29.20)]
)
def test_a_month_of_manual_throughput(throughput_ru: int, month: float) -> None:
    assert money.manual_month(PRICES, throughput_ru) == pytest.approx(month)
    assert money.manual_month(PRICES, throughput_ru, regions=2) == pytest.approx(2 * month)


def test_hours_of_autoscale() -> None:
    hours = [money.autoscale_billed_ru(30_000, 1, share * 30_000) for share in (0.06, 1.0, 0.11)]
    assert money.autoscale_hours(PRICES, hours) == pytest.approx(4.36, rel=0.005)
    assert money.manual_hours(PRICES, 30_000, 3) == pytest.approx(7.20)


def test_autoscale_is_billed_by_the_busiest_partition() -> None:
    """16 hours at 1,800 RU/s and 8 at 15,000, even, and with a partition of 1.3 times its fair share. All hours are
    billed by that partition, those at night too: 2,340 RU/s are more than a tenth of the maximum."""
    for skew, expected in ((1.0, 18.24), (1.3, 23.328)):
        hours = [money.autoscale_billed_ru(20_000, 4, skew * 1_800 / 4)] * 16
        hours += [money.autoscale_billed_ru(20_000, 4, skew * 15_000 / 4)] * 8
        assert money.autoscale_hours(PRICES, hours) == pytest.approx(expected)


def test_dynamic_scaling_bills_each_partition() -> None:
    assert money.dynamic_billed_ru(4_000, [1_000, 500, 50, 2_000]) == pytest.approx(1_000 + 500 + 100 + 1_000)


def test_serverless_and_its_break_even() -> None:
    assert money.serverless(PRICES, 20e6) == pytest.approx(5.0)
    assert money.serverless(PRICES, 250e6) == pytest.approx(62.5)
    even = money.serverless_pays_below(PRICES, 500)
    assert even.million_ru_month == pytest.approx(116.8)
    assert even.use_share == pytest.approx(0.089, rel=0.005)
    assert money.autoscale_pays_below(PRICES) == pytest.approx(0.667, rel=0.005)


def test_a_bill_has_parts_date_and_source() -> None:
    bill = money.Bill(262.8, money.storage_month(PRICES, 300 * 1024**3), PRICES).to_json()
    assert (bill["throughput"], bill["storage"], bill["total"]) == (262.8, 75.0, 337.8)
    assert bill["prices"]["asOf"] == "2024-07-01"
    assert bill["prices"]["source"]
    assert "2024-07-01" in PRICES.origin


def test_old_prices_get_a_warning() -> None:
    assert PRICES.warning(PRICES.as_of + timedelta(days=OLD_DAYS)) is None
    assert "2024-07-01" in (PRICES.warning(PRICES.as_of + timedelta(days=OLD_DAYS + 1)) or "")


def test_other_prices() -> None:
    prices = parse_prices(TEXT)
    assert (prices.as_of, prices.currency, prices.month_hours) == (date(2026, 1, 1), "EUR", 720)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("2026-01-01", '"soon"', "as_of"),
        ("manual_100_ru = 0.01", 'manual_100_ru = "x"', "per_hour.manual_100_ru is 'x'; expected a number"),
        ("storage_gb", "storage_mb", "per_month.storage_gb is missing"),
        ("currency", "money", "currency is missing"),
        ("serverless_million_ru", "extra = 1\nserverless_million_ru", "extra is not known; known are currency"),
        ("= 0.5\n", "= \n", "not valid TOML"),
    ],
)
def test_wrong_prices_are_refused_with_the_place(old: str, new: str, expected: str) -> None:
    with pytest.raises(Failure, match=expected):
        parse_prices(TEXT.replace(old, new))
