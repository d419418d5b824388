"""Rows that a follower has received and not applied.

A row that can be read need not be acknowledged: a server can show a row that is lost when its standby takes over, and
another row can have the same seq afterwards. So rows wait until a confirmation of the leader comes that names them by
their chain; it is in the rows that follow, in the leader's record and in what the leader sends. Rows that do not follow
from those that wait replace them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from armillary.errors import Failure, Kind
from armillary.storage.log.rows import Place, Row

CUT_OFF: Final = "is_cut_off"  # the detail of a Failure by which the node is told that it has to be built anew


class RowsWaiting:
    """Rows above a replica's position, and how far they are confirmed."""

    def __init__(self, applied: Place) -> None:
        self._applied = applied
        self._rows: list[Row] = []
        self._confirmed = applied.seq

    @property
    def last_seq(self) -> int:
        return self.last.seq

    @property
    def last(self) -> Place:
        return self._rows[-1].place if self._rows else self._applied

    @property
    def confirmed_seq(self) -> int:
        return self._confirmed

    def receive(self, rows: Sequence[Row]) -> bool:
        """Add rows that were read above the last. False: they do not follow from the rows that wait, which are
        forgotten; the caller reads again from what was applied. Raises if they do not follow from that either."""
        for row in rows:
            before = self._rows[-1].place if self._rows else self._applied
            if row.seq <= before.seq:
                continue
            if not row.follows(before):
                if not self._rows:
                    raise cut_off() if row.seq > before.seq + 1 else set_back()
                self.forget()
                return False
            self._rows.append(row)
            self.confirm(row.confirmed)
        return True

    def forget(self) -> None:
        """The source has changed: what it showed and did not confirm may be gone."""
        self._rows.clear()
        self._confirmed = self._applied.seq

    def confirm(self, place: Place) -> None:
        """A leader knows that a row is acknowledged. Only the row with that chain counts."""
        at = place.seq - self._applied.seq - 1
        if 0 <= at < len(self._rows) and self._rows[at].place == place:
            self._confirmed = max(self._confirmed, place.seq)

    def confirm_all(self, fence: Place) -> None:
        """A fence of this node's own was acknowledged: so is everything that it chains from."""
        if not self._rows or self._rows[-1].place != fence:
            raise set_back()
        self._confirmed = fence.seq

    def next_group(self) -> list[Row]:
        """The confirmed rows that are applied together next; empty if there are none."""
        for number, row in enumerate(self._rows, 1):
            if row.seq > self._confirmed:
                return []
            if row.is_last:
                return self._rows[:number]
        return []

    def applied(self, rows: Sequence[Row]) -> None:
        self._applied = rows[-1].place
        del self._rows[: len(rows)]


def set_back() -> Failure:
    return Failure(
        Kind.CORRUPT,
        "The replicated log was set back: this node has applied rows that the log does not have. Its PostgreSQL was "
        "restored to an earlier point, or a standby was promoted that had not received them. This node has stopped. "
        "See `armillary cluster reset-log`.",
    )


def cut_off() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "This replica is too far behind: the rows that follow its position were removed from the log. It is built anew "
        "from another node.",
        details={CUT_OFF: True},
    )
