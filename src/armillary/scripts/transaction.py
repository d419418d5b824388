"""The transaction of a script: optimistic concurrency control over one logical partition. The script sees its own
writes and a consistent state of everything else.

While the script runs, its operations are *rehearsed* on an in-memory layer over the store, and nothing is locked. Each
read uses a fresh snapshot and validates that no other request has written what the script has read before: single
items, or, after a query, the whole logical partition. The commit validates once more and applies the operations in one
transaction of the partition. If validation fails the result is RETRY_WITH, and the script is run again.

The final etags and rids of written items are known only at the commit. Until then the script sees provisional ones,
which are taken from a number range that no stored item uses; `relocated` replaces them in the items and in the
response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import orjson

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.library.context import Context
from armillary.model import charges, documents, layout, resources
from armillary.model.charges import QueryWork
from armillary.model.documents import Form
from armillary.model.encoding import decode_value, encode_value, epk_of, unpack_header
from armillary.model.keys import Key
from armillary.model.values import UNDEFINED
from armillary.partition.history.log import ITEM_WRITTEN, Change, Head, unpack_change
from armillary.partition.operations import Document, Operation, Outcome, Result, Verb, draft
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.partition.writing.index_entries import has_unique
from armillary.partition.writing.writer import PathPrefixes, Writer
from armillary.query import continuation_token
from armillary.query.access.access_path import Index, Scope
from armillary.query.continuation_token import Cursor
from armillary.query.execution import Execution
from armillary.query.ordering import check_order
from armillary.query.page import Page as ExecutionPage
from armillary.query.page import Position, Progress
from armillary.query.row_json import dump_large
from armillary.query.selection import Selection
from armillary.storage.engine import Txn, View
from armillary.storage.overlay import Layer, OverlayTxn
from armillary.work import run as run_work

T = TypeVar("T")

OTHER_PARTITION = (
    "Requests originating from scripts cannot reference partition keys other than the one for which client request "
    "was submitted."
)
# Offsets of provisional numbers: far above those that concurrent writes may be given while the script runs.
_LSN_APART, _NUMBER_APART, _PATH_APART = 1 << 44, 1 << 36, 1 << 24
_find_names = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9+-]{22}==")
_RID = b'"_rid":"'
_RID_CHARACTERS = 24
# The parts that all provisional etags and rids of a run share: the upper half of the lsn with its hyphens; the
# container's part of the rid.
_ETAG_MARK, _RID_MARK = slice(9, 15), 10


def database_of(self_link: str) -> str:
    """The database's rid in a container's link dbs/<rid>/colls/<rid>/."""
    return self_link.split("/")[1]


@dataclass(frozen=True, slots=True)
class Home:
    """The logical partition that a script works in, and the properties of its container that it needs."""

    key: Key
    epk: bytes
    schema: Schema
    form: Form
    self_link: str
    alt_link: str
    key_of: Callable[[Document], Key]
    effective_key: Callable[[Key], bytes]
    context: Callable[[], Context]
    computed: tuple[tuple[str, str], ...]
    secret: bytes  # signs continuations

    @property
    def database(self) -> str:
        """The rid of the database: unlike its name, it is never used again for another one."""
        return database_of(self.self_link)


@dataclass(slots=True)
class Page:
    rows: list[bytes]
    continuation: str | None


class ScriptTransaction:
    def __init__(self, partition: Partition, home: Home, clock: Clock, units_max_ru: float) -> None:
        self.partition = partition
        self.home = home
        self.charge_ru = 0.0
        self._units_max_ru = units_max_ru
        self._clock = clock
        self._layer = Layer()
        self._paths: PathPrefixes = {}  # numbers of index paths, stored or provisional
        self._rules_number = home.schema.rules.number
        self._first_apart = 1 << 64  # the first provisional item number; set by the first read
        self._checked_lsn: int | None = None  # up to this lsn no other request has written what the script has read
        self._ids: set[str] = set()  # of items that were read, whether or not they exist
        self._numbers: set[int] = set()  # of those that exist: a replacement may change an item's id
        # Whether the whole logical partition was read. Unique keys make every write read all of it.
        self._sees_all = has_unique(home.schema)
        self._done: list[tuple[Operation, Outcome]] = []  # writes, in order
        self._names: dict[bytes, bytes] = {}  # provisional etags and rids -> final ones
        self._marks: set[bytes] = set()  # parts that they share: a quick test whether a text may have one

    @property
    def written(self) -> list[tuple[Operation, Outcome]]:
        """Its writes, in order."""
        return list(self._done)

    @property
    def write_count(self) -> int:
        return len(self._done)

    @property
    def units_left_ru(self) -> float:
        """At 0 further operations of the script are not accepted; those that are queued are executed."""
        return self._units_max_ru - self.charge_ru

    # Reads and writes of single items.

    async def write(self, operation: Operation) -> Outcome:
        outcome = await self._rehearse(operation)
        self._done.append((operation, outcome))
        if outcome.etag is not None:
            self._marks.add(outcome.etag[_ETAG_MARK].encode())
        if outcome.result is Result.CREATED:
            self._marks.add(_rid_in(outcome.payload)[:_RID_MARK])
        return outcome

    async def read(self, item_id: str, if_none_match: str | None = None) -> Outcome:
        home = self.home
        return await self._rehearse(Operation(Verb.READ, home.epk, home.key, item_id, if_none_match=if_none_match))

    def stored(
        self, verb: Verb, document: Document, item_id: str | None, etag: str | None, directive: str
    ) -> Operation:
        """A create, upsert or replace of a whole item, which must belong to this logical partition."""
        home = self.home
        made = draft(home.schema, document, int(self._clock.now_s()), directive)
        if home.effective_key(home.key_of(document)) != home.epk:
            raise bad_request(OTHER_PARTITION)
        target = item_id if item_id is not None else made.item_id
        return Operation(verb, home.epk, home.key, target, draft=made, if_match=etag, directive=directive)

    async def _rehearse(self, operation: Operation) -> Outcome:
        layer = Layer()

        def rehearse(txn: Txn) -> Outcome:
            self._note(txn, operation.item_id)
            return self.partition.rehearse(txn, operation, self._paths)

        try:
            outcome = await self._look(rehearse, layer)
        except Failure as failure:
            self.charge_ru += failure.charge_ru
            raise
        self._layer.absorb(layer)
        self.charge_ru += outcome.charge_ru
        return outcome

    def _note(self, txn: Txn, item_id: str) -> None:
        if item_id not in self._ids:
            self._ids.add(item_id)
            number = txn.get(layout.id_key(self.home.epk, item_id))
            if number is not None:
                self._numbers.add(int.from_bytes(number, "big"))

    async def item_id_of(self, link: str) -> str:
        """The id of the item that a link names, by names or by rids."""
        home = self.home
        given = link.strip("/")
        by_name, by_rid = f"{home.alt_link}/docs/", f"{home.self_link}docs/"
        if given.startswith(by_name) and "/" not in given[len(by_name) :]:
            return given[len(by_name) :]
        if not given.startswith(by_rid):
            raise bad_request(f"The link '{link[:200]}' is not of a document of this container.")
        number = resources.item_rid(resources.rid_bytes(given[len(by_rid) :]) or b"")
        stored = None
        if number is not None:
            stored = await self._look(lambda txn: txn.get(layout.item_key(number)))
            self._numbers.add(number)
        if stored is None or unpack_header(stored).epk != home.epk:
            raise Failure(Kind.NOT_FOUND, f"No document with the link '{link[:200]}' exists in this logical partition.")
        return documents.item_id(stored)

    def check_collection(self, link: str) -> None:
        if link.strip("/") not in (self.home.self_link.strip("/"), self.home.alt_link):
            raise bad_request(f"The link '{link[:200]}' is not of the container that the script runs in.")

    # Pages.

    async def feed(self, page_items: int, continuation: str | None) -> Page:
        work = QueryWork()
        page = await self._page(Selection(), b"feed", page_items, continuation, work)
        self.charge_ru += max(1.0, work.returned_ru)
        return page

    async def query(self, bound: BoundQuery, text: bytes, page_items: int, continuation: str | None) -> Page:
        work = QueryWork(partitions_begun=1)
        selection = bound.selection
        if not bound.has_source:
            rows = await run_work(lambda: list(map(dump_large, bound.evaluate_over([]))))
            page = Page(rows, None)
        else:
            if selection.ordering is not None:
                check_order(selection.ordering, self.home.schema.rules.indexing)
            page = await self._page(selection, text, page_items, continuation, work)
        self.charge_ru += charges.query_page_ru(work)
        return page

    async def _page(
        self, selection: Selection, text: bytes, page_items: int, continuation: str | None, work: QueryWork
    ) -> Page:
        home, schema = self.home, self.home.schema
        fingerprint = continuation_token.fingerprint_of([b"script", text, home.epk])
        progress = Progress(skip=selection.skip, take=selection.take)
        if continuation is not None:
            progress = self._progress(continuation_token.decode(continuation, home.secret, schema.rid, fingerprint))
        now_s = self._clock.now_s()
        execution = Execution(
            selection,
            scope=Scope(home.epk, home.epk + b"\x00", epk=home.epk) if home.epk else Scope(),
            index=Index(schema.rules.indexing, is_complete=not schema.older_rules),
            is_live=(lambda header: schema.is_live(header, now_s)) if schema.rules.default_ttl is not None else None,
            progress=progress,
            form=home.form,
        )
        rows: list[bytes] = []
        size_bytes = 0
        while True:
            room, room_bytes = page_items - len(rows), limits.PAGE_BYTES_MAX - size_bytes
            before = replace(execution.progress)
            slice_end_s = self._clock.elapsed_s() + limits.SLICE_SECONDS

            def step(txn: Txn) -> ExecutionPage:
                self._sees_all = True
                return execution.step(
                    txn,
                    max(room, 1),  # noqa: B023 (run at once)
                    room_bytes,  # noqa: B023
                    lambda: self._clock.elapsed_s() > slice_end_s,  # noqa: B023
                )

            page = await self._look(step)
            if room <= 0 and page.rows:
                # The page was full already; this row shows that there are more.
                return Page(rows, self._token(before, execution, fingerprint))
            rows += page.rows
            size_bytes += page.size_bytes
            work.seeks += page.counters.seeks
            work.precise_scans += page.counters.precise_scans
            work.joined_tuples += page.counters.joined_tuples
            work.sorted_rows += page.counters.sorted_rows
            work.udf_calls += page.counters.user_calls
            work.returned_ru += sum([charges.read_ru(len(row)) for row in page.rows])
            work.loaded_bytes += max(0, page.counters.bytes_loaded - page.size_bytes)
            if page.position is None:
                return Page(rows, None)
            if rows and size_bytes >= limits.PAGE_BYTES_MAX // 2:
                return Page(rows, self._token(execution.progress, execution, fingerprint))

    def _token(self, progress: Progress, execution: Execution, fingerprint: bytes) -> str:
        at = progress.position
        place = continuation_token.Position(b"", b"\xff", at.rid, at.order, at.given)
        state = encode_value(execution.state) if execution.state is not UNDEFINED else b""
        cursor = Cursor((place,), None, 1, progress.skip, progress.take, state)
        return cursor.encode(self.home.secret, self.home.schema.rid, fingerprint)

    def _progress(self, cursor: Cursor) -> Progress:
        [(_, _, rid, order, given)] = cursor.positions
        if _is_apart(rid) and rid < self._first_apart:
            # A provisional number from an earlier run of a script. The item's final number is at least this one: some
            # rows may be returned again, none is left out.
            rid, given = rid - _NUMBER_APART - (given > 0), 0
        state = decode_value(cursor.state)[0] if cursor.state else UNDEFINED
        return Progress(Position(rid, order, given), cursor.skip, cursor.take, state)

    # Reads over the stored state and the layer.

    async def _look(self, fn: Callable[[Txn], T], layer: Layer | None = None) -> T:
        return await self.partition.evaluate(lambda view: self._look_at(view, fn, layer or Layer()))

    def _look_at(self, view: View, fn: Callable[[Txn], T], layer: Layer) -> T:
        if self.partition.is_moved:
            raise Failure(Kind.RANGE_BUSY, "The partition was split or merged while the script ran.")
        head = self.partition.head_in(view)
        if self._checked_lsn is None:
            apart = Head(
                head.lsn + _LSN_APART,
                head.next_rid + _NUMBER_APART,
                head.item_count,
                head.size_bytes,
                head.next_path + _PATH_APART,
                head.coverage_generation,
            )
            self._first_apart = apart.next_rid
            self._layer.writes[layout.HEAD_KEY] = apart.pack()
            self._checked_lsn = head.lsn
        elif head.lsn != self._checked_lsn:
            self._check_unchanged(view)
            self._checked_lsn = head.lsn

        def scan(low: bytes, high: bytes, reverse: bool, _: int) -> Iterator[tuple[bytes, bytes]]:
            return view.scan(low, high, reverse)

        return fn(OverlayTxn(layer, self._layer, view.get, scan))

    def _check_unchanged(self, view: View) -> None:
        """Validate: no other request has written what the script has read, and the indexing rules are the same."""
        assert self._checked_lsn is not None
        low, high = layout.change_key(self._checked_lsn + 1), layout.space_end(layout.CHANGES)
        count = 0
        for key, value in islice(view.scan(low, high), limits.SCRIPT_CHANGES_MAX):
            count += 1
            change = unpack_change(key, value)
            if change.rid in self._numbers or self._was_seen(view, change):
                raise _conflict()
        if count == limits.SCRIPT_CHANGES_MAX or self.home.schema.rules.number != self._rules_number:
            raise _conflict()

    def _was_seen(self, view: View, change: Change) -> bool:
        stored = None
        if change.kind == ITEM_WRITTEN:
            stored = view.get(layout.item_key(change.rid))
            assert stored is not None, "a change without its item"
        if (change.epk if stored is None else epk_of(stored)) != self.home.epk:
            return False
        return self._sees_all or (change.item_id if stored is None else documents.item_id(stored)) in self._ids

    # Commit.

    async def commit(self) -> list[Outcome]:
        """Apply all rehearsed writes in one transaction, or none. Returns their outcomes."""
        if not self._done:
            return []
        outcomes, self._names = await self.partition.transact(self._apply)
        return outcomes

    def _apply(self, txn: Txn, writer: Writer) -> tuple[list[Outcome], dict[bytes, bytes]]:
        self._check_unchanged(txn)
        names: dict[bytes, bytes] = {}
        outcomes = []
        for operation, rehearsed in self._done:
            # Its preconditions were checked in the rehearsal, and validation shows that they still hold.
            again = replace(operation, if_match=None, if_none_match=None, condition=None)
            if again.draft is not None and names:
                text = self._renamed(again.draft.text, names)
                if text != again.draft.text:
                    again.draft = draft(
                        self.home.schema, orjson.loads(text + b"}"), again.draft.ts, operation.directive
                    )
            try:
                outcome = writer.apply(again)
            except Failure as failure:
                if failure.kind in (Kind.NOT_FOUND, Kind.CONFLICT, Kind.KEY_FULL):
                    raise _conflict() from None  # for example, an item has expired since
                raise
            if rehearsed.etag is not None and outcome.etag is not None:
                names[rehearsed.etag[1:-1].encode()] = outcome.etag[1:-1].encode()
            if rehearsed.result is Result.CREATED:
                names[_rid_in(rehearsed.payload)] = _rid_in(outcome.payload)
            outcomes.append(outcome)
        return outcomes, names

    def relocated(self, text: bytes) -> bytes:
        """A text of the script with provisional etags and rids replaced by the final ones."""
        return self._renamed(text, self._names)

    def relocated_log(self, text: str) -> str:
        return self.relocated(text.encode()).decode() if text else text

    def _renamed(self, text: bytes, names: dict[bytes, bytes]) -> bytes:
        if not any(mark in text for mark in self._marks):
            return text
        return _find_names.sub(lambda found: names.get(found.group(), found.group()), text)


def _is_apart(number: int) -> bool:
    return number > 0 and number % (1 << resources.ITEM_COUNTER_BITS) >= _NUMBER_APART


def _rid_in(payload: bytes | None) -> bytes:
    assert payload is not None
    at = payload.rindex(_RID) + len(_RID)
    return payload[at : at + _RID_CHARACTERS]


def _conflict() -> Failure:
    return Failure(
        Kind.RETRY_WITH,
        "Conflicting request to resource has been attempted: other requests have written to the logical partition of "
        "the script. Retry to avoid conflicts.",
    )
