"""Commits over several processes, in two steps. Each process but one stores what it is to write as a promise: checked,
durable, and not shown to readers. The last one, the coordinator, writes its own part, and with it the decision that the
transaction is committed. Then the others write what they have promised.

Until a promise is kept or given up, its partitions take no other writes, so what was checked stays true and writing it
cannot fail. It is stored as the keys and values that it comes to. A process that does not hear how the commit ended,
because another one was killed, asks the coordinator; one that was killed itself finds its promises when it starts. The
coordinator that has decided nothing by then refuses the commit from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import transactions_store
from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.visits.write_visits import write_conflict
from armillary.errors import Failure
from armillary.model import layout
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.partition import Done, Partition
from armillary.partition.writing.multi_partition_write import Share
from armillary.storage.engine import Store, Txn, View
from armillary.storage.overlay import Layer, OverlayTxn

log = logging.getLogger(__name__)

ID_BYTES: Final = 16
_PROMISED, _WRITES, _CLEARED, _DECIDED = b"p", b"w", b"c", b"d"
_NOTHING: Final = Layer()
_PLACE_BYTES, _STORE_BYTES = 2, 4
AskDecision = Callable[[int, bytes], Any]  # of a coordinator; whether it is committed, None: it is not decided yet


@dataclass
class Promise:
    id: bytes
    coordinator: int
    keeper: int = -1  # the process that commits the transaction; -1: it is not known any more
    record: Record | None = None
    layers: dict[int, Layer] = field(default_factory=dict)  # what is to be written, by store
    shares: list[tuple[Partition, Done | None]] = field(default_factory=list)  # None: of a former run
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one keeps it, or gives it up
    is_over: bool = False


class Promises:
    """Of one process, with the decisions that it has made."""

    def __init__(self, number: int, ask: AskDecision, tell_kept: Callable[[int, bytes], None]) -> None:
        """`tell_kept`: tells a coordinator that a promise was kept."""
        self._number = number
        self._ask = ask
        self._tell_kept = tell_kept
        self._promised: dict[bytes, Promise] = {}
        self._decided: dict[bytes, set[int]] = {}  # with the processes that have not kept their promises yet
        self._deciding: set[bytes] = set()
        self._uncertain: dict[bytes, set[int]] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._resolving: dict[bytes, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()  # there are no promises
        self._freed.set()
        self._account: Account | None = None

    def open(self, account: Account, stored: Sequence[tuple[bytes, bytes]]) -> None:
        """Take over what is stored. The account's partitions are open, and nothing is written to them yet."""
        self._account = account
        for promise in _stored_promises(stored):
            by_store = {
                each.range.store: each
                for container in account.containers
                for each in container.partitions.values()
                if not each.is_elsewhere
            }
            promise.layers = {store: layer for store, layer in promise.layers.items() if store in by_store}
            promise.shares = [(by_store[store], None) for store in promise.layers]
            for partition, _ in promise.shares:
                partition.promise()
            self._take(promise)
            self.resolve([promise.id])
        for key, value in stored:
            if key[:1] == _DECIDED:
                self._decided[key[1:]] = set(value)

    async def stored(self, account: Account) -> list[tuple[bytes, bytes]]:
        return await account.engine.store(transactions_store(self._number)).read(_all)

    async def close(self) -> None:
        tasks = list(self._resolving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, promise: Promise) -> None:
        self._promised[promise.id] = promise
        self._freed.clear()

    @property
    def are_none(self) -> bool:
        return not self._promised

    async def freed(self) -> None:
        """Wait until there are none."""
        await self._freed.wait()

    @property
    def _store(self) -> Store:
        assert self._account is not None
        return self._account.engine.store(transactions_store(self._number))

    # Promising.

    async def promise(
        self, txn_id: bytes, spanning: SpanningTransaction, record: Record | None, processes: tuple[int, int]
    ) -> bool:
        """Returns whether there was anything to promise. `processes`: the coordinator, and the one that keeps the
        transaction."""
        promise = Promise(txn_id, *processes, record)

        async def write(shares: Sequence[Share]) -> None:
            found: dict[int, tuple[Layer, Done]] = {}
            try:
                await shares[0].partition.store.write_together(
                    [
                        *[(each.partition.store, _promising(each, found)) for each in shares],
                        (self._store, lambda txn: _put(txn, promise, {n: layer for n, (layer, _) in found.items()})),
                    ]
                )
            except BaseException:
                for each in shares:
                    if each.partition.range.store in found:
                        each.partition.end_promise()
                raise
            promise.layers = {number: layer for number, (layer, _) in found.items()}
            promise.shares = [(each.partition, found[each.partition.range.store][1]) for each in shares]

        await spanning.prepare(record, write)
        if not promise.shares:
            return False
        self._take(promise)
        return True

    async def keep(self, txn_id: bytes) -> None:
        """The transaction is committed: write what was promised. Nothing, if that is done."""
        promise = self._promised.get(txn_id)
        if promise is None:
            return
        async with promise.lock:
            if promise.is_over:
                return
            shares = [(each, done) for each, done in promise.shares if each.is_promised]  # others were deleted
            parts: list[tuple[Store, Callable[[Txn], None]]] = [
                (each.store, _writing(promise.layers[each.range.store])) for each, _ in shares
            ]
            await self._store.write_together([*parts, (self._store, lambda txn: _remove(txn, txn_id))])
            for partition, done in shares:
                if done is not None:
                    partition.joined(done, promise.record)
                else:
                    await partition.open()
            self._end(promise)
        self._tell_kept(promise.coordinator, txn_id)

    async def give_up(self, txn_id: bytes) -> None:
        """The transaction is not committed."""
        promise = self._promised.get(txn_id)
        if promise is None:
            return
        async with promise.lock:
            if not promise.is_over:
                await self._store.write(lambda txn: _remove(txn, txn_id), is_freeing=True)
                self._end(promise)

    def _end(self, promise: Promise) -> None:
        promise.is_over = True
        for partition, _ in promise.shares:
            partition.end_promise()
        del self._promised[promise.id]
        if not self._promised:
            self._freed.set()

    # How a commit has ended.

    def left(self, place: int) -> None:
        """Another process has ended."""
        self.resolve([each.id for each in self._promised.values() if each.keeper == place])

    def resolve(self, txn_ids: Iterable[bytes]) -> None:
        """The process that commits these, or its connection, has ended: find out in the background."""
        for txn_id in txn_ids:
            if txn_id in self._promised and txn_id not in self._resolving:
                task = asyncio.get_running_loop().create_task(self._resolve(self._promised[txn_id]))
                self._resolving[txn_id] = task
                task.add_done_callback(lambda _, txn_id=txn_id: self._resolving.pop(txn_id, None))  # type: ignore[misc]

    async def _resolve(self, promise: Promise) -> None:
        assert self._account is not None
        while not promise.is_over:
            try:
                is_committed = await self._ask(promise.coordinator, promise.id)
                if is_committed:
                    await self.keep(promise.id)
                elif is_committed is not None:
                    await self.give_up(promise.id)
            except Failure as failure:
                log.debug("how a transaction has ended is not known yet: %s", failure.message)
            if not promise.is_over:
                await self._account.clock.sleep(limits.DECISION_POLL_SECONDS)

    # As the coordinator.

    async def decide(
        self, txn_id: bytes, spanning: SpanningTransaction, record: Record | None, others: Iterable[int]
    ) -> None:
        """Commit a transaction for which other processes have promised what they are to write."""
        if txn_id in self._refused:
            raise write_conflict()  # one of them has asked, and given up its promise
        self._deciding.add(txn_id)
        waiting = set(others)

        def note(txn: Txn) -> None:
            txn.put(_DECIDED + txn_id, bytes(sorted(waiting)))

        try:
            if spanning.has_written:
                await spanning.commit(record, (self._store, note))
            else:
                await spanning.abort()
                await self._store.write(note)
            self._decided[txn_id] = waiting
        except BaseException:
            self._uncertain[txn_id] = waiting  # storage may have failed, and what it has kept is to be read
            raise
        finally:
            self._deciding.discard(txn_id)

    async def is_committed(self, txn_id: bytes) -> bool | None:
        """None: it is not decided yet. From this on it is not, if it was not."""
        if txn_id in self._deciding:
            return None
        if txn_id in self._uncertain:
            # As a transaction: readers may be shown what was before.
            is_stored = await self._store.write(lambda txn: txn.get(_DECIDED + txn_id) is not None)
            waiting = self._uncertain.pop(txn_id, None)
            if is_stored and waiting is not None:
                self._decided[txn_id] = waiting
        if txn_id in self._decided:
            return True
        self._refused[txn_id] = None
        if len(self._refused) > limits.DECISIONS_REFUSED_MAX:
            self._refused.popitem(last=False)
        return False

    async def has_kept(self, txn_id: bytes, place: int) -> None:
        """Another process has: when all have, the decision is not needed any more."""
        waiting = self._decided.get(txn_id)
        if waiting is not None:
            waiting.discard(place)
            if not waiting:
                del self._decided[txn_id]
                await self._store.write(lambda txn: txn.delete(_DECIDED + txn_id), is_freeing=True)


