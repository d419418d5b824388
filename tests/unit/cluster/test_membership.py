"""What a node tells clients about who leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.replicas import local_replica

from armillary.clock import VirtualClock
from armillary.cluster.membership import Membership
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.replication.replicated_engine import ReplicatedEngine

GENERATION = b"a log of a test."


@pytest.fixture
async def membership(tmp_path: Path) -> Membership:
    clock, server = VirtualClock(), MemoryLogServer(GENERATION)
    engine = ReplicatedEngine(local_replica(tmp_path, server), clock)
    return Membership("a", "eu", MemoryLog(server, clock), engine, clock, lambda nodes: None)


async def test_a_leader_that_hears_of_a_later_one_is_none_to_clients(membership: Membership) -> None:
    """It may not have noticed yet that it is deposed. As primary with the later epoch, drivers would believe it."""
    membership.see("a", 3)
    membership.lead(True)
    version = membership.version
    membership.see("b", 4)
    assert not membership.leads
    assert membership.version > version


async def test_a_late_word_of_an_earlier_leader_changes_nothing(membership: Membership) -> None:
    membership.see("a", 4)
    membership.lead(True)
    version = membership.version
    membership.see("b", 3)
    assert membership.leads
    assert (membership.epoch, membership.version) == (4, version)


class Heard:
    """How long a node has heard nothing."""

    silent_s = 0.0
    staleness = (0.0, 0.0)
    reached_us = 0

    async def refresh(self, limit_s: float) -> bool:
        return True


async def test_a_node_answers_nothing_after_the_silence_that_was_set(membership: Membership) -> None:
    membership.freshness = heard = Heard()
    heard.silent_s = 29.0
    assert not membership.is_silent
    heard.silent_s = 31.0
    assert membership.is_silent
    membership.silence_s = 90.0
    assert not membership.is_silent
