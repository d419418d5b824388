"""Restore of a snapshot in place, while clients go on. Resources and items have their rids, etags and times again;
resources and items that were created since are gone.

Where little was written since, that is undone (`partition/reshaping/item_moves.py`). Elsewhere the snapshot is copied
to new stores, and one transaction of the catalog puts them in the place of the present ones, as at the end of a split:
lsns and the ids of ranges only grow, so session tokens, continuations and cached ranges of before stay good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from armillary import audit, limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.migration.migration import Migration
from armillary.account.snapshots.snapshots import Snapshot, copied, records_of
from armillary.account.visits.elsewhere.other_processes import Copying, PinnedPartition
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.model.resources import ResourceType, first_item_rid
from armillary.partition.held_writers import hold_all
from armillary.partition.history import log
from armillary.partition.partition import Partition
from armillary.partition.reshaping.item_moves import TooMuch
from armillary.partition.upkeep.background_throttle import portions
from armillary.storage.engine import Kept, Store, Txn, View


@dataclass(slots=True)
class Outcome:
    rewound: int = 0  # containers whose changes were undone
    copied: int = 0  # containers that were copied


@dataclass(slots=True)
class _Copy:
    """A container that is brought back as a copy of its stores."""

    past: Record
    ranges: list[KeyRange] = field(default_factory=list)  # where it is copied to
    views: dict[int, Kept] = field(default_factory=dict)  # of the copies, by store


async def restore(account: Account, snapshot: Snapshot) -> Outcome:
    account.catalog.check_changeable()  # even where nothing was changed since the snapshot
    _refuse_migrating(account, snapshot)
    async with account.control:
        async with AsyncExitStack() as stilled:
            present = _present(account, snapshot)
            containers = [each for each in map(account.container_by_rid, {record.rid for record in present}) if each]
            if account.others is not None:
                await stilled.enter_async_context(account.others.still([each.record.rid for each in containers]))
            for container in containers:
                stilled.enter_context(await account.reshaper.hold_still(container))
            too_much = await _rewind_elsewhere(account, snapshot)
            copies = []
            for past in snapshot.containers:
                if past.rid in too_much or not await _rewind(account, snapshot, past):
                    copies.append(_Copy(past))
            await _copy_all(account, snapshot, copies)
            await _switch(account, snapshot, _present(account, snapshot), copies)
        for offer in [record for record in snapshot.records if record.type is ResourceType.OFFER]:
            account.budgets.assign_offer(offer)
            await account.budgets.make_room(offer, account.reshaper)
    audit.record("snapshot.restored", name=snapshot.name, scope="/".join(snapshot.scope))
    text = f"The snapshot {snapshot.name} of {'/'.join(snapshot.scope) or 'all databases'} was brought back."
    account.events.record("restored", text, *snapshot.scope, name=snapshot.name)
    await account.catalog.collect_garbage()
    return Outcome(len(snapshot.containers) - len(copies), len(copies))


def _refuse_migrating(account: Account, snapshot: Snapshot) -> None:
    """A migration follows the changes of a container, and a restore is not among them."""
    for names, running in account.migrations.items():
        is_over = isinstance(running, Migration) and running.is_ended
        if names[: len(snapshot.scope)] == snapshot.scope and not is_over:
            raise Failure(
                Kind.CONFLICT, f"'{'/'.join(names)}' is being migrated. Stop that first, or wait for its end."
            )


def _present(account: Account, snapshot: Snapshot) -> list[Record]:
    """The present resources with the rids or names of the snapshot's: all of them are removed or restored."""
    catalog = account.catalog
    if not snapshot.scope:
        return records_of(account, ())
    root = snapshot.records[0]
    if root.type is ResourceType.CONTAINER and catalog.get(ResourceType.DATABASE, root.owner) is None:
        raise Failure(
            Kind.NOT_FOUND, f"The database of '{snapshot.place}' was deleted: this snapshot is of a container in it."
        )
    roots = {id(each): each for each in (catalog.get(root.type, root.rid), _named(account, root)) if each is not None}
    return [each for found in roots.values() for each in catalog.tree(found)]


def _named(account: Account, root: Record) -> Record | None:
    """What has the name now."""
    return next((each for each in account.catalog.children(root.type, root.owner) if each.name == root.name), None)


# Undoing what was written since.


async def _rewind_elsewhere(account: Account, snapshot: Snapshot) -> set[bytes]:
    """Undo what was written to partitions of other processes since. Returns the containers for which it was too
    much."""
    wanted = []
    for past in snapshot.containers if snapshot.elsewhere is not None else ():
        container = account.container_by_rid(past.rid)
        if container is not None and _is_rewindable(container, past):
            wanted += [
                PinnedPartition(past.rid, each.id, each.store)
                for each in past.container_state.ranges
                if snapshot.view(each.store) is None
            ]
    return await snapshot.others.rewind(wanted) if wanted else set()


