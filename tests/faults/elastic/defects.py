"""Defects of splits and merges to be planted in this process, to prove that the simulation notices. Each is one that a
hurried change could bring in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pytest

from armillary.account.reshaping.split_and_merge import Reshape
from armillary.partition.partition import Partition
from armillary.partition.reshaping import copying as transfers
from armillary.partition.reshaping.copying import Transfer
from armillary.partition.reshaping.item_moves import Adopter


def last_changes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is written while writers are about to be held stays behind."""
    catch_up = Transfer.catch_up

    async def unless_held(self: Transfer, *arguments: Any, **options: Any) -> int:
        if any(source.is_held for source in self.sources):
            return 0
        return await catch_up(self, *arguments, **options)

    patch.setattr(Transfer, "catch_up", unless_held)
    without_counting(patch)


def writers_not_held(patch: pytest.MonkeyPatch) -> None:
    """Writers go on with the parent until the map is switched."""
    hold = Partition.hold

    def only_say_so(self: Partition) -> None:
        hold(self)
        self._shut = None

    patch.setattr(Partition, "hold", only_say_so)
    without_counting(patch)


def deletions_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Adopter, "bury", lambda self, key, value: None)
    without_counting(patch)


def boundary_in_the_wrong_child(patch: pytest.MonkeyPatch) -> None:
    """Keys close to the one at which a partition is divided go to the child before it."""
    patch.setattr(transfers, "bisect_right", lambda lows, epk: bisect_right([low[:1] for low in lows], epk[:1]))


def numbers_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Children go on counting items where their parents began."""
    patch.setattr(transfers, "first_item_rid", lambda range_id: 1)


def copied_over_a_half_copy(patch: pytest.MonkeyPatch) -> None:
    """Who begins a copy anew does not begin with empty stores."""

    async def keep(self: Reshape) -> None:
        self._is_fresh = True

    patch.setattr(Reshape, "_renew", keep)


def without_counting(patch: pytest.MonkeyPatch) -> None:
    """The product counts items before it switches, and would notice by itself."""
    seal = Transfer.seal

    async def unchecked(self: Transfer, range_ids: Any) -> None:
        for target in self.targets:
            target.head.item_count = target.head.size_bytes = 0
        sources = self.sources
        try:
            await seal(self, range_ids)
        except AssertionError:
            self.sources = [_Uncounted(source) for source in sources]  # type: ignore[misc]
            try:
                await seal(self, range_ids)
            finally:
                self.sources = sources

    patch.setattr(Transfer, "seal", unchecked)


class _Uncounted:
    """A partition whose head says that it is empty."""

    def __init__(self, partition: Partition) -> None:
        self.range, self.lsn, self.store = partition.range, partition.lsn, self
        self._store = partition.store

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        head = await self._store.read(fn)
        head.item_count = head.size_bytes = 0
        return head


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "last-changes-forgotten": last_changes_forgotten,
    "writers-not-held": writers_not_held,
    "deletions-forgotten": deletions_forgotten,
    "boundary-in-the-wrong-child": boundary_in_the_wrong_child,
    "numbers-given-twice": numbers_given_twice,
    "copied-over-a-half-copy": copied_over_a_half_copy,
}
