"""The simulator beside the engine: the same keys are written to a real container with small limits."""

from __future__ import annotations

import asyncio

import pytest
from support.house import AccountHouse, Hurried

from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.errors import Failure
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.workload import read_workload
from armillary.insight.simulation.simulator import SimulationOptions, Simulator
from armillary.limits import KB
from armillary.storage.memory import MemoryEngine

ITEMS, KEYS, EXPONENT = 2_000, 200, 1.0
PARTITION_BYTES, KEY_BYTES = 128 * KB, 60 * KB


def in_turn(shares: KeyShares, count: int) -> list[str]:
    """Keys in the order in which each comes next to its share: no sampling error."""
    owed = {str(value): 0.0 for value, _ in shares.named}
    found = []
    for _ in range(count):
        for value, share in shares.named:
            owed[str(value)] += share
        key = max(owed, key=owed.__getitem__)
        owed[key] -= 1.0
        found.append(key)
    return found


async def settle(house: AccountHouse[Hurried]) -> None:
    while not house.account.reshaper.is_idle:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)


async def write_all(house: AccountHouse[Hurried], container: Container) -> int:
    """Returns how many writes were refused because their key is full."""
    refused = 0
    for number, key in enumerate(in_turn(KeyShares.of_zipf(KEYS, EXPONENT), ITEMS)):
        try:
            await house.put(container, {"id": f"{number:05}", "pk": key, "text": "x" * 300})
        except Failure:
            refused += 1
        await settle(house)
    return refused


async def test_partitions_full_keys_and_bytes_are_those_of_the_engine() -> None:
    settings = AccountSettings(
        throughput_mode="off",
        partition_storage_bytes=PARTITION_BYTES,
        logical_partition_bytes_max=KEY_BYTES,
        history_memory_bytes=0,
    )
    house = await AccountHouse.begin(MemoryEngine(), Hurried(), settings)
    container = await house.create()
    refused = await write_all(house, container)
    heads = [each.head for each in container.partitions.values()]
    stored = sum(head.size_bytes for head in heads)
    item_bytes = round(stored / sum(head.item_count for head in heads))
    content = {
        "container": {"partition_key": ["/pk"], "throughput": 400},
        "data": {"item_bytes": item_bytes, "keys": {"zipf": EXPONENT, "count": KEYS}},
        "operations": [{"kind": "create", "rate": 1}],
        "limits": {
            "partition_storage": PARTITION_BYTES,
            "logical_partition_storage": KEY_BYTES,
            "split_time": "0s",
        },
    }
    simulator = Simulator(read_workload(content, str), SimulationOptions(horizon_s=ITEMS, step_s=1.0))
    simulator.run()
    assert simulator.map.count == pytest.approx(len(heads), abs=max(1, 0.1 * len(heads)))
    assert simulator.stored.keys.sum() == pytest.approx(stored, rel=0.02)
    share = simulator.recording.totals()["fullShareOfWrites"]
    assert share == pytest.approx(refused / ITEMS, rel=0.1)
    assert max(head.size_bytes for head in heads) == pytest.approx(float(simulator.partition_bytes().max()), rel=0.1)
    await house.close()
