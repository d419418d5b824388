"""The account's resources other than items: databases, containers, offers, scripts, users, permissions, keys.

All of them are kept in store 0 and in memory, so that finding a container costs a dictionary look-up. Changes are rare
and go one at a time: check in memory, one durable transaction, then the memory. What a body may contain is decided by
the callers; the catalog knows names, owners, rids, etags and counters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from armillary.account.catalog import garbage_stores
from armillary.account.catalog.allocation import (
    UNFINISHED,
    NewStore,
    Reservation,
    count,
    new_rid,
    new_store_number,
    store_key,
)
from armillary.account.catalog.catalog_events import Tell, report_changes
from armillary.account.catalog.container_state import Body, ContainerState
from armillary.account.catalog.records import RECORDS, Record, check_etag, creation_order_of, entries_of, record_key
from armillary.account.catalog.unknown_outcomes import OutcomeResolver
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import items, resources
from armillary.model.resources import ResourceType, rid_text
from armillary.storage.engine import Engine, Store, Txn, View

_log = logging.getLogger(__name__)

CATALOG_STORE = 0
SECRET = "secret"  # the setting whose value signs tokens; made once for each account
_SETTINGS = b"s"
_LEFT_LSN = b"left-lsn"

Reserved = TypeVar("Reserved")
Guard = Callable[[View], None]


_OWNERS = (ResourceType.DATABASE, ResourceType.CONTAINER, ResourceType.USER)


class Catalog:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._store: Store = engine.store(CATALOG_STORE)
        self._clock = clock
        # Held during a change; several processes share one.
        self.lock: AbstractAsyncContextManager[object, None] = asyncio.Lock()
        self._outcomes: OutcomeResolver[Record] = OutcomeResolver(self._store, clock, entries_of)
        self._records: dict[tuple[ResourceType, bytes], Record] = {}
        self._names: dict[tuple[ResourceType, bytes], dict[str, Record]] = {}
        self._offers: dict[str, Record] = {}  # by the rid of what they are for
        self.left_lsn = 0  # the highest of the containers that were deleted: lsns are not given out again
        self.lsn_of: Callable[[Record], int] = lambda _: 0  # the highest that was given out in a container
        self.on_reported: Tell = lambda verb, path: None  # told of databases and containers that came or went
        # Called with the new value when a setting was changed by another node.
        self.on_setting: dict[str, Callable[[bytes | None], None]] = {}

    async def open(self) -> None:
        await self.load()
        await self.abandon()

    async def load(self) -> None:
        """Read all records, and write nothing."""

        def load(view: View) -> tuple[list[bytes], bytes | None]:
            return [packed for _, packed in view.scan(RECORDS, _after(RECORDS))], view.get(_LEFT_LSN)

        records, left_lsn = await self._store.read(load)
        for packed in records:
            self._enter(Record.unpack(packed))
        self.left_lsn = int.from_bytes(left_lsn or b"", "big")

    async def check_readable(self) -> None:
        """Raises if storage cannot be read now."""
        await self._store.read(lambda view: None)

    async def settle(self) -> None:
        """When this returns, all transactions that ran before are durable. In a cluster, this node led then."""
        await self._store.write(lambda txn: None)

    # Looking up.

    def find(self, resource_type: ResourceType, owner: bytes, name: str) -> Record | None:
        """By name, or else by rid: both forms are valid in links, and a name may look like a rid."""
        siblings = self._names.get((resource_type, owner))
        if siblings is None:
            return None
        record = siblings.get(name)
        if record is None:
            rid = resources.rid_bytes(name)
            record = self._records.get((resource_type, rid)) if rid is not None else None
            if record is not None and record.owner != owner:
                return None
        return record

    def get(self, resource_type: ResourceType, rid: bytes) -> Record | None:
        return self._records.get((resource_type, rid))

    def children(self, resource_type: ResourceType, owner: bytes) -> list[Record]:
        """In the order of their creation."""
        return sorted(self._names.get((resource_type, owner), {}).values(), key=creation_order_of)

    def of_type(self, resource_type: ResourceType) -> list[Record]:
        return sorted((r for (t, _), r in self._records.items() if t is resource_type), key=creation_order_of)

    def offer_of(self, owner: Record) -> Record | None:
        """The offer of a database or container, if it has one of its own."""
        return self._offers.get(owner.rid_text)

    # Following another node.

    def follow(self, refusal: Callable[[], Failure]) -> None:
        """Refuse every change before anything is looked at: what is known here may be older than the leader's."""
        self._outcomes.refusal = refusal

    def adopt(self, written: Mapping[bytes, bytes | None]) -> tuple[list[Record], list[Record]]:
        """Take over entries of the catalog's store that another node has written (None: deleted). Returns the records
        that went and those that came; a record that was changed is among both. No security log entry is made: the node
        that changed them has made it."""
        removed, added = [], []
        for key, value in written.items():
            if key[:1] == RECORDS:
                type_word, _, rid = key[1:].partition(b"/")
                former = self.get(ResourceType(type_word.decode()), rid)
                removed += [former] if former is not None else []
                added += [Record.unpack(value)] if value is not None else []
            elif key[:1] == _SETTINGS and (told := self.on_setting.get(key[1:].decode())) is not None:
                told(value)
            elif key == _LEFT_LSN:
                self.left_lsn = int.from_bytes(value or b"", "big")
        for record in removed:
            self._leave(record)
        for record in added:
            self._enter(record)
        return removed, added

    # Changing.

    def check_changeable(self) -> None:
        """Raises if no change is accepted now."""
        self._outcomes.check()

    async def close(self) -> None:
        await self._outcomes.close()

    async def create(
        self,
        resource_type: ResourceType,
        owner: Record | None,
        name: str | None,
        body: Body,
        state: Callable[[bytes, NewStore], Body] | None = None,
        companions: Callable[[Record], Iterable[tuple[ResourceType, Body, Body]]] | None = None,
        prepare: Callable[[Record], Awaitable[None]] | None = None,
        on_created: Callable[[], None] | None = None,
    ) -> Record:
        """Make a resource. `state` is called with the new rid and a source of new store numbers; `companions` makes
        resources that come into being with it (an offer beside its container), in the same transaction. Without a
        name the rid is the name. `prepare` is run once it is stored and before it can be found, and `on_created` when
        it can, even if the client has disconnected by then."""
        self._outcomes.check()
        async with self.lock:
            owner_rid = owner.rid if owner is not None else b""
            if owner is not None and self.get(owner.type, owner.rid) is not owner:
                raise Failure(Kind.OWNER_NOT_FOUND, f"The owner of '{name}' was deleted meanwhile.")
            if name is not None and name in self._names.get((resource_type, owner_rid), {}):
                raise Failure(
                    Kind.CONFLICT,
                    f"Resource with specified id or name already exists: {resource_type.value} '{name}'.",
                )

            def run(txn: Txn) -> list[Record]:
                made = [self._make(txn, resource_type, owner, name, body, state)]
                for companion_type, companion_body, companion_state in companions(made[0]) if companions else ():
                    made.append(
                        self._make(txn, companion_type, None, None, companion_body, lambda *_, s=companion_state: s)
                    )
                return made

            async def enter(made: list[Record]) -> None:
                try:
                    if prepare is not None:
                        await prepare(made[0])
                finally:
                    self._put_in_place((), made)
                if on_created is not None:
                    on_created()

            return (await self._outcomes.write(run, enter))[0]

    async def reserve(self, fn: Callable[[Reservation], Reserved]) -> Reserved:
        """Allocate numbers for records that are entered later, with `rewrite`."""
        self._outcomes.check()
        async with self.lock:
            self._outcomes.check()
            return await self._store.write(lambda txn: fn(Reservation(txn, self._stamp)))

    async def rewrite(
        self,
        removed: Sequence[Record],
        added: Sequence[Record],
        *,
        finished: Sequence[int] = (),
        garbage: Sequence[int] = (),
    ) -> None:
        """Put records in the place of others, as they are, in one transaction. `finished`: reserved stores that are
        theirs now. `garbage`: stores for `collect_garbage`."""
        self._outcomes.check()
        async with self.lock:
            if any(self.get(record.type, record.rid) is not record for record in removed):
                raise Failure(Kind.CONFLICT, "Something was changed or deleted meanwhile; nothing was done. Try again.")
            owners = {record.rid for record in added}
            for record in added:
                if record.owner and record.owner not in owners and not any(self.get(t, record.owner) for t in _OWNERS):
                    raise Failure(Kind.OWNER_NOT_FOUND, f"The owner of '{record.name}' was deleted meanwhile.")
            left = set(map(id, removed))
            for record in added:
                taken = self._names.get((record.type, record.owner), {}).get(record.name)
                if taken is not None and id(taken) not in left:
                    raise Failure(Kind.CONFLICT, f"There is a {record.type.value} '{record.name}' already.")

            def run(txn: Txn) -> list[Record]:
                self._put_left_lsn(txn, removed)
                for record in removed:
                    txn.delete(record_key(record))
                for record in added:
                    txn.put(record_key(record), record.pack())
                for number in finished:
                    txn.delete(store_key(UNFINISHED, number))
                for number in garbage:
                    garbage_stores.mark(txn, number)
                return list(added)

            async def enter(made: list[Record]) -> None:
                self._put_in_place(removed, made)

            await self._outcomes.write(run, enter, removed, waits=True)  # the caller goes on with it

    def _put_in_place(self, removed: Sequence[Record], added: Sequence[Record]) -> None:
        report_changes(removed, added, self.get, self.on_reported)
        for record in removed:
            self._leave(record)
        for record in added:
            self._enter(record)

    async def abandon(self, stores: Sequence[int] | None = None) -> None:
        """Give reserved stores up; None: all of them, at the start, when none is being filled."""

        def run(txn: Txn) -> None:
            numbers = [int.from_bytes(key[1:], "big") for key, _ in txn.scan(UNFINISHED, _after(UNFINISHED))]
            for number in numbers if stores is None else stores:
                txn.delete(store_key(UNFINISHED, number))
                garbage_stores.mark(txn, number)

        has_any = await self._store.read(lambda view: any(True for _ in view.scan(UNFINISHED, _after(UNFINISHED))))
        if has_any:
            await self._store.write(run)
        await self.collect_garbage()

    def _make(
        self,
        txn: Txn,
        resource_type: ResourceType,
        owner: Record | None,
        name: str | None,
        body: Body,
        state: Callable[[bytes, NewStore], Body] | None,
    ) -> Record:
        owner_rid = owner.rid if owner is not None else b""
        rid = new_rid(txn, resource_type, owner_rid)
        text = rid_text(rid)
        etag, ts = self._stamp(txn)
        record = Record(
            type=resource_type,
            rid=rid,
            owner=owner_rid,
            name=name if name is not None else text,
            body=body if name is not None else {**body, "id": text},
            state=state(rid, partial(new_store_number, txn)) if state is not None else {},
            ts=ts,
            etag=etag,
            self_link=resources.self_link(owner.self_link if owner is not None else "", resource_type, rid),
        )
        txn.put(record_key(record), record.pack())
        return record

    async def replace(
        self,
        record: Record,
        body: Body,
        *,
        name: str | None = None,
        state: Callable[[Body], Body] | None = None,
        if_match: str | None = None,
        on_replaced: Callable[[Record], None] | None = None,
    ) -> Record:
        """Store a new body (and name, and what `state` makes of the present state). The rid stays; the etag is new.
        Returns the new record. `on_replaced` is called with it first. Objects that follow the record are updated there,
        not after this call: where the outcome is known only later the call fails, and `on_replaced` is still called."""
        self._outcomes.check()
        async with self.lock:
            present = self.get(record.type, record.rid)
            if present is None:
                raise Failure(Kind.NOT_FOUND, f"{record.type.value} '{record.name}' was deleted meanwhile.")
            check_etag(present, if_match)
            new_name = name if name is not None else present.name
            if new_name != present.name and new_name in self._names.get((record.type, record.owner), {}):
                raise Failure(Kind.CONFLICT, f"Resource with specified id or name already exists: '{new_name}'.")

            def run(txn: Txn) -> list[Record]:
                etag, ts = self._stamp(txn)
                changed = replace(present, name=new_name, body=body, ts=ts, etag=etag)
                if state is not None:
                    changed.state = state(present.state)
                txn.put(record_key(changed), changed.pack())
                return [changed]

            async def enter(made: list[Record]) -> None:
                self._put_in_place((present,), made)
                if on_replaced is not None:
                    on_replaced(made[0])

            return (await self._outcomes.write(run, enter))[0]

    async def change_state(
        self,
        record: Record,
        change: Callable[[Body, NewStore], Body],
        *,
        garbage: Iterable[int] = (),
        on_changed: Callable[[], None] | None = None,
        is_freeing: bool = False,
        waits: bool = False,
        guard: Guard | None = None,
    ) -> None:
        """Change a record's state, which clients do not see: etag and timestamp stay. `change` makes the new state of
        the present one, with a source of new store numbers, and may refuse by raising. `garbage`: stores that are not
        needed any more, for `collect_garbage`. `on_changed` as in `replace`. `waits`: wait until the outcome is known,
        so that a failure means that nothing was changed. `guard`: may refuse by raising, in the transaction."""
        self._outcomes.check()
        async with self.lock:
            present = self.get(record.type, record.rid)
            if present is None:
                raise Failure(Kind.NOT_FOUND, f"{record.type.value} '{record.name}' was deleted meanwhile.")

            def run(txn: Txn) -> list[Record]:
                if guard is not None:
                    guard(txn)
                changed = replace(present, state=change(present.state, partial(new_store_number, txn)))
                txn.put(record_key(changed), changed.pack())
                for number in garbage:
                    garbage_stores.mark(txn, number)
                return [changed]

            async def enter(made: list[Record]) -> None:
                present.state = made[0].state
                if on_changed is not None:
                    on_changed()

            await self._outcomes.write(run, enter, is_freeing=is_freeing, waits=waits)

    async def change_container(
        self,
        record: Record,
        change: Callable[[ContainerState, NewStore], ContainerState],
        *,
        garbage: Iterable[int] = (),
        on_changed: Callable[[], None] | None = None,
        is_freeing: bool = False,
        waits: bool = False,
        guard: Guard | None = None,
    ) -> None:
        """`change_state` for the state of a container."""

        def converted(state: Body, new_store: NewStore) -> Body:
            return change(ContainerState.parse(state), new_store).to_json()

        await self.change_state(
            record, converted, garbage=garbage, on_changed=on_changed, is_freeing=is_freeing, waits=waits, guard=guard
        )

    async def delete(
        self, record: Record, *, if_match: str | None = None, on_deleted: Callable[[list[Record]], None] | None = None
    ) -> None:
        """Delete a resource with all below it and their offers. The stores of its ranges are emptied."""
        self._outcomes.check()
        async with self.lock:
            present = self.get(record.type, record.rid)
            if present is None:
                raise Failure(Kind.NOT_FOUND, f"{record.type.value} '{record.name}' does not exist.")
            check_etag(present, if_match)
            doomed = self.tree(present)

            def run(txn: Txn) -> list[Record]:
                self._put_left_lsn(txn, doomed)
                for each in doomed:
                    txn.delete(record_key(each))
                    for number in each.stores:
                        garbage_stores.mark(txn, number)
                return []

            async def forget(_: list[Record]) -> None:
                self._put_in_place(doomed, ())
                if on_deleted is not None:
                    on_deleted(doomed)  # before their stores are emptied: no request may write there any more

            await self._outcomes.write(run, forget, doomed, is_freeing=True)
        try:
            await self.collect_garbage()
        except Failure as failure:  # the deletion is durable; its space is freed later
            _log.warning("the space of deleted containers is not freed yet: %s", failure.message)

    # Account-wide settings (secrets made once).

    async def setting(self, name: str, make: Callable[[], bytes]) -> bytes:
        key = _SETTINGS + name.encode()

        def run(txn: Txn) -> bytes:
            value = txn.get(key)
            if value is None:
                value = make()
                txn.put(key, value)
            return value

        present = await self._store.read(lambda view: view.get(key))
        return present if present is not None else await self._store.write(run)

    async def kept_setting(self, name: str) -> bytes | None:
        return await self._store.read(lambda view: view.get(_SETTINGS + name.encode()))

    @staticmethod
    def setting_in(view: View, name: str) -> bytes | None:
        return view.get(_SETTINGS + name.encode())

    async def keep_setting(self, name: str, value: bytes) -> None:
        await self._store.write(lambda txn: txn.put(_SETTINGS + name.encode(), value))

    # Inside.

    def _put_left_lsn(self, txn: Txn, removed: Sequence[Record]) -> None:
        """After a restart, and on the node that leads next, new containers go on from the lsns of deleted ones."""
        lsn = max([self.lsn_of(each) for each in removed if each.type is ResourceType.CONTAINER], default=0)
        if lsn > int.from_bytes(txn.get(_LEFT_LSN) or b"", "big"):
            txn.put(_LEFT_LSN, lsn.to_bytes(8, "big"))

    def _stamp(self, txn: Txn) -> tuple[str, int]:
        ts = int(self._clock.now_s())
        return items.etag(0, count(txn, b"etag"), 0, ts), ts

    def tree(self, root: Record) -> list[Record]:
        """A resource with all below it, and their offers."""
        doomed, waiting = [], [root]
        while waiting:
            record = waiting.pop()
            doomed.append(record)
            for (_, owner), children in self._names.items():
                if owner == record.rid and owner:
                    waiting.extend(children.values())
        rids = {record.rid_text for record in doomed}
        doomed.extend(self._offers[rid] for rid in sorted(rids & self._offers.keys()))
        return doomed

    def _enter(self, record: Record) -> None:
        self._records[(record.type, record.rid)] = record
        self._names.setdefault((record.type, record.owner), {})[record.name] = record
        if record.type is ResourceType.OFFER:
            self._offers[record.offer_state.owner] = record

    def _leave(self, record: Record) -> None:
        self._records.pop((record.type, record.rid), None)
        if record.type is ResourceType.OFFER:
            self._offers.pop(record.offer_state.owner, None)
        siblings = self._names.get((record.type, record.owner))
        if siblings is not None:
            siblings.pop(record.name, None)
            if not siblings:
                del self._names[(record.type, record.owner)]

    async def collect_garbage(self) -> None:
        """Empty the stores that were marked as garbage; resumed at the next start after a crash."""
        await garbage_stores.collect(self._store, self._engine)


def _after(space: bytes) -> bytes:
    return bytes([space[0] + 1])
