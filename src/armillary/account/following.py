"""The account on a node that follows: opened without writing, and brought to each group of the replicated log in the
step of the event loop that shows the group to readers. It runs nothing by itself: splits, TTL sweeps, changes of policy
and migrations are the leader's. Requests that write are refused, by storage or before by the catalog. `roles.py` begins
the history of what this node meters, which writes nothing that nodes share.

What is kept in memory of the stored state is listed in docs/architecture.md, "Followers". Named snapshots, cursors,
open transactions, fault rules and what was metered are this node's own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from typing import NamedTuple

from armillary.account.account import Account
from armillary.account.catalog.catalog import CATALOG_STORE, SECRET
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.clock import Clock
from armillary.model.ranges import PartitionMap
from armillary.model.resources import ResourceType, rid_bytes
from armillary.partition import adoption
from armillary.partition.adoption import StoreChanges
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition
from armillary.storage.engine import Engine, Store, View
from armillary.storage.overlay import Layer
from armillary.storage.replication.group_commit import not_leader
from armillary.storage.rocks_store import PREFIX_BYTES, prefix_of

_CATALOG = prefix_of(CATALOG_STORE)


class _Retired(NamedTuple):
    """A partition that was split, merged or restored over, and may have readers."""

    container: Container
    partition: weakref.ref[Partition]
    meter: Meter


class FollowingAccount(Account):
    """Made by `open`. `adopt` is given to the follower of the log."""

    def __init__(self, engine: Engine, clock: Clock, settings: AccountSettings) -> None:
        super().__init__(engine, clock, settings)
        self._by_store: dict[bytes, Partition] = {}  # those that serve, by the prefix of their store
        self._retired: dict[int, _Retired] = {}  # by store
        self.has_secret = asyncio.Event()  # not set on an empty replica: no door can be opened yet
        self.catalog.follow(not_leader)
        self.catalog.on_setting[SECRET] = self._adopt_secret

    @classmethod
    async def open(cls, engine: Engine, clock: Clock, settings: AccountSettings | None = None) -> FollowingAccount:
        """No group may be published until this returns."""
        account = cls(engine, clock, settings or AccountSettings())
        await account.catalog.load()
        account._adopt_secret(await account.catalog.kept_setting(SECRET))
        await account.database_users.open()
        account._check_capacity()
        await account.history.open()
        for record in account.catalog.of_type(ResourceType.CONTAINER):
            container = account._made(record)
            await container.open()
            account.take_in(container)
        for offer in account.catalog.of_type(ResourceType.OFFER):
            account.budgets.assign_offer(offer)
        return account

    def take_in(self, container: Container) -> Container:
        self._serve(container)
        self._enter(container.partitions.values())
        return container

    def leave(self, doomed: list[Record]) -> None:
        for record in doomed:
            container = self._containers.get(record.rid)
            if container is not None:
                self._drop([store for store, each in self._retired.items() if each.container is container])
                for partition in container.partitions.values():
                    self._by_store.pop(prefix_of(partition.range.store), None)
        super().leave(doomed)

    # Adoption.

    def adopt(self, layer: Layer, notes: bytes) -> None:
        """Take over what a group has written. Readers see it already; nothing else has run since."""
        self._adopt_stores(layer)
        written = {key[PREFIX_BYTES:]: value for key, value in layer.writes.items() if key.startswith(_CATALOG)}
        if written:
            self._adopt_catalog(*self.catalog.adopt(written))

    def _adopt_stores(self, layer: Layer) -> None:
        found = adoption.changes_by_store(layer, self._by_store)
        if layer.cleared:
            for prefix in self._by_store:
                if adoption.is_cleared(layer, prefix):
                    found.setdefault(prefix, StoreChanges()).is_cleared = True
        for prefix, changes in found.items():
            partition = self._by_store[prefix]
            adoption.adopt(partition, changes, _published(partition.store))

    def _adopt_secret(self, stored: bytes | None) -> None:
        self.secret = stored or b""  # the first leader makes it
        if stored:
            self.has_secret.set()

    def _adopt_catalog(self, removed: list[Record], added: list[Record]) -> None:
        if not removed and not added:
            return
        here = {(record.type, record.rid) for record in added}
        self.leave([record for record in removed if (record.type, record.rid) not in here])
        for record in added:
            if record.type is ResourceType.DATABASE:
                for container in self.containers:
                    if container.record.owner == record.rid:
                        container.adopt_database(record)
            elif record.type is ResourceType.CONTAINER:
                present = self._containers.get(record.rid)
                if present is not None:
                    self._adopt_container(present, record)
                else:
                    self._open_published(record)
        self._adopt_offers([record for record in (*removed, *added) if record.type is ResourceType.OFFER])
        self.forget_names()

    def _open_published(self, record: Record) -> None:
        container = self._made(record)
        for partition in container.partitions.values():
            _load(partition)
        self.take_in(container)

    def _adopt_container(self, container: Container, record: Record) -> None:
        container.adopt(record)
        state = record.container_state
        if state.ranges != container.map.ranges:
            new_map = PartitionMap(state.ranges)
            parents = [each for each in container.partitions.values() if new_map.get(each.range.id) is None]
            children = [container.new_partition(each) for each in new_map.ranges if each.id not in container.partitions]
            for child in children:
                _load(child)
            container.take_over(new_map, children)
            self._enter(children)
            for parent in parents:
                self._retire(container, parent)
        kept = {each.store for each in state.retired}
        self._drop(
            [store for store, each in self._retired.items() if each.container is container and store not in kept]
        )
        self.budgets.assign(container)

    def _adopt_offers(self, offers: Iterable[Record]) -> None:
        """The shares of containers whose throughput, or whose database's, was changed."""
        for offer in offers:
            owner_rid = rid_bytes(offer.offer_state.owner)
            for container in self.containers:
                if owner_rid in (container.record.rid, container.record.owner):
                    self.budgets.assign(container)

    # Partitions.

    def _enter(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._by_store[prefix_of(partition.range.store)] = partition

    def _retire(self, container: Container, parent: Partition) -> None:
        """Reads of a parent that have begun may finish; its keys are its children's now."""
        self._by_store.pop(prefix_of(parent.range.store), None)
        parent.hold()
        parent.move()
        self._retired[parent.range.store] = _Retired(container, weakref.ref(parent), parent.meter)

    def _drop(self, stores: Iterable[int]) -> None:
        """The catalog gives these stores up: the range delete comes with this group or a later one, and readers get 410
        from now on."""
        for store in stores:
            retired = self._retired.pop(store)
            partition = retired.partition()
            if partition is not None:
                partition.is_dropped = True
            retired.container.forget(retired.meter)


def _load(partition: Partition) -> None:
    view = _published(partition.store)
    partition.load(view)
    partition.records.load(view)


def _published(store: Store) -> View:
    view = store.at_hand()
    assert view is not None, "the group that is adopted was published"
    return view
