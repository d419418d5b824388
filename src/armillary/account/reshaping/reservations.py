"""Reservations of ranges for the splits and merges that are about to begin on them."""

from __future__ import annotations

from armillary.account.container import Container
from armillary.errors import Failure, Kind


class Reservation:
    """Keeps others from reshaping the same ranges, until the reshape is over or did not begin."""

    def __init__(self, reserved: set[tuple[bytes, int]], container: Container, range_ids: tuple[int, ...]) -> None:
        self._reserved = reserved
        self._keys = {(container.record.rid, each) for each in range_ids}
        self._is_kept = False
        if not self._keys.isdisjoint(self._reserved):
            raise Failure(
                Kind.CONFLICT,
                f"Range {' or '.join(map(str, range_ids))} is being split or merged already. Wait until that is done.",
            )
        self._reserved |= self._keys

    def __enter__(self) -> Reservation:
        return self

    def keep(self) -> None:
        self._is_kept = True

    def __exit__(self, *_: object) -> None:
        if not self._is_kept:
            self._reserved -= self._keys
