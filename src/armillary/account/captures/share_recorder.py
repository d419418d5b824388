"""Recording of a share of a capture: of the requests that one process of a server answers, while another one writes
the capture and asks for the lines again and again (`processes/capture_shares.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from armillary.account.captures.capture_lines import Statuses
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.captures.recorder import Recorder
from armillary.clock import Clock
from armillary.model.keys import PartitionKeyDefinition

_NONE: Final = -1


@dataclass(slots=True)
class ShareTaken:
    lines: list[bytes] = field(default_factory=list)
    missed: int = 0
    reason: str = ""  # why it records no more


class Shares(Protocol):
    """What other processes record for one capture."""

    async def take(self, record: CaptureRecord, *, is_last: bool) -> tuple[list[bytes], str]:
        """Their lines, and why one of them records no more, if so."""


class ShareRecorder(Recorder):
    """The share of a capture that a process records which does not write it. Lines that are not asked for in
    time are counted as missed, as where a disk is too slow."""

    def __init__(
        self, record: CaptureRecord, key: PartitionKeyDefinition | None, statuses: Statuses, clock: Clock
    ) -> None:
        super().__init__(record, key, statuses, clock, max(0.0, clock.now_s() - record.begun_s))
        self.record.missed = 0
        self._reason = ""
        self._given = ShareTaken()
        self._given_for = _NONE

    def take(self, received: int) -> ShareTaken:
        """The lines since the last answer. `received`: how many answers have arrived. Asked twice with the same number,
        the first answer was lost, and is given again: it is kept until the next one is asked for."""
        if received != self._given_for:
            lines = self._take_lines()
            self._let_go(lines)
            self._given = ShareTaken(lines, self.record.missed, self._reason)
            self._given_for, self.record.missed = received, 0
        return self._given

    def end(self, reason: str) -> None:
        """Lines that wait are still given, and then why there are no more."""
        if self.is_open:
            self.is_open, self._most = False, 0
            self._reason = reason