async def _rewind(account: Account, snapshot: Snapshot, past: Record) -> bool:
    """Whether what was written to a container since could be undone."""
    container = account.container_by_rid(past.rid)
    if container is None or not _is_rewindable(container, past):
        return False
    try:
        for partition in container.partitions.values():
            view = snapshot.view(partition.range.store)
            if view is not None and partition.head_in(view).lsn != partition.lsn:
                await partition.rewind(view)
    except TooMuch:
        return False
    return True


def _is_rewindable(container: Container, past: Record) -> bool:
    """Whether all that was done to the items since is in the log, and only there."""
    now, then, schema = container.state, past.container_state, container.schema
    return (
        now.ranges == then.ranges
        and now.rules_number == then.rules_number
        and not schema.older_rules
        and not then.older_rules
        and not schema.keeps_events
        and not schema.versions_number
        and schema.cap is None
    )


# Copying.


async def _copy_all(account: Account, snapshot: Snapshot, copies: list[_Copy]) -> None:
    """Fill new stores. No request is routed to them yet."""
    if not copies:
        return
    # Each copy is in the process that has the original.
    places = [[place_of_store(each.store) for each in copy.past.container_state.ranges] for copy in copies]
    stores = await account.catalog.reserve(
        lambda reservation: [[reservation.store(place) for place in of] for of in places]
    )
    await account.refresh_figures()
    lsn = account.highest_lsn
    elsewhere: list[Copying] = []
    try:
        for copy, of in zip(copies, stores, strict=True):
            container = account.container_by_rid(copy.past.rid)
            copy.ranges = _new_ranges(copy.past, container, of)
            for each, target in zip(copy.past.container_state.ranges, copy.ranges, strict=True):
                view = snapshot.view(each.store)
                if view is None:
                    elsewhere.append(Copying(each.store, target.store, target.id, lsn))
                    continue
                store = account.engine.store(target.store)
                await copy_store(view, store)
                await store.write(founding(view, target.id, lsn))
                copy.views[target.store] = await store.pin()
        if elsewhere:
            await snapshot.others.copy(elsewhere)
    except BaseException:
        _release(snapshot, copies)
        await account.catalog.abandon([store for of in stores for store in of])
        raise


def _new_ranges(past: Record, container: Container | None, stores: list[int]) -> list[KeyRange]:
    """The same stretches of keys as then, with ids that were never used, as children of what is there now."""
    present = container.map if container is not None else None
    first_id = max(past.container_state.next_range, container.state.next_range if container is not None else 0)
    ranges = []
    for number, (before, store) in enumerate(zip(past.container_state.ranges, stores, strict=True)):
        ancestors = {before.id, *before.parents}
        for overlapped in present.overlapping(before.low, before.high) if present is not None else ():
            ancestors |= {overlapped.id, *overlapped.parents}
        parents = tuple(sorted(ancestors))[-limits.PAST_RANGES_MAX :]
        ranges.append(KeyRange(first_id + number, before.low, before.high, parents, store))
    return ranges


async def copy_store(view: View, store: Store) -> None:
    """All of a partition but its head, byte for byte."""
    loader = store.loader()
    try:
        for portion in portions(view.scan(b"", b"\xff" * 8), limits.COPY_PORTION_ENTRIES):
            loader.put([pair for pair in portion if pair[0] != layout.HEAD_KEY])
            await asyncio.sleep(0)
            await loader.ready()
        await loader.finish()
    except BaseException:
        loader.abandon()
        raise


def founding(view: View, range_id: int, lsn: int) -> Callable[[Txn], None]:
    """Give a copy a head of its own: lsns that were given out are not given again, and it numbers its own items."""
    head = log.load_head(view, 0, 0)

    def run(txn: Txn) -> None:
        head.lsn, head.next_rid = max(head.lsn, lsn), first_item_rid(range_id)
        txn.put(layout.HEAD_KEY, head.pack())

    return run


# Taking over.


