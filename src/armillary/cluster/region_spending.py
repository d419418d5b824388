"""Request units of a region: its nodes share one budget for each partition. Each tells the others what its requests
have spent, and they count it as spent, too. It arrives a moment later, so a second may be overspent by what came in
between; the next ones repay it, as they repay every overspent second.

    spent  {meters}   hundredths of request units by container and range (`RID/RANGE`; `/`: metadata of the account)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from armillary import limits
from armillary.account.account import Account
from armillary.clock import Clock
from armillary.cluster.membership import Membership
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.errors import Failure, bad_request
from armillary.model.resources import rid_bytes
from armillary.partition.meter import Meter, Spent

CALL: Final = "spent"
_METADATA: Final = "/"


class RegionSpending:
    def __init__(
        self, peers: Peers, membership: Membership, account: Callable[[], Account | None], clock: Clock
    ) -> None:
        self._peers = peers
        self._membership = membership
        self._account = account
        self._clock = clock
        self._seen: dict[Meter, Spent] = {}  # of each meter, when it was looked at last
        peers.handlers[CALL] = self._answer

    async def run(self) -> None:
        """Tell the others, until cancelled."""
        while True:
            await self._clock.sleep(limits.SPENDING_TELL_SECONDS + limits.SPENDING_METER_SECONDS * len(self._seen))
            account, others = self._account(), self._others()
            if account is None or not others:
                self._seen.clear()
                continue
            amounts = self._amounts(account)
            if amounts:
                await asyncio.gather(*(self._tell(node, amounts) for node in others))

    def _others(self) -> list[str]:
        own = self._membership
        return [
            each.name for each in own.members if each.is_alive and each.region == own.region and each.name != own.name
        ]

    def _amounts(self, account: Account) -> dict[str, int]:
        """What was spent since the last time, of meters that were seen then."""
        amounts: dict[str, int] = {}
        seen, self._seen = self._seen, {}
        for container, number, meter in _meters(account):
            self._seen[meter] = spent = meter.spent
            before = seen.get(meter)
            if before is not None and spent != before:
                amount = meter.spent_since(before)
                if amount > 0:
                    amounts[f"{container}/{number}"] = amount
        return amounts

    async def _tell(self, node: str, amounts: dict[str, int]) -> None:
        try:
            await self._peers.call(node, CALL, {"meters": amounts}, limit_s=limits.SPENDING_CALL_SECONDS)
        except (PeerGone, Failure):  # of an earlier version, or gone: its requests are counted by itself alone
            pass

    async def _answer(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        meters, account = head.get("meters"), self._account()
        if not isinstance(meters, dict):
            raise bad_request(f"The call `{CALL}` needs the object meters.")
        if account is not None:
            for name, amount in meters.items():
                meter = _meter_of(account, name)
                if meter is not None and isinstance(amount, int):
                    meter.spend_elsewhere(amount)
        return {}, b""


def _meters(account: Account) -> Iterator[tuple[str, str | int, Meter]]:
    yield "", "", account.budgets.metadata
    for container in account.containers:
        rid = container.rid_text
        for number, partition in container.partitions.items():
            yield rid, number, partition.meter


def _meter_of(account: Account, name: str) -> Meter | None:
    if name == _METADATA:
        return account.budgets.metadata
    rid, _, number = name.rpartition("/")
    container = account.container_by_rid(rid_bytes(rid) or b"")
    partition = container.partitions.get(int(number)) if container is not None and number.isdecimal() else None
    return partition.meter if partition is not None else None
