"""The documents of a container without partition key in the order they were inserted in, from a place on: forwards for
cursors that go on when more come, backwards for whoever wants the newest first. A place is an item's number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from armillary import limits
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import charges, layout
from armillary.model.documents import bson_bytes
from armillary.model.encoding import unpack_header
from armillary.partition.budget import READ_DEPOSIT
from armillary.partition.partition import Partition
from armillary.storage.engine import View

BEGINNING = 0
POSITION_LOST = 136
_PORTION = 500  # items read at a time
_NUMBER_MAX = (1 << 64) - 1

Look = Callable[[View], list[tuple[bytes, bytes]]]


class Tailed(NamedTuple):
    documents: list[bytes]  # BSON
    number: int  # of the last item that was looked at: where to go on
    charge_ru: float
    is_end: bool  # there is nothing behind it now


async def read_after(container: Container, number: int, clock: Clock) -> Tailed:
    """The next documents behind a place. Refused if the item there is gone: what came after it may be, too."""

    def look(view: View) -> list[tuple[bytes, bytes]]:
        if number != BEGINNING and view.get(layout.item_key(number)) is None:
            raise Failure(
                Kind.BAD_REQUEST,
                "CollectionScan died due to position in capped collection being deleted. "
                f"Last seen record id: RecordId({number})",
                details={"code": POSITION_LOST},
            )
        return _portion(view, layout.item_key(number + 1), layout.space_end(layout.ITEMS))

    return await _read(container, number, clock, look)


async def read_before(container: Container, number: int | None, clock: Clock) -> Tailed:
    """The documents before a place, last first; None: from the end."""
    high = layout.space_end(layout.ITEMS) if number is None else layout.item_key(number)

    def look(view: View) -> list[tuple[bytes, bytes]]:
        return _portion(view, layout.ITEMS, high, reverse=True)

    return await _read(container, _NUMBER_MAX if number is None else number, clock, look)


def _portion(view: View, low: bytes, high: bytes, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
    taken: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    for key, stored in islice(view.scan(low, high, reverse=reverse), _PORTION):
        taken.append((key, stored))
        size_bytes += len(stored)
        if size_bytes > limits.MANY_BYTES_MAX:
            break
    return taken


def partition_of(container: Container) -> Partition:
    """The one there is."""
    assert container.key is None
    return container.partition_for(b"")


async def _read(container: Container, number: int, clock: Clock, look: Look) -> Tailed:
    partition = partition_of(container)
    ticket = partition.admit(READ_DEPOSIT, None)
    try:
        taken = await partition.read(look)
    except Failure as failure:
        raise partition.meter.charge(failure, b"", ticket, None) from None
    is_live, now_s = container.schema.is_live, clock.now_s()
    found = [bson_bytes(stored) for _, stored in taken if is_live(unpack_header(stored), now_s)]
    charge_ru = partition.spend(charges.feed_page_ru([len(each) for each in found]), b"", ticket, None)
    last = int.from_bytes(taken[-1][0][1:], "big") if taken else number
    return Tailed(found, last, charge_ru, not taken)
