"""Sorting that gives way to the event loop: long lists are sorted in short runs, which are then merged. One call of
Python's own sort cannot be interrupted, and takes a second for a million values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from operator import itemgetter
from typing import Any, TypeVar

from armillary import work

T = TypeVar("T")

_RUN = 2_048  # values sorted at once: about 2 ms
_RUN_UNITS = 10  # units of work to sort one of them
_MERGE_UNITS = 15
_STRIDE = 256
_FIRST = itemgetter(0)


def sorted_values(values: Iterable[T], key: Callable[[T], Any] | None = None, *, is_reversed: bool = False) -> list[T]:
    """Like `sorted`, and stable like it."""
    given = values if isinstance(values, list) else list(values)
    if len(given) <= _RUN:
        work.spend(len(given) * _RUN_UNITS)
        return sorted(given, key=key, reverse=is_reversed)  # type: ignore[arg-type]
    runs: list[list[tuple[Any, T]]] = []
    for first in range(0, len(given), _RUN):
        piece = given[first : first + _RUN]
        work.spend(len(piece) * _RUN_UNITS)
        pairs = [(each if key is None else key(each), each) for each in piece]
        pairs.sort(key=_FIRST, reverse=is_reversed)
        runs.append(pairs)
    made: list[T] = []
    for _, each in merge(*runs, key=_FIRST, reverse=is_reversed):
        made.append(each)
        if len(made) % _STRIDE == 0:
            work.spend(_STRIDE * _MERGE_UNITS)
    return made
