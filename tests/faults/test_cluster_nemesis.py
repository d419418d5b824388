"""Real processes: nodes and servers of PostgreSQL that are killed, stopped and cut off from each other while clients
work. Nothing that was acknowledged is lost, and every level keeps its guarantee."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop
from faults.cluster_processes.account_events import ACCOUNT_EVENTS
from faults.cluster_processes.events import NODE_EVENTS
from faults.cluster_processes.fixtures import trio
from faults.cluster_processes.nemesis import Nemesis, tormented
from faults.cluster_processes.processes import ClusterProcesses
from support.postgres import PostgresTrio

__all__ = ["trio"]
SHORT = (
    *("leader killed", "leader paused", "leader cut from PostgreSQL, answers", "primary of PostgreSQL replaced"),
    *("leader stopped", "follower isolated", "leader cut from nodes", "node joins and leaves", "connections broken"),
    *("split", "follower killed", "all nodes killed"),
)
EVENTS = NODE_EVENTS | ACCOUNT_EVENTS
EVENTS_LONG = 200


async def torment(trio: PostgresTrio, scratch: Path, seed: int, events: Sequence[str]) -> None:
    nemesis = Nemesis(ClusterProcesses(trio, scratch), seed)
    async with tormented(nemesis):
        await nemesis.run([(name, EVENTS[name]) for name in events])
        await nemesis.check_directories()


def test_nothing_is_lost_and_every_level_is_kept(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    uvloop.run(torment(trio, tmp_path, seed, SHORT))


@pytest.mark.soak
def test_nothing_is_lost_and_every_level_is_kept_for_long(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    """Every kind of event as often as the others, in an order of the seed's."""
    names = list(EVENTS) * -(-EVENTS_LONG // len(EVENTS))
    random.Random(seed).shuffle(names)
    uvloop.run(torment(trio, tmp_path, seed, names))