def has_promises(view: View) -> bool:
    """Of a process that does not run: whether its store has any."""
    return next(view.scan(_PROMISED, _PROMISED + b"\xff" * ID_BYTES), None) is not None


def _all(view: View) -> list[tuple[bytes, bytes]]:
    return list(view.scan(b"", b"\xff"))


def _promising(share: Share, found: dict[int, tuple[Layer, Done]]) -> Callable[[Txn], None]:
    """The share's operations as what they would write now. Nothing else is written to its partition from then on."""
    partition = share.partition
    _, run = partition.share(share.operations, share.record, share.guard)

    def promise(txn: Txn) -> None:
        if found.pop(partition.range.store, None) is not None:
            partition.end_promise()  # it runs again
        layer = Layer()
        under = OverlayTxn(layer, _NOTHING, txn.get, lambda low, high, reverse, _: txn.scan(low, high, reverse))
        found[partition.range.store] = layer, run(under)
        partition.promise()

    return promise


def _writing(layer: Layer) -> Callable[[Txn], None]:
    def write(txn: Txn) -> None:
        for low, high in layer.cleared:
            txn.delete_range(low, high)
        for key, value in layer.writes.items():
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)

    return write


def _put(txn: Txn, promise: Promise, layers: dict[int, Layer]) -> None:
    txn.put(_PROMISED + promise.id, promise.coordinator.to_bytes(_PLACE_BYTES, "big"))
    for number, layer in layers.items():
        of_store = promise.id + number.to_bytes(_STORE_BYTES, "big")
        for low, high in layer.cleared:
            txn.put(_CLEARED + of_store + low, high)
        for key, value in layer.writes.items():
            txn.put(_WRITES + of_store + key, b"" if value is None else b"+" + value)


def _remove(txn: Txn, txn_id: bytes) -> None:
    txn.delete(_PROMISED + txn_id)
    for space in (_CLEARED, _WRITES):
        txn.delete_range(space + txn_id, layout.prefix_end(space + txn_id))


def _stored_promises(stored: Iterable[tuple[bytes, bytes]]) -> list[Promise]:
    found: dict[bytes, Promise] = {}
    content: list[tuple[bytes, bytes]] = []
    for key, value in stored:
        if key[:1] == _PROMISED:
            found[key[1:]] = Promise(key[1:], int.from_bytes(value, "big"))
        elif key[:1] in (_WRITES, _CLEARED):
            content.append((key, value))
    for key, value in content:
        promise = found[key[1 : 1 + ID_BYTES]]
        at = 1 + ID_BYTES + _STORE_BYTES
        layer = promise.layers.setdefault(int.from_bytes(key[1 + ID_BYTES : at], "big"), Layer())
        if key[:1] == _CLEARED:
            layer.clear(key[at:], value)
        else:
            layer.writes[key[at:]] = value[1:] if value else None
    return list(found.values())
