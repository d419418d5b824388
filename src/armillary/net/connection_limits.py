"""Limits on the connections of the server, over all doors, from the moment they are accepted. A connection that has not
authenticated yet is called a stranger.

Strangers are limited in number for each address and in the bytes of their unfinished requests. At the limit a stranger
is evicted, so that a new connection can authenticate. Authenticated connections are counted and never evicted: on
loopback and behind a proxy all clients have one address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from armillary import limits
from armillary.clock import Clock, SystemClock


class Guest:
    """One connection: a socket that was accepted, a handshake under way, or a protocol at work."""

    __slots__ = ("_crowd", "_group", "came_s", "evict", "has_spoken", "held_bytes", "is_gone", "is_known", "is_shed")

    def __init__(self, crowd: Crowd, group: str, evict: Callable[[], object], *, is_shed: bool) -> None:
        self._crowd = crowd
        self._group = group
        self.evict = evict  # ends it, in whatever state it is
        self.came_s = crowd.now_s
        self.has_spoken = False  # something whole, though without a key
        self.held_bytes = 0
        self.is_known = False
        self.is_gone = False
        self.is_shed = is_shed  # over the limit: it only gets a refusal

    @property
    def _is_stranger(self) -> bool:
        return not (self.is_known or self.is_gone or self.is_shed)

    def hear(self) -> None:
        """A stranger has sent something whole."""
        if self._is_stranger:
            self._crowd.hear(self, self._group)

    def hold(self, size_bytes: int) -> None:
        """So much is held of what a stranger has begun and not ended."""
        if size_bytes != self.held_bytes and self._is_stranger:
            self._crowd.hold(self, size_bytes)

    def recognise(self) -> None:
        """It has shown a key."""
        if self._is_stranger:
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


class _Strangers:
    """Strangers in the order of eviction."""

    __slots__ = ("silent", "spoken")

    def __init__(self) -> None:
        self.silent: dict[Guest, None] = {}  # by when they came
        self.spoken: dict[Guest, None] = {}  # by when they were last heard

    def __len__(self) -> int:
        return len(self.silent) + len(self.spoken)

    def add(self, guest: Guest) -> None:
        (self.spoken if guest.has_spoken else self.silent)[guest] = None

    def discard(self, guest: Guest) -> None:
        (self.spoken if guest.has_spoken else self.silent).pop(guest, None)

    def next_to_go(self, now_s: float) -> Guest | None:
        """The stranger to evict: first one that has sent nothing, then the one that was quiet for longest (MongoDB's
        monitors never authenticate but send regularly), and new ones only if there is no other."""
        first = next(iter(self.silent), None)
        if first is not None and now_s - first.came_s >= limits.STRANGER_SILENT_SECONDS:
            return first
        return next(iter(self.spoken), None) or first


class Crowd:
    def __init__(
        self,
        connections_max: int = limits.CONNECTIONS_MAX,
        *,
        per_address_max: int | None = None,
        unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.connections_max = connections_max
        self.count = 0
        self._shed_count = 0  # of those that are only told that there is no room
        self.unfinished_bytes = 0
        self._per_address_max = max(1, connections_max // 2) if per_address_max is None else per_address_max
        self._unfinished_bytes_max = unfinished_bytes_max
        self._clock = clock or SystemClock()
        self._strangers = _Strangers()
        self._by_group: dict[str, _Strangers] = {}
        self._holding: dict[Guest, None] = {}  # in the order in which they began

    @property
    def now_s(self) -> float:
        return self._clock.monotonic_s()

    @property
    def stranger_count(self) -> int:
        return len(self._strangers)

    def enter(self, address: str, evict: Callable[[], object]) -> Guest | None:
        """Count a new connection. None: there is no room, not even to send a refusal."""
        group = group_of(address)
        neighbours = self._by_group.get(group)
        if neighbours is not None and len(neighbours) >= self._per_address_max:
            self._make_room(neighbours)
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
        if is_shed:
            self._shed_count += 1
        else:
            self.join_strangers(guest, group)
        return guest

    def _make_room(self, strangers: _Strangers) -> bool:
        guest = strangers.next_to_go(self.now_s)
        if guest is None:
            return False
        self._send_away(guest)
        return True

    def _send_away(self, guest: Guest) -> None:
        evict = guest.evict
        guest.leave()
        evict()

    # Called by guests.

    def join_strangers(self, guest: Guest, group: str) -> None:
        self._strangers.add(guest)
        self._by_group.setdefault(group, _Strangers()).add(guest)

    def leave_strangers(self, guest: Guest, group: str) -> None:
        self.hold(guest, 0)
        self._strangers.discard(guest)
        neighbours = self._by_group.get(group)
        if neighbours is not None:
            neighbours.discard(guest)
            if not neighbours:
                del self._by_group[group]

    def hear(self, guest: Guest, group: str) -> None:
        neighbours = self._by_group[group]
        self._strangers.discard(guest)
        neighbours.discard(guest)
        guest.has_spoken = True
        self._strangers.add(guest)
        neighbours.add(guest)

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
    """The address that limits apply to: of IPv6 the network, since a client has all addresses of one."""
    if ":" not in address:
        return address
    try:
        network = ipaddress.ip_network((address.partition("%")[0], 64), strict=False)
    except ValueError:
        return address
    return str(network.network_address)
