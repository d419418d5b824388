"""The one loop that fills a page from several partitions: pages of read feeds, of queries and of the change feed. Each
partition is entered, which its meter may refuse, and read in short slices until the page is full, late, or at the end;
then the partitions that were read pay for it. What a slice reads and where the next page begins is left to
`account/queries/item_pages.py` and `account/changes/change_feed.py`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.notes import Note
from armillary.account.container import Container
from armillary.account.visits.page_charges import Bill
from armillary.account.visits.visits import MOVING, Session, check_session
from armillary.errors import Failure
from armillary.model.documents import Form
from armillary.model.encoding import ItemHeader
from armillary.model.keys import Key
from armillary.model.sendable import LOCAL
from armillary.partition.budget import Ask
from armillary.partition.partition import Partition


@dataclass(slots=True)
class FeedOptions:
    """Which items are asked for, and how much of them at once."""

    key: Key | None = None  # or a prefix of a hierarchical one
    range_id: str | None = None
    epk_range: tuple[bytes, bytes] | None = None
    page_items: int = limits.PAGE_ITEMS_DEFAULT
    continuation: str | None = None
    session: Session | None = None
    read_factor: int = 1
    is_cross_partition_allowed: bool = True
    merges: bool = False  # rows of several partitions are merged here, not by the client
    features: str | None = None  # of queries that the client can merge, if that is known
    is_unaware: bool = False  # the client cannot be told that a range is split or merged: its successors answer
    ask: Ask | None = None
    tells_shares: bool = False  # the answer says what each partition was charged and did
    # In which filters see items and rows are answered; None: as JSON. What is sent has its name instead.
    form: Form | None = field(default=None, metadata=LOCAL)
    # Another process gathers the page, or gives it: it has met the rules of faults, and captures record it there.
    is_for_other: bool = False


class Moved(Exception):
    """A partition was split, merged or moved to another process before the page has read of it."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    async def followed(self) -> None:
        """Before the page is begun anew: it is asked of the successors, or of the process that holds it by then."""
        await self.partition.released()


def moved_or(failure: Failure, partition: Partition) -> Exception:
    """What to raise of a read that failed."""
    return Moved(partition) if MOVING in failure.details else failure


class Refusing(Exception):
    """A partition at another place would refuse to be entered, and the page can end before it."""


class PagePart(Protocol):
    """What a page reads of one partition."""

    ticket: int  # with which the page has entered the partition

    @property
    def partition(self) -> Partition: ...


class SliceEnd(NamedTuple):
    """How a slice ended."""

    is_part_read: bool  # nothing is left of the part
    is_page_full: bool  # nothing more goes into the page


Part = TypeVar("Part", bound=PagePart)


