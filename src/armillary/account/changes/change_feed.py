"""The change feed: what was written since a place in the log or a time, in the order of writing inside a partition.
In its latest-version form it has each item once, as it is now, and no deleted or expired ones; where a container keeps
all versions it can be had with each of them, and deletes.

A page is of one logical partition, one physical one, a stretch of the hash space, or the whole container. It ends with
a transaction, never inside one. How that is written on the wire is the door's part.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from armillary import limits
from armillary.account.account import Account
from armillary.account.changes import feed_positions
from armillary.account.changes.feed_positions import Positions, Stretch
from armillary.account.container import Container
from armillary.account.faults import Faults
from armillary.account.queries.item_pages import FeedOptions
from armillary.account.visits.page_charges import Bill
from armillary.account.visits.visits import check_session
from armillary.errors import Failure, bad_request
from armillary.model import charges
from armillary.model.encoding import ItemHeader, payload_of
from armillary.partition.budget import READ_DEPOSIT
from armillary.partition.history.change_reading import Changed, ChangeReader, Room, Step, VersionReader
from armillary.partition.partition import Partition


@dataclass(slots=True)
class ChangePage:
    items: list[Changed] = field(default_factory=list)
    continuation: str = ""  # where the next page begins; there is always one
    is_end: bool = True  # there is nothing more now
    charge_ru: float = 0.0
    lsns: list[tuple[int, int]] = field(default_factory=list)  # of the partitions asked: range id, lsn


async def read_changes(
    account: Account,
    container: Container,
    options: FeedOptions,
    *,
    is_from_now: bool = False,
    since_s: int | None = None,
    has_all_versions: bool = False,
) -> ChangePage:
    """The next page after `options.continuation`, or from the beginning; `is_from_now`: nothing, but where to go on.
    With `since_s` only what was written in that second or later."""
    if has_all_versions and not container.schema.versions_number:
        raise bad_request(
            f"All Versions and Deletes change feed must be enabled for the container '{container.name}': give it a "
            'changeFeedPolicy with a retention, e.g. {"retentionDuration": 10} for ten minutes.'
        )
    walk = _Walk(account, container, options, since_s, VersionReader if has_all_versions else ChangeReader)
    if container.faults is not None:
        await walk.meet_faults(container.faults)
    await walk.run(is_from_now=is_from_now)
    return walk.answer()


class _Walk:
    """One page's way through the stretches."""

    def __init__(
        self,
        account: Account,
        container: Container,
        options: FeedOptions,
        since_s: int | None,
        reader_type: type[ChangeReader],
    ) -> None:
        self._account = account
        self._container = container
        self._options = options
        self._size_bytes = 0
        self._reads_ru = 0.0
        self._page = ChangePage()
        low, high = self._low, self._high = container.stretch(options.key, options.range_id, options.epk_range)
        positions = feed_positions.beginning(low, high)
        if options.continuation is not None:
            rid = container.record.rid
            positions = feed_positions.decode(options.continuation, account.secret, rid, low, high)
        has_expiry = container.schema.rules.default_ttl is not None
        self._readers = [
            reader_type(
                container.partitions[key_range.id],
                max(stretch.low, key_range.low),
                min(stretch.high, key_range.high),
                stretch.lsn,
                since_s=since_s,
                is_live=self._is_live if has_expiry else None,
            )
            for stretch in positions.stretches
            if stretch.low < stretch.high
            for key_range in container.map.overlapping(stretch.low, stretch.high)
        ]
        self._bill = Bill(options.ask, container.one_key(low, high))

    def _is_live(self, header: ItemHeader) -> bool:
        return self._container.schema.is_live(header, self._account.clock.now_s())

    async def meet_faults(self, faults: Faults) -> None:
        """Let rules of faults have the request, if it is theirs."""
        ranges = [reader.partition.range for reader in self._readers]
        await faults.over("changes", self._container, self._low, self._high, ranges)

    async def run(self, *, is_from_now: bool) -> None:
        """Fill the page; `is_from_now`: go to the end instead."""
        try:
            if self._options.session is not None:
                for reader in self._readers:
                    check_session(reader.partition, self._options.session)
            if is_from_now:
                await self._go_to_end()
            else:
                await self._fill()
        except Failure as failure:
            raise self._bill.charge(failure, self._partitions()[0]) from None

    async def _go_to_end(self) -> None:
        for reader in self._readers:
            self._bill.enter(reader.partition, READ_DEPOSIT)
            reader.lsn = await reader.partition.read(reader.partition.lsn_in)

    async def _fill(self) -> None:
        clock = self._account.clock
        begun_s = clock.elapsed_s()
        for index, reader in enumerate(self._readers):
            if index and reader.partition.meter.is_closed(self._options.ask):
                self._stop_at(index)  # a page that has begun ends before a partition that cannot pay
                return
            self._bill.enter(reader.partition, READ_DEPOSIT, self._cost_ru() if index else 0.0)
            is_end = False
            while not is_end:
                step = await self._read(reader)
                is_end = step.is_end
                if step.is_full or (not is_end and self._is_late(clock.elapsed_s() - begun_s)):
                    self._stop_at(index + is_end)
                    return
                if reader is not self._readers[-1] or not is_end:
                    await asyncio.sleep(0)

    def _stop_at(self, index: int) -> None:
        """The next page begins there: every stretch has its turn."""
        self._readers = self._readers[index:] + self._readers[:index]
        self._page.is_end = False

    async def _read(self, reader: ChangeReader) -> Step:
        clock = self._account.clock
        slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        step = await reader.read(self._room(), lambda: clock.elapsed_s() > slice_end_s)
        self._page.items += step.items
        self._size_bytes += step.size_bytes
        self._reads_ru += sum([charges.read_ru(len(payload_of(each.stored))) for each in step.items])
        return step

    def _room(self) -> Room:
        page = self._page
        return Room(
            self._options.page_items - len(page.items), limits.PAGE_BYTES_MAX - self._size_bytes, not page.items
        )

    def _is_late(self, seconds: float) -> bool:
        """Whether to answer what there is. Clients take an empty page for the end, so one must be worth it."""
        return seconds > (limits.PAGE_SECONDS_MAX if self._page.items else limits.EMPTY_PAGE_SECONDS_MAX)

    def answer(self) -> ChangePage:
        page, container = self._page, self._container
        page.continuation = self._options.continuation or "0"
        if self._readers:  # there are none where range, keys and partition key have nothing in common
            positions = Positions(tuple(Stretch(each.low, each.high, each.lsn) for each in self._readers))
            page.continuation = positions.encode(self._account.secret, container.record.rid, is_part=self._is_part)
        partitions = self._partitions()
        page.charge_ru = self._bill.pay(self._cost_ru(), partitions[0])
        page.lsns = list(dict.fromkeys((each.range.id, each.lsn) for each in partitions))
        return page

    @property
    def _is_part(self) -> bool:
        """Whether the request names a range and is about some of its keys only, or comes from a client that will make
        other ranges of it when it is gone."""
        options = self._options
        if options.range_id is None or options.key is not None:
            return False
        low, high = min(each.low for each in self._readers), max(each.high for each in self._readers)
        whole = self._readers[0].partition.range
        return options.is_unaware or low > whole.low or high < whole.high

    def _cost_ru(self) -> float:
        factor = self._options.read_factor
        return max(float(factor), self._reads_ru * factor)

    def _partitions(self) -> list[Partition]:
        """Those that the page is about, or any at all: somebody must answer, and be paid."""
        return [each.partition for each in self._readers] or list(self._container.partitions.values())[:1]
