"""All connections of the server, over all doors, from the moment they are accepted: how many there are, and which of
them are strangers, who have not yet shown a key.

Strangers cost little: they are bounded in number for each address, in the bytes of what they have begun and not ended,
and whenever there is no room it is the one that was quiet for longest who goes. Whoever has shown a key is counted, and
otherwise left alone: on loopback and behind a proxy all clients have one address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from armillary import limits
from armillary.clock import Clock, SystemClock


class Guest:
    """One connection: a socket that was accepted, a handshake under way, or a protocol at work."""

    __slots__ = ("_crowd", "_group", "evict", "heard_s", "held_bytes", "is_gone", "is_known", "is_shed")

    def __init__(self, crowd: Crowd, group: str, evict: Callable[[], object], *, is_shed: bool) -> None:
        self._crowd = crowd
        self._group = group
        self.evict = evict  # ends it, in whatever state it is
        self.heard_s = crowd.now_s
        self.held_bytes = 0
        self.is_known = False
        self.is_gone = False
        self.is_shed = is_shed  # there was no room: it is only told so

    def hear(self) -> None:
        """A stranger has sent something whole."""
        if not self.is_known and not self.is_gone:
            self._crowd.move_back(self, self._group)

    def hold(self, size_bytes: int) -> None:
        """So much is held of what a stranger has begun and not ended."""
        if size_bytes != self.held_bytes and not self.is_known and not self.is_gone:
            self._crowd.hold(self, size_bytes)

    def recognise(self) -> None:
        """It has shown a key."""
        if not self.is_known and not self.is_gone:
            self._crowd.leave_strangers(self, self._group)
            self.is_known = True

    def estrange(self) -> None:
        """Its key is good no more."""
        if self.is_known and not self.is_gone:
            self.is_known = False
            self._crowd.join_strangers(self, self._group)

    def leave(self) -> None:
        if not self.is_gone:
            self._crowd.leave(self, self._group)
            self.is_gone = True


class Crowd:
    def __init__(
        self,
        connections_max: int = limits.CONNECTIONS_MAX,
        *,
        per_address_max: int = limits.STRANGERS_PER_ADDRESS_MAX,
        unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.connections_max = connections_max
        self.count = 0
        self._shed_count = 0  # of those that are only told that there is no room
        self.unfinished_bytes = 0
        self._per_address_max = per_address_max
        self._unfinished_bytes_max = unfinished_bytes_max
        self._clock = clock or SystemClock()
        # Each in the order in which they were last heard.
        self._strangers: dict[Guest, None] = {}
        self._by_group: dict[str, dict[Guest, None]] = {}
        self._holding: dict[Guest, None] = {}  # in the order in which they began

    @property
    def now_s(self) -> float:
        return self._clock.monotonic_s()

    @property
    def stranger_count(self) -> int:
        return len(self._strangers)

    def enter(self, address: str, evict: Callable[[], object]) -> Guest | None:
        """Somebody comes. None: there is no room, not even to say so."""
        group = group_of(address)
        neighbours = self._by_group.get(group)
        if neighbours is not None and len(neighbours) >= self._per_address_max and not self._make_room(neighbours):
            return None
        has_room = self.count - self._shed_count < self.connections_max or self._make_room(self._strangers)
        if not has_room and self.count >= self.connections_max + self.connections_max // 8 + 16:
            return None
        return self._seat(group, evict, is_shed=not has_room)

    def seat(self) -> Guest:
        """Count in a connection that came by another way than a port."""
        return self._seat("", lambda: None, is_shed=False)

    def _seat(self, group: str, evict: Callable[[], object], *, is_shed: bool) -> Guest:
        guest = Guest(self, group, evict, is_shed=is_shed)
        self.count += 1
        self._shed_count += is_shed
        self.join_strangers(guest, group)
        return guest

    def _make_room(self, strangers: dict[Guest, None]) -> bool:
        """Send away the stranger that was quiet for longest, unless all of them have just been heard."""
        quietest = next(iter(strangers), None)
        if quietest is None or self.now_s - quietest.heard_s < limits.STRANGER_QUIET_SECONDS:
            return False
        self._send_away(quietest)
        return True

    def _send_away(self, guest: Guest) -> None:
        evict = guest.evict
        guest.leave()
        evict()

    # What guests report.

    def join_strangers(self, guest: Guest, group: str) -> None:
        guest.heard_s = self.now_s
        self._strangers[guest] = None
        self._by_group.setdefault(group, {})[guest] = None

    def leave_strangers(self, guest: Guest, group: str) -> None:
        self.hold(guest, 0)
        self._strangers.pop(guest, None)
        neighbours = self._by_group.get(group)
        if neighbours is not None:
            neighbours.pop(guest, None)
            if not neighbours:
                del self._by_group[group]

    def move_back(self, guest: Guest, group: str) -> None:
        guest.heard_s = self.now_s
        neighbours = self._by_group[group]
        del self._strangers[guest], neighbours[guest]
        self._strangers[guest] = neighbours[guest] = None

    def hold(self, guest: Guest, size_bytes: int) -> None:
        self.unfinished_bytes += size_bytes - guest.held_bytes
        guest.held_bytes = size_bytes
        if not size_bytes:
            self._holding.pop(guest, None)
            return
        self._holding.setdefault(guest, None)
        while self.unfinished_bytes > self._unfinished_bytes_max and self._holding:
            self._send_away(next(iter(self._holding)))

    def leave(self, guest: Guest, group: str) -> None:
        self.count -= 1
        self._shed_count -= guest.is_shed
        self.leave_strangers(guest, group)


def group_of(address: str) -> str:
    """Whoever has one address of IPv6 has a network of them."""
    if ":" not in address:
        return address
    try:
        network = ipaddress.ip_network((address.partition("%")[0], 64), strict=False)
    except ValueError:
        return address
    return str(network.network_address)
