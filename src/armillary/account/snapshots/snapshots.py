"""Snapshots of an account, a database or a container: what was in it at one moment, kept under a name in memory.

Taking one costs next to nothing: the catalog's records, and a snapshot of each partition that storage holds on to. They
go when the server stops. Bringing one back is `restore.py`'s part, making a file of it `snapshot_files.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from armillary import audit, limits
from armillary.account.catalog.records import Record
from armillary.account.registry import Registry
from armillary.account.visits.elsewhere.other_processes import PinnedElsewhere
from armillary.errors import Failure, Kind
from armillary.model.items import validate_name
from armillary.model.resources import ResourceType
from armillary.partition.history import log
from armillary.storage.engine import Kept, View


@dataclass(slots=True)
class Snapshot:
    name: str
    scope: tuple[str, ...]  # (), (database,) or (database, container)
    taken_s: float
    records: list[Record]  # of the scope's resources, owners first
    views: dict[int, Kept] = field(default_factory=dict)  # of their partitions, by store
    elsewhere: PinnedElsewhere | None = None  # of those that other processes hold

    @property
    def containers(self) -> list[Record]:
        return [record for record in self.records if record.type is ResourceType.CONTAINER]

    @property
    def place(self) -> str:
        return "/".join(self.scope)

    def counts(self) -> tuple[int, int]:
        """Items, and their bytes."""
        heads = [log.load_head(view, 0, 0) for view in self.views.values()]
        items, size_bytes = sum(head.item_count for head in heads), sum(head.size_bytes for head in heads)
        if self.elsewhere is not None:
            items, size_bytes = items + self.elsewhere.items, size_bytes + self.elsewhere.size_bytes
        return items, size_bytes

    def view(self, store: int) -> View | None:
        """None: another process has it."""
        return self.views.get(store)

    @property
    def others(self) -> PinnedElsewhere:
        assert self.elsewhere is not None, "its stores are all here"
        return self.elsewhere

    def release(self) -> None:
        for view in self.views.values():
            view.release()
        self.views = {}
        if self.elsewhere is not None:
            self.elsewhere.release()


async def take(registry: Registry, scope: tuple[str, ...], name: str = "") -> Snapshot:
    """A snapshot of what is durable in a scope now."""
    snapshot = Snapshot(name, scope, registry.clock.now_s(), [])

    def stores() -> list[int]:
        snapshot.records = [copied(record) for record in records_of(registry, scope)]
        return [each.store for record in snapshot.containers for each in record.container_state.ranges]

    if registry.others is not None:
        snapshot.views, snapshot.elsewhere = await registry.others.pin_together(stores)
        return snapshot
    try:
        # Pinning does not wait unless storage fails, so all partitions are pinned at one moment.
        for store in stores():
            snapshot.views[store] = await registry.engine.store(store).pin()
    except BaseException:
        snapshot.release()
        raise
    return snapshot


def records_of(registry: Registry, scope: tuple[str, ...]) -> list[Record]:
    """The resources of a scope, owners before what they own."""
    catalog = registry.catalog
    if not scope:
        return [each for root in catalog.of_type(ResourceType.DATABASE) for each in catalog.tree(root)]
    if len(scope) == 1:
        return catalog.tree(registry.database(scope[0]))
    return catalog.tree(registry.container(*scope).record)


def copied(record: Record) -> Record:
    """A record of its own, without the splits, merges and retired stores of the moment."""
    copy = Record.unpack(record.pack())
    if copy.type is ResourceType.CONTAINER:
        copy.state = replace(copy.container_state, reshapes=(), retired=(), wanted_ranges=0).to_json()
    return copy


class Snapshots:
    """The named snapshots of an account. They are in memory only."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_name: dict[str, Snapshot] = {}

    @property
    def all(self) -> list[Snapshot]:
        return list(self._by_name.values())

    def find(self, name: str) -> Snapshot:
        snapshot = self._by_name.get(name)
        if snapshot is None:
            raise Failure(
                Kind.NOT_FOUND,
                f"There is no snapshot '{name}'. They go when the server stops: take it again.",
            )
        return snapshot

    async def take(self, name: str, scope: tuple[str, ...]) -> Snapshot:
        """One that has the name already is replaced."""
        validate_name(name)
        if name not in self._by_name and len(self._by_name) >= limits.SNAPSHOTS_MAX:
            raise Failure(
                Kind.CONFLICT, f"There are {limits.SNAPSHOTS_MAX} snapshots in memory, the most. Delete one first."
            )
        snapshot = await take(self._registry, scope, name)
        former = self._by_name.pop(name, None)
        if former is not None:
            former.release()
        self._by_name[name] = snapshot
        audit.record("snapshot.taken", name=name, scope="/".join(scope))
        what = "/".join(scope) or "all databases"
        self._registry.events.record("snapshot", f"The snapshot {name} of {what} was taken.", *scope, name=name)
        return snapshot

    def forget(self, name: str) -> None:
        self.find(name).release()
        del self._by_name[name]
        audit.record("snapshot.deleted", name=name)

    def close(self) -> None:
        for snapshot in self._by_name.values():
            snapshot.release()
        self._by_name = {}
