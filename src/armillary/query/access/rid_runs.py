"""Runs of rids: the items behind one key prefix of the terms or of a logical partition, which are in ascending order
there. What several runs have in common, or have together, is found by walking them side by side. Which prefixes are
asked for is decided by `access_path.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

from armillary.model import layout
from armillary.storage.engine import View

_STEPS_BEFORE_SEEK = 16  # stepping this far is cheaper than opening another scan


class Run:
    """The rids behind one key prefix, which are in ascending order there."""

    __slots__ = ("_current", "_end", "_prefix", "_rids", "_view")

    def __init__(self, view: View, prefix: bytes) -> None:
        self._view = view
        self._prefix = prefix
        self._end = layout.prefix_end(prefix)
        self._rids: Iterator[int] = iter(())
        self._current: int | None = -1

    def after(self, rid: int) -> Iterator[int]:
        low = self._prefix + (rid + 1).to_bytes(layout.RID_BYTES, "big")
        for key, _ in self._view.scan(low, self._end):
            yield int.from_bytes(key[-layout.RID_BYTES :], "big")

    def start(self, after_rid: int) -> int | None:
        self._rids = self.after(after_rid)
        self._current = next(self._rids, None)
        return self._current

    def seek(self, rid: int) -> int | None:
        """The first rid at or after this one, going forward only."""
        for _ in range(_STEPS_BEFORE_SEEK):
            if self._current is None or self._current >= rid:
                return self._current
            self._current = next(self._rids, None)
        if self._current is None or self._current >= rid:
            return self._current
        return self.start(rid - 1)


def intersection(view: View, prefixes: Sequence[bytes], after_rid: int) -> Iterator[int]:
    """The rids that are behind all of these key prefixes."""
    return shared_by([Run(view, prefix) for prefix in prefixes], after_rid)


def union_of(view: View, prefixes: Sequence[bytes], after_rid: int) -> Iterator[int]:
    """The rids that are behind any of these key prefixes, none of which has a rid of another."""
    return merge(*[Run(view, prefix).after(after_rid) for prefix in prefixes])


def shared_by(runs: Sequence[Run], after_rid: int) -> Iterator[int]:
    """The rids that all runs have."""
    return runs[0].after(after_rid) if len(runs) == 1 else _intersection(runs, after_rid)


def shortest(runs: Sequence[Run], after_rid: int, entries_max: int) -> list[int] | None:
    """The rids of the shortest run, if one ends within a short look at each."""
    best: list[int] | None = None
    for run in runs:
        seen = list(islice(run.after(after_rid), entries_max if best is None else len(best)))
        if len(seen) < (entries_max if best is None else len(best)):
            best = seen
    return best


def _intersection(runs: Sequence[Run], after_rid: int) -> Iterator[int]:
    """What all runs have in common: each in turn is moved to where the furthest one is."""
    rid = runs[0].start(after_rid)
    for run in runs[1:]:
        run.start(after_rid)
    while rid is not None:
        target: int | None = rid
        for run in runs:
            target = run.seek(rid)
            if target != rid:
                break
        if target == rid:
            yield rid
            rid += 1
            rid = runs[0].seek(rid)
        else:
            rid = target
