"""Throttling of failed sign-ins, for all doors: the answer to each is held back once an address has had many of them.

Requests that are signed correctly never come here, so they are never slowed, whatever their address has done: on
loopback and behind a proxy all clients share one. Keys are too long to be guessed; what this bounds is the work, the
log lines and the answers that a program which tries can cause.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from armillary import limits
from armillary.clock import Clock


class SignInThrottle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By address, the least recent first: the moment until which its failures are used up, at one for each interval.
        self._until_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until_s)

    async def refused(self, address: str) -> bool:
        """To be awaited before a failed sign-in is answered. False: so many wait already that this one gets no answer,
        and its connection ends."""
        wait_s = self._wait_s(network_of(address))
        if wait_s is None:
            return False
        if wait_s > 0:
            await self._clock.sleep(wait_s)
        return True

    def count(self, address: str) -> None:
        """A failed sign-in that is answered at once, because its connection ends with the answer."""
        self._wait_s(network_of(address))

    def _wait_s(self, network: str) -> float | None:
        now_s = self._clock.elapsed_s()
        interval_s = 1 / limits.SIGN_IN_FAILURES_PER_S
        until_s = max(self._until_s.pop(network, now_s), now_s) + interval_s
        wait_s = until_s - now_s - limits.SIGN_IN_FAILURES_FREE * interval_s
        is_too_long = wait_s > limits.SIGN_IN_WAIT_SECONDS_MAX
        self._until_s[network] = until_s - interval_s if is_too_long else until_s
        if len(self._until_s) > limits.SIGN_IN_ADDRESSES_MAX:
            self._until_s.popitem(last=False)
        return None if is_too_long else wait_s


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the half that a provider gives to one customer."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
