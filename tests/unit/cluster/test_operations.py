"""What an operator does with a cluster, at any of its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from support.limits import WithLimits
from support.operated_node import OperatedNode, start_nodes
from support.peers import Certificate
from support.waiting import PATIENCE_S, until

from armillary import __version__
from armillary.account.cluster_operations import NodeDigest
from armillary.cluster.operations import PRIORITIES, Operations
from armillary.cluster.peers.calls import Answer
from armillary.errors import Failure, Kind
from armillary.storage.log.replicated_log import LogUnavailable
from armillary.storage.overlay import Layer

Nodes = dict[str, OperatedNode]


@pytest.fixture
async def nodes(tmp_path: Path, certificate: Certificate, with_limits: WithLimits) -> AsyncIterator[Nodes]:
    """`a`, which leads, and `b` in one region, `c` in another."""
    with_limits(LEASE_RENEW_SECONDS=0.02, NODE_ANNOUNCE_SECONDS=0.05, LOG_REPORT_SECONDS=0.05)
    started = await start_nodes(tmp_path, certificate, a="eu", b="eu", c="us")
    yield started
    for node in started.values():
        await node.stop()


async def leader_of(nodes: Nodes) -> str:
    """Once exactly one node leads, and all know it."""

    def known() -> set[str | None]:
        leaders = (each.node.membership.leader for each in nodes.values())
        return {leader.name if leader is not None else None for leader in leaders}

    await until(lambda: [known(), sum(each.leads for each in nodes.values())] in [[{n}, 1] for n in nodes], "a leader")
    return known().pop() or ""


def live_at(node: OperatedNode) -> set[str]:
    return {each.name for each in node.node.membership.members if each.is_alive}


async def test_the_status_is_the_same_at_every_node(nodes: Nodes) -> None:
    for each in nodes.values():
        await until(lambda each=each: each.engine.replica.position.place.seq >= 2, "rows are applied")  # type: ignore[misc]
        status = await each.operations.status()
        assert (status.node, status.epoch, status.leader) == (each.name, 1, "a")
        assert (status.regions, status.priorities) == (["eu", "us"], [])
        assert [(node.name, node.region, node.leads) for node in status.nodes] == [
            ("a", "eu", True),
            ("b", "eu", False),
            ("c", "us", False),
        ]
        for node in status.nodes:
            assert (node.is_alive, node.is_reached, node.is_drained, node.version) == (True, True, False, __version__)
            assert node.addresses == {"sql": f"http://{node.name}.test"}, "addresses between nodes are not shown"
            assert node.flushed_seq is not None and node.applied_seq is not None
        assert status.log is not None and status.log.newest_seq >= 2 and status.log.lowest_seq >= 1
        assert status.log_error is None and status.slowest in nodes


async def test_lag_is_counted_in_rows_transactions_and_seconds(nodes: Nodes) -> None:
    await nodes["b"].peers.close()  # its rows come from nowhere now
    nodes["b"].log._is_closed = True
    before = nodes["b"].engine.replica.position
    account = nodes["a"].node.roles.account
    assert account is not None
    for number in range(3):
        await account.catalog.keep_setting("x", str(number).encode())
    status = await nodes["a"].operations.status()
    behind = next(each for each in status.nodes if each.name == "b")
    assert not behind.is_reached, "b does not answer: its lag is that of its last report"
    assert behind.lag_rows is not None and behind.lag_rows >= 3
    assert behind.lag_transactions is None
    assert nodes["b"].engine.replica.position == before
    own = await nodes["c"].operations.own_figures()
    assert (own.leads, own.node_count) == (False, 3)
    assert own.slowest is not None
    cut_off = await nodes["b"].operations.own_figures()
    assert (cut_off.log, cut_off.lag_rows) == (None, None)
    assert (await nodes["b"].operations.status()).log_error == "closed"


async def test_failover_to_a_node_and_to_any(nodes: Nodes) -> None:
    assert await nodes["c"].operations.fail_over("c") == "c", "asked of a follower, done by the leader"
    assert await leader_of(nodes) == "c"
    assert await nodes["c"].operations.fail_over("") in ("a", "b")
    assert await leader_of(nodes) in ("a", "b")
    leader = await leader_of(nodes)
    with pytest.raises(Failure, match="leads already"):
        await nodes["c"].operations.fail_over(leader)
    with pytest.raises(Failure, match="no live node 'd'"):
        await nodes["c"].operations.fail_over("d")


async def test_any_node_means_one_of_the_leaders_region(nodes: Nodes) -> None:
    for expected in ("b", "a", "b"):
        assert await nodes["c"].operations.fail_over("") == expected
        await leader_of(nodes)


async def test_failover_of_the_region(nodes: Nodes) -> None:
    account = nodes["a"].node.roles.account
    assert account is not None
    for number in range(20):
        await account.catalog.keep_setting("last", str(number).encode())
    assert await nodes["b"].operations.fail_over_region("us") == "c"
    assert await leader_of(nodes) == "c"
    present = nodes["c"].node.roles.account
    assert present is not None
    assert await present.catalog.kept_setting("last") == b"19"
    assert await present.catalog.kept_setting(PRIORITIES) == b'["us","eu"]'
    for each in nodes.values():
        await until(lambda each=each: each.node.membership.priorities == ["us", "eu"], "priorities")  # type: ignore[misc]
    assert nodes["a"].node.membership.rank() == 1 and nodes["c"].node.membership.rank() == 0
    epoch = nodes["c"].node.membership.epoch
    assert await nodes["a"].operations.fail_over_region("us") == "c"
    assert nodes["c"].node.membership.epoch == epoch, "a node of the region leads already"
    with pytest.raises(Failure, match="The region 'asia' has no live node"):
        await nodes["a"].operations.fail_over_region("asia")


async def test_a_drained_node_does_not_lead(nodes: Nodes) -> None:
    await nodes["c"].operations.drain("a")
    assert await leader_of(nodes) == "b"
    assert [each.is_drained for each in (await nodes["c"].operations.status()).nodes] == [True, False, False]
    with pytest.raises(Failure, match="no live node 'a'"):
        await nodes["c"].operations.fail_over("a")
    assert await nodes["c"].operations.fail_over("") == "c", "a is drained"
    await leader_of(nodes)
    await nodes["b"].operations.drain("b")
    with pytest.raises(Failure, match="the only live node that may lead"):
        await nodes["c"].operations.drain("c")
    await nodes["c"].operations.undrain("a")
    assert await nodes["b"].operations.fail_over("a") == "a"
    with pytest.raises(Failure) as unknown:
        await nodes["b"].operations.drain("d")
    assert unknown.value.kind is Kind.NOT_FOUND


async def test_a_drained_node_does_not_take_over_from_one_that_dies(nodes: Nodes) -> None:
    await nodes["b"].operations.drain("b")
    await nodes["c"].operations.drain("c")
    await nodes.pop("a").stop()
    await until(lambda: nodes["b"].node.leadership._rival.is_over(0.1), "the lease of a is over, for some time")
    assert not any(each.node.leadership.leads for each in nodes.values())
    await nodes["c"].operations.undrain("b")
    assert await leader_of(nodes) == "b"


async def test_a_drained_node_is_drained_when_it_is_started_again(
    nodes: Nodes, tmp_path: Path, certificate: Certificate
) -> None:
    await nodes["c"].operations.drain("b")
    for name in ("b", "c"):  # c stops as an operator stops it, which is not kept
        await nodes[name].node.retire()
        await nodes.pop(name).stop()
        nodes[name] = OperatedNode(tmp_path, nodes["a"].log._server, name, "eu")
        await nodes[name].start(certificate)
    status = {each.name: each.is_drained for each in (await nodes["b"].operations.status()).nodes}
    assert status == {"a": False, "b": True, "c": False}
    assert await nodes["b"].operations.fail_over("") == "c"
    with pytest.raises(Failure, match="no live node 'b'"):
        await nodes["a"].operations.fail_over("b")
    await nodes["a"].operations.undrain("b")
    assert await nodes["a"].operations.fail_over("b") == "b"


async def test_removing_a_node_that_has_stopped(nodes: Nodes) -> None:
    with pytest.raises(Failure, match="is alive") as refused:
        await nodes["a"].operations.remove("b")
    assert refused.value.kind is Kind.CONFLICT
    await nodes.pop("b").stop()  # which it tells the others
    await nodes["a"].node.membership.exchange()
    assert "b" not in live_at(nodes["a"])
    await nodes["c"].operations.remove("b")
    assert [each.name for each in (await nodes["c"].operations.status()).nodes] == ["a", "c"]
    assert {each.node for each in await nodes["a"].log.replicas()} == {"a", "c"}
    with pytest.raises(Failure) as unknown:
        await nodes["a"].operations.remove("b")
    assert unknown.value.kind is Kind.NOT_FOUND


async def test_a_node_that_has_led_last_is_not_removed(nodes: Nodes, with_limits: WithLimits) -> None:
    await nodes["b"].operations.drain("b")
    await nodes["c"].operations.drain("c")
    await nodes.pop("a").stop()
    with_limits(NODE_SILENT_SECONDS=0.3)
    await until(lambda: "a" not in live_at(nodes["c"]), "a counts as gone")
    with pytest.raises(Failure, match="the last that has led"):
        await nodes["c"].operations.remove("a")


async def test_a_node_that_stops_hands_over_and_is_not_chosen(nodes: Nodes) -> None:
    await nodes["b"].node.retire()
    await nodes["a"].node.retire()
    assert await leader_of(nodes) == "c", "b stops too"
    await nodes["c"].node.retire()  # logs that there is no other
    assert nodes["c"].leads


async def test_a_leader_with_a_full_disk_gives_way_to_a_node_with_room(nodes: Nodes, with_limits: WithLimits) -> None:
    with_limits(FULL_DISK_SECONDS=0.02)
    nodes["b"].engine.keep_free(1 << 60)
    nodes["a"].engine.keep_free(1 << 60)
    await until(lambda: nodes["c"].leads, "c leads: b is of the region, and has no room either")
    nodes["c"].engine.keep_free(1 << 60)
    await until(lambda: nodes["c"].node._disk_watch.is_alone, "c has found no other node")
    assert await leader_of(nodes) == "c"
    nodes["b"].engine.keep_free(0)
    await until(lambda: nodes["b"].leads, "the node that has room again leads")


async def test_a_node_with_a_full_disk_takes_over_last(nodes: Nodes) -> None:
    nodes["b"].engine.keep_free(1 << 60)
    assert await nodes["a"].operations.fail_over("") == "c", "b is of the region, and has no room"


async def compared(node: OperatedNode) -> list[NodeDigest]:
    """The digests of all nodes at a new mark, when they are known."""
    mark = await node.operations.begin_verification()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await node.operations.digests(mark)
            if not any(each.is_pending for each in found):
                return list(found)


async def test_nodes_are_compared_at_a_mark(nodes: Nodes) -> None:
    account = nodes["a"].node.roles.account
    assert account is not None
    await account.catalog.keep_setting("x", b"1")
    found = await compared(nodes["b"])
    assert [each.node for each in found] == ["a", "b", "c"]
    assert all(each.is_reached for each in found)
    assert len({each.digest for each in found}) == 1 and found[0].digest is not None
    database = nodes["c"].engine.replica.database
    assert database is not None
    layer = Layer()
    layer.writes[b"\0\0\0\x07stray"] = b"!"  # as no row of the log says
    database.write(database.batch(layer))
    different = await compared(nodes["c"])
    assert different[0].digest == different[1].digest == found[0].digest
    assert different[2].digest not in (None, found[0].digest)


async def test_a_node_that_is_gone_is_not_compared(nodes: Nodes) -> None:
    await nodes.pop("b").stop()
    found = await compared(nodes["c"])
    assert [(each.node, each.is_reached, each.digest is None) for each in found] == [
        ("a", True, False),
        ("b", False, True),
        ("c", True, False),
    ]
    unknown = await nodes["c"].operations.digests(1)
    assert [(each.is_pending, each.digest) for each in unknown] == [(False, None)] * 3, "row 1 is no mark"


async def test_nodes_that_stop_together_do_not_wait_for_each_other(nodes: Nodes) -> None:
    outcomes = await asyncio.gather(*(each.operations.retire() for each in nodes.values()), return_exceptions=True)
    assert outcomes[1:] == [None, None]
    assert outcomes[0] is None or "no other live node" in str(outcomes[0]), "not that none has taken over in time"


# Nodes and logs that do not answer.


class SilentOnce:
    """The first calls of this name to a node end with their connections: before they were carried out, or with the
    answer. `count`: how many came."""

    def __init__(self, node: OperatedNode, call: str, *, carries_out: bool, ended: int = 1) -> None:
        self.count = 0
        self._node = node
        self._answer = node.peers.handlers[call]
        self._carries_out = carries_out
        self._ended = ended
        node.peers.handlers[call] = self

    async def __call__(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        self.count += 1
        if self.count > self._ended:
            return await self._answer(caller, head, body)
        if self._carries_out:
            await self._answer(caller, head, body)
        for connection in list(self._node.peers._connections):
            if connection.node == caller:
                connection.end("it is silent")
        return {}, b""


OPERATIONS: Final[dict[str, Callable[[Operations], Awaitable[Any]]]] = {
    "hand-over": lambda operations: operations.fail_over("b"),
    "fail-over-region": lambda operations: operations.fail_over_region("us"),
    "drain": lambda operations: operations.drain("a"),
    "mark": lambda operations: operations.begin_verification(),
}
LEADERS: Final = {"hand-over": ("b",), "fail-over-region": ("c",), "drain": ("b", "c"), "mark": ("a",)}


@pytest.mark.parametrize(("call", "carries_out"), [*((call, False) for call in OPERATIONS), ("fail-over-region", True)])
async def test_what_a_silent_node_does_not_answer_is_repeated(nodes: Nodes, call: str, carries_out: bool) -> None:
    silent = SilentOnce(nodes["a"], call, carries_out=carries_out)
    await OPERATIONS[call](nodes["c"].operations)
    assert silent.count in (1, 2), "the second time a, or the node that leads since"
    assert await leader_of(nodes) in LEADERS[call]
    assert (await nodes["c"].log.leader()).epoch == 1 + (call != "mark"), "it was done once"
    assert (await nodes["c"].operations.status()).nodes[0].is_drained == (call == "drain")


async def test_a_repeated_failover_to_any_node_hands_over_once(nodes: Nodes) -> None:
    silent = SilentOnce(nodes["a"], "hand-over", carries_out=True)
    assert await nodes["c"].operations.fail_over("") == "b"
    assert silent.count == 1
    assert await leader_of(nodes) == "b"
    silent = SilentOnce(nodes["b"], "hand-over", carries_out=False)
    assert await nodes["c"].operations.fail_over("") == "a"
    assert silent.count == 2
    assert await leader_of(nodes) == "a"
    assert (await nodes["c"].log.leader()).epoch == 3
    refused = SilentOnce(nodes["a"], "hand-over", carries_out=False, ended=0)
    with pytest.raises(Failure, match="no live node 'd'"):
        await nodes["c"].operations.fail_over("d")
    assert refused.count == 1, "a refusal is not repeated"


async def test_the_failure_says_what_happened_and_what_to_do(nodes: Nodes, with_limits: WithLimits) -> None:
    with_limits(OPERATION_SECONDS_MAX=0.05, OPERATION_RETRY_SECONDS=0.01)
    for call, operation in OPERATIONS.items():
        SilentOnce(nodes["a"], call, carries_out=False, ended=1_000_000)
        with pytest.raises(Failure) as failed:
            await operation(nodes["c"].operations)
        assert failed.value.kind is Kind.UNAVAILABLE
        said = failed.value.message
        assert "was not answered within 0.05 s, and may still be carried out. The connection to node a ended" in said
        assert "The log names a as the leader, in epoch 1." in said
        assert "Look with `armillary cluster status`" in said and "repeat the command" in said


class AnswersLost:
    """The first answer to a call of the log is lost, or every one."""

    def __init__(self, call: str, *, always: bool = False) -> None:
        self._call = call
        self._always = always
        self._is_lost = False

    async def before(self, call: str) -> None:
        return

    async def after(self, call: str) -> None:
        if call == self._call and (self._always or not self._is_lost):
            self._is_lost = True
            raise LogUnavailable("the connection broke")


async def test_removing_is_repeated_when_the_log_does_not_answer(nodes: Nodes, with_limits: WithLimits) -> None:
    await nodes.pop("b").stop()
    nodes["c"].log._faults = AnswersLost("forget")
    await nodes["c"].operations.remove("b")
    assert [each.name for each in (await nodes["c"].operations.status()).nodes] == ["a", "c"]
    with_limits(OPERATION_SECONDS_MAX=0.05, OPERATION_RETRY_SECONDS=0.01)
    nodes["c"].log._faults = AnswersLost("leader", always=True)
    with pytest.raises(Failure) as failed:
        await nodes["c"].operations.remove("b")
    assert "Removing 'b' was not answered within 0.05 s" in failed.value.message
    assert "The replicated log does not answer: the connection broke." in failed.value.message
    assert "which node leads is not known" in failed.value.message


async def test_a_node_that_is_silent_for_a_moment_is_compared(nodes: Nodes) -> None:
    silent = SilentOnce(nodes["b"], "digest", carries_out=False, ended=2)
    found = await compared(nodes["c"])
    assert silent.count > 2
    assert [each.is_reached for each in found] == [True, True, True]
    assert len({each.digest for each in found}) == 1 and found[0].digest is not None
