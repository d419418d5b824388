"""What is read of the data: every row is looked at once, in batches. Over all rows it counts rows and bytes, and for
each path presence, types and values; a reservoir keeps a sample for what concerns several paths. Where rows come from
is left to the caller, which also says when a batch ends.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from armillary.errors import Failure
from armillary.insight.advice.reading.leaf_columns import Column, Columns, Steps
from armillary.insight.advice.reading.path_choice import choose_paths
from armillary.insight.advice.reading.reservoir import ROWS_DEFAULT, Reservoir
from armillary.insight.advice.reading.row_times import TIMELY, is_text_time, seconds_of, writing_time
from armillary.insight.advice.reading.value_counts import ValueCounts
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.items import strip_system_properties

SYSTEM_BYTES: Final = 205  # of the system properties of a stored item, measured
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
TERMS_ROWS: Final = 2_000  # items whose index terms are counted
_TERMS_MAX: Final = 200_000  # in these: fewer items are enough where each has thousands
_EXAMPLES: Final = 3
_PROSE_CHARACTERS: Final = 64


@dataclass(slots=True)
class PathProfile:
    """What was seen at one path, over all rows."""

    steps: Steps
    path: str  # as partition keys are defined
    present: int = 0  # rows with a scalar there
    nulls: int = 0
    objects: int = 0  # objects and arrays
    oversized: int = 0  # values beyond what a key may be
    numbers: int = 0
    truths: int = 0
    counts: ValueCounts = field(default_factory=ValueCounts)
    is_time: bool = False
    is_text_time: bool = False
    times_read: int = 0
    times_good: int = 0

    @property
    def is_prose(self) -> bool:
        """Whether its values look like sentences: most of those that are remembered are long and have several words."""
        named = list(self.counts.names.values())
        prose = sum(type(each) is str and len(each) > _PROSE_CHARACTERS and len(each.split()) > 2 for each in named)
        return prose > len(named) / 2

    @property
    def kinds(self) -> dict[str, int]:
        """Rows by the type of the value: a key has one place for 7 and another for "7"."""
        texts = self.present - self.numbers - self.truths
        found = {"numbers": self.numbers, "texts": texts, "truth values": self.truths}
        return {kind: rows for kind, rows in found.items() if rows > 0}


@dataclass(slots=True)
class Profile:
    rows: int
    size_bytes: float
    bad_rows: int
    bad_examples: list[str]
    paths: dict[str, PathProfile]
    columns: Columns  # counts the properties that were not looked at
    uncounted: list[str]  # paths of nearly all rows beyond those whose values are counted
    reservoir: Reservoir
    terms: float  # index terms of an item, on average
    written: Steps | None  # the path with the time of writing

    @property
    def item_bytes(self) -> float:
        return self.size_bytes / self.rows if self.rows else 0.0

    @property
    def sampled(self) -> int:
        return len(self.reservoir)


class Profiler:
    """Takes rows and makes a profile of them. The paths to be counted are chosen after the first batch."""

    def __init__(
        self,
        *,
        rows: int = ROWS_DEFAULT,
        seed: int = 1,
        named: Collection[Steps] = (),
        indexing: IndexingPolicy | None = None,
    ) -> None:
        self._reservoir = Reservoir(rows, seed)
        self._named = {("id",), *named}
        self._indexing = indexing or IndexingPolicy.parse(None, key_definition=None, has_ttl=False)
        self._columns = Columns(self._named)
        self._paths: dict[Steps, PathProfile] | None = None
        self._uncounted: list[str] = []
        self._sizes: list[int] = []
        self._batch_bytes = 0
        self._rows, self._size_bytes = 0, 0
        self._bad, self._bad_examples = 0, list[str]()
        self._terms, self._terms_rows = 0, 0

    @property
    def rows(self) -> int:
        return self._rows + len(self._sizes)

    def add(self, document: Mapping[str, Any], text: bytes | None = None) -> None:
        own = strip_system_properties(document) if isinstance(document, dict) else dict(document)
        size = _compact_bytes(own, text)
        self._columns.add(len(self._sizes), own)
        self._sizes.append(size + SYSTEM_BYTES)
        self._batch_bytes += size
        if self._terms_rows < TERMS_ROWS and self._terms < _TERMS_MAX:
            self._count_terms(own)
        if len(self._sizes) >= BATCH_ROWS or self._batch_bytes >= BATCH_BYTES:
            self._finish_batch()

    def add_bad(self, reason: str) -> None:
        self._bad += 1
        if len(self._bad_examples) < _EXAMPLES:
            self._bad_examples.append(reason)

    def _count_terms(self, document: dict[str, Any]) -> None:
        try:
            self._terms += self._indexing.plain_terms(document, 0).charged
            self._terms_rows += 1
        except (Failure, RecursionError, OverflowError, ValueError):
            pass  # an item that could not be stored; the others give the mean

    def _finish_batch(self) -> None:
        sizes = np.array(self._sizes, np.float64)
        if self._paths is None:
            chosen = choose_paths(self._columns, self._named, len(sizes))
            self._paths = {steps: PathProfile(steps, path) for steps, path in chosen.paths}
            self._uncounted = chosen.uncounted
            self._columns.keep_only(self._paths)
        taken, places = self._reservoir.places(len(sizes))
        self._reservoir.put_sizes(places, sizes[taken])
        for column in self._columns:
            profile = self._paths.get(column.steps)
            if profile is not None:
                self._count(column, profile, sizes, taken, places)
        self._rows += len(sizes)
        self._size_bytes += int(sizes.sum())
        self._columns.clear()
        self._sizes, self._batch_bytes = [], 0

    def _count(self, column: Column, profile: PathProfile, sizes: Any, taken: Any, places: Any) -> None:
        rows = np.array(column.rows, np.int64)
        digests = column.digests()
        profile.present += len(rows)
        profile.nulls, profile.objects, profile.oversized = column.nulls, column.objects, column.oversized
        profile.numbers, profile.truths = column.numbers, column.truths
        profile.counts.add(digests, sizes[rows], column.values)
        whole = np.zeros(len(sizes), np.uint64)
        whole[rows] = digests
        self._reservoir.put(column.steps, places, whole[taken])
        self._read_times(column, profile, rows, taken, places)

    def _read_times(self, column: Column, profile: PathProfile, rows: Any, taken: Any, places: Any) -> None:
        if profile.times_read and not profile.is_time:
            return
        at = np.full(int(taken[-1]) + 1 if len(taken) else 0, -1, np.int64)
        inside = rows < len(at)
        at[rows[inside]] = np.flatnonzero(inside)
        indices = at[taken]
        values = [column.values[index] for index in indices[indices >= 0].tolist()]
        seconds = seconds_of(values)
        profile.times_read += len(values)
        if seconds is None:
            profile.is_time = profile.is_time and not values
            if not profile.is_time:
                self._reservoir.forget_times(column.steps)
            return
        profile.times_good += int((~np.isnan(seconds)).sum())
        profile.is_time = profile.times_good >= TIMELY * profile.times_read
        profile.is_text_time = is_text_time(values[0])
        whole = np.full(len(taken), np.nan)
        whole[indices >= 0] = seconds
        self._reservoir.put_times(column.steps, places, whole)

    def profile(self) -> Profile:
        if self._sizes or self._paths is None:
            self._finish_batch()
        assert self._paths is not None
        timely = [
            (each.steps, each.is_text_time, int(each.counts.distinct().value))
            for each in self._paths.values()
            if each.is_time
        ]
        return Profile(
            self._rows,
            float(self._size_bytes),
            self._bad,
            self._bad_examples,
            {each.path: each for each in self._paths.values()},
            self._columns,
            self._uncounted,
            self._reservoir,
            self._terms / self._terms_rows if self._terms_rows else 0.0,
            writing_time(timely),
        )


def _compact_bytes(document: dict[str, Any], text: bytes | None) -> int:
    try:
        return len(orjson.dumps(document))
    except (TypeError, ValueError, RecursionError):  # nested more deeply, or numbers larger, than it writes
        return len(text) if text is not None else len(json.dumps(document, default=str).encode())
