"""Splits and merges of an account that several processes hold: those of a partition are run by its process, whichever
process they are asked of. The first process shows all of them, and has them begin, stop at a point, go on, and be taken
back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from armillary import limits
from armillary.account.catalog.allocation import first_store, place_of_store
from armillary.account.container import Container
from armillary.account.registry import Registry
from armillary.account.reshaping.reservations import Reservation
from armillary.account.reshaping.split_and_merge import Reshape
from armillary.account.reshaping.split_planner import Reshaper
from armillary.account.reshaping.told_reshapes import ReshapeTold, ToldReshape, told_of
from armillary.account.throughput.budgets import Budgets
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.errors import Failure, Kind, bad_request
from armillary.processes.divided_engine import held_elsewhere
from armillary.processes.places import Places, ProcessPlace, ask_once

MOVE: Final = "request"  # the reason of a move


@dataclass(slots=True)
class BeginSplit(Question):
    """It goes on when the process that asked waits no more, like the two below."""

    id: bytes
    container: bytes  # rid
    range_id: int
    boundary: bytes | None
    reason: str

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> ReshapeTold:
        reshaper, container = here.account.reshaper, here.container(self.container)
        _check_here(container, self.range_id)
        reshape = await reshaper.split(container, self.range_id, self.boundary, self.reason)
        return told_of(reshape, is_paused=reshaper.is_paused(reshape))


@dataclass(slots=True)
class BeginMerge(Question):
    id: bytes
    container: bytes  # rid
    low_id: int
    high_id: int

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> ReshapeTold:
        reshaper, container = here.account.reshaper, here.container(self.container)
        _check_here(container, self.low_id)
        reshape = await reshaper.merge(container, self.low_id, self.high_id)
        return told_of(reshape, is_paused=reshaper.is_paused(reshape))


@dataclass(slots=True)
class BeginMove(Question):
    id: bytes
    container: bytes  # rid
    range_id: int
    place: int

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> ReshapeTold:
        container = here.container(self.container)
        _check_here(container, self.range_id)
        reshaper = cast(DividedReshaper, here.account.reshaper)
        reshape = await reshaper.move_partition(container, self.range_id, self.place)
        return told_of(reshape, is_paused=reshaper.is_paused(reshape))


@dataclass(slots=True)
class CancelReshape(Question):
    id: bytes
    container: bytes  # rid
    number: int

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        for reshape in _running(here, self.container, self.number):
            await here.account.reshaper.cancel(reshape)


@dataclass(slots=True)
class AdvanceReshapes(Question):
    """Have those go on that have stopped at a point, or one of them. How many had stopped."""

    container: bytes | None = None  # rid, and number in it
    number: int = 0

    async def answer(self, here: LocalPlace) -> int:
        reshaper = here.account.reshaper
        if self.container is None:
            return reshaper.advance()
        return sum(reshaper.advance(each) for each in _running(here, self.container, self.number))


def _check_here(container: Container, range_id: int) -> None:
    partition = container.partitions.get(range_id)
    if partition is not None and partition.is_elsewhere:
        raise held_elsewhere()  # by now


def _running(here: LocalPlace, rid: bytes, number: int) -> list[Reshape]:
    return [each for each in here.account.reshaper.running(here.container(rid)) if each.number == number]


class DividedReshaper(Reshaper):
    def __init__(self, registry: Registry, budgets: Budgets, places: Places) -> None:
        super().__init__(registry, budgets)
        self._places = places
        self._told: dict[int, list[ToldReshape]] = {}  # by process

    def tell(self, process: int, told: Iterable[ToldReshape]) -> None:
        """What runs in another process."""
        self._told[process] = list(told)

    def shown(self, container: Container | None = None) -> list[Reshape]:
        told = [each for found in self._told.values() for each in found]
        return [*self.running(container), *[each for each in told if container is None or each.container is container]]

    def is_paused(self, reshape: Reshape) -> bool:
        return reshape.is_paused if isinstance(reshape, ToldReshape) else super().is_paused(reshape)

    def _place_of(self, container: Container, range_id: int) -> ProcessPlace | None:
        """None: it is here."""
        partition = container.partition_by_id(str(range_id))
        return self._places[place_of_store(partition.range.store)] if partition.is_elsewhere else None

    async def _split(
        self, container: Container, range_id: int, boundary: bytes | None, reason: str, reservation: Reservation
    ) -> Reshape:
        place = self._place_of(container, range_id)
        if place is None:
            return await super()._split(container, range_id, boundary, reason, reservation)
        with reservation:
            question = BeginSplit(place.new_write_id(), container.record.rid, range_id, boundary, reason)
            told: ReshapeTold = await ask_once(place, question, limits.VISIT_SECONDS_MAX)
            reservation.keep()
        return ToldReshape(told, container, place.number)

    async def merge(self, container: Container, low_id: int, high_id: int) -> Reshape:
        low, high = [self._place_of(container, each) for each in (low_id, high_id)]
        if low is None or low is not high:
            return await super().merge(container, low_id, high_id)
        question = BeginMerge(low.new_write_id(), container.record.rid, low_id, high_id)
        told: ReshapeTold = await ask_once(low, question, limits.VISIT_SECONDS_MAX)
        return ToldReshape(told, container, low.number)

    async def move_partition(self, container: Container, range_id: int, place: int) -> Reshape:
        """Copy a partition to another place, where one process holds both. Its range has another id then, as after a
        split. Returns when that has begun."""
        partition = container.partition_by_id(str(range_id))
        present = place_of_store(partition.range.store)
        if not 0 <= place < self._places.count or place == present:
            raise bad_request(
                f"Range {range_id} is in place {present}, and there are {self._places.count}: it cannot be moved to "
                f"{place}."
            )
        if self._budgets.offer_of(container.record) is None and self._budgets.offer_of(container.database) is not None:
            raise bad_request(
                f"The container '{container.name}' shares the throughput of its database: its partitions stay where "
                "those of the others are, so that what all of them spend is counted in one place."
            )
        holder = self._place_of(container, range_id)
        if holder is not None:
            question = BeginMove(holder.new_write_id(), container.record.rid, range_id, place)
            told: ReshapeTold = await ask_once(holder, question, limits.VISIT_SECONDS_MAX)
            return ToldReshape(told, container, holder.number)
        if not self._registry.holds(first_store(place)):
            raise Failure(
                Kind.CONFLICT,
                f"The places {present} and {place} are held by different processes: a partition is moved by one that "
                "holds both. Have it lead both first.",
            )
        with Reservation(self._reserved, container, (range_id,)) as reservation:
            children = [(partition.range.low, partition.range.high)]
            return await self._begin(container, (range_id,), children, MOVE, reservation, place)

    async def cancel(self, reshape: Reshape) -> None:
        if not isinstance(reshape, ToldReshape):
            await super().cancel(reshape)
            return
        place = self._places[reshape.process]
        question = CancelReshape(place.new_write_id(), reshape.container.record.rid, reshape.number)
        await ask_once(place, question, limits.VISIT_SECONDS_MAX)

    async def let_go_on(self, reshape: Reshape | None = None) -> int:
        if isinstance(reshape, ToldReshape):
            question = AdvanceReshapes(reshape.container.record.rid, reshape.number)
            count: int = await ask_once(self._places[reshape.process], question, limits.VISIT_SECONDS_MAX)
            return count
        if reshape is not None:
            return self.advance(reshape)
        count = self.advance()
        for place in self._places.connected:
            count += await ask_once(place, AdvanceReshapes(), limits.VISIT_SECONDS_MAX)
        return count

    def follow(self, container: Container) -> None:
        """The container's record says which ranges other processes split or merge: those are reserved."""
        rid, parents = container.record.rid, {each for entry in container.state.reshapes for each in entry.parents}
        for range_id, partition in container.partitions.items():
            if partition.is_elsewhere:
                self.reserve(rid, range_id, is_reserved=range_id in parents)
