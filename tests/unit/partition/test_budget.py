"""Budgets by the second, on a clock that stands still between steps: who is admitted, who is not, and for how long."""

from __future__ import annotations

import random

import pytest

from armillary import limits
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.ranges import KeyRange
from armillary.partition.budget import HUNDREDTHS, Ask, Budget
from armillary.partition.load_rows import RangeRows
from armillary.partition.meter import Meter, Totals


class Gate:
    """A meter with a budget, and requests that cost what they are told to."""

    def __init__(self, limit_ru: float, *, is_enforcing: bool = True, **more: object) -> None:
        self.clock = VirtualClock(start_s=6_000_020.25)
        self.meter = Meter(self.clock)
        self.meter.is_enforcing = is_enforcing
        self.budget = Budget(int(self.clock.monotonic_s()))
        self.budget.set_limit(round(limit_ru * HUNDREDTHS), **more)  # type: ignore[arg-type]
        self.meter.budget = self.budget

    def ask(self, charge_ru: float, ask: Ask | None = None, epk: bytes | None = b"k") -> int:
        """0: admitted; else the milliseconds to wait."""
        try:
            ticket = self.meter.admit(HUNDREDTHS, ask)
        except Failure as failure:
            refusal = failure
        else:
            self.meter.spend(charge_ru, epk, ticket, ask)
            return 0
        assert (refusal.kind, refusal.charge_ru) == (Kind.THROTTLED, 0.38)
        assert refusal.retry_after_ms is not None
        return refusal.retry_after_ms

    def flood(self, charge_ru: float, ask: Ask | None = None, most: int = 100_000) -> float:
        """What is admitted until the first refusal."""
        for count in range(most):
            if self.ask(charge_ru, ask):
                return count * charge_ru
        raise AssertionError("nothing was refused")


def test_a_second_admits_its_limit() -> None:
    gate = Gate(400)
    assert gate.flood(1) == 400
    assert gate.ask(1) == 750  # to the end of the second
    gate.clock.advance(0.625)
    assert gate.ask(1) == 125
    gate.clock.advance(0.125)
    assert gate.flood(1) == 400


def test_the_last_request_may_overdraw_and_the_next_second_repays() -> None:
    gate = Gate(100)
    assert gate.ask(99) == 0
    assert gate.ask(51) == 0  # a hundredth was left
    assert gate.ask(1) == 750
    gate.clock.advance(0.75)
    assert gate.flood(1) == 50


@pytest.mark.parametrize(("charge_ru", "wait_ms"), [(100, 750), (199.99, 750), (200, 1750), (350, 2750), (1000, 9750)])
def test_the_wait_is_long_enough_and_not_longer(charge_ru: float, wait_ms: int) -> None:
    gate = Gate(100)
    assert gate.ask(charge_ru) == 0
    assert gate.ask(1) == wait_ms
    gate.clock.advance(wait_ms / 1000 - 0.125)
    assert gate.ask(1) == 125
    gate.clock.advance(0.125)
    assert gate.ask(1) == 0


def test_what_a_request_turns_out_to_cost_less_it_gets_back() -> None:
    gate = Gate(100)
    tickets = [gate.meter.admit(5 * HUNDREDTHS) for _ in range(20)]
    with pytest.raises(Failure):
        gate.meter.admit(5 * HUNDREDTHS)
    for ticket in tickets:
        gate.meter.spend(1, b"k", ticket)
    assert gate.flood(1) == 80


def test_observing_counts_and_serves() -> None:
    gate = Gate(100, is_enforcing=False)
    for _ in range(250):
        assert gate.ask(1) == 0
    totals = gate.meter.totals
    assert totals == Totals(requests=250, charged=25_000, refused=0, would_be_refused=150)
    # What would have been refused is no debt: the next second is a whole one.
    gate.clock.advance(1)
    for _ in range(100):
        gate.ask(1)
    assert gate.meter.totals.would_be_refused == 150
    gate.meter.budget = None  # off
    for _ in range(100):
        gate.ask(1)
    assert gate.meter.totals == Totals(requests=450, charged=45_000, refused=0, would_be_refused=150)


def test_refusals_are_counted_and_cost_no_budget() -> None:
    gate = Gate(10)
    gate.flood(1)
    for _ in range(99):
        gate.ask(1)
    assert gate.meter.totals == Totals(requests=110, charged=1000 + 100 * 38, refused=100, would_be_refused=0)
    gate.clock.advance(1)
    assert gate.flood(1) == 10


@pytest.mark.parametrize("seed", range(5))
def test_over_any_time_the_share_is_kept(seed: int) -> None:
    """Three times what there is, at random moments, in random sizes: what is spent is the limit, to one request."""
    print("seed", seed)
    dice = random.Random(seed)
    gate = Gate(1000)
    gate.clock.advance(0.75)
    spent = 0.0
    for _ in range(3000 * 3):
        gate.clock.advance(1 / 900)
        charge_ru = dice.uniform(1, 6)
        if not gate.ask(charge_ru):
            spent += charge_ru
    assert spent == pytest.approx(10_000, abs=10)


def test_bursts_spend_what_was_saved() -> None:
    """100 RU/s idle for five minutes: 30,000 RU, ten seconds at 3,000."""
    gate = Gate(100, has_burst=True)
    assert gate.flood(10) == 100
    gate.clock.advance(400.75)
    spent = 0.0
    for _ in range(10):
        assert gate.flood(10) == 3000
        spent += 3000
        gate.clock.advance(1)
    # Each second has its own 100 too, so 30,000 last a little longer than ten seconds.
    while (more := gate.flood(10)) > 100:
        spent += more
        gate.clock.advance(1)
    assert spent == pytest.approx(30_000 + 11 * 100, abs=200)
    assert more == 100


