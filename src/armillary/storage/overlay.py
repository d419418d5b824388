"""The writes of running transaction functions, layered over the stored state: visible to the function itself, and
merged into the group when it succeeds. A `Layer` holds writes, an `OverlayTxn` shows a layer over another layer over
the stored map; storing and durability is left to the engine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

Pair = tuple[bytes, bytes]
Get = Callable[[bytes], bytes | None]
# scan(low, high, reverse, prefix_bytes): bounds with the store's prefix, yielded keys without it.
Scan = Callable[[bytes, bytes, bool, int], Iterator[Pair]]

_ABSENT: Final = b"absent\0from this layer"  # compared by identity only
_KEY_BYTES: Final = 48  # the usual size of a key with its overhead; adding up all sizes takes a microsecond an item


class Layer:
    """Writes in order: first the ranges that were cleared, then single keys (None: deleted)."""

    __slots__ = ("_sorted_keys", "cleared", "has_deletes", "writes")

    def __init__(self, *, has_deletes: bool = True) -> None:
        """`has_deletes` False: of a transaction that has deleted nothing yet. Only an `OverlayTxn` adds None to it."""
        self.writes: dict[bytes, bytes | None] = {}
        self.cleared: list[tuple[bytes, bytes]] = []  # disjoint, not touching, ascending
        self.has_deletes = has_deletes  # whether `writes` may have None
        self._sorted_keys: list[bytes] = []

    def is_empty(self) -> bool:
        return not self.writes and not self.cleared

    def clear(self, low: bytes, high: bytes) -> None:
        """Clear [low, high); later puts there are visible again."""
        if low >= high:
            return
        if self.writes:
            keys = self._keys()
            first, last = bisect_left(keys, low), bisect_left(keys, high)
            for key in keys[first:last]:
                del self.writes[key]
            del keys[first:last]
        kept = []
        for other_low, other_high in self.cleared:
            if other_high < low or other_low > high:
                kept.append((other_low, other_high))
            else:
                low, high = min(low, other_low), max(high, other_high)
        kept.append((low, high))
        kept.sort()
        self.cleared = kept

    def is_cleared(self, key: bytes) -> bool:
        at = bisect_right(self.cleared, key, key=_low) - 1
        return at >= 0 and key < self.cleared[at][1]

    def absorb(self, later: Layer) -> int:
        """Make `later` part of this layer; returns its size in bytes, approximately."""
        for low, high in later.cleared:
            self.clear(low, high)
        self.writes.update(later.writes)
        self.has_deletes = self.has_deletes or later.has_deletes
        return later.size_bytes()

    def size_bytes(self) -> int:
        """The size, approximately."""
        writes = self.writes
        return len(writes) * _KEY_BYTES + sum(map(len, filter(None, writes.values())))

    def entries(self, low: bytes, high: bytes) -> list[tuple[bytes, bytes | None]]:
        if not self.writes:
            return []
        keys = self._keys()
        writes = self.writes
        return [(key, writes[key]) for key in keys[bisect_left(keys, low) : bisect_left(keys, high)]]

    def _keys(self) -> list[bytes]:
        # A dict keeps new keys at its end, so only those are missing here, and sorting an almost sorted list is cheap.
        # Writing pays nothing for it: most transactions never scan.
        keys = self._sorted_keys
        missing = len(self.writes) - len(keys)
        if missing:
            keys.extend(islice(reversed(self.writes), missing))
            keys.sort()
        return keys


class OverlayTxn:
    """A store as one transaction function sees it: `layer` (its own writes) over `under` over what is stored."""

    __slots__ = ("_get", "_layer", "_prefix", "_scan", "_under", "_writes")

    def __init__(self, layer: Layer, under: Layer, get: Get, scan: Scan, prefix: bytes = b"") -> None:
        self._layer = layer
        self._writes = layer.writes
        self._under = under
        self._get = get
        self._scan = scan
        self._prefix = prefix

    def at(self, prefix: bytes) -> OverlayTxn:
        """Another store in the same transaction, by its key prefix."""
        return OverlayTxn(self._layer, self._under, self._get, self._scan, prefix)

    def get(self, key: bytes) -> bytes | None:
        key = self._prefix + key
        value = self._writes.get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        if self._layer.cleared and self._layer.is_cleared(key):
            return None
        under = self._under
        value = under.writes.get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        if under.cleared and under.is_cleared(key):
            return None
        return self._get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self.get
        return [get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        self._writes[self._prefix + key] = value

    def put_keys(self, keys: Iterable[bytes]) -> None:
        prefix, writes = self._prefix, self._writes
        for key in keys:
            writes[prefix + key] = b""

    def delete(self, key: bytes) -> None:
        self._layer.has_deletes = True
        self._writes[self._prefix + key] = None

    def delete_many(self, keys: Iterable[bytes]) -> None:
        self._layer.has_deletes = True
        writes, prefix = self._writes, self._prefix
        for key in keys:
            writes[prefix + key] = None

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._layer.clear(self._prefix + low, self._prefix + high)

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[Pair]:
        """The pairs as they are at the time of this call: later writes are not seen by the iterator."""
        low, high = self._prefix + low, self._prefix + high
        if low >= high:
            return iter(())
        skip = len(self._prefix)
        layer, under = self._layer, self._under
        written = dict(under.entries(low, high))
        if layer.cleared and written:
            written = {key: value for key, value in written.items() if not layer.is_cleared(key)}
        written.update(layer.entries(low, high))
        if not layer.cleared and not under.cleared:
            stored = self._scan(low, high, reverse, skip)
        else:
            kept = list(_without(_without([(low, high)], under.cleared), layer.cleared))
            stored = (pair for part in (kept[::-1] if reverse else kept) for pair in self._scan(*part, reverse, skip))
        if not written:
            return stored
        entries = sorted(((key[skip:], value) for key, value in written.items()), reverse=reverse, key=_low)
        return _merged(stored, entries, reverse)


def _low(pair: tuple[bytes, object]) -> bytes:
    return pair[0]


def _without(parts: Sequence[tuple[bytes, bytes]], holes: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Ascending disjoint ranges minus ascending disjoint holes."""
    kept = []
    for low, high in parts:
        for hole_low, hole_high in holes:
            if hole_high <= low or hole_low >= high:
                continue
            if low < hole_low:
                kept.append((low, hole_low))
            low = hole_high
            if low >= high:
                break
        if low < high:
            kept.append((low, high))
    return kept


def _merged(stored: Iterator[Pair], written: list[tuple[bytes, bytes | None]], reverse: bool) -> Iterator[Pair]:
    """Both in one order; for a key in both, the written value wins."""
    at, count = 0, len(written)
    for pair in stored:
        key = pair[0]
        is_replaced = False
        while at < count:
            written_key, value = written[at]
            if (written_key < key) if reverse else (written_key > key):
                break
            at += 1
            is_replaced = written_key == key
            if value is not None:
                yield written_key, value
        if not is_replaced:
            yield pair
    while at < count:
        written_key, value = written[at]
        at += 1
        if value is not None:
            yield written_key, value
