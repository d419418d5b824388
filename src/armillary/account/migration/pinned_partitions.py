"""The partitions of a container as they were at one moment, for a migration: those of this process, and those that
other processes of the server have pinned for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.elsewhere.other_processes import PinnedElsewhere
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.ranges import KeyRange
from armillary.partition.upkeep.background_throttle import portions
from armillary.storage.engine import Kept


class PinnedPartitions:
    """Made by `pin`. They must be held, or held still, for these to belong together."""

    def __init__(self, ranges: Sequence[KeyRange], views: dict[int, Kept], elsewhere: PinnedElsewhere | None) -> None:
        self.ranges = ranges
        self._views = views  # by range
        self._elsewhere = elsewhere

    @classmethod
    async def pin(cls, account: Account, container: Container) -> PinnedPartitions:
        """What is durable in each partition."""
        ranges, views = list(container.map.ranges), dict[int, Kept]()
        elsewhere: PinnedElsewhere | None = None
        try:
            for each in container.partitions.values():
                if not each.is_elsewhere:
                    views[each.range.id] = await each.store.pin()
            others = [each.store for each in ranges if each.id not in views]
            if others:
                assert account.others is not None, "other processes hold the partitions"
                elsewhere = await account.others.pin(others)
        except BaseException:
            cls(ranges, views, None).release()
            raise
        return cls(ranges, views, elsewhere)

    async def items(self, most: int) -> AsyncIterator[list[bytes]]:
        """All of them as they are stored, in portions of so many at most."""
        low, high = layout.ITEMS, layout.space_end(layout.ITEMS)
        for each in self.ranges:
            view = self._views.get(each.id)
            if view is not None:
                for portion in portions((stored for _, stored in view.scan(low, high)), most):
                    yield portion
                continue
            assert self._elsewhere is not None
            try:
                async for pairs in self._elsewhere.pairs(each.store, low, high):
                    for portion in portions([stored for _, stored in pairs], most):
                        yield portion
            except Failure as failure:
                raise _again(failure) from None

    async def find(self, epk: bytes, item_id: str) -> bytes | None:
        """An item as it is stored."""
        for each in self.ranges:
            if each.low <= epk < each.high:
                [number] = await self._get(each, layout.id_key(epk, item_id))
                if number is None:
                    return None
                [stored] = await self._get(each, layout.ITEMS + number)
                return stored
        return None

    async def _get(self, key_range: KeyRange, key: bytes) -> list[bytes | None]:
        view = self._views.get(key_range.id)
        if view is not None:
            return [view.get(key)]
        assert self._elsewhere is not None
        try:
            return await self._elsewhere.get(key_range.store, [key])
        except Failure as failure:
            raise _again(failure) from None

    def release(self) -> None:
        for view in self._views.values():
            view.release()
        if self._elsewhere is not None:
            self._elsewhere.release()


def _again(failure: Failure) -> Failure:
    """A process that was started again has not pinned anything."""
    return Failure(Kind.UNAVAILABLE, failure.message) if failure.kind is Kind.NOT_FOUND else failure