def test_large_partitions_do_not_burst() -> None:
    gate = Gate(limits.BURST_THROUGHPUT_RU, has_burst=True)
    gate.clock.advance(400)
    assert gate.flood(10) == limits.BURST_THROUGHPUT_RU


def test_units_per_minute() -> None:
    """1,000 for every 100 a second, used only when the second has nothing left, and filled up by the minute."""
    gate = Gate(100, minute_pool=1000 * HUNDREDTHS)
    assert gate.clock.monotonic_s() % 60 == 20.25
    assert gate.flood(10) == 1100
    assert gate.ask(1) == 750
    gate.clock.advance(0.75)
    assert gate.flood(10) == 100
    assert gate.ask(1, Ask(spares_minute=True)) == 1000
    gate.clock.advance(39)
    assert gate.flood(10, Ask(spares_minute=True)) == 100
    assert gate.flood(10) == 1000
    # A large debt is repaid sooner with the next minute's.
    gate.clock.advance(1)
    assert gate.ask(6900) == 0
    assert gate.ask(1, Ask(spares_minute=True)) == 69_000
    assert gate.ask(1) == 59_000
    gate.clock.advance(59)
    assert gate.ask(1) == 0


def test_low_priority_is_refused_first() -> None:
    low = Ask(is_low=True)
    gate = Gate(100)
    assert gate.flood(1, low) == 100  # there are no other requests
    gate.clock.advance(1)
    for _ in range(60):
        assert gate.ask(1) == 0
    assert gate.flood(1, low) == 40
    gate.clock.advance(1)
    # What the others needed in the second before is kept for them.
    assert gate.flood(1, low) == 40
    assert gate.flood(1) == 60
    gate.clock.advance(2)
    assert gate.flood(1, low) == 100


def test_buckets_have_their_share() -> None:
    gate = Gate(100)
    gate.budget.set_buckets({1: 20, 2: 50})
    first, second, other = Ask(bucket=1), Ask(bucket=2), Ask(bucket=5)
    assert gate.flood(1, first) == 20
    assert gate.flood(1, second) == 50
    assert gate.flood(1, other) == 30  # without a share of its own: whatever is left
    gate.clock.advance(1)
    assert gate.ask(50, first) == 0
    assert gate.ask(1, first) == 1750  # 20, 20, 10 left to repay
    assert gate.flood(1) == 50


def test_a_new_limit_takes_effect_at_once() -> None:
    gate = Gate(100)
    gate.flood(1)
    gate.budget.set_limit(300 * HUNDREDTHS)
    assert gate.flood(1) == 200
    gate.budget.set_limit(50 * HUNDREDTHS)
    assert gate.ask(1) == 5750
    gate.clock.advance(5.75)
    assert gate.flood(1) == 50


def test_seconds_and_peaks() -> None:
    gate = Gate(10_000)
    for charge_ru in (1.5, 0, 3, 700.25):
        gate.ask(charge_ru)
        gate.clock.advance(1)
    assert gate.meter.per_second_ru(5) == [0, 1.5, 0, 3, 700.25]
    assert gate.meter.peak_ru() == 700.25
    gate.clock.advance(3600)
    gate.ask(5)
    gate.clock.advance(1)
    assert gate.meter.per_second_ru(3) == [0, 0, 5]
    assert (gate.meter.peak_ru(), gate.meter.peak_ru(hours_ago=1)) == (5, 700.25)


def test_charges_are_answered_as_they_are_counted() -> None:
    meter = Meter(VirtualClock())
    answered = [meter.spend(charge_ru, None) for charge_ru in (1.005, 1.015, 1.145, 0.004, 2.675)]
    assert sum(int(f"{each:.2f}".replace(".", "")) for each in answered) == meter.totals.charged


class ShiftedClock(VirtualClock):
    """Whose seconds since the start begin at other times than those of the day, as those of machines do."""

    def monotonic_s(self) -> float:
        return self.now_s() - 999.3


def test_load_is_counted_in_the_column_of_its_time() -> None:
    """Columns end in the middle of a second of the meter."""
    clock = ShiftedClock(start_s=6_000_020.25)
    meter = Meter(clock)
    meter.divide(RangeRows(KeyRange(0, b"", b"\xff", (), 0), 1, ()))
    for _ in range(4):
        meter.spend(1, b"k", meter.admit(HUNDREDTHS))
        clock.advance(10)
    assert [(each.column, each.requests) for each in meter.load.take()] == [(600_002 + at, [1, 0]) for at in range(4)]


@pytest.mark.parametrize("seed", range(3))
def test_heavy_keys_are_found_among_many(seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    meter = Meter(VirtualClock())
    true: dict[bytes, int] = {}
    heavy = [b"h%d" % number for number in range(10)]
    for _ in range(60_000):
        epk = dice.choice(heavy) if dice.random() < 0.3 else b"%d" % dice.randrange(50_000)
        meter.spend(1, epk)
        true[epk] = true.get(epk, 0) + 1
    found = dict(meter.top_keys(10))
    assert found.keys() == set(heavy)
    for epk, units in found.items():
        assert true[epk] <= units <= true[epk] + meter.keys_error_ru
    assert len(meter.top_keys(10_000)) <= limits.METERED_KEYS_MAX
