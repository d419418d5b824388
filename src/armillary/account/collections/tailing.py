"""Documents of a container without partition key in insertion order: forwards for tailable cursors, which wait for more
documents at the end, and backwards for `{$natural: -1}`. The position is the number of an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from armillary import limits
from armillary.account.captures.notes import Note, QueryNote
from armillary.account.collections.event_visits import LookAtEvents
from armillary.account.container import Container
from armillary.account.visits import visits
from armillary.account.visits.visits import Visit, run_uncounted_at
from armillary.errors import Failure, Kind, Reason
from armillary.model import charges, layout
from armillary.model.documents import bson_bytes
from armillary.model.encoding import unpack_header
from armillary.partition.partition import Partition
from armillary.query.conditions import ALL
from armillary.storage.engine import View

BEGINNING = 0
_PORTION = 500  # items read at a time
_NUMBER_MAX = (1 << 64) - 1


@dataclass(slots=True)
class Tailed:
    documents: list[bytes]  # BSON
    number: int  # of the last item that was looked at: where to go on
    charge_ru: float
    is_end: bool  # there is nothing behind it now


async def read_after(container: Container, number: int) -> Tailed:
    """The next documents behind a place. Refused if the item there is gone: what came after it may be, too."""
    return await visits.run(container, Tail(b"", number))


async def read_before(container: Container, number: int | None) -> Tailed:
    """The documents before a place, last first; None: from the end."""
    return await visits.run(container, Tail(b"", _NUMBER_MAX if number is None else number, is_backwards=True))


@dataclass(slots=True)
class Tail(Visit[Tailed]):
    """Documents in the order of their numbers, from behind one on or from before it back."""

    epk: bytes  # of the one logical partition there is
    number: int
    is_backwards: bool = False
    OPERATION: ClassVar[str] = "query"

    def notes(self, done: Tailed | None) -> Sequence[Note]:
        [note] = Visit.notes(self, done)
        note.query = QueryNote(ALL)
        if done is not None:
            note.rows = note.loaded = len(done.documents)
            note.size_bytes = sum(map(len, done.documents))
        return (note,)

    async def run(self, container: Container, partition: Partition) -> Tailed:
        assert container.key is None
        taken = await partition.read(self._look)
        is_live, now_s = container.schema.is_live, partition.clock.now_s()
        found = [bson_bytes(stored) for _, stored in taken if is_live(unpack_header(stored), now_s)]
        last = int.from_bytes(taken[-1][0][1:], "big") if taken else self.number
        return Tailed(found, last, charges.feed_page_ru([len(each) for each in found]), not taken)

    def _look(self, view: View) -> list[tuple[bytes, bytes]]:
        end = layout.space_end(layout.ITEMS)
        if self.is_backwards:
            return _portion(view, layout.ITEMS, min(layout.item_key(self.number), end), reverse=True)
        if self.number != BEGINNING and view.get(layout.item_key(self.number)) is None:
            raise Failure(
                Kind.BAD_REQUEST,
                "CollectionScan died due to position in capped collection being deleted. "
                f"Last seen record id: RecordId({self.number})",
                details={"reason": Reason.POSITION_LOST},
            )
        return _portion(view, layout.item_key(self.number + 1), end)


def _portion(view: View, low: bytes, high: bytes, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
    taken: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    for key, stored in islice(view.scan(low, high, reverse=reverse), _PORTION):
        taken.append((key, stored))
        size_bytes += len(stored)
        if size_bytes > limits.MANY_BYTES_MAX:
            break
    return taken


async def lsn_now(container: Container) -> int:
    """Of the partition, which is asked for it if another process holds it."""
    partition = partition_of(container)
    if not partition.is_elsewhere:
        return partition.lsn
    state = await run_uncounted_at(container, partition, LookAtEvents())
    return state.lsn if state is not None else partition.lsn


def partition_of(container: Container) -> Partition:
    """The one there is."""
    assert container.key is None
    return container.partition_for(b"")
