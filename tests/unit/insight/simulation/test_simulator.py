"""What happens in simulations: expiry, scaling, splits, autoscale, spikes, merges, hierarchical keys, and much data."""

from __future__ import annotations

import numpy as np
import pytest
from unit.insight.simulation.workloads import DAY_S, reads, run, workload

from armillary.errors import Failure
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.toml_tables import MONTH_S
from armillary.insight.simulation.outcome import outcome_of
from armillary.insight.simulation.recording import costs_of
from armillary.insight.simulation.simulator import SimulationOptions, Simulator
from armillary.limits import GB

ITEM = {"item_bytes": 1024, "terms": 10}


def test_expiry_comes_to_rest() -> None:
    data = {**ITEM, "ttl_days": 5, "keys": {"uniform": 1_000_000}}
    simulator = run(15, data=data)
    expected = 1_000 * 1024 * 5 * DAY_S
    column = simulator.recording.column("bytes")
    assert column[6 * 24] == pytest.approx(expected, rel=0.03)
    assert column[-1] == pytest.approx(expected, rel=0.03)
    kept = run(15, data={**data, "size": int(expected)})
    assert kept.recording.column("bytes")[[24, 100, -1]] == pytest.approx([expected] * 3, rel=0.03)


def test_a_full_key_takes_what_expires() -> None:
    """A key at 20 GB under a TTL of 10 days: as many bytes come as leave. Those of the first days leave in a row, and
    then there is nothing to leave: the mean over ten days is what counts."""
    explicit = {"hot": 0.05, **{f"v{number}": 0.95 / 500 for number in range(500)}}
    container = {"partition_key": ["/key"], "throughput": 100_000}
    simulator = run(30, data={**ITEM, "ttl_days": 10, "keys": {"explicit": explicit}}, container=container)
    hot = simulator.space.rank("hot")
    assert simulator.stored.keys[hot] == pytest.approx(20 * GB, rel=0.02)
    share = simulator.recording.column("fullShare")[20 * 24 :].mean()
    written = 0.05 * 1_000 * 1024 * 10 * DAY_S
    assert share == pytest.approx(0.05 * (1 - 20 * GB / written), rel=0.1)


@pytest.mark.parametrize("key", [None, "k1"])
def test_the_load_at_the_end_has_the_spikes_of_that_moment(key: str | None) -> None:
    """A spike that begins when a simulation ends is no part of its steps, but of the load that is asked for then."""
    of_key = {"key": key} if key is not None else {}
    for at, times in (("P5D", 5.0), ("P6D", 1.0), ("PT114H", 1.0)):
        shape = {"spikes": [{"at": at, "hours": 6, "factor": 5, **of_key}]}
        demand, _, _ = run(5, shape=shape, **reads(1_000.0, {"zipf": 0.5, "count": 1_000})).load_by_partition()
        assert demand.sum() == pytest.approx(times * 1_000.0)


def test_deletes_remove_bytes() -> None:
    operations = [{"kind": "create", "rate": 100}, {"kind": "delete", "rate": 100}]
    data = {**ITEM, "size": "10GB", "keys": {"uniform": 1_000}}
    simulator = run(5, data=data, operations=operations)
    assert simulator.recording.column("bytes")[-1] == pytest.approx(10 * GB, rel=0.001)
    emptied = run(5, data=data, operations=[{"kind": "delete", "rate": 1_000}])
    assert emptied.recording.column("bytes")[-1] == 0.0


def test_more_throughput_splits_the_fullest() -> None:
    container = {"partition_key": ["/key"], "autoscale": 30_000}
    changes = [{"at": "P2D", "autoscale": 45_000}]
    simulator = run(4, container=container, changes=changes, **reads(100))
    partitions = simulator.recording.column("partitions")
    assert (partitions[47], partitions[48], partitions[-1]) == (3, 5, 5)
    assert simulator.recording.column("ruPerPartition")[[47, 48]] == pytest.approx([10_000, 9_000])


