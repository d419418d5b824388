"""Changes of the catalog that several processes make: the first one stores them and has the others take them over."""

from __future__ import annotations

from armillary.processes.catalog_owner import LEFT_LSN, NO_PLACE, CatalogOwner
from armillary.processes.catalog_replica import BEHIND, CatalogReplica, Change
from armillary.storage.memory import MemoryEngine


class _Processes:
    """Three of them, of which the second has written up to an lsn in the container that goes."""

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.told: list[tuple[Change, int]] = []

    async def spread(self, change: Change, origin: int, is_late: bool) -> int:
        self.told.append((change, origin))
        return self.lsn


async def _owner(lsn: int) -> tuple[CatalogOwner, _Processes]:
    owner = await CatalogOwner.open(MemoryEngine().store(0), CatalogReplica())
    processes = _Processes(lsn)
    owner.spread = processes.spread
    return owner, processes


async def test_the_process_that_deletes_is_not_asked_before_it_has_its_answer() -> None:
    """What is written besides its change comes with the answer: asked to take that over, it would wait for its change,
    and the change for it."""
    owner, processes = await _owner(lsn=700)
    committed = await owner.commit(2, Change(1, {b"key": b"value"}), is_freeing=True)
    assert committed.further == {LEFT_LSN: (700).to_bytes(8, "big")}
    assert committed.version == owner.replica.version == 3
    assert [(change.version, origin) for change, origin in processes.told] == [(1, 2), (2, 2)]
    process = CatalogReplica()
    process.load(1, [])
    process.take(Change(1, {b"key": b"value"}))
    process.take(Change(process.version, committed.further))
    assert process.pairs() == owner.replica.pairs()


async def test_the_first_process_takes_over_what_is_written_besides_its_own_change() -> None:
    owner, processes = await _owner(lsn=700)
    await owner.commit(0, Change(1, {b"key": b"value"}), is_freeing=True)
    assert [origin for _, origin in processes.told] == [0, NO_PLACE]


async def test_nothing_is_written_besides_when_the_lsn_is_known() -> None:
    owner, _ = await _owner(lsn=700)
    await owner.commit(2, Change(1, {LEFT_LSN: (700).to_bytes(8, "big")}), is_freeing=True)
    committed = await owner.commit(1, Change(2, {b"key": b"value"}), is_freeing=True)
    assert committed == (3, {})
    assert (await owner.commit(1, Change(2, {b"key": b"other"}), is_freeing=True)).version == BEHIND
