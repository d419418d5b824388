"""Real processes of a cluster with several logs: nodes are killed, stopped, cut off and emptied while clients work, so
replicas and leaders of logs and the catalog move from node to node. Nothing that was acknowledged is lost, and reads
find what is newest."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop
from faults.cluster_processes.account_events import scale, split
from faults.cluster_processes.driver_clients import CosmosDriver
from faults.cluster_processes.events import NODE_EVENTS
from faults.cluster_processes.fixtures import NAMES, trio
from faults.cluster_processes.nemesis import Event, Nemesis, tormented
from faults.cluster_processes.placement_events import PLACEMENT_EVENTS
from faults.cluster_processes.processes import ClusterProcesses
from support.postgres import PostgresTrio

__all__ = ["trio"]

SHORT = ("leader killed", "follower killed", "split")
EVENTS: dict[str, Event] = NODE_EVENTS | PLACEMENT_EVENTS | {"split": split, "throughput changed": scale}
EVENTS_LONG = 60


class SpreadNemesis(Nemesis):
    """`leader` is that of log 0, which has the catalog. Each node leads logs."""

    kinds = (CosmosDriver,)

    async def check(self) -> None:
        await self.end_load()
        await self._clients[0].read_finally()
        await self.compare()
        await self.check_drivers()
        self.violations += self.history.judge()


async def torment(trio: PostgresTrio, scratch: Path, seed: int, events: Sequence[str]) -> None:
    nemesis = SpreadNemesis(ClusterProcesses(trio, scratch), seed)
    async with tormented(nemesis, "--cluster-logs", str(len(NAMES))):
        await nemesis.run([(name, EVENTS[name]) for name in events])


def test_nothing_is_lost_while_leaders_of_logs_move(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    uvloop.run(torment(trio, tmp_path, seed, SHORT))


@pytest.mark.soak
def test_nothing_is_lost_while_leaders_of_logs_move_for_long(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    names = list(EVENTS) * -(-EVENTS_LONG // len(EVENTS))
    random.Random(seed).shuffle(names)
    uvloop.run(torment(trio, tmp_path, seed, names))
