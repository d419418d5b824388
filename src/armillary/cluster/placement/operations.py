"""What an operator sees of placement and changes, asked of any node: the node that leads log 0 has the balancer and
answers. Answers are JSON as the control API gives them, since they go from node to node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from armillary import audit, limits
from armillary.account.captures.captures import moment
from armillary.account.cluster_operations import Body
from armillary.clock import Clock
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.cluster.placement.balancer import Balancer, PlacementState
from armillary.cluster.placement.figures import Figures
from armillary.cluster.placement.steps import Step
from armillary.errors import Failure, Kind, bad_request

CALL: Final = "placement"  # of one node by another


class Placement:
    """Implements PlacementOperations."""

    def __init__(
        self, node: str, peers: Peers, leader: Callable[[], str], balancer: Callable[[], Balancer | None], clock: Clock
    ) -> None:
        """`leader`: the node that leads log 0; empty: none. `balancer`: of this node, while it leads log 0."""
        self._node = node
        self._peers = peers
        self._leader = leader
        self._balancer = balancer
        self._clock = clock
        self._verbs: dict[str, Callable[[Balancer, Body], Awaitable[Body]]] = {
            "show": _show,
            "rules": _change_rules,
            "move": _move,
            "empty": _empty,
        }
        peers.handlers[CALL] = self._answer

    async def show(self) -> Body:
        return await self._ask("show", {})

    async def change_rules(self, *, replicas: int | None, is_balancing: bool | None, copies: int | None) -> Body:
        found = await self._ask("rules", {"replicas": replicas, "balancing": is_balancing, "copies": copies})
        audit.record("cluster.placement_changed", replicas=replicas, is_balancing=is_balancing, copies=copies)
        return found

    async def move(self, log: int, node: str) -> Body:
        found = await self._ask("move", {"log": log, "node": node})
        audit.record("cluster.log_moved", log=log, node=node or None)
        return found

    async def empty(self, node: str, *, is_emptied: bool) -> Body:
        found = await self._ask("empty", {"node": node, "emptied": is_emptied})
        audit.record("cluster.emptied" if is_emptied else "cluster.not_emptied", node=node)
        return found

    async def _ask(self, verb: str, given: Body) -> Body:
        """At the node that leads log 0; while none does, it is waited for."""
        until_s = self._clock.monotonic_s() + limits.OPERATION_SECONDS_MAX
        while True:
            try:
                return await self._ask_once(verb, given)
            except Failure as failure:
                is_passing = failure.kind in (Kind.UNAVAILABLE, Kind.NOT_LEADER)
                if not is_passing or self._clock.monotonic_s() >= until_s:
                    raise
            await self._clock.sleep(limits.OPERATION_RETRY_SECONDS)

    async def _ask_once(self, verb: str, given: Body) -> Body:
        balancer = self._balancer()
        if balancer is not None:
            return await self._verbs[verb](balancer, given)
        leader = self._leader()
        if leader in ("", self._node):
            raise _no_leader()
        try:
            head, _ = await self._peers.call(
                leader, CALL, {"verb": verb, **given}, limit_s=limits.OPERATION_SECONDS_MAX
            )
        except PeerGone as gone:
            raise Failure(Kind.UNAVAILABLE, str(gone)) from None
        return head

    async def _answer(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        balancer = self._balancer()
        if balancer is None:
            raise _no_leader()
        return await self._verbs[head.pop("verb")](balancer, head), b""


def _no_leader() -> Failure:
    return Failure(
        Kind.UNAVAILABLE, "No node leads log 0 at the moment, which has the catalog. Try again.", retry_after_ms=1_000
    )


async def _show(balancer: Balancer, given: Body) -> Body:
    return shown(await balancer.state())


async def _change_rules(balancer: Balancer, given: Body) -> Body:
    wanted = {
        name: given[field]
        for name, field in (("replicas", "replicas"), ("is_balancing", "balancing"), ("copies", "copies"))
        if given[field] is not None
    }
    replace((await balancer.record()).rules, **wanted).check()
    await balancer.change(lambda record: replace(record, rules=replace(record.rules, **wanted)))
    return await _show(balancer, given)


async def _move(balancer: Balancer, given: Body) -> Body:
    number, node = int(given["log"]), str(given["node"])
    figures = (await balancer.state()).figures
    if number == 0:
        raise bad_request(
            "Log 0 has the catalog, and every node has a replica of it. `armillary cluster failover NODE` lets another "
            "node lead it."
        )
    if figures.log(number) is None:
        raise bad_request(f"There is no log {number}: the cluster has logs 0 to {len(figures.logs) - 1}.")
    if node:
        _check_node(figures, node)
        found = figures.by_name[node]
        if not found.is_alive or found.is_drained:
            state = "drained" if found.is_alive else "gone"
            raise Failure(Kind.CONFLICT, f"The node '{node}' is {state}: it cannot lead.")
        if node in (await balancer.record()).emptied:
            raise Failure(Kind.CONFLICT, f"The node '{node}' is to be emptied: `armillary cluster undrain` ends that.")
    await balancer.change(lambda record: record.led_by(number, node))
    return await _show(balancer, given)


async def _empty(balancer: Balancer, given: Body) -> Body:
    node, is_emptied = str(given["node"]), bool(given["emptied"])
    figures, record = (await balancer.state()).figures, await balancer.record()
    if is_emptied:
        _check_node(figures, node)
        left = [
            each.name
            for each in figures.nodes
            if each.is_alive and not each.is_drained and each.name not in (*record.emptied, node)
        ]
        if len(left) < record.rules.replicas:
            raise Failure(
                Kind.CONFLICT,
                f"'{node}' cannot be emptied: each log has {record.rules.replicas} replicas, and there would be "
                f"{len(left)} live nodes for them. Start another node, or lower the number of replicas.",
            )
    await balancer.change(lambda record: record.emptying(node, is_emptied))
    return await _show(balancer, given)


def _check_node(figures: Figures, node: str) -> None:
    if node not in figures.by_name:
        raise Failure(Kind.NOT_FOUND, f"The cluster has no node '{node}'. `armillary cluster status` lists its nodes.")


# As JSON.


def shown(state: PlacementState) -> Body:
    record, figures = state.record, state.figures
    return {
        "replicas": record.rules.replicas,
        "balancing": record.rules.is_balancing,
        "copies": record.rules.copies,
        "logs": [
            {
                "log": log.number,
                "leader": log.leader or None,
                "chosenLeader": record.leaders.get(log.number),
                "replicas": [
                    {"node": each.node, "whole": each.is_whole, "lagRows": each.lag_rows} for each in log.replicas
                ],
                "unitsPerSecond": round(log.units_per_s, 1),
                "bytes": log.size_bytes,
                "partitions": log.partitions,
            }
            for log in figures.logs
        ],
        "nodes": [
            {
                "name": node.name,
                "region": node.region,
                "alive": node.is_alive,
                "drained": node.is_drained,
                "emptied": node.name in record.emptied,
                "freeBytes": node.free_bytes,
            }
            for node in figures.nodes
        ],
        "steps": [_shown_step(each) for each in state.plan.steps],
        "copiedBytes": state.plan.copied_bytes,
        "unmet": list(state.plan.unmet),
        "underWay": [_shown_step(each) for each in state.under_way],
        "done": [
            {
                **_shown_step(each.step),
                "endedAt": moment(each.ended_s),
                "seconds": round(each.seconds, 3),
                "failure": each.failure,
            }
            for each in state.done
        ],
    }


def _shown_step(step: Step) -> Body:
    return {
        "action": step.action.value,
        "log": step.log,
        "node": step.node,
        "cause": step.cause.value,
        "text": step.text,
        "reason": step.reason,
        "bytes": step.copied_bytes,
    }
