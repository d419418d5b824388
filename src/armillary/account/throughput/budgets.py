"""Distribution of throughput: gives every partition an equal share of what is provisioned for its container or
database, and sets whether it is enforced. Called again whenever an offer, a mode or the map of a container changes.

Spending a share is `partition/budget.py`'s part, what may be provisioned `provisioning.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from armillary import limits
from armillary.account.catalog.container_state import ContainerState
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.load_history.recorder import LoadHistory
from armillary.account.registry import Registry
from armillary.account.throughput import provisioning as throughputs
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, bad_request
from armillary.model.resources import ResourceType, rid_bytes
from armillary.partition.budget import HUNDREDTHS, Budget
from armillary.partition.budget import Ask as Ask
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition

MODES = ("enforce", "observe", "off")
METADATA_RATE_IS_LARGE = (
    "Request rate is large. The request did not complete due to a high rate of metadata requests. Please retry this "
    "request later. Learn more: http://aka.ms/cosmosdb-error-429"
)

NO_DATABASE = (b"", 0)


class Charged(Protocol):
    """A request of some door, which knows its charge when it has been answered."""

    charge_ru: float


class Growth(Protocol):
    """What splits partitions until there are as many as an offer needs."""

    def is_growing(self, container: Container) -> bool: ...

    async def grow(self, container: Container, count: int) -> None: ...


_Call = TypeVar("_Call", bound=Charged)
_Answer = TypeVar("_Answer")


class Budgets:
    def __init__(self, registry: Registry, history: LoadHistory) -> None:
        self._registry = registry
        self._history = history
        self._without_room: set[bytes] = set()  # offers that were replaced and may need more partitions, by rid
        self._shared: dict[bytes, list[Budget]] = {}  # of databases, by rid: one for each of their partitions
        self._sharing: dict[bytes, list[tuple[int, Meter]]] = {}  # the partitions here, with the place of their budget
        settings = registry.settings
        # Requests about databases, containers and the like have a small budget of their own.
        self.metadata = Meter(registry.clock, METADATA_RATE_IS_LARGE)
        if settings.throughput_mode != "off":
            self.metadata.budget = self._budget(self.metadata, limits.METADATA_RU * HUNDREDTHS)
            self.metadata.is_enforcing = settings.throughput_mode == "enforce"

    # Requests about anything but items.

    async def answer_metadata(self, action: Callable[[_Call], Awaitable[_Answer]], call: _Call) -> _Answer:
        """Admit such a request, have it answered, and count what it cost, whatever came of it."""
        ticket = self.metadata.admit()
        try:
            answer = await action(call)
        except Failure as failure:
            raise self.metadata.charge(failure, None, ticket) from None
        self.metadata.spend(call.charge_ru, None, ticket)
        return answer

    def count_metadata(self, charge_ru: float) -> float:
        """Count such a request where it is never refused, and return what to answer as its charge."""
        return self.metadata.spend(charge_ru, None)

    def count_failure(self, failure: Failure) -> None:
        """Count a refusal that no meter has counted yet, for example because there is no such container."""
        if failure.charge_ru and not failure.is_metered:
            self.metadata.charge(failure, None)

    # Offers and their containers.

    def offer_of(self, owner: Record) -> Record | None:
        """The offer of a database or container, if it has one of its own."""
        return self._registry.catalog.offer_of(owner)

    def containers_of(self, offer: Record) -> list[Container]:
        """Those that an offer's throughput is for: one, or all that share a database's."""
        owner_rid = rid_bytes(offer.offer_state.owner) or b""
        own = self._registry.container_by_rid(owner_rid)
        if own is not None:
            return [own]
        return [
            container
            for container in self._registry.containers
            if container.database.rid == owner_rid and self.offer_of(container.record) is None
        ]

    def carried_ru(self, offer: Record) -> float:
        """The most that the present partitions carry."""
        counts = [len(each.partitions) for each in self.containers_of(offer)]
        return min(counts) * self._registry.settings.partition_throughput_ru if counts else math.inf

    def is_pending(self, offer: Record) -> bool:
        """Whether partitions must be split before the offer takes effect."""
        return throughputs.throughput_of(offer.body).ru > self.carried_ru(offer)

    def serving(self, offer: Record) -> Throughput:
        """What is in force: the offer, or while that is pending what was in force before."""
        if not self.is_pending(offer):
            return throughputs.throughput_of(offer.body)
        return throughputs.throughput_of(offer.offer_state.before or offer.body)

    def storage_bytes(self, offer: Record) -> int:
        return sum(
            partition.head.size_bytes
            for container in self.containers_of(offer)
            for partition in container.partitions.values()
        )

    def adopt(self, offer: Record) -> None:
        """An offer was replaced. Room for it is made by `make_room`, or by upkeep if the client has gone by now."""
        self.assign_offer(offer)
        self._without_room.add(offer.rid)

    async def keep_up(self, growth: Growth) -> None:
        for rid in list(self._without_room):
            offer = self._registry.catalog.get(ResourceType.OFFER, rid)
            if offer is not None:
                await self.make_room(offer, growth)
            self._without_room.discard(rid)

    async def make_room(self, offer: Record, growth: Growth) -> None:
        """Have as many partitions as an offer needs. Returns when that is under way, or is not any more."""
        partition_ru = self._registry.settings.partition_throughput_ru
        count = -(-throughputs.throughput_of(offer.body).ru // partition_ru)
        self._without_room.discard(offer.rid)
        for container in self.containers_of(offer):
            if container.key is not None and (count > len(container.partitions) or growth.is_growing(container)):
                await growth.grow(container, count)

    # Assigning shares.

    def assign(self, container: Container) -> None:
        """Give a container's partitions their shares. With a database's throughput, all that share it."""
        self._history.arrange(container)
        own = self.offer_of(container.record)
        shared = self.offer_of(container.database) if own is None else None
        if shared is not None:
            self._assign_shared(container.database, shared)
        else:
            self._assign_own(container, own)

    def assign_offer(self, offer: Record) -> None:
        for container in self.containers_of(offer):
            self.assign(container)
            if container.rid_text != offer.offer_state.owner:
                return  # the others that share it have been served too

    def _assign_own(self, container: Container, offer: Record | None) -> None:
        mode = self.mode_of(container)
        partition_limit = self._registry.settings.partition_throughput_ru * HUNDREDTHS
        serving = self.serving(offer) if offer is not None else None
        count = len(container.partitions)
        for partition in container.partitions.values():
            meter = partition.meter
            meter.is_enforcing = mode == "enforce"
            if mode == "off":
                meter.budget = None
            elif serving is None:
                limit = limits.SERVERLESS_PARTITION_RU * HUNDREDTHS
                meter.budget = self._budget(meter, min(limit, partition_limit))
            else:
                limit = min(serving.ru * HUNDREDTHS // count, partition_limit)
                pool = limit * limits.MINUTE_POOL_FACTOR if serving.has_minute_pool else 0
                meter.budget = self._budget(meter, limit, pool)
                meter.budget.set_buckets(buckets_of(container))

    def _assign_shared(self, database: Record, offer: Record) -> None:
        serving = self.serving(offer)
        count = serving.partition_count(self._registry.settings.partition_throughput_ru, initial_share=1.0)
        budgets = self._shared.setdefault(database.rid, [])
        del budgets[count:]
        while len(budgets) < count:
            budgets.append(Budget(int(self._registry.clock.monotonic_s())))
        for budget in budgets:
            self._set_limit(budget, serving.ru * HUNDREDTHS // count)
        sharing = self._sharing[database.rid] = []
        for container in self.containers_of(offer):
            mode = self.mode_of(container)
            for slot, partition in self._slots(container, count):
                if not partition.is_elsewhere:
                    sharing.append((slot, partition.meter))
                partition.meter.budget = budgets[slot] if mode != "off" else None
                partition.meter.is_enforcing = mode == "enforce"

    @staticmethod
    def _slots(container: Container, count: int) -> list[tuple[int, Partition]]:
        """Which of a database's partitions each partition of a container lies in: in order, and evenly."""
        ranges = container.map.ranges
        return [(rank * count // len(ranges), container.partitions[each.id]) for rank, each in enumerate(ranges)]

    # Budgets that several processes spend from.

    @property
    def sharing(self) -> Iterator[tuple[tuple[bytes, int], Meter]]:
        """The partitions that this process holds whose budgets others may spend, too: by database, and its partition;
        and the meter of all that is not about items, by nothing."""
        yield NO_DATABASE, self.metadata
        for database, meters in self._sharing.items():
            for slot, meter in meters:
                yield (database, slot), meter

    def spend_elsewhere(self, shared: tuple[bytes, int], amount: int) -> None:
        """Another process has spent so many hundredths of request units of a budget."""
        if shared == NO_DATABASE:
            self.metadata.spend_elsewhere(amount)
            return
        database, slot = shared
        budgets = self._shared.get(database, [])
        if slot < len(budgets):
            budgets[slot].spend_elsewhere(amount, int(self._registry.clock.monotonic_s()))

    def _budget(self, meter: Meter, limit: int, minute_pool: int = 0) -> Budget:
        """A meter's own budget, with what it has spent of the present second."""
        budget = meter.budget or Budget(int(self._registry.clock.monotonic_s()))
        self._set_limit(budget, limit, minute_pool)
        return budget

    def _set_limit(self, budget: Budget, limit: int, minute_pool: int = 0) -> None:
        budget.set_limit(max(1, limit), has_burst=self._registry.settings.has_burst, minute_pool=minute_pool)

    def leave(self, doomed: list[Record]) -> None:
        """Databases or containers were deleted: containers that shared throughput with them get larger shares."""
        for record in doomed:
            self._shared.pop(record.rid, None)
            self._sharing.pop(record.rid, None)
        for database_rid in {record.owner for record in doomed if record.type is ResourceType.CONTAINER}:
            database = self._registry.catalog.get(ResourceType.DATABASE, database_rid)
            offer = self.offer_of(database) if database is not None else None
            if offer is not None:
                self.assign_offer(offer)

    # Modes and buckets.

    def mode_of(self, container: Container) -> str:
        mode = container.state.throughput_mode
        return mode if mode is not None else self._registry.settings.throughput_mode

    async def set_mode(self, container: Container, mode: str | None) -> None:
        """Enforce, observe or leave alone a container's budget, whatever the server does; None: as the server does."""
        if mode is not None and mode not in MODES:
            raise bad_request(f"The throughput mode must be one of {', '.join(MODES)}, not '{mode}'.")
        await self._change(container, lambda state: replace(state, throughput_mode=mode))

    async def set_buckets(self, container: Container, shares_percent: Mapping[int, int]) -> None:
        """The most that requests of each throughput bucket may take of a container's budget."""
        for bucket, share in shares_percent.items():
            if not 1 <= bucket <= limits.THROUGHPUT_BUCKETS or not 1 <= share <= 100:
                raise bad_request(
                    f"Throughput buckets are 1 to {limits.THROUGHPUT_BUCKETS}, each with 1 to 100 percent; "
                    f"{bucket} with {share} is not possible."
                )
        if self.offer_of(container.record) is None:
            raise bad_request(f"The container '{container.name}' has no throughput of its own to put into buckets.")
        kept = dict(sorted(shares_percent.items()))
        await self._change(container, lambda state: replace(state, throughput_buckets=kept))

    async def _change(self, container: Container, change: Callable[[ContainerState], ContainerState]) -> None:
        await self._registry.catalog.change_container(
            container.record, lambda state, _: change(state), on_changed=lambda: self.assign(container)
        )

    # Autoscale.

    def current_ru(self, offer: Record) -> int:
        """What is provisioned in this moment: within an autoscale range, what the busiest partition needed in the last
        second, as if all needed as much."""
        return self._scaled(offer, lambda meter: meter.per_second_ru(1)[0])

    def billed_ru(self, offer: Record, hours_ago: int = 0) -> int:
        """The highest of this hour so far, or of the last one: what the service writes on a bill."""
        return self._scaled(offer, lambda meter: meter.peak_ru(hours_ago))

    def _scaled(self, offer: Record, used_ru: Callable[[Meter], float]) -> int:
        serving = self.serving(offer)
        if not serving.is_autoscale:
            return serving.ru
        own = self._registry.container_by_rid(rid_bytes(offer.offer_state.owner) or b"")
        if own is not None:
            count = len(own.partitions)
        else:
            count = serving.partition_count(self._registry.settings.partition_throughput_ru, initial_share=1.0)
        used = [0.0] * count
        for container in self.containers_of(offer):
            for slot, partition in self._slots(container, count):
                used[slot] += used_ru(partition.meter)
        return min(serving.ru, max(serving.least_ru, math.ceil(max(used) * count)))


def buckets_of(container: Container) -> dict[int, int]:
    """The share of each throughput bucket, in percent."""
    return dict(container.state.throughput_buckets)
