"""One physical partition, alive: reads on durable snapshots, writes through one path, and what it remembers in memory
(its lsn, counters and the numbers of its index paths). Which partition an item belongs to is the router's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.encoding import unpack_header
from armillary.model.ranges import KeyRange
from armillary.model.resources import first_item_number
from armillary.partition import log
from armillary.partition.operations import MemberFailed, Operation, Outcome
from armillary.partition.presence import Presence
from armillary.partition.schema import Schema
from armillary.partition.sizes import unpack_size
from armillary.partition.writer import PathPrefixes, Writer
from armillary.storage.engine import Store, Txn, View

T = TypeVar("T")

# Items with ever new property names must not fill the memory; forgotten numbers are read again from the store.
_PATHS_REMEMBERED_MAX = 10_000

_RULES_KEY = layout.META + b"rules"


class Partition:
    def __init__(self, store: Store, schema: Schema, key_range: KeyRange, clock: Clock, first_lsn: int) -> None:
        self._store = store
        self._schema = schema
        self._clock = clock
        self._paths: PathPrefixes = {}
        self._first_number = first_item_number(key_range.id)
        self._first_lsn = first_lsn
        self.range = key_range
        self.head = log.new_head(self._first_number, first_lsn)  # as last acknowledged
        self.is_retired = False  # its container is gone
        self.restated_count = 0  # items that a running change of rules has reached
        self._presence = Presence()

    async def open(self) -> None:
        self.head = await self._store.read(lambda view: log.load_head(view, self._first_number, self._first_lsn))

    @property
    def lsn(self) -> int:
        return self.head.lsn

    # Reading.

    async def read(self, fn: Callable[[View], T]) -> T:
        return await self._store.read(fn)

    def item_count(self, view: View, epk: bytes | None) -> int:
        """How many items there are, or are in a logical partition."""
        if not epk:
            return log.load_head(view, self._first_number, self._first_lsn).item_count
        stored = view.get(layout.size_key(epk))
        return unpack_size(stored).item_count if stored is not None else 0

    def is_everywhere(self, view: View, path: str, is_due: Callable[[], bool]) -> bool | None:
        """Whether every item has a path; None: time is up, ask again."""
        head = log.load_head(view, self._first_number, self._first_lsn)
        return self._presence.is_everywhere(view, head, path, is_due)

    async def read_item(self, epk: bytes, item_id: str) -> bytes | None:
        """An item as it is stored; None if it does not exist or has expired."""
        view = self._store.at_hand()
        key = layout.IDS + epk + item_id.encode()
        stored = _point(view, key) if view is not None else await self._store.read(lambda view: _point(view, key))
        if stored is None or self._schema.rules.default_ttl is None:
            return stored
        return stored if self._schema.is_live(unpack_header(stored), self._clock.now_s()) else None

    async def logical_partition_count(self, most: int) -> int:
        """How many partition keys have items here; counts no further than `most`."""

        def count(view: View) -> int:
            return sum(1 for _ in islice(view.scan(layout.SIZES, layout.space_end(layout.SIZES)), most))

        return await self._store.read(count)

    # Writing.

    async def write(self, operation: Operation) -> Outcome:
        outcome, head, new_paths = await self._store.write(lambda txn: self._run_one(txn, operation))
        self._remember(head, new_paths)
        return outcome

    async def write_all(self, operations: Sequence[Operation]) -> list[Outcome]:
        """All operations in one transaction, or none: raises MemberFailed naming the first that cannot be done."""
        outcomes, head, new_paths = await self._store.write(lambda txn: self._run_all(txn, operations))
        self._remember(head, new_paths)
        return outcomes

    def _run_one(self, txn: Txn, operation: Operation) -> tuple[Outcome, log.Head, PathPrefixes]:
        writer = self._writer(txn)
        outcome = writer.apply(operation)
        writer.finish()
        return outcome, writer.head, writer.new_paths

    def _run_all(self, txn: Txn, operations: Sequence[Operation]) -> tuple[list[Outcome], log.Head, PathPrefixes]:
        writer = self._writer(txn)
        outcomes = []
        for index, operation in enumerate(operations):
            try:
                outcomes.append(writer.apply(operation))
            except Failure as failure:
                raise MemberFailed(index, failure) from failure
        writer.finish()
        return outcomes, writer.head, writer.new_paths

    def _writer(self, txn: Txn) -> Writer:
        if self.is_retired:
            raise Failure(Kind.OWNER_NOT_FOUND, "The container was deleted meanwhile.")
        head = log.load_head(txn, self._first_number, self._first_lsn)
        return Writer(txn, self._schema, head, self._paths, self._clock.now_s())

    def _remember(self, head: log.Head, new_paths: PathPrefixes) -> None:
        # Acknowledgements may arrive in another order than the commits.
        if head.lsn >= self.head.lsn:
            self.head = head
        if new_paths:
            if len(self._paths) + len(new_paths) > _PATHS_REMEMBERED_MAX:
                self._paths.clear()
            self._paths.update(new_paths)

    async def forget(self, change_keys: Sequence[bytes]) -> None:
        """Drop tombstones from the log."""

        def run(txn: Txn) -> None:
            for key in change_keys:
                txn.delete(key)

        await self._store.write(run)

    # Changes of rules.

    async def rules_number(self) -> int:
        """The rules that every stored item is known to follow."""
        stored = await self._store.read(lambda view: view.get(_RULES_KEY))
        return int.from_bytes(stored, "big") if stored else 0

    async def restate(self, numbers: Sequence[int]) -> None:
        """Store these items' terms and expiry by the present rules, in one transaction."""

        def run(txn: Txn) -> tuple[log.Head, PathPrefixes]:
            writer = self._writer(txn)
            for number in numbers:
                writer.restate(number)
            return writer.head, writer.new_paths

        self._remember(*await self._store.write(run))
        self.restated_count += len(numbers)

    async def confirm_rules(self, rules_number: int) -> None:
        await self._store.write(lambda txn: txn.put(_RULES_KEY, rules_number.to_bytes(2, "big")))


def _point(view: View, key: bytes) -> bytes | None:
    number = view.get(key)
    if number is None:
        return None
    stored = view.get(layout.ITEMS + number)
    assert stored is not None, "an id without its item"
    return stored
