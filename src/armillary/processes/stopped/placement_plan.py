"""Which partitions of a stopped server go to another process, so that a given number of processes holds all of them,
and about as many each. What is there already stays where it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import Catalog
from armillary.account.catalog.records import Record
from armillary.model.ranges import KeyRange
from armillary.model.resources import ResourceType


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Of a partition to another process."""

    container: Record
    range: KeyRange
    target: int

    @property
    def source(self) -> int:
        return place_of_store(self.range.store)


@dataclass(slots=True)
class _Group:
    """Partitions that are in one process, and stay together: those of containers that share the throughput of a
    database spend from one budget, which is kept where they are."""

    members: list[tuple[Record, KeyRange]]
    place: int


def planned_moves(catalog: Catalog, count: int) -> list[PlannedMove]:
    """In an order in which they can be made one by one."""
    groups = _groups(catalog)
    loads = Counter(dict.fromkeys(range(count), 0))
    for group in groups:
        if group.place < count:
            loads[group.place] += len(group.members)
    moved: dict[int, int] = {}  # by the index of the group: its new place
    for number, group in enumerate(groups):
        if group.place >= count:
            moved[number] = _emptiest(loads)
            loads[moved[number]] += len(group.members)
    _even_out(groups, loads, moved)
    return [
        PlannedMove(container, key_range, target)
        for number, target in sorted(moved.items())
        for container, key_range in groups[number].members
    ]


def _even_out(groups: Sequence[_Group], loads: Counter[int], moved: dict[int, int]) -> None:
    """Move groups from the fullest process to the emptiest, while that makes the fullest less full."""
    while True:
        fullest, emptiest = max(loads, key=lambda place: (loads[place], -place)), _emptiest(loads)
        room = loads[fullest] - loads[emptiest]
        present = [moved.get(number, group.place) for number, group in enumerate(groups)]
        fitting = [n for n, place in enumerate(present) if place == fullest and len(groups[n].members) < room]
        if not fitting:
            return
        # Of the container that has most of its partitions there, so that each is spread.
        owners = Counter(_owner(groups[n]) for n, place in enumerate(present) if place == fullest)
        chosen = max(fitting, key=lambda n: (owners[_owner(groups[n])], n))
        size = len(groups[chosen].members)
        moved[chosen] = emptiest
        loads[fullest] -= size
        loads[emptiest] += size
        if groups[chosen].place == emptiest:
            del moved[chosen]


def _emptiest(loads: Counter[int]) -> int:
    return min(loads, key=lambda place: (loads[place], place))


def _owner(group: _Group) -> bytes:
    return group.members[0][0].rid


def _groups(catalog: Catalog) -> list[_Group]:
    groups: dict[tuple[bytes, int, int], _Group] = {}
    for container in catalog.of_type(ResourceType.CONTAINER):
        ranges = sorted(container.container_state.ranges, key=lambda each: each.low)
        owner = container.rid if catalog.offer_of(container) is not None else container.owner
        for number, key_range in enumerate(ranges):
            place = place_of_store(key_range.store)
            group = groups.setdefault((owner, number, place), _Group([], place))
            group.members.append((container, key_range))
    return list(groups.values())
