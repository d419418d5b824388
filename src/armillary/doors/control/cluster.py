"""Operating a cluster over the control API: its state, failover, draining and removing nodes. Any node answers; what
another node has to do is asked of it by `armillary.cluster`. A single server refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from armillary import limits
from armillary.account.cluster_operations import (
    ClusterOperations,
    ClusterStatus,
    NodeDigest,
    NodeStatus,
    PlacementOperations,
)
from armillary.doors.control.call import Call
from armillary.doors.control.fields import Fields
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import Response

_MARK_DIGITS_MAX: Final = 18


async def show_status(call: Call) -> Response:
    call.query()
    return call.answer(_shown(await _operations(call).status()))


async def fail_over(call: Call) -> Response:
    fields = call.fields("a failover")
    node = fields.text("node") or ""
    fields.end()
    return call.answer({"leader": await _operations(call).fail_over(node)})


async def fail_over_region(call: Call) -> Response:
    fields = call.fields("a failover to a region")
    region = fields.required_text("region")
    fields.end()
    return call.answer({"leader": await _operations(call).fail_over_region(region)})


async def drain(call: Call) -> Response:
    fields = call.fields("a node that is drained")
    node, is_emptied = _node(call, fields), fields.truth("empty")
    fields.end()
    operations = _operations(call)
    if is_emptied:  # which may be refused
        await _placement(call).empty(node, is_emptied=True)
    await operations.drain(node)
    return call.answer({"node": node, "drained": True, **({"emptied": True} if is_emptied else {})})


async def undrain(call: Call) -> Response:
    fields = call.fields("a node")
    node = _node(call, fields)
    fields.end()
    operations = _operations(call)
    await operations.undrain(node)
    if operations.placement is not None:
        await operations.placement.empty(node, is_emptied=False)
    return call.answer({"node": node, "drained": False})


async def show_placement(call: Call) -> Response:
    call.query()
    return call.answer(await _placement(call).show())


async def change_placement(call: Call) -> Response:
    fields = call.fields("the rules of placement")
    replicas = fields.whole("replicas", 1, limits.PLACEMENT_REPLICAS_MAX)
    copies = fields.whole("copies", 1, limits.PLACEMENT_COPIES_MAX)
    is_balancing = fields.truth("balancing") if fields.has("balancing") else None
    fields.end()
    rules = await _placement(call).change_rules(replicas=replicas, is_balancing=is_balancing, copies=copies)
    return call.answer(rules)


async def move_log(call: Call) -> Response:
    fields = call.fields("a log to move")
    log, node = fields.whole("log", 0, limits.CLUSTER_LOGS_MAX - 1), fields.text("node") or ""
    fields.end()
    if log is None:
        raise bad_request("'log' is missing: the number of the log to move.")
    return call.answer(await _placement(call).move(log, node))


async def remove_node(call: Call) -> Response:
    call.query()
    node = call.names[0]
    await _operations(call).remove(node)
    return call.answer({"node": node, "removed": True})


async def begin_verification(call: Call) -> Response:
    call.fields("a verification").end()
    operations = _operations(call)
    return call.answer(_shown_digests(mark := await operations.begin_verification(), await operations.digests(mark)))


async def show_verification(call: Call) -> Response:
    call.query()
    text = call.names[0]
    if not text.isascii() or not text.isdigit() or len(text) > _MARK_DIGITS_MAX:
        raise bad_request("A mark is the number that the verification was begun with.")
    return call.answer(_shown_digests(int(text), await _operations(call).digests(int(text))))


def _shown_digests(mark: int, digests: Sequence[NodeDigest]) -> dict[str, Any]:
    known = {each.digest for each in digests if each.digest is not None}
    return {
        "mark": mark,
        "complete": not any(each.is_pending for each in digests),
        "equal": len(known) <= 1,
        "nodes": [
            {"name": each.node, "reached": each.is_reached, "pending": each.is_pending, "digest": each.digest}
            for each in digests
        ],
    }


def _node(call: Call, fields: Fields) -> str:
    """The node that a body names; without one, the node that was asked."""
    return fields.text("node") or _operations(call).node


def _placement(call: Call) -> PlacementOperations:
    placement = _operations(call).placement
    if placement is None:
        raise Failure(
            Kind.UNSUPPORTED,
            "This cluster has one log, of which every node has a replica: there is nothing to place or to move. "
            "`armillary cluster failover` lets another node lead, `drain` keeps a node from leading, `remove` forgets "
            "a node.",
        )
    return placement


def _operations(call: Call) -> ClusterOperations:
    if call.account.operations is None:
        raise Failure(
            Kind.UNSUPPORTED,
            "This is a single server, not a node of a cluster. `armillary serve --cluster` starts a node.",
        )
    return call.account.operations


def _shown(status: ClusterStatus) -> dict[str, Any]:
    log = status.log
    return {
        "node": status.node,
        "epoch": status.epoch,
        "leader": status.leader,
        "regions": list(status.regions),
        "priorities": list(status.priorities),
        "nodes": [_shown_node(each) for each in status.nodes],
        "log": None
        if log is None
        else {
            "newestRow": log.newest_seq,
            "lowestRow": log.lowest_seq,
            "bytes": log.size_bytes,
            "deadRows": log.dead_rows,
            "slowestReplica": status.slowest,
            "wantsSynchronousStandby": log.wants_standby,
            "hasSynchronousStandby": log.has_standby,
        },
        "logError": status.log_error,
    }


def _shown_node(node: NodeStatus) -> dict[str, Any]:
    return {
        "name": node.name,
        "region": node.region,
        "role": "leader" if node.leads else "follower" if node.is_reached else None,
        "drained": node.is_drained,
        "alive": node.is_alive,
        "reached": node.is_reached,
        "silentSeconds": round(node.silent_s, 3),
        "version": node.version,
        "addresses": dict(node.addresses),
        "appliedRow": node.applied_seq,
        "flushedRow": node.flushed_seq,
        "lagRows": node.lag_rows,
        "lagTransactions": node.lag_transactions,
        "lagSeconds": None if node.lag_s is None else round(node.lag_s, 3),
        "forwards": node.forwards,
    }