def test_throughput_is_in_force_when_its_splits_are_done() -> None:
    container = {"partition_key": ["/key"], "autoscale": 30_000}
    data = {**reads(100)["data"], "size": "90GB"}
    simulator = run(
        2,
        options={"is_cloud": True},
        container=container,
        changes=[{"at": "PT10H", "autoscale": 60_000}],
        limits={},
        data=data,
        operations=reads(100)["operations"],
    )
    budget = simulator.recording.column("ruPerPartition")
    assert budget[[0, 9, 14]] == pytest.approx([10_000] * 3), "the service splits for five hours"
    assert (simulator.recording.column("partitions")[15], budget[15]) == (6, 10_000)


def test_splits_copy_fifty_megabytes_a_second() -> None:
    simulator = run(2, step_s=60.0, limits={}, data={**ITEM, "size": "199GB", "keys": {"uniform": 10_000_000}})
    [first, *_] = [each for each in simulator.events.found if each["kind"] == "split"]
    full_s = 1 * GB / (1_000 * 1024)
    assert first["day"] * DAY_S == pytest.approx(full_s + 50 * 1024 / 50, rel=0.05)
    assert simulator.map.count == 8


def test_one_key_is_not_split() -> None:
    data = {**ITEM, "keys": {"explicit": {"only": 1.0}}}
    simulator = run(30, data=data, container={"partition_key": ["/key"], "throughput": 6_000})
    assert simulator.map.count == 1
    assert simulator.recording.column("bytes")[-1] == pytest.approx(20 * GB, rel=1e-6)
    assert simulator.recording.column("fullShare")[-1] == 1.0


def test_a_hierarchical_key_is_not_full() -> None:
    keys = {"explicit": {"tenant": 0.9, "other": 0.1}, "second_level": 1_000}
    container = {"partition_key": ["/tenant", "/user"], "throughput": 20_000}
    operations = [{"kind": "create", "rate": 300}]
    simulator = run(30, data={**ITEM, "keys": keys}, container=container, operations=operations)
    assert not simulator.full_since
    sizes = simulator.partition_bytes()
    assert sizes.sum() == pytest.approx(300 * 1024 * 30 * DAY_S, rel=0.01)
    assert sizes.max() < 50.1 * GB
    assert simulator.map.count > 14, "the tenant was cut inside"


def test_autoscale_is_billed_by_the_hour() -> None:
    """16 hours at 1,800 RU/s and 8 at 15,000, under even keys: 18.24 a day."""
    container = {"partition_key": ["/key"], "autoscale": 20_000}
    shape = {"daily": [0.12] * 16 + [1.0] * 8}
    simulator = run(7, container=container, shape=shape, **reads(15_000))
    costs = costs_of(simulator.recording, own_prices(), simulator.provision, 1)
    assert costs.bill.throughput / 7 == pytest.approx(18.24, rel=0.01)
    assert simulator.recording.column("currentRu")[[0, 20]] == pytest.approx([2_000, 15_000], rel=0.01)
    finer = run(1, step_s=60.0, container=container, shape=shape, **reads(15_000))
    assert costs_of(finer.recording, own_prices(), finer.provision, 1).bill.throughput == pytest.approx(18.24, rel=0.01)
    one = {"explicit": {"a": 1.0}}
    hot = run(1, container=container, **reads(4_500, one))
    dynamic = run(1, options={"is_dynamic": True}, container=container, **reads(4_500, one))
    bills = [costs_of(each.recording, own_prices(), each.provision, 1).bill.throughput for each in (hot, dynamic)]
    assert bills == pytest.approx([90 * 0.012 * 24, 55 * 0.012 * 24])


def test_serverless_pays_for_what_is_served() -> None:
    container = {"partition_key": ["/key"], "serverless": True}
    simulator = run(10, container=container, **reads(100))
    costs = costs_of(simulator.recording, own_prices(), simulator.provision, 2)
    assert costs.bill.throughput == pytest.approx(100 * 10 * DAY_S / 1e6 * 0.25 * 2)
    assert simulator.recording.column("ruPerPartition")[0] == 5_000