class PageWalk(ABC, Generic[Part]):
    """One page's way through the partitions."""

    def __init__(
        self, account: Account, container: Container, options: FeedOptions, low: bytes, high: bytes, deposit: int
    ) -> None:
        self._account = account
        self._container = container
        self._options = options
        self._low, self._high = low, high  # the keys that the page is about
        self._deposit = deposit  # the least that a partition is charged
        self._parts: list[Part] = []
        self._begun_s = 0.0
        self._bill = Bill(options.ask, container.one_key(low, high))

    @abstractmethod
    def find_parts(self) -> list[Part]:
        """What is left to read, in the order in which it is read."""

    @abstractmethod
    async def _read_slice(self, index: int) -> SliceEnd:
        """Read on in a part, for a short time, and put what was found into the page."""

    @abstractmethod
    def _begin_anew(self) -> None:
        """Forget what was read of the page."""

    def _read_ahead(self, index: int) -> None:
        """Begin to read the parts behind this one that the page will probably come to, if other places hold them."""

    @abstractmethod
    def _is_late(self, part: Part, seconds: float) -> bool:
        """Whether to answer what there is after so many seconds, in the middle of a part."""

    @abstractmethod
    def _stop_at(self, index: int) -> None:
        """The page ends here; the next one begins with this part."""

    @abstractmethod
    def _cost_ru(self) -> float:
        """What the page has cost so far."""

    @abstractmethod
    def _note(self) -> Note:
        """What a capture records of the page."""

    async def run(self, operation: str, *, faults_max: int | None = None) -> None:
        """Fill the page. Rules of faults, which know it as `operation`, have it before, as a request to the first
        `faults_max` of the partitions."""
        if self._container.faults is not None and not self._options.is_for_other:
            ranges = [part.partition.range for part in self.find_parts()[:faults_max]]
            await self._container.faults.over(operation, self._container, self._low, self._high, ranges)
        self._begun_s = self._account.clock.elapsed_s()
        while True:
            self._parts = self.find_parts()
            try:
                if not (self._parts and self._parts[0].partition.is_elsewhere and await self._is_given_whole()):
                    await self._run()
                return
            except Moved as moved:
                self._bill.leave()
                self._begin_anew()
                await moved.followed()

    async def _run(self) -> None:
        try:
            if self._options.session is not None:
                for part in self._parts:
                    if not part.partition.is_elsewhere:  # else its place checks it
                        check_session(part.partition, self._options.session)
            await self._fill()
        except Failure as failure:
            charged = self._bill.charge(failure, self._partitions()[0])
            self._note_failure(charged)
            raise charged from None

    async def _is_given_whole(self) -> bool:
        """Whether all partitions are at one other place, which has answered the page."""
        return False

    def _note_failure(self, charged: Failure) -> None:
        if self._container.recording is not None and not self._options.is_for_other:
            self._container.recording.fail((self._note(),), self._visited(), charged)

    async def _fill(self) -> None:
        for index, part in enumerate(self._parts):
            if index:
                await asyncio.sleep(0)
            if not self._enter(part, is_first=not index):
                self._stop_at(index)
                return
            if index:
                self._read_ahead(index)
            while True:
                try:
                    is_part_read, is_page_full = await self._read_slice(index)
                except Refusing:
                    self._bill.withdraw()
                    self._stop_at(index)
                    return
                if is_page_full or (not is_part_read and self._is_late(part, self._seconds())):
                    self._stop_at(index + is_part_read)
                    return
                if is_part_read:
                    break
                await asyncio.sleep(0)

    def _enter(self, part: Part, *, is_first: bool) -> bool:
        """Whether a partition can pay for being read. A page that has begun ends before one that cannot; the first is
        refused."""
        partition = part.partition
        if not is_first and partition.meter.is_closed(self._options.ask):
            return False
        cost_ru = 0.0 if is_first else self._cost_ru()
        part.ticket = self._bill.enter(partition, self._deposit, cost_ru, part.ticket)
        if partition.is_elsewhere and not is_first:
            partition.meter.make_optional(part.ticket)
        return True

    def _pay(self, otherwise: Partition) -> float:
        return self._bill.pay(self._cost_ru(), otherwise)

    def _seconds(self) -> float:
        """Since the page began."""
        return self._account.clock.elapsed_s() - self._begun_s

    def _is_live(self, header: ItemHeader) -> bool:
        return self._container.schema.is_live(header, self._account.clock.now_s())

    def _partitions(self) -> Sequence[Partition]:
        """Those that the page is about, or any at all: one partition is charged for every page."""
        container = self._container
        found = [part.partition for part in self._parts]
        found = found or [container.partitions[each.id] for each in container.map.overlapping(self._low, self._high)]
        return found or list(container.partitions.values())[:1]

    def _visited(self) -> list[int]:
        """Range ids, for captures: of the partitions that were entered, or the one that refused."""
        return self._bill.visited or [self._partitions()[0].range.id]

    def _note_done(self, charge_ru: float, visited: Sequence[int]) -> None:
        if self._container.recording is not None and not self._options.is_for_other:
            note = self._note()
            note.charge_ru = charge_ru
            self._container.recording.add((note,), visited)

    def _settle(self) -> tuple[float, list[tuple[int, int]]]:
        """Pay for the page. Returns the charge, and the range ids and lsns of its partitions."""
        partitions = self._partitions()
        charge_ru = self._pay(partitions[0])
        self._note_done(charge_ru, self._visited())
        return charge_ru, list(dict.fromkeys((each.range.id, each.lsn) for each in partitions))
