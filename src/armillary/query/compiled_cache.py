"""A cache of what was compiled from the texts of queries: the entries that were used last are kept, up to a number and
up to a total size. Hits and misses are counted for metrics.

Caches belong to the process: servers in one process share those of the languages and their counts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar, cast

from armillary import limits

K = TypeVar("K")
V = TypeVar("V")


class CompiledCache(Generic[K, V]):
    def __init__(self, name: str, *, size_max: int | None = None) -> None:
        """`size_max`: of all entries together, in the unit of `keep`; None: only their number is limited."""
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size_max = size_max
        self._size = 0
        self.hits = 0
        self.misses = 0
        _CACHES[name] = cast(CompiledCache[object, object], self)  # the newest of a name is the one that metrics show

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return found[0]

    def peek(self, key: K) -> V | None:
        """As `get`, for one who may turn out not to use it: nothing is counted."""
        found = self._kept.get(key)
        return found[0] if found is not None else None

    def keep(self, key: K, value: V, size: int = 0) -> None:
        before = self._kept.pop(key, None)
        self._size += size - (before[1] if before is not None else 0)
        self._kept[key] = value, size
        while len(self._kept) > limits.QUERY_CACHE_ENTRIES or (
            self._size_max is not None and self._size > self._size_max
        ):
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= dropped

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0


class CacheFigures(NamedTuple):
    name: str
    hits: int
    misses: int
    entries: int


_CACHES: dict[str, CompiledCache[object, object]] = {}


def cache_figures() -> list[CacheFigures]:
    return [CacheFigures(name, each.hits, each.misses, len(each)) for name, each in sorted(_CACHES.items())]
