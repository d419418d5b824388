"""Rows and freshness as calls between nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.log_rows import next_rows
from support.replicas import lead, local_replica

from armillary.clock import SystemClock, VirtualClock
from armillary.cluster.peers.calls import Answer, Peers
from armillary.cluster.peers.row_pushing import PeerRowSource, answer_followers
from armillary.errors import Failure, Kind
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.rows import START
from armillary.storage.replication.freshness import SourceUnavailable
from armillary.storage.replication.group_commit import GroupCommit
from armillary.storage.replication.replicated_engine import ReplicatedEngine


async def test_a_follower_gets_the_rows_of_the_leader(nodes: tuple[Peers, Peers], tmp_path: Path) -> None:
    a, b = nodes
    server = MemoryLogServer(b"a log of a test.")
    engine = ReplicatedEngine(local_replica(tmp_path / "a", server), SystemClock())
    commit: GroupCommit | None = None
    leader = "a"
    answer_followers(a, lambda log: commit if log == 0 else None)
    source = PeerRowSource(b, lambda: leader)
    for ask in (source.rows(0, 0.0), source.word(1.0)):
        with pytest.raises(SourceUnavailable, match="Another node"):
            await ask
    commit = await lead(engine, server)
    for number in range(3):
        await engine.store(1).write(lambda txn, n=number: txn.put(b"%d" % n, b"v" * 100))  # type: ignore[misc]
    pushed = await source.rows(1, 0.5)
    assert list(pushed.rows) == server.rows[1:]
    assert (pushed.confirmed, pushed.is_kept) == (server.rows[-1].place, True)
    word = await source.word(1.0)
    assert word[:2] == (server.rows[-1].place, 3)
    assert word.is_leased
    assert word.time_us >= server.rows[-1].time_us
    assert not (await source.rows(0, 0.0)).is_kept, "the fence was never kept"
    with pytest.raises(Failure) as caught:
        await b.call("a", "rows", {"after_seq": "x"}, limit_s=3)
    assert caught.value.kind is Kind.BAD_REQUEST
    leader = ""
    with pytest.raises(SourceUnavailable, match="no leader"):
        await source.word(1.0)
    leader = "c"
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await source.word(1.0)
    await engine.close()


async def test_answers_that_cannot_be_read_are_no_rows(nodes: tuple[Peers, Peers], clock: VirtualClock) -> None:
    a, b = nodes
    row = next_rows(START, b"data")[0]
    good = {
        "confirmed": row.place.pack().hex(),
        "place": row.place.pack().hex(),
        "transactions": 1,
        "time_us": 1,
        "is_leased": True,
        "is_kept": True,
    }
    given: Answer = good, b""

    async def answer(node: str, head: dict[str, Any], body: bytes) -> Answer:
        return given

    a.handlers |= {"rows": answer, "freshness": answer}
    source = PeerRowSource(b, lambda: "a")
    assert (await source.rows(0, 0.0)).confirmed == row.place
    bad = [
        (good, b"\0\0\0\x05cut"),
        ({}, b""),
        ({**good, "confirmed": "zz"}, b""),
        ({**good, "place": ""}, b""),
    ]
    for each in bad:
        given = each
        with pytest.raises(SourceUnavailable, match="cannot be read"):
            await source.rows(0, 0.0)
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        await source.word(1.0)
