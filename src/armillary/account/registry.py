"""What every part of an account needs: engine, clock, settings, catalog, and the open containers, found by their names.

`Account` adds opening containers, upkeep, splits and throughput. The modules of these are given the registry and do
not import the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import Catalog, Guard
from armillary.account.catalog.records import Record
from armillary.account.cluster_operations import ClusterOperations
from armillary.account.container import Container, StandIns
from armillary.account.events import Events
from armillary.account.topology import Topology
from armillary.account.visits.elsewhere.other_processes import OtherProcesses, SpanningProcesses
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.model.charges import consistency_factor
from armillary.model.resources import ResourceType
from armillary.scripts.jail import Confinement
from armillary.storage.engine import Engine


@dataclass(frozen=True, slots=True)
class AccountSettings:
    name: str = "localhost"
    profile: str = "today"  # the edition of Microsoft's articles whose defaults these are (tools/profiles.py)
    region: str = limits.REGION
    consistency: str = "Session"
    staleness_transactions: int = limits.STALENESS_TRANSACTIONS  # of bounded staleness: how far reads may be behind
    staleness_s: int = limits.STALENESS_SECONDS  # likewise
    partition_throughput_ru: int = limits.PARTITION_THROUGHPUT_RU
    has_partition_headroom: bool = True  # new containers get more partitions than carry their throughput
    partitioned_throughput_min_ru: int = limits.THROUGHPUT_MIN_RU  # of a container with a partition key
    throughput_max_ru: int = limits.THROUGHPUT_MAX_RU  # of a container or database
    logical_partition_bytes_max: int = limits.LOGICAL_PARTITION_BYTES_MAX
    throughput_mode: str = "observe"  # or enforce, or off; containers may differ
    is_serverless: bool = False
    has_burst: bool = False
    partition_storage_bytes: int = limits.PARTITION_STORAGE_BYTES
    merges_by_policy: bool = False
    script_confinement: Confinement = "filter"
    history_memory_bytes: int = limits.HISTORY_MEMORY_BYTES  # of load; 0: none is kept
    history_path: Path | None = None  # the file that it is saved in; None: it is not
    captures_path: Path | None = None  # the directory of captures; None: they are kept in memory
    read_factor: int = field(init=False)  # of the charges of reads, at the account's consistency level

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_factor", consistency_factor(self.consistency))


class Registry:
    def __init__(self, engine: Engine, clock: Clock, settings: AccountSettings) -> None:
        self.engine = engine
        self.clock = clock
        self.settings = settings
        self.operations: ClusterOperations | None = None  # for the operator of a cluster
        self.topology: Topology | None = None  # of the cluster; None: a single server
        self.place = 0  # the number of this process, where several hold the partitions of an account
        self.other_places: Mapping[int, Any] = {}  # the others of them (`visits/elsewhere/place.py`), by number
        self.stand_ins: StandIns | None = None  # for partitions that other processes hold; None: there are none
        self.others: OtherProcesses | None = None  # those that hold them, to the process that decides; None: no others
        self.spanning: SpanningProcesses | None = None  # of transactions and snapshots over several processes
        self.is_read_only = False  # doors refuse writes of clients; background work goes on
        self.events = Events(clock)  # for people who look
        self.catalog = Catalog(engine, clock)
        self.catalog.on_reported = self.events.resource_changed
        self._containers: dict[bytes, Container] = {}  # by rid
        self.by_names: dict[tuple[str, str], Container] = {}  # a cache: emptied whenever a name may have changed

    def check_writable(self) -> None:
        """Called by doors before they answer a request that may write."""
        if self.is_read_only:
            raise Failure(
                Kind.FORBIDDEN,
                "The server is in read-only mode: writes are refused, reads are answered. Its operator ends it with "
                "`armillary runtime --no-read-only`, or by a restart without --read-only.",
                details={"is_read_only": True},
            )

    # Several processes that hold the partitions of one account.

    @property
    def plans(self) -> bool:
        """Whether this process decides about splits, merges and changes of policy: one of them does."""
        return self.place == 0

    @property
    def place_count(self) -> int:
        """How many processes there are."""
        return 1

    def reaches(self, place: int) -> bool:
        """Whether the partitions that the process with this number holds can be used."""
        return place == self.place

    def holds(self, store: int) -> bool:
        """Whether a store is in the engine of this process."""
        return self.stand_ins is None or place_of_store(store) == self.place

    def place_guard(self, store: int) -> Guard | None:
        """Refuses a change of the catalog that was decided where a store was held, when it has another holder by then;
        None: it never has."""
        return None

    async def refresh_figures(self, key_count: int = 0) -> None:
        """Before figures of partitions are shown: ask the processes that hold them. `key_count`: of the busiest keys of
        each partition that are wanted."""

    async def spread_controls(self) -> None:
        """After the control API has changed something at run time: have the other processes obey it."""

    def switching_lock(self, container: Container) -> AbstractAsyncContextManager[object, None]:
        """Held while a split or merge of a container replaces its ranges."""
        return asyncio.Lock()

    # Finding things by the names (or rids) that links are made of.

    def database(self, name: str) -> Record:
        record = self.catalog.find(ResourceType.DATABASE, b"", name)
        if record is None:
            raise missing(ResourceType.DATABASE, name)
        return record

    def container(self, database: str, name: str) -> Container:
        container = self.by_names.get((database, name))
        if container is None:
            record = self.find(ResourceType.CONTAINER, (database, name))
            container = self.by_names[(database, name)] = self._containers[record.rid]
        return container

    def owner_container(self, database: str, name: str) -> Container:
        """The container of something inside it: its absence is reported as the owner's."""
        container = self.by_names.get((database, name))
        if container is not None:
            return container
        try:
            return self.container(database, name)
        except Failure as failure:
            raise Failure(Kind.OWNER_NOT_FOUND, failure.message, charge_ru=failure.charge_ru) from None

    def find(self, resource_type: ResourceType, names: tuple[str, ...]) -> Record:
        """Any resource of the catalog by its path of names: database, container or user, resource."""
        path = _PATHS[resource_type]
        assert len(names) == len(path)
        owner = self.owner(resource_type, names[:-1])
        record = self.catalog.find(resource_type, owner.rid if owner is not None else b"", names[-1])
        if record is None:
            raise missing(resource_type, names[-1])
        if resource_type is ResourceType.CONTAINER and record.rid not in self._containers:
            raise Failure(Kind.UNAVAILABLE, f"The container '{record.name}' is not open yet. Try again in a moment.")
        return record

    def owner(self, resource_type: ResourceType, names: tuple[str, ...]) -> Record | None:
        """The owner of the resources of a type: None for databases and offers."""
        if resource_type is ResourceType.OFFER and self.settings.is_serverless:
            raise bad_request("Reading or replacing offers is not supported for serverless accounts.")
        owner: Record | None = None
        for each_type, name in zip(_PATHS[resource_type], names, strict=False):
            found = self.catalog.find(each_type, owner.rid if owner is not None else b"", name)
            if found is None:
                failure = missing(each_type, name)
                failure.kind = Kind.OWNER_NOT_FOUND
                raise failure
            owner = found
        return owner

    def owner_of(self, record: Record) -> Record | None:
        path = _PATHS[record.type]
        return self.catalog.get(path[-2], record.owner) if len(path) > 1 else None

    def name_link(self, record: Record) -> str:
        """The link of a resource by names: dbs/<name>/colls/<name>."""
        owner = self.owner_of(record)
        link = f"{record.type.value}/{record.name}"
        return f"{self.name_link(owner)}/{link}" if owner is not None else link

    # Open containers.

    def container_by_rid(self, rid: bytes) -> Container | None:
        return self._containers.get(rid)

    @property
    def containers(self) -> list[Container]:
        return list(self._containers.values())

    def forget_names(self) -> None:
        """A container has another name."""
        self.by_names.clear()


