"""What operators and the balancer do with the logs of a cluster while clients are at work: logs are moved, nodes are
emptied and used again. An event is over when the logs are where they were to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from faults.cluster_processes.nemesis import Event, Nemesis
from faults.cluster_processes.processes import waits_for

PATIENCE_S: Final = 90.0
_REPLICAS: Final = 2


async def _asked(nemesis: Nemesis, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer, as soon as the node with the catalog gives one."""
    found: list[dict[str, Any]] = []

    async def ask() -> bool:
        answer = await nemesis.control(method, path, body if method != "GET" else None)
        if answer is not None and answer.status == 200:
            found.append(answer.json)
        return bool(found)

    await waits_for(ask, f"{method} {path} is answered", PATIENCE_S)
    return found[0]


async def _until(nemesis: Nemesis, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
    async def look() -> bool:
        return holds(await _asked(nemesis, "GET", "cluster/placement", {}))

    await waits_for(look, what, PATIENCE_S)


async def _balance(nemesis: Nemesis) -> None:
    """With fewer replicas than nodes, so that one can be emptied."""
    await _asked(nemesis, "PUT", "cluster/placement", {"replicas": _REPLICAS, "balancing": True})


def _carried(content: dict[str, Any], node: str) -> list[int]:
    return [each["log"] for each in content["logs"] if each["log"] and node in _nodes_of(each)]


def _nodes_of(log: dict[str, Any]) -> list[str]:
    return [each["node"] for each in log["replicas"]]


async def move_log(nemesis: Nemesis) -> None:
    await _balance(nemesis)
    content = await _asked(nemesis, "GET", "cluster/placement", {})
    log = nemesis.dice.choice([each["log"] for each in content["logs"] if each["log"]])
    node = nemesis.dice.choice(nemesis.serving()).name
    await _asked(nemesis, "POST", "cluster/move", {"log": log, "node": node})
    await _until(nemesis, lambda content: bool(content["logs"][log]["leader"] == node), f"{node} leads log {log}")
    await _asked(nemesis, "POST", "cluster/move", {"log": log})


async def empty_node(nemesis: Nemesis) -> None:
    await _balance(nemesis)
    node = nemesis.dice.choice(nemesis.serving()).name
    await _asked(nemesis, "POST", "cluster/drain", {"node": node, "empty": True})
    await _until(nemesis, lambda content: not _carried(content, node), f"{node} has no log but that of the catalog")
    await _asked(nemesis, "POST", "cluster/undrain", {"node": node})
    await _until(
        nemesis,
        lambda content: bool(_carried(content, node)) and not content["steps"],
        f"{node} has replicas again, and nothing is left to move",
    )


PLACEMENT_EVENTS: Final[dict[str, Event]] = {"log moved": move_log, "node emptied": empty_node}
