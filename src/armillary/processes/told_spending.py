"""Budgets that several processes of a server spend from: the throughput that the containers of a database share, and
the budget of requests that are not about items. Each process tells the others what it has spent, and they count it as
spent, too. It arrives a moment later, so a second may be overspent by what came in between; the next ones repay it, as
they repay every overspent second.

Partitions of containers with throughput of their own have budgets of their own, which are where the partition is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from armillary import limits
from armillary.account.account import Account
from armillary.account.visits.elsewhere.place import LocalPlace, Told
from armillary.partition.meter import Meter, Spent
from armillary.processes.places import ProcessHere


@dataclass(slots=True)
class TellSpending(Told):
    amounts: dict[tuple[bytes, int], int]  # hundredths of request units, by database and its partition

    def take(self, here: LocalPlace) -> None:
        for shared, amount in self.amounts.items():
            here.account.budgets.spend_elsewhere(shared, amount)


class SpendingOfOthers:
    """What this process tells them."""

    def __init__(self, account: Account, here: ProcessHere) -> None:
        self._account = account
        self._here = here
        self._seen: dict[Meter, Spent] = {}  # of each meter, when it was looked at last
        self._telling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._telling = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._account.clock.sleep(limits.SPENDING_TELL_SECONDS)
            amounts = self._amounts()
            if amounts:
                for place in self._here.places.connected:
                    place.tell(TellSpending(amounts))

    def _amounts(self) -> dict[tuple[bytes, int], int]:
        """What was spent since the last time."""
        amounts: dict[tuple[bytes, int], int] = {}
        seen, self._seen = self._seen, {}
        for shared, meter in self._account.budgets.sharing:
            self._seen[meter] = spent = meter.spent
            before = seen.get(meter)
            if before is not None and spent != before:
                amount = meter.spent_since(before)
                if amount > 0:
                    amounts[shared] = amounts.get(shared, 0) + amount
        return amounts
