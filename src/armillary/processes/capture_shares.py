"""Captures over several processes of a server. Each process records the requests that it answers, in memory; the first
one, which writes the capture, asks the others for their lines once a second, before it is asked about the capture, and
when it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from armillary import limits
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.captures.share_recorder import ShareTaken
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Place, Question, Unreached
from armillary.errors import Failure

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TakeShare(Question):
    """What a process has recorded for a capture since it was asked last."""

    capture: str
    received: int  # answers of this process that have arrived: one that has not is given again
    is_last: bool

    async def answer(self, here: LocalPlace) -> ShareTaken:
        return here.account.captures.take_share(self.capture, self.received, is_last=self.is_last)


class SharesOfOthers:
    """Shares."""

    def __init__(self, places: Mapping[int, Place]) -> None:
        self._places = places
        self._received = dict.fromkeys(places, 0)

    async def take(self, record: CaptureRecord, *, is_last: bool) -> tuple[list[bytes], str]:
        """Their lines, and why one of them records no more. A process that has ended takes with it what it had not
        given."""
        shares = await asyncio.gather(*[self._ask(number, record, is_last) for number in self._places])
        lines: list[bytes] = []
        for share in shares:
            lines += share.lines
            record.missed += share.missed
        return lines, next((share.reason for share in shares if share.reason), "")

    async def _ask(self, number: int, record: CaptureRecord, is_last: bool) -> ShareTaken:
        question = TakeShare(record.id, self._received[number], is_last)
        try:
            share: ShareTaken = await self._places[number].ask(question, limit_s=limits.FIGURES_SECONDS_MAX)
        except (Lost, Unreached):
            return ShareTaken()
        except (Failure, TimeoutError) as error:
            log.warning("process %d does not tell what it has recorded for a capture: %r", number, error)
            return ShareTaken()
        self._received[number] += 1
        return share
