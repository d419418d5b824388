"""Accounts whose partitions are elsewhere: every container shows stand-ins to requests, and a visit goes to the real
partition over a loop-back link, which encodes and decodes every message. Both ends are in this process and share the
account: what runs in the context INSIDE sees the real partitions, and everything else the stand-ins.

`divide(monkeypatch)` makes every account that is opened from then on a divided one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import LocalPlace, Place
from armillary.account.visits.elsewhere.remembered_answers import WriteIds
from armillary.partition.partition import Partition

INSIDE: ContextVar[bool] = ContextVar("inside the place that holds the partitions", default=False)


@contextmanager
def inside() -> Iterator[None]:
    """As in the place that holds the partitions."""
    token = INSIDE.set(True)
    try:
        yield
    finally:
        INSIDE.reset(token)


@dataclass
class Spread:
    """Where partitions are: range ids by turns at the places, 0 being the process that asks."""

    places: int = 1
    has_own: bool = False  # every so many partitions are in the process that asks
    dice: random.Random | None = None  # frames are delayed, repeated and reordered
    frames: int = 0
    sizes: list[int] = field(default_factory=list)

    def place_of(self, range_id: int) -> int:
        """0: here."""
        if self.has_own:
            return range_id % (self.places + 1)
        return range_id % self.places + 1


class LoopBack:
    """Both ends of a link to a place, with the frames between them."""

    def __init__(self, account: Account, number: int, spread: Spread) -> None:
        self._spread = spread
        self.here = LocalPlace(account)
        write_ids = WriteIds(account.clock)
        self.asker = Link(number, self._to_place, write_ids)
        self.place = Link(0, self._to_asker, write_ids, self.here)

    def _to_place(self, frame: bytes) -> None:
        context = copy_context()
        context.run(INSIDE.set, True)
        self._carry(frame, lambda received: context.run(self.place.received, received))

    def _to_asker(self, frame: bytes) -> None:
        self._carry(frame, self.asker.received)

    def _carry(self, frame: bytes, receive: Callable[[bytes], None]) -> None:
        spread = self._spread
        spread.frames += 1
        loop, dice = asyncio.get_running_loop(), spread.dice
        loop.call_soon(receive, bytes(frame))
        if dice is not None and dice.random() < 0.2:
            loop.call_soon(receive, bytes(frame))


class DividedContainer(Container):
    """Shares everything with the container that it is made of, but what requests see as its partitions."""

    @property
    def partitions(self) -> dict[int, Partition]:
        held: dict[int, Partition] = self.__dict__["partitions"]
        if INSIDE.get():
            return held
        links: Links = self.__dict__["divided_links"]
        return links.stand_ins(self, held)

    @partitions.setter
    def partitions(self, held: dict[int, Partition]) -> None:
        self.__dict__["partitions"] = held


class Links:
    def __init__(self, account: Account, spread: Spread) -> None:
        self.spread = spread
        self.links = {number: LoopBack(account, number, spread) for number in range(1, spread.places + 1)}
        self._known: dict[Partition, Partition] = {}

    def stand_ins(self, container: Container, held: Mapping[int, Partition]) -> dict[int, Partition]:
        return {range_id: self._stand_in(container, each) for range_id, each in held.items()}

    def _stand_in(self, container: Container, held: Partition) -> Partition:
        number = self.spread.place_of(held.range.id)
        if number == 0:
            return held
        found = self._known.get(held)
        if found is None:
            place: Place = self.links[number].asker
            made = PartitionElsewhere(place, held.range, held.clock, lambda: container.map, container.state.first_lsn)
            found = self._known[held] = made
        return found


# Uses of partitions that are not visits yet run where the partitions are. This list only becomes shorter.
RUN_INSIDE = {
    Account: ("opened", "close", "leave", "highest_lsn"),
}


def divide(monkeypatch: pytest.MonkeyPatch, spread: Spread | None = None) -> Spread:
    """Every account that is opened from now on is divided."""
    spread = spread or Spread()

    def run_inside(work: Any) -> Any:
        if asyncio.iscoroutinefunction(work):

            @wraps(work)
            async def running(*given: Any, **named: Any) -> Any:
                with inside():
                    return await work(*given, **named)
        else:

            @wraps(work)
            def running(*given: Any, **named: Any) -> Any:
                with inside():
                    return work(*given, **named)

        return running

    for kind, names in RUN_INSIDE.items():
        for name in names:
            member = vars(kind)[name]
            if isinstance(member, property):
                assert member.fget is not None
                monkeypatch.setattr(kind, name, property(run_inside(member.fget)))
            else:
                monkeypatch.setattr(kind, name, run_inside(member))
    open_account = Account.open.__func__  # type: ignore[attr-defined]

    @wraps(open_account)
    async def open_divided(cls: type[Account], *given: Any, **named: Any) -> Account:
        with inside():
            account: Account = await open_account(cls, *given, **named)
        return account

    monkeypatch.setattr(Account, "open", classmethod(open_divided))
    made = Account._made
    links: dict[int, Links] = {}

    def made_divided(account: Account, record: Any) -> Container:
        with inside():
            container = made(account, record)
        found = links.get(id(account))
        if found is None:
            found = links[id(account)] = Links(account, spread)
        container.__dict__["divided_links"] = found
        container.__class__ = DividedContainer
        return container

    monkeypatch.setattr(Account, "_made", made_divided)
    return spread
