"""Replicas that are too far behind do not hold up the log."""

from __future__ import annotations

from pathlib import Path

from support.replicas import leading_engine

from armillary.clock import SystemClock, VirtualClock
from armillary.limits import MB
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.rows import GENERATION_BYTES
from armillary.storage.replication.log_upkeep import LogLimits, LogUpkeep


async def test_a_replica_that_holds_up_the_log_is_given_up(tmp_path: Path) -> None:
    server = MemoryLogServer(bytes(GENERATION_BYTES))
    engine = await leading_engine(tmp_path / "a", server)
    log = MemoryLog(server, SystemClock())
    for node in ("a", "b", "c"):
        await log.register(node)
    store = engine.store(7)
    for _ in range(40):
        await store.write(lambda txn: txn.put(b"key", bytes(100_000)))
    newest = engine.replica.position.place.seq
    await log.report("c", newest, newest)
    clock = VirtualClock(SystemClock().now_s())

    def upkeep(kept: LogLimits) -> LogUpkeep:
        return LogUpkeep("a", log, engine.replica, clock, lambda: True, kept)

    async def present(kept: LogLimits) -> list[str]:
        keeping = upkeep(kept)
        await keeping.report()
        await keeping.give_up_slowest()
        return sorted(each.node for each in await log.replicas())

    assert await present(LogLimits(64 * MB, 3600.0)) == ["a", "b", "c"], "within the limits"
    assert await present(LogLimits(1 * MB, 3600.0)) == ["a", "c"], "too many bytes"
    assert await log.trim() > 1
    await log.register("b")
    await store.write(lambda txn: txn.put(b"more", b""))
    await log.report("c", newest, newest)
    assert await present(LogLimits(64 * MB, 3600.0)) == ["a", "b", "c"]
    clock.advance(3700)
    assert len(await present(LogLimits(64 * MB, 3600.0))) == 2, "too long ago"
    assert "a" in await present(LogLimits(0, 0.0)), "never its own"
    await engine.close()
