"""The worked example of the documentation: thirty days of Zipf keys from empty."""

from __future__ import annotations

import pytest
from unit.insight.simulation.workloads import DAY_S, run, workload

from armillary.insight.planning.prices import own_prices
from armillary.insight.simulation.outcome import simulate
from armillary.insight.simulation.simulator import SimulationOptions, Simulator
from armillary.limits import GB

ROWS = (
    # day, GB, partitions, share, hottest by its share, 429, 403 of writes, full keys, demand
    (0, 0, 4, 5_000, 0.691, 0, 0, 0, 12_000),
    (4, 326.7, 8, 2_500, 0.688, 0, 0.0695, 1, 11_583),
    (10, 778.1, 21, 952.4, 0.759, 0, 0.1042, 2, 11_375),
    (20, 1_486.5, 41, 487.8, 1.181, 0.0080, 0.1586, 5, 11_048),
    (30, 2_165.1, 59, 339.0, 1.367, 0.0114, 0.1888, 8, 10_867),
)


@pytest.fixture(scope="module")
def month() -> Simulator:
    """Every write is stored in the end: clients repeat it until it is."""
    return run(31, retries="unlimited")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"day {row[0]}")
def test_days_of_the_example(month: Simulator, row: tuple[float, ...]) -> None:
    day, gigabytes, partitions, share, hottest, refused, full, full_keys, demand = row
    found = {name: float(month.recording.column(name)[int(day) * 24]) for name in month.recording.fields}
    assert found["bytes"] / GB == pytest.approx(gigabytes, rel=0.02)
    assert found["partitions"] == pytest.approx(partitions, abs=1)
    assert found["ruPerPartition"] == pytest.approx(share, rel=0.02)
    assert found["normalizedMax"] == pytest.approx(hottest, rel=0.02)
    assert found["refusedRu"] / found["demandRu"] == pytest.approx(refused, rel=0.02, abs=1e-4)
    assert found["fullShare"] == pytest.approx(full, rel=0.02)
    assert found["fullKeys"] == full_keys
    assert found["demandRu"] == pytest.approx(demand, rel=0.02)


def test_the_day_on_which_the_first_key_is_full(month: Simulator) -> None:
    assert month.full_since[month.space.rank("k1")] / DAY_S == pytest.approx(3.5, rel=0.02)


def test_writes_that_are_refused_and_not_retried_are_not_stored(month: Simulator) -> None:
    """With none of the refused writes stored, 0.2 % of the bytes are missing after a month; partitions then are others,
    and so is the hottest."""
    lost = run(31, retries="none")
    last = lost.recording.column("bytes")[30 * 24]
    assert 0.99 < last / month.recording.column("bytes")[30 * 24] < 0.999
    assert lost.map.count == pytest.approx(month.map.count, abs=1)


def test_the_report_says_what_the_example_teaches() -> None:
    options = SimulationOptions(horizon_s=30 * DAY_S, step_s=3600.0)
    content = simulate(workload(retries="unlimited"), own_prices(), options)
    text = " ".join(content["sentences"])
    assert "In sum the throughput was enough on every day: at most 12,000 of 20,000 RU/s" in text
    assert "Each made the share of a hot key smaller" in text
    assert "On day 3.5 the key k1 is full. In the end 8 keys are full, and 18.9% of the writes fail for good" in text
    assert "No partition looks uneven in bytes" in text
    assert content["money"]["whole"]["throughput"] == pytest.approx(200 * 0.008 * 24 * 30)
    assert content["topKeys"][0] == {
        "key": "k1",
        "bytes": 20 * GB,
        "demandShare": pytest.approx(0.0384, rel=0.02),
        "fullOnDay": 3.5,
    }
    assert len(content["topKeys"]) == 20
    assert [each["day"] for each in content["events"]] == sorted(each["day"] for each in content["events"])
    assert content["timeline"][0]["day"] == 0
    assert len(content["timeline"]) == 720
