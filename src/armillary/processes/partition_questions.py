"""What processes ask each other about the partitions and stores that they have, beside visits and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from armillary.account.container import Container
from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.processes.divided_engine import held_elsewhere

_RESTATE_WAIT_S = 5.0


class _Restating(Protocol):
    async def restate_part(self, container: Container, range_id: int, rules_number: int, wait_s: float) -> bool: ...


class _Meeting(Protocol):
    """A process that is told (`places.py`)."""

    def is_met_ready(self, number: int) -> None: ...


@dataclass(slots=True)
class ProcessReady(Told):
    """This process has opened its partitions."""

    number: int

    def take(self, here: LocalPlace) -> None:
        cast(_Meeting, here).is_met_ready(self.number)


@dataclass(slots=True)
class DropStore(Question):
    """Empty a store that the catalog has given up. The catalog asks again if this process does not hold it, or not any
    more."""

    number: int

    async def answer(self, here: LocalPlace) -> None:
        if not here.account.holds(self.number):
            raise held_elsewhere()
        await here.account.engine.drop(self.number)


@dataclass(slots=True)
class RestatePartition(Question):
    """Carry a change of policy through the items of a partition. The answer is whether that is done; it is asked again
    until it is."""

    container: bytes  # rid
    range_id: int
    rules_number: int

    async def answer(self, here: LocalPlace) -> bool:
        container = here.container(self.container)
        account = cast(_Restating, here.account)
        return await account.restate_part(container, self.range_id, self.rules_number, _RESTATE_WAIT_S)