def test_a_spike_on_one_key() -> None:
    spikes = [{"at": "P1D", "hours": 2, "factor": 6, "key": "k1"}, {"at": "P2D", "hours": 2, "factor": 3}]
    simulator = run(3, shape={"spikes": spikes}, retries="none", **reads(4_000))
    refused = simulator.recording.column("refusedRu") / simulator.recording.column("demandRu")
    assert refused[23] == refused[26] == 0.0
    assert refused[24] == pytest.approx((20_000 + 1_000 - 5_000) / 24_000, rel=0.02)
    assert simulator.recording.column("demandRu")[[24, 48]] == pytest.approx([24_000, 12_000])
    assert [each["kind"] for each in simulator.events.found] == ["spike"]


def test_small_neighbours_merge_by_policy() -> None:
    container = {"partition_key": ["/key"], "throughput": 20_000, "merge_policy": True}
    changes = [{"at": "P1D", "throughput": 1_000}]
    simulator = run(3, container=container, changes=changes, **reads(10))
    assert simulator.recording.column("partitions")[[0, 24, -1]].tolist() == [4, 3, 1]


def test_queries_that_fan_out_cost_more_with_each_split() -> None:
    operations = [{"kind": "create", "rate": 1_000}, {"kind": "query", "rate": 10, "rows": 1}]
    simulator = run(10, data={**ITEM, "keys": {"uniform": 10_000_000}}, operations=operations)
    demand, partitions = simulator.recording.column("demandRu"), simulator.recording.column("partitions")
    assert demand == pytest.approx(7_000 + 10 * (2.5 * partitions + 0.6))
    assert partitions[-1] > partitions[0]


def test_steps_of_other_lengths_agree() -> None:
    """The same five days in steps of an hour and of ten minutes."""
    coarse, fine = run(5), run(5, step_s=600.0)
    for name in ("bytes", "partitions", "fullShare", "demandRu"):
        assert fine.recording.column(name)[-6] == pytest.approx(coarse.recording.column(name)[-1], rel=0.02)


def test_ten_terabytes_and_a_million_units_over_a_year_are_bounded_work() -> None:
    known = workload(
        container={"partition_key": ["/key"], "throughput": 1_000_000},
        data={**ITEM, "size": "5TB", "keys": {"zipf": 0.9, "count": 1_000_000_000}},
        operations=[
            {"kind": "create", "rate": 230},
            {"kind": "read", "rate": 500_000},
            {"kind": "query", "rate": 100, "rows": 10},
        ],
        shape={"weekly": [1, 1, 1, 1, 1, 0.3, 0.2], "growth_per_month": 1.01},
        limits={},
    )
    simulator = Simulator(known, SimulationOptions(horizon_s=12 * MONTH_S))
    simulator.run()
    assert simulator.steps == 8_760
    assert simulator.blocks < 1_000, "steps between events are computed together"
    assert float(simulator.recording.column("bytes")[-1]) > 10 * 1024 * GB
    content = outcome_of(simulator, own_prices())
    assert len(content["timeline"]) <= 2_000
    assert np.isfinite([point["costSoFar"] for point in content["timeline"]]).all()


def test_storage_may_need_more_throughput_than_is_provisioned() -> None:
    container = {"partition_key": ["/key"], "throughput": 400}
    data = {**reads(1)["data"], "size": "2TB"}
    simulator = run(1, container=container, data=data, operations=reads(1)["operations"])
    assert "could not be set to less than 2,100 RU/s" in " ".join(outcome_of(simulator, own_prices())["sentences"])


def test_a_container_without_throughput_is_refused() -> None:
    with pytest.raises(Failure, match="container needs one of throughput, autoscale and serverless"):
        run(1, container={"partition_key": ["/key"]})
