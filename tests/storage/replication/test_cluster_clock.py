"""The time of a cluster: the leader's on every node, and never behind what was applied."""

from __future__ import annotations

from pathlib import Path

from support.replicas import local_replica

from armillary.clock import VirtualClock
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.rows import GENERATION_BYTES, Place
from armillary.storage.replication.freshness import ClusterClock, Freshness
from armillary.storage.replication.recent_rows import LeaderWord


async def test_a_follower_has_the_leaders_time_and_a_leader_its_own(tmp_path: Path) -> None:
    machine = VirtualClock(1_000.0)
    replica = local_replica(tmp_path / "a", MemoryLogServer(bytes(GENERATION_BYTES)))
    clock = ClusterClock(machine, replica)
    assert clock.now_s() == 1_000.0
    freshness = Freshness(replica, machine, machine.elapsed_s, None)
    clock.follow(freshness)
    freshness.hear(0.0, LeaderWord(replica.position.place, 0, 940_000_000, is_leased=True))
    assert clock.now_s() == 940.0, "the leader's clock is a minute behind"
    freshness.hear(0.0, LeaderWord(replica.position.place, 0, 5_000_000_000, is_leased=False))
    assert clock.now_s() == 940.0, "a leader that may have been deposed does not count"
    machine.advance(10)
    assert clock.now_s() == 950.0
    replica.pass_over(replica.position._replace(place=Place(1, 1, b"x" * 16), time_us=960_000_000))
    assert clock.now_s() == 960.0, "a row that is applied has this time"
    clock.lead()
    assert clock.now_s() == 1_010.0
    replica.pass_over(replica.position._replace(place=Place(2, 2, b"x" * 16), time_us=1_500_000_000))
    assert clock.now_s() == 1_500.0, "timestamps do not go back when a node with another clock takes over"
    replica.close()
    replica.directory.release()
