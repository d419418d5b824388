"""Accounts whose partitions are elsewhere: every container shows stand-ins to requests, and a visit goes to the real
partition over a loop-back link, which encodes and decodes every message. Both ends are in this process and share the
account: what runs in the context INSIDE sees the real partitions, and everything else the stand-ins.

`divide(monkeypatch)` makes every account that is opened from then on a divided one.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final
from weakref import ref

import pytest

from armillary.account.account import Account
from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.collections.transactions import _Fork
from armillary.account.container import Container
from armillary.account.reshaping.split_and_merge import Reshape
from armillary.account.reshaping.split_planner import Reshaper
from armillary.account.snapshots.snapshot_reads import PinnedAccount
from armillary.account.upkeep_rounds import Rounds
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.partition_elsewhere import OWN, NotHere, PartitionElsewhere
from armillary.account.visits.elsewhere.place import LocalPlace, Place
from armillary.account.visits.elsewhere.remembered_answers import RememberedAnswers, WriteIds
from armillary.clock import VirtualClock
from armillary.partition.held_writers import HeldWriters
from armillary.partition.meter import Meter
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
    dice: random.Random | None = None  # frames are delayed, which reorders them, repeated, or lost with the connection
    turns_max: int = 5
    repeated_share: float = 0.1
    lost_share: float = 0.05
    lost: int = 0
    allowed: Set[str] = frozenset()  # uses that are not visits yet
    allows_all: bool = False
    uses: set[str] = field(default_factory=set)
    frames: int = 0

    def place_of(self, range_id: int) -> int:
        """0: here."""
        if self.has_own:
            return range_id % (self.places + 1)
        return range_id % self.places + 1


class LoopBack:
    """Both ends of a link to a place, with the frames between them."""

    def __init__(self, account: Account, number: int, spread: Spread) -> None:
        self._spread = spread
        clock = VirtualClock()  # the account's own would give other ids to what requests make
        self.here = LocalPlace(account, RememberedAnswers(clock))
        write_ids = WriteIds(clock)
        self.asker = Link(number, self._to_place, write_ids)
        self.asker.peer = self.here.remembered.run
        self.place = Link(0, self._to_asker, write_ids, self.here)
        self._connection = 0

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
        if dice is None:
            loop.call_soon(receive, frame)
            return
        if dice.random() < spread.lost_share:
            spread.lost += 1
            self._connection += 1
            self.asker.lost()
            self.place.lost()
            return
        for _ in range(1 + (dice.random() < spread.repeated_share)):
            self._delay(dice.randrange(spread.turns_max + 1), self._connection, frame, receive)

    def _delay(self, turns: int, connection: int, frame: bytes, receive: Callable[[bytes], None]) -> None:
        """For some turns of the loop, in which other frames overtake it."""
        if connection != self._connection:
            return  # it was lost with its connection
        if turns:
            asyncio.get_running_loop().call_soon(self._delay, turns - 1, connection, frame, receive)
        else:
            receive(frame)


class DividedContainer(Container):
    """Shares everything with the container that it is made of, but what requests see as its partitions."""

    @property
    def partitions(self) -> dict[int, Partition]:
        held: dict[int, Partition] = self.__dict__["partitions"]
        if INSIDE.get():
            return held
        links: Links = self.__dict__["divided_links"]
        if links.account.container_by_rid(self.record.rid) is not self:
            return held  # what a transaction or a snapshot sees of it
        return links.stand_ins(self, held)

    @partitions.setter
    def partitions(self, held: dict[int, Partition]) -> None:
        self.__dict__["partitions"] = held


class StandIn(PartitionElsewhere):
    """Uses that are not visits yet, and are allowed, are made of the real partition."""

    def __init__(self, real: Partition, spread: Spread, *given: Any) -> None:
        super().__init__(*given)
        self._told_meter = vars(self).pop("meter")
        self._real_ref, self._spread = ref(real), spread  # parents of splits must not be held

    @property
    def meter(self) -> Any:
        """Tests look at what the place has counted."""
        real = self._real_ref()
        return self._told_meter if _caller() is not None or real is None else real.meter

    @meter.setter
    def meter(self, meter: Meter) -> None:
        vars(self)["meter"] = meter

    def __getattr__(self, name: str) -> Any:
        caller = _caller()
        if caller is None:
            return getattr(self._real_ref(), name)
        use = f"{caller} uses {name}"
        self._spread.uses.add(use)
        if use not in self._spread.allowed and not self._spread.allows_all:
            raise NotHere(f"Partition.{name} of a partition that another place holds: {use}")
        return getattr(self._real_ref(), name)


def _delegating(name: str) -> property:
    return property(lambda self: StandIn.__getattr__(self, name))


for _name in (vars(Partition).keys() | vars(HeldWriters).keys()) - OWN:
    if not _name.startswith("__"):
        setattr(StandIn, _name, _delegating(_name))


def _caller() -> str | None:
    """The function of the product that uses a stand-in. None: it is a test."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    if not frame.f_globals["__name__"].startswith("armillary."):
        return None
    module = frame.f_globals["__name__"].removeprefix("armillary.")
    names = frame.f_code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "").replace(".<listcomp>", "")
    return f"{module}:{names}"


class Links:
    def __init__(self, account: Account, spread: Spread) -> None:
        self.account, self.spread = account, spread
        self.links = {number: LoopBack(account, number, spread) for number in range(1, spread.places + 1)}

    def stand_ins(self, container: Container, held: Mapping[int, Partition]) -> dict[int, Partition]:
        return {range_id: self._stand_in(container, each) for range_id, each in held.items()}

    def _stand_in(self, container: Container, held: Partition) -> Partition:
        number = self.spread.place_of(held.range.id)
        if number == 0:
            return held
        found: Partition | None = vars(held).get("stand_in")
        if found is None:
            place: Place = self.links[number].asker
            rid, first_lsn = container.record.rid, container.state.first_lsn
            key_range, real = held.range, ref(held)  # parents of splits must not be held

            def present() -> Partition | None:
                now, of = container.map.get(key_range.id), real()
                is_served = now is not None and now.store == key_range.store and of is not None
                return vars(of).get("stand_in") if is_served else None

            made = StandIn(held, self.spread, place, rid, key_range, held.clock, present, first_lsn)
            found = vars(held)["stand_in"] = made
        return found


# Uses of partitions of other places that are neither visits nor messages. There are none any more.
ALLOWED: Final[Set[str]] = frozenset()

# What belongs to the process that holds the partitions, and is begun by requests or tests: background work and changes
# of the catalog. It runs where the partitions are. So does what a transaction or a snapshot has of them, for which the
# processes of a server ask each other (`armillary/processes/transactions`).
RUN_INSIDE: Final[Mapping[type, tuple[str, ...]]] = {
    Account: ("opened", "close", "leave", "highest_lsn", "restate"),
    Container: ("end", "retire", "keep_versions", "take_over", "reached_lsn"),
    Reshaper: (),
    Reshape: (),
    Rounds: (),
    SpanningTransaction: ("begin", "part", "commit"),
    _Fork: ("write_all",),
    PinnedAccount: ("take", "of"),
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
        for name in names or [name for name in vars(kind) if not name.startswith("__")]:
            member = vars(kind)[name]
            if isinstance(member, classmethod) and names:
                monkeypatch.setattr(kind, name, classmethod(run_inside(member.__func__)))
            if isinstance(member, classmethod | staticmethod):
                continue
            if isinstance(member, property) and member.fget is not None:
                monkeypatch.setattr(kind, name, property(run_inside(member.fget)))
            elif callable(member):
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
