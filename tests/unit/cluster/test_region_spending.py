"""Nodes of a region share the budget of each partition; those of another region have their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.limits import WithLimits
from support.operated_node import OperatedNode, start_nodes
from support.peers import Certificate
from support.waiting import until

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.partition.budget import HUNDREDTHS, Budget
from armillary.partition.meter import Meter

RU = 400  # of the container, which has one partition


def account_of(node: OperatedNode) -> Account:
    account = node.node.roles.account
    assert account is not None
    return account


async def meters_of(nodes: dict[str, OperatedNode]) -> dict[str, Meter]:
    """Of the only partition of a container that enforces its throughput, by node."""
    account = account_of(nodes["a"])
    database = await containers.create_database(account, {"id": "shop"}, None)
    definition = {"id": "orders", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    created = await containers.create_container(account, database, definition, Throughput(RU))
    await account.budgets.set_mode(created, "enforce")
    found: dict[str, Meter] = {}
    for name, node in nodes.items():
        assert name == "a" or await node.node.membership.refresh(10.0)
        container = account_of(node).container_by_rid(created.record.rid)
        assert container is not None
        (partition,) = container.partitions.values()
        found[name] = partition.meter
    return found


def spent_of(meter: Meter) -> int:
    assert meter.budget is not None
    return meter.budget.spent


async def test_what_one_node_spends_the_others_of_its_region_do_not_have(
    tmp_path: Path, certificate: Certificate, with_limits: WithLimits
) -> None:
    with_limits(LEASE_RENEW_SECONDS=0.02, NODE_ANNOUNCE_SECONDS=0.05, SPENDING_TELL_SECONDS=0.02)
    nodes = await start_nodes(tmp_path, certificate, a="eu", b="eu", c="us")
    try:
        meters = await meters_of(nodes)
        for name in ("a", "b"):  # a meter is told of from the second time on that it was looked at
            await until(lambda name=name: meters[name] in nodes[name].node._spending._seen, "seen")  # type: ignore[misc]
        meters["a"].spend(20 * RU, None, meters["a"].admit())
        await until(lambda: meters["b"].is_closed(None), "the other node of the region refuses, too")
        with pytest.raises(Failure) as caught:
            meters["b"].admit()
        assert caught.value.kind is Kind.THROTTLED
        assert caught.value.retry_after_ms is not None and caught.value.retry_after_ms > 10_000, "it is repaid first"
        assert not meters["c"].is_closed(None)
        assert meters["b"].totals.charged_ru < 10, "it is not counted there as load"
        before = spent_of(meters["a"])
        meters["b"].spend(20 * RU, None, 0)
        await until(lambda: spent_of(meters["a"]) > before + 10 * RU * HUNDREDTHS, "it is told both ways")
    finally:
        for node in nodes.values():
            await node.stop()


def test_spent_since_an_earlier_moment() -> None:
    clock = VirtualClock()
    meter = Meter(clock)
    meter.budget = Budget(int(clock.monotonic_s()))
    meter.budget.set_limit(RU * HUNDREDTHS)
    meter.spend(3, None, meter.admit())
    before = meter.spent
    meter.spend(4, None, meter.admit())
    assert meter.spent_since(before) == 4 * HUNDREDTHS
    for charge_ru in (5, 6):
        clock.advance(1.0)
        meter.spend(charge_ru, None, meter.admit())
    assert meter.spent_since(before) == (4 + 5 + 6) * HUNDREDTHS
    meter.spend_elsewhere(7 * HUNDREDTHS)
    assert meter.spent_since(before) == (4 + 5 + 6) * HUNDREDTHS, "what others told is not told again"
    assert meter.budget.spent == (6 + 7) * HUNDREDTHS
    clock.advance(1.0)
    meter.spend_elsewhere(HUNDREDTHS)
    assert meter.budget.spent == HUNDREDTHS
