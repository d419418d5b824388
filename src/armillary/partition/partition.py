"""One physical partition: reads on durable snapshots, writes through one path, and the state it keeps in memory (lsn,
counters and the numbers of its index paths). Routing of items to partitions is in `account/container.py`, background
work in `partition/upkeep`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from armillary import limits, work
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.encoding import unpack_header
from armillary.model.layout import unpack_size
from armillary.model.ranges import KeyRange
from armillary.model.resources import first_item_rid
from armillary.partition.held_writers import HeldWriters
from armillary.partition.history import change_stream_events, log, versions
from armillary.partition.history.log import LogTimes
from armillary.partition.history.retryable_write_records import Record, Records, check_new, put_record
from armillary.partition.meter import Meter
from armillary.partition.operations import MemberFailed, Operation, Outcome, make_all_terms
from armillary.partition.reshaping.item_moves import Rewinder
from armillary.partition.schema import Schema
from armillary.partition.upkeep.upkeep_marks import UpkeepMarks
from armillary.partition.writing import path_coverage
from armillary.partition.writing.fenced_items import writer_kind
from armillary.partition.writing.path_coverage import SCANNING, PathCoverage, trusted_coverage
from armillary.partition.writing.plain_writes import PlainWrites, Written
from armillary.partition.writing.writer import PathPrefixes, Writer
from armillary.storage.engine import Receiver, Store, Txn, View
from armillary.storage.forked import EndedStore
from armillary.work import Check

T = TypeVar("T")
W = TypeVar("W", bound=Writer)
Guard = Callable[[View], None]
Done = tuple[list[Outcome], Writer, bytes | None]  # results, writer, and the stored record of a retryable write

RULES_KEY = layout.META + b"rules"
_NEVER = 1 << 62


class Partition(HeldWriters):
    is_elsewhere = False  # True of the stand-in for one that another process holds (account/visits/elsewhere)

    def __init__(self, store: Store, schema: Schema, key_range: KeyRange, clock: Clock, first_lsn: int) -> None:
        self.store = store  # used directly for copies and checks; requests use the methods below
        self._store = store
        self._schema = schema
        self.clock = self._clock = clock
        self.paths: PathPrefixes = {}  # numbers of index paths, as far as durable
        self._first_rid = first_item_rid(key_range.id)
        self._first_lsn = first_lsn
        self.range = key_range
        self.head = log.new_head(self._first_rid, first_lsn)  # as last acknowledged
        self.reached_lsn = first_lsn  # the highest lsn of any transaction that has run, acknowledged or not
        self.marks = UpkeepMarks()
        self.times = LogTimes()
        self.records = Records()
        self.events_noted = 0  # since the last check of the event limits
        self.versions_number = 0  # the period of keeping versions that has begun here; 0: none
        self._shut = None
        self._gate = None
        self.is_moved = False
        self.is_dropped = False  # its store was emptied
        self.watched_bytes = _NEVER  # report once to the observer when this size is reached
        self.on_grown: Callable[[Partition], None] | None = None
        self.restated_count = 0  # items that a running rules change has reached
        self.coverage: PathCoverage | None = None  # as last acknowledged
        self.wants_coverage_scan = False  # a scan of all items may extend the path coverage
        self.meter = Meter(clock)
        self._plain = PlainWrites(self, schema)

    async def open(self) -> None:
        await self._store.read(self.load)
        await self._store.evaluate(self.records.load)

    def load(self, view: View) -> None:
        """Take over the stored state in a snapshot, except the records of retryable writes."""
        self.head = self.head_in(view)
        self.reached_lsn = self.head.lsn
        self.coverage = trusted_coverage(view, self.head)
        self.versions_number = versions.begun_number(view)
        # The coverage was written by a format that does not maintain it, or the server stopped during a scan.
        self.wants_coverage_scan = self.head.item_count > 0 and (
            self.coverage is None or self.coverage.stage == SCANNING
        )

    @property
    def lsn(self) -> int:
        """Of the state that readers see. `head` follows it when the writer that is answered goes on, and not at all if
        its request was cancelled meanwhile: a session token from there could be older than what was read with it."""
        view = self._store.at_hand()
        return max(self.head.lsn, self.lsn_in(view)) if view is not None else self.head.lsn

    # Reading.

    def lsn_in(self, view: View) -> int:
        """The lsn of the last transaction in a snapshot."""
        return self.head_in(view).lsn

    async def read(self, fn: Callable[[View], T]) -> T:
        if self.is_dropped:
            raise _gone(self.range)
        return await self._store.read(fn)

    def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> Awaitable[T]:
        """Like `read`, for functions that may take long: they give way wherever they spend units of work."""
        if self.is_dropped:
            raise _gone(self.range)
        return self._store.evaluate(fn, check)

    def item_count(self, view: View, epk: bytes | None) -> int:
        """The number of items, in all or in one logical partition."""
        if not epk:
            return log.load_head(view, self._first_rid, self._first_lsn).item_count
        stored = view.get(layout.size_key(epk))
        return unpack_size(stored).item_count if stored is not None else 0

    def expired(self, view: View, most: int) -> frozenset[int] | None:
        """The rids of items that have expired, by the rules they are stored under, and were not swept yet; None: more
        than `most`."""
        entries = view.scan(layout.EXPIRY, layout.expiry_key(int(self._clock.now_s()) + 1, 0))
        rids = [int.from_bytes(key[-layout.RID_BYTES :], "big") for key, _ in islice(entries, most + 1)]
        return frozenset(rids) if len(rids) <= most else None

    def is_everywhere(self, view: View, path: str) -> bool:
        """Whether every item has an index term under a path. A wrong "no" is possible and harmless."""
        known = trusted_coverage(view, self.head_in(view))
        if known is None or known.rules_number != self._schema.rules.number:
            return False
        if path in known.paths:
            return True
        if self.head.lsn - known.scanned_lsn > 1000 + self.head.item_count // 4:
            self.wants_coverage_scan = True  # much was written since: items that lacked the path may be gone
        return False

    async def read_item(self, epk: bytes, item_id: str) -> bytes | None:
        """An item as stored; None if it does not exist or has expired."""
        view = self._store.at_hand()
        if view is not None:
            return self.item_in(view, epk, item_id)
        return await self._store.read(lambda view: self.item_in(view, epk, item_id))

    def at_hand(self) -> View | None:
        """The result of a read that needs no waiting; None: use `read`."""
        return self._store.at_hand()

    def item_in(self, view: View, epk: bytes, item_id: str) -> bytes | None:
        rid = view.get(layout.IDS + epk + item_id.encode())
        if rid is None:
            return None
        stored = view.get(layout.ITEMS + rid)
        assert stored is not None, "an id without its item"
        if self._schema.rules.default_ttl is None:
            return stored
        return stored if self._schema.is_live(unpack_header(stored), self._clock.now_s()) else None

    async def logical_partition_count(self, most: int) -> int:
        """The number of partition keys that have items here, counted up to `most`."""

        def count(view: View) -> int:
            return sum(1 for _ in islice(view.scan(layout.SIZES, layout.space_end(layout.SIZES)), most))

        return await self._store.read(count)

    # Writing.

    async def write(self, operation: Operation) -> Outcome:
        made = operation.draft
        if made is not None and made.made_terms is None:
            await work.run(made.make_terms)
        outcome, writer = await self._store.write(partial(self._run_one, operation))
        self.remember(writer)
        return outcome

    def deliver(self, operation: Operation, receiver: Receiver[tuple[Outcome, Written]]) -> None:
        """`write` for a caller that no coroutine waits for. Its terms are made, and the receiver calls `remember`."""
        self._store.deliver(partial(self._run_one, operation), receiver, partial(self._plain.write, operation))

    async def write_all(
        self,
        operations: Sequence[Operation],
        record: Record | None = None,
        guard: Guard | None = None,
        on_run: Callable[[], None] | None = None,
    ) -> list[Outcome]:
        """All operations in one transaction, or none: raises MemberFailed for the first that fails. With a record, a
        repeated write is not applied again and Repeated is raised. `guard` runs first and may refuse. `on_run` is
        called when all operations succeeded, before they are durable and perhaps more than once."""

        if any(each.draft is not None and each.draft.made_terms is None for each in operations):
            await work.run(lambda: make_all_terms(operations))

        def run(txn: Txn) -> Done:
            done = self._run_all(txn, operations, record, guard)
            if on_run is not None:
                on_run()
            return done

        return self.joined(await self._store.write(run), record)

    def share(
        self, operations: Sequence[Operation], record: Record | None, guard: Guard | None = None
    ) -> tuple[Store, Callable[[Txn], Done]]:
        """This partition's part of a transaction over several partitions
        (`partition/writing/multi_partition_write.py`): the function to run, and its store. The outcome is reported to
        `joined` when it is durable."""
        return self._store, lambda txn: self._run_all(txn, operations, record, guard)

    def joined(self, done: Done, record: Record | None) -> list[Outcome]:
        outcomes, writer, kept = done
        self.remember(writer)
        if record is not None and kept is not None:
            self.records.note(record.key, kept)
        return outcomes

    async def transact(self, fn: Callable[[Txn, W], T], kind: type[W] | None = None) -> T:
        """A transaction whose operations are determined while it runs, which may be more than once. `kind`: a subclass
        of Writer."""

        def run(txn: Txn) -> tuple[T, Writer]:
            writer = self._writer(txn, kind)
            result = fn(txn, writer)  # type: ignore[arg-type]
            self._finish(writer)
            return result, writer

        result, writer = await self._store.write(run)
        self.remember(writer)
        return result

    async def rewind(self, past: View) -> None:
        """Undo everything written since a snapshot of this store was taken, or raise TooMuch."""
        past_head = self.head_in(past)

        def run(txn: Txn) -> Writer:
            self._check_open()
            schema, head, now_s = self._schema.as_it_is(), self.head_in(txn), self._clock.now_s()
            rewinder = Rewinder(txn, schema, head, self.paths, self.coverage, now_s, self.range)
            rewinder.rewind(past, past_head)
            self.marks.note(rewinder)
            return rewinder

        self.remember(await self._store.write(run))
        self.times = LogTimes()  # restored entries are inserted in the log, so noted times are invalid

    def rehearse(self, txn: Txn, operation: Operation, paths: PathPrefixes) -> Outcome:
        """Apply an operation to a transaction other than the store's: a script sees its own writes before they are
        made. `paths` holds the path numbers of that transaction, and new ones are added to it; the partition's own path
        numbers are of what is durable, where the same path may have got another number meanwhile."""
        self._check_open()
        kind = writer_kind(self._schema)
        writer = kind(txn, self._schema, self.head_in(txn), paths, None, self._clock.now_s(), self.range)
        outcome = writer.apply(operation)
        writer.finish()
        paths.update(writer.new_paths)
        return outcome

    def head_in(self, view: View) -> log.Head:
        """The head in a snapshot."""
        return log.load_head(view, self._first_rid, self._first_lsn)

    def _run_one(self, operation: Operation, txn: Txn) -> tuple[Outcome, Written]:
        writer = self._writer(txn)
        outcome = writer.apply(operation)
        self._finish(writer)
        return outcome, writer

    def _run_all(self, txn: Txn, operations: Sequence[Operation], record: Record | None, guard: Guard | None) -> Done:
        writer = self._writer(txn)
        if record is not None:
            check_new(txn, record)
        if guard is not None:
            guard(txn)
        outcomes = []
        for index, operation in enumerate(operations):
            try:
                outcomes.append(writer.apply(operation))
            except Failure as failure:
                raise MemberFailed(index, failure) from failure
        self._finish(writer)
        kept = None
        if record is not None and writer.has_changed:
            kept = put_record(txn, record, outcomes, self._clock.now_s(), self.records.older_keys(record))
        return outcomes, writer, kept

    def _writer(self, txn: Txn, kind: type[Writer] | None = None) -> Writer:
        self._check_open()
        head = log.load_head(txn, self._first_rid, self._first_lsn)
        if head.lsn >= self.reached_lsn:
            self.reached_lsn = head.lsn + 1
        schema = self._schema.as_it_is()
        if kind is None:
            kind = writer_kind(schema)
        return kind(txn, schema, head, self.paths, self.coverage, self._clock.now_s(), self.range)

    def _finish(self, writer: Writer) -> None:
        writer.finish()
        self.marks.note(writer)

    def remember(self, writer: Written) -> None:
        # Acknowledgements may arrive in another order than the commits.
        if writer.head.lsn >= self.head.lsn:
            self.head = writer.head
            if writer.head.size_bytes >= self.watched_bytes and self.on_grown is not None:
                self.watched_bytes = _NEVER
                self.on_grown(self)
        if writer.new_coverage is not None:
            self._remember_coverage(writer.new_coverage)
        self.events_noted += writer.event_count
        new_paths = writer.new_paths
        if new_paths:
            if len(self.paths) + len(new_paths) > limits.PATHS_REMEMBERED_MAX:
                self.paths.clear()
            self.paths.update(new_paths)

    def _remember_coverage(self, coverage: PathCoverage) -> None:
        if self.coverage is None or coverage.generation >= self.coverage.generation:
            self.coverage = coverage

    def end(self, reason: Failure) -> None:
        """The account was closed: this object no longer follows what is stored, so reads are refused too."""
        self.close(reason)
        self.store = self._store = EndedStore(reason)

    async def raise_lsn(self, lsn: int) -> None:
        """Let all later writes have an lsn above this one."""

        def run(txn: Txn) -> log.Head:
            self._check_open()
            head = self.head_in(txn)
            head.lsn = max(head.lsn, lsn)
            txn.put(layout.HEAD_KEY, head.pack())
            return head

        head = await self._store.write(run)
        self.reached_lsn = max(self.reached_lsn, lsn)
        if head.lsn > self.head.lsn:
            self.head = head

    async def forget(self, change_keys: Sequence[bytes]) -> None:
        """Drop tombstones from the log, or records of retryable writes."""
        await self._write_open(lambda txn: txn.delete_many(change_keys))

    async def adopt_records(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Take over records of retryable writes from another partition."""

        def run(txn: Txn) -> None:
            for key, value in pairs:
                txn.put(key, value)

        await self._write_open(run)
        for key, value in pairs:
            self.records.note(key, value)

    async def keep_events(self) -> int:
        """Start keeping change stream events, as the schema says. Returns the lsn after which all are there."""
        begun = await self.read(change_stream_events.since)
        if begun is not None:
            return begun
        return await self._write_open(lambda txn: change_stream_events.begin(txn, self.head_in(txn).lsn))

    async def forget_events(self, last_key: bytes) -> None:
        """Drop events up to a key."""
        await self._write_open(lambda txn: change_stream_events.forget(txn, last_key))

    async def keep_versions(self) -> None:
        """Start or stop keeping all versions, as the schema says."""
        number = self._schema.versions_number

        def run(txn: Txn) -> None:
            if number:
                versions.begin(txn, number, self.head_in(txn).lsn)
            else:
                versions.clear(txn)

        if number != self.versions_number:
            await self._write_open(run)
            self.versions_number = number

    async def forget_versions(self, old: Sequence[versions.Entry]) -> None:
        await self._write_open(lambda txn: versions.forget(txn, old, self.versions_number))

    async def _write_open(self, fn: Callable[[Txn], T]) -> T:
        """A transaction that is refused while writers are held, or after the partition was closed."""

        def run(txn: Txn) -> T:
            self._check_open()
            return fn(txn)

        return await self._store.write(run)

    # Changes of rules.

    async def rules_number(self) -> int:
        """The rules that every stored item is known to follow."""
        stored = await self._store.read(lambda view: view.get(RULES_KEY))
        return int.from_bytes(stored, "big") if stored else 0

    async def settle(self) -> None:
        """When this returns, all transactions that ran before are durable and visible to readers."""
        await self._store.write(lambda txn: self._check_open())

    async def confirm_rules(self, rules_number: int) -> None:
        def run(txn: Txn, head: log.Head) -> PathCoverage | None:
            txn.put(RULES_KEY, rules_number.to_bytes(2, "big"))
            return path_coverage.end_restating(txn, head, rules_number)

        await self._change_coverage(run)

    # Scans of all items for the path coverage.

    async def begin_coverage_scan(self) -> PathCoverage | None:
        """From here on the coverage of newly written items is tracked separately, while the scan reads the older ones.
        None: a rules change is under way, which visits all items itself."""
        begun = await self._change_coverage(
            lambda txn, head: path_coverage.begin_coverage_scan(txn, head, self._schema.rules.number)
        )
        self.wants_coverage_scan = False
        return begun

    async def end_coverage_scan(self, begun: PathCoverage, found: frozenset[str] | None) -> None:
        """Store the paths that the scan found in all items that existed when it began; None: there were no items."""
        await self._change_coverage(lambda txn, head: path_coverage.end_coverage_scan(txn, head, begun, found))

    async def _change_coverage(self, change: Callable[[Txn, log.Head], PathCoverage | None]) -> PathCoverage | None:
        def run(txn: Txn) -> PathCoverage | None:
            self._check_open()
            return change(txn, self.head_in(txn))

        changed = await self._store.write(run)
        if changed is not None:
            self._remember_coverage(changed)
        return changed


def _gone(key_range: KeyRange) -> Failure:
    return Failure(
        Kind.RANGE_GONE,
        f"The partition key range {key_range.id} was split or merged a while ago, and what it held has moved. Read the "
        "partition key ranges again.",
    )