async def _switch(account: Account, snapshot: Snapshot, present: list[Record], copies: list[_Copy]) -> None:
    now = {(record.type, record.rid): record for record in present}
    by_rid = {copy.past.rid: copy for copy in copies}
    until_s = account.clock.now_s() + limits.RETIRED_SECONDS
    added = [
        _restored(record, now.get((record.type, record.rid)), by_rid.get(record.rid), until_s)
        for record in snapshot.records
    ]
    if not copies and _are_alike(present, added):
        return  # as it mostly is when a test has just written something
    is_kept = {(record.type, record.rid) for record in added}
    leaving = [record for record in present if (record.type, record.rid) not in is_kept]
    held = [container for copy in copies if (container := account.container_by_rid(copy.past.rid)) is not None]
    garbage = [store for record in leaving for store in record.stores]
    parents = {
        container.record.rid: [each for each in container.partitions.values() if not each.is_elsewhere]
        for container in held
    }
    finished = [each.store for copy in copies for each in copy.ranges]
    await hold_all([partition for each in parents.values() for partition in each])
    async with AsyncExitStack() as others:
        try:
            if account.others is not None and held:
                await others.enter_async_context(account.others.held(list(parents)))
            arrivals = {copy.past.rid: await _opened(account, copy) for copy in copies}
            await account.catalog.rewrite(present, added, finished=finished, garbage=garbage)
        except BaseException as error:
            for each in parents.values():
                for partition in each:
                    partition.release()
            _release(snapshot, copies)
            if isinstance(error, Failure):  # it did not take place: the copies are garbage
                await account.catalog.abandon(finished)
            raise
        account.leave(leaving)
        for record in added:
            container = account.container_by_rid(record.rid)
            if container is None:
                continue
            container.database = account.catalog.get(ResourceType.DATABASE, record.owner) or container.database
            container.adopt(record)
            if record.rid in arrivals:
                new_map = PartitionMap(record.container_state.ranges)
                container.take_over(new_map, arrivals[record.rid])
                for partition in parents[record.rid]:
                    partition.move()
                account.reshaper.replaced(container, parents[record.rid])
            account.budgets.assign(container)
            account.settle_rules(container)
        account.forget_names()
        _keep(snapshot, added, copies)
    for record in added:
        if record.type is ResourceType.CONTAINER and account.container_by_rid(record.rid) is None:
            await account.enter(record)


def _are_alike(present: Sequence[Record], added: Sequence[Record]) -> bool:
    return sorted(record.pack() for record in present) == sorted(record.pack() for record in added)


def _restored(past: Record, present: Record | None, copy: _Copy | None, until_s: float) -> Record:
    """A record as it was, with the present ranges or those of the copy, and with counters that never go back."""
    record = copied(past)
    if past.type is not ResourceType.CONTAINER:
        return record
    own = record.container_state
    if copy is not None:
        own = replace(own, ranges=tuple(copy.ranges), next_range=1 + max(each.id for each in copy.ranges))
    if present is not None:
        now = present.container_state
        grown = replace(now, past=now.past or own.past)
        replaced = now.ranges if copy is not None else ()
        own = replace(
            own,
            retired=grown.retired_with(replaced, until_s),
            past=grown.past_with(replaced),
            next_reshape=max(own.next_reshape, now.next_reshape),
        )
    record.state = own.to_json()
    return record


async def _opened(account: Account, copy: _Copy) -> list[Partition]:
    """The copies as partitions, which go on from the last lsn of those that are held now."""
    container = account.container_by_rid(copy.past.rid)
    if container is None:
        return []
    lsn = max([await _last_lsn(parent) for parent in container.partitions.values()])
    for each in copy.ranges:
        if account.holds(each.store):
            await account.engine.store(each.store).write(lambda txn: raise_lsn(txn, lsn))
    elsewhere = [each.store for each in copy.ranges if not account.holds(each.store)]
    if account.others is not None and elsewhere:
        await account.others.raise_lsns(elsewhere, lsn)
    partitions = [container.new_partition(each) for each in copy.ranges]
    for partition in partitions:
        await partition.open()
    return partitions


async def _last_lsn(partition: Partition) -> int:
    """Of all that was ever written to one that is held."""
    if partition.is_elsewhere:
        return partition.lsn  # as its process has told when the hold began
    await partition.store.write(lambda txn: None)  # answered when all before it is durable, and shown to readers
    return await partition.read(partition.lsn_in)


def raise_lsn(txn: Txn, lsn: int) -> None:
    """Let all that follows have lsns above this one."""
    head = log.load_head(txn, 0, 0)
    head.lsn = max(head.lsn, lsn)
    txn.put(layout.HEAD_KEY, head.pack())


def _keep(snapshot: Snapshot, added: list[Record], copies: list[_Copy]) -> None:
    """Have the snapshot show the copies from now on, so that the next restore can undo changes instead of copying."""
    for copy in copies:
        stores = [each.store for each in copy.past.container_state.ranges]
        for store in stores:
            view = snapshot.views.pop(store, None)
            if view is not None:
                view.release()
        if snapshot.elsewhere is not None:
            snapshot.elsewhere.release(stores)
        snapshot.views |= copy.views
    snapshot.records = [copied(record) for record in added]


def _release(snapshot: Snapshot, copies: list[_Copy]) -> None:
    """The copies are not used."""
    for copy in copies:
        for view in copy.views.values():
            view.release()
        if snapshot.elsewhere is not None:
            snapshot.elsewhere.release([each.store for each in copy.ranges])