# The owners of each type, outermost first, ending in the type itself.
_IN_DATABASE = (ResourceType.DATABASE,)
_IN_CONTAINER = (ResourceType.DATABASE, ResourceType.CONTAINER)
_PATHS: dict[ResourceType, tuple[ResourceType, ...]] = {
    ResourceType.DATABASE: (ResourceType.DATABASE,),
    ResourceType.OFFER: (ResourceType.OFFER,),
    ResourceType.CONTAINER: (*_IN_DATABASE, ResourceType.CONTAINER),
    ResourceType.USER: (*_IN_DATABASE, ResourceType.USER),
    ResourceType.PERMISSION: (*_IN_DATABASE, ResourceType.USER, ResourceType.PERMISSION),
    ResourceType.ENCRYPTION_KEY: (*_IN_DATABASE, ResourceType.ENCRYPTION_KEY),
    ResourceType.PROCEDURE: (*_IN_CONTAINER, ResourceType.PROCEDURE),
    ResourceType.TRIGGER: (*_IN_CONTAINER, ResourceType.TRIGGER),
    ResourceType.FUNCTION: (*_IN_CONTAINER, ResourceType.FUNCTION),
    ResourceType.CONFLICT: (*_IN_CONTAINER, ResourceType.CONFLICT),
}


def missing(resource_type: ResourceType, name: str) -> Failure:
    return Failure(Kind.NOT_FOUND, f"Resource Not Found. {resource_type.value} '{name}' does not exist.", charge_ru=1.0)
