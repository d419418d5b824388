"""Import of a snapshot file into an account, as new resources, whatever the account has already. The file is read as a
stream into new stores; when all of it is there and its digest is right, one transaction of the catalog makes it
visible. An import that is abandoned before leaves nothing.

Everything gets new rids, as rids are never given twice; items keep their numbers, etags and times, and carry the new
rids in their system properties. Restoring in place, with the same rids, is `restore.py`'s part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from armillary import audit
from armillary.account.account import Account
from armillary.account.catalog.allocation import Reservation, place_of_store
from armillary.account.catalog.container_state import Body
from armillary.account.catalog.records import Record
from armillary.account.snapshots.import_checks import check_definitions, check_records, check_scope
from armillary.account.snapshots.snapshot_files import (
    HEADER,
    PAIRS,
    RECORD,
    STORE,
    Frame,
    FrameReader,
    Pair,
    damaged,
    unpack_pairs,
)
from armillary.account.throughput.offers import least_ru, new_offer
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind, bad_request
from armillary.model import items, layout, resources
from armillary.model.encoding import FORMAT_JSON, unpack_header
from armillary.model.items import validate_name
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.resources import ResourceType, item_rid_text, rid_text
from armillary.partition.history import log
from armillary.storage.directory import FORMATS_READ
from armillary.storage.engine import Loader, Txn

_WITH_RIDS = (layout.ITEMS, layout.IMAGES)  # spaces whose values are items as they are stored


class SnapshotImport:
    """One import: `feed` it all, then `finish`, or else `abandon`."""

    def __init__(self, account: Account, target: tuple[str, ...] | None = None, *, replaces: bool = False) -> None:
        """`target`: what is restored gets this name, not the one that it had. `replaces`: what has the name goes."""
        self._account = account
        self._target = target
        self._replaces = replaces
        self._reader = FrameReader()
        self._scope: tuple[str, ...] | None = None
        self._arrived: list[Record] = []  # as they were
        self._records: list[Record] = []  # as they become
        self._became: dict[bytes, Record] = {}  # containers, by the rid that they had
        self._due: dict[tuple[bytes, int], int] = {}  # the ranges that are still to come, and their stores
        self._stores: list[int] = []
        self._places: list[int] = []  # the processes of these stores
        self._moving: _Moving | None = None
        self.item_count = 0

    async def feed(self, received: bytes) -> None:
        for frame in self._reader.feed(received):
            try:
                await self._take(frame)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                raise damaged("a frame cannot be read") from None
            await asyncio.sleep(0)

    async def finish(self) -> list[Record]:
        """Make it visible. Returns the databases or containers that came."""
        if not self._reader.is_complete:
            raise damaged("its end is missing")
        if self._moving is not None:
            await self._end_store()
        if self._scope is None or self._due:
            raise damaged("a partition is missing")
        if not self._records:
            await self._begin()
        account = self._account
        async with account.control:
            removed = self._in_the_way()
            garbage = [store for record in removed for store in record.stores]
            await account.catalog.rewrite(removed, self._records, finished=self._stores, garbage=garbage)
            self._stores = []
            account.leave(removed)
            for record in self._records:
                if record.type is ResourceType.CONTAINER:
                    await account.enter(record)
            for record in self._records:
                if record.type is ResourceType.OFFER:
                    account.budgets.assign_offer(record)
                    await account.budgets.make_room(record, account.reshaper)
        audit.record("snapshot-file.restored", scope="/".join(self._scope))
        account.events.record("restored", f"{'/'.join(self._scope)} was restored from a file.", *self._scope)
        await account.catalog.collect_garbage()
        root = ResourceType.CONTAINER if len(self._scope) == 2 else ResourceType.DATABASE
        return [record for record in self._records if record.type is root]

    async def abandon(self) -> None:
        if self._moving is not None:
            self._moving.loader.abandon()
            self._moving = None
        stores, self._stores = self._stores, []
        if stores:
            await self._account.catalog.abandon(stores)

    async def _take(self, frame: Frame) -> None:
        if frame.kind == HEADER:
            self._take_header(orjson.loads(frame.payload))
        elif self._scope is None:
            raise damaged("its header is missing")
        elif frame.kind == RECORD:
            if self._records:
                raise damaged("a record comes after the partitions")
            self._arrived.append(Record.unpack(frame.payload))
        elif frame.kind == STORE:
            if not self._records:
                await self._begin()
            await self._begin_store(orjson.loads(frame.payload))
        elif frame.kind == PAIRS:
            if self._moving is None:
                raise damaged("pairs belong to no partition")
            self._moving.put(unpack_pairs(frame.payload))
            await self._moving.loader.ready()

    def _take_header(self, header: Body) -> None:
        if header["stores"] not in FORMATS_READ:
            raise bad_request(
                f"The snapshot is of stores of format {header['stores']}; this version of Armillary reads formats "
                f"{FORMATS_READ[0]} to {FORMATS_READ[-1]}."
            )
        scope = check_scope(header["scope"])
        if self._scope is not None:
            raise damaged("it has two headers")
        target = self._target
        if target is not None and len(target) != len(scope):
            what = ("the whole account", "a database", "a container")[len(scope)]
            raise bad_request(f"The snapshot is of {what}; '{'/'.join(target)}' is not the name of one.")
        self._scope = scope

    # What becomes of the records.

    async def _begin(self) -> None:
        """Give everything its new rids and stores."""
        assert self._scope is not None
        self._account.catalog.check_changeable()
        check_records(self._scope, self._arrived)
        self._check_capacity()
        self._in_the_way()  # refuse early: before the items are read
        await self._account.refresh_figures()
        self._records = await self._account.catalog.reserve(self._reserved)
        self._stores = [store for record in self._records for store in record.stores]
        check_definitions(self._account, self._records)

    def _reserved(self, reservation: Reservation) -> list[Record]:
        self._became, self._due, self._places = {}, {}, []
        became: dict[bytes, Record] = {}
        links: dict[str, str] = {}  # of what was, by rids and by names, to what it becomes
        records: list[Record] = []
        for past in self._arrived:
            if past.type is ResourceType.OFFER:
                continue
            owner = became.get(past.owner)
            if owner is None and past.type is ResourceType.CONTAINER:
                owner = self._database(reservation, records)
            record = self._renewed(reservation, past, owner)
            became[past.rid] = record
            links[past.self_link.strip("/")] = record.self_link.strip("/")
            records.append(record)
        for record in records:
            if record.type is ResourceType.PERMISSION:
                record.body = {**record.body, "resource": self._new_link(record.body["resource"], links)}
        return records + self._offers(reservation, became, records)

    def _renewed(self, reservation: Reservation, past: Record, owner: Record | None) -> Record:
        rid = reservation.rid(past.type, owner.rid if owner is not None else b"")
        name = self._new_name(past)
        link = resources.self_link(owner.self_link if owner is not None else "", past.type, rid)
        etag, ts = reservation.stamp()
        record = replace(
            past, rid=rid, owner=owner.rid if owner is not None else b"", name=name, etag=etag, ts=ts, self_link=link
        )
        record.body = {**past.body, "id": name}
        if past.type is ResourceType.CONTAINER:
            state = past.container_state
            assert owner is not None
            places = self._places_for(past, owner, len(state.ranges))
            ranges = tuple(
                [
                    replace(each, store=reservation.store(place))
                    for each, place in zip(state.ranges, places, strict=True)
                ]
            )
            first_lsn = self._account.highest_lsn
            # What the container says of others by their rids is not true here.
            moved = replace(state, ranges=ranges, first_lsn=first_lsn, migration=None, former_rid=None)
            record.state = moved.to_json()
            self._became[past.rid] = record
            self._due |= {(past.rid, each.id): each.store for each in ranges}
        return record

    def _places_for(self, past: Record, database: Record, count: int) -> Sequence[int]:
        """As for a new container. Those that share the throughput of a database that comes with them are in the same
        processes."""
        owners = {each.offer_state.owner for each in self._arrived if each.type is ResourceType.OFFER}
        if past.rid_text not in owners and rid_text(past.owner) in owners:
            for each in self._became.values():
                ranges = each.container_state.ranges
                if each.owner == database.rid and len(ranges) == count:
                    return [place_of_store(own.store) for own in ranges]
        places = self._account.places_for(database, count, self._places)
        self._places += places
        return places

    def _database(self, reservation: Reservation, records: list[Record]) -> Record:
        """The one that a single container comes to; made if there is none."""
        assert self._scope is not None
        name = (self._target or self._scope)[0]
        found = self._account.catalog.find(ResourceType.DATABASE, b"", name)
        if found is not None:
            return found
        rid = reservation.rid(ResourceType.DATABASE, b"")
        etag, ts = reservation.stamp()
        link = resources.self_link("", ResourceType.DATABASE, rid)
        made = Record(ResourceType.DATABASE, rid, b"", validate_name(name), {"id": name}, {}, ts, etag, link)
        records.append(made)
        return made

    def _offers(self, reservation: Reservation, became: dict[bytes, Record], records: list[Record]) -> list[Record]:
        made = []
        owners = {rid_text(rid): record for rid, record in became.items()}
        served = set()
        for past in self._arrived:
            if past.type is ResourceType.OFFER:
                owner = owners[past.offer_state.owner]
                body = {**past.body, "resource": owner.self_link, "offerResourceId": owner.rid_text}
                made.append(
                    _offer(reservation, body, replace(past.offer_state, owner=owner.rid_text).to_json(past.state))
                )
                served.add(owner.rid)
        is_serverless = self._account.settings.is_serverless
        for record in records:
            if record.type is not ResourceType.CONTAINER or is_serverless or {record.rid, record.owner} & served:
                continue
            database = self._account.catalog.get(ResourceType.DATABASE, record.owner)
            if database is None or self._account.catalog.offer_of(database) is None:
                # It shared what its database had, and this one has nothing to share.
                key = record.body.get("partitionKey")
                least = least_ru(self._account, PartitionKeyDefinition.parse(key) if key is not None else None)
                _, body, state = new_offer(Throughput(least), record)
                made.append(_offer(reservation, body, state))
        return made

    def _new_name(self, past: Record) -> str:
        target, scope = self._target, self._scope
        assert scope is not None
        if target is None or past.type not in (ResourceType.DATABASE, ResourceType.CONTAINER):
            return past.name
        is_root = past.type is (ResourceType.CONTAINER if len(scope) == 2 else ResourceType.DATABASE)
        return validate_name(target[-1]) if is_root else past.name

    def _new_link(self, link: str, links: dict[str, str]) -> str:
        """The resource of a permission, where that is named anew too."""
        words = link.strip("/").split("/")
        for count in range(len(words), 1, -2):
            found = links.get("/".join(words[:count]))
            if found is not None:
                return "/".join([found, *words[count:]])
        target, scope = self._target, self._scope
        if target is not None and scope is not None and len(scope) == 1 and words[:2] == ["dbs", scope[0]]:
            words[1] = target[0]
        return "/".join(words)

    def _check_capacity(self) -> None:
        has_offers = any(record.type is ResourceType.OFFER for record in self._arrived)
        if has_offers and self._account.settings.is_serverless:
            raise bad_request("The snapshot has provisioned throughput, and this account is serverless.")

    def _in_the_way(self) -> list[Record]:
        """What has the names already, with all below it; refused unless it may go."""
        assert self._scope is not None
        catalog = self._account.catalog
        found: list[Record] = []
        if len(self._scope) == 2:
            database = catalog.find(ResourceType.DATABASE, b"", (self._target or self._scope)[0])
            names = {self._new_name(each) for each in self._arrived if each.type is ResourceType.CONTAINER}
            found = catalog.children(ResourceType.CONTAINER, database.rid) if database is not None else []
        else:
            names = {self._new_name(each) for each in self._arrived if each.type is ResourceType.DATABASE}
            found = catalog.of_type(ResourceType.DATABASE)
        found = [record for record in found if record.name in names]
        if found and not self._replaces:
            raise Failure(
                Kind.CONFLICT,
                f"There is '{found[0].name}' already. Restore under another name, or say that it is to be replaced.",
            )
        return [each for record in found for each in catalog.tree(record)]

    # What becomes of the items.

    async def _begin_store(self, place: Body) -> None:
        if self._moving is not None:
            await self._end_store()
        rid = bytes.fromhex(place["container"])
        store = self._due.pop((rid, place["range"]), None)
        if store is None:
            raise damaged("a partition is there that no container has")
        past = next(record for record in self._arrived if record.rid == rid)
        account = self._account
        others = None if account.holds(store) else account.others
        loader = account.engine.store(store).loader() if others is None else others.loader(store)
        self._moving = _Moving(past, self._became[rid], store, loader)

    async def _end_store(self) -> None:
        moving, self._moving = self._moving, None
        assert moving is not None
        await moving.loader.finish()
        ranges = {each.store: each for each in moving.becomes.container_state.ranges}
        first = resources.first_item_rid(ranges[moving.store].id)
        head = moving.head or log.new_head(first, 0)
        account = self._account
        head.lsn = max(head.lsn, account.highest_lsn)
        self.item_count += head.item_count
        if account.others is not None and not account.holds(moving.store):
            await account.others.put(moving.store, [(layout.HEAD_KEY, head.pack())])
            return

        def run(txn: Txn) -> None:
            txn.put(layout.HEAD_KEY, head.pack())

        await account.engine.store(moving.store).write(run)


class _Moving:
    """A partition that is being imported."""

    def __init__(self, past: Record, becomes: Record, store: int, loader: Loader) -> None:
        self._past = past
        self.becomes = becomes
        self.store = store
        self.loader = loader
        self.head: log.Head | None = None

    def put(self, pairs: list[Pair]) -> None:
        ready = []
        for key, value in pairs:
            if key == layout.HEAD_KEY:
                self.head = log.unpack_head(value)
                continue
            if key[:1] in _WITH_RIDS and value[0] == FORMAT_JSON:
                value = self._renamed(int.from_bytes(key[-layout.RID_BYTES :], "big"), value)
            ready.append((key, value))
        self.loader.put(ready)

    def _renamed(self, number: int, stored: bytes) -> bytes:
        """An item with other rids in its system properties: as long as before, so no counter changes."""
        header = unpack_header(stored)
        etag = items.etag(number, header.lsn, header.step, header.ts)
        past, becomes = (_end_of(record, number, etag, header.ts) for record in (self._past, self.becomes))
        if not stored.endswith(past):
            raise damaged("an item lacks its system properties")
        return stored[: -len(past)] + becomes


def _end_of(record: Record, number: int, etag: str, ts: int) -> bytes:
    rid = item_rid_text(record.rid, number)
    return items.close_text(rid, f"{record.self_link}docs/{rid}/", etag, ts)


def _offer(reservation: Reservation, body: Body, state: dict[str, Any]) -> Record:
    rid = reservation.rid(ResourceType.OFFER, b"")
    etag, ts = reservation.stamp()
    link = resources.self_link("", ResourceType.OFFER, rid)
    name = rid_text(rid)
    return Record(ResourceType.OFFER, rid, b"", name, {**body, "id": name}, state, ts, etag, link)
