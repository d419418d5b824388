"""The load that a capture shows. Records of the capture (`insight/captures.py`) become operations: requests of one kind
that pin the same paths, with their measured charge and rate at the busiest minute. Reads carry no item; they are joined
with writes of the capture, and with the rows that were read where the capture kept its values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import numpy as np

from armillary.errors import Failure
from armillary.insight.advice.reading.data_profile import Profile
from armillary.insight.advice.reading.leaf_columns import MISSING, digest_number, path_of
from armillary.insight.advice.request_load import ADDRESSED, CREATING, Group, Load, Operation, RequestRecord
from armillary.insight.captures import Capture, Captured
from armillary.insight.planning import visits
from armillary.model.indexes.index_paths import text_steps

Leaves = Mapping[str, int]
FindItem = Callable[[int], Leaves | None]  # by the digest of its id

_KINDS: Final = frozenset(("read", "create", "upsert", "replace", "patch", "delete", "batch", "query"))
_RUNS: Final = {"execute": "batch"}  # a script writes inside one key
_SERVED: Final = frozenset((404, 409, 412, 304))  # failures that were work
RECORDS_MAX: Final = 100_000
_HASHED: Final = 1 << 32
_PEAK_WINDOW_S: Final = 60.0
_PEAK_WINDOWS: Final = 10  # from which on the busiest minute is taken, instead of the mean
_LOOKED_AT: Final = 1_000  # records that tell which paths an operation has


class Records:
    """The requests of captures, thinned so that memory is bounded: of more than so many, those are kept whose item,
    transaction or query falls into a share. What belongs together stays together."""

    def __init__(self, most: int = RECORDS_MAX) -> None:
        self._most = most
        self._kept: dict[tuple[str, int], RequestRecord] = {}
        self.read = 0
        self.share = 1.0  # of the requests, that were kept

    def add(self, capture: Capture) -> None:
        """What is no request for items is left out; the pages of one query are one request."""
        for each in capture.records:
            kind = _RUNS.get(each.operation, each.operation)
            if kind not in _KINDS or (each.status >= 400 and each.status not in _SERVED):
                continue
            self.read += 1
            is_page = kind == "query" and each.run is not None
            together = each.group or (each.run if is_page else None) or each.item_id or str(self.read)
            if self._is_kept(together):
                self._keep((together, 0 if is_page else self.read), _record(each, kind))

    def _keep(self, place: tuple[str, int], record: RequestRecord) -> None:
        before = self._kept.get(place)
        if before is None:
            self._kept[place] = record
            if len(self._kept) > self._most:
                self.share /= 2
                self._kept = {place: record for place, record in self._kept.items() if self._is_kept(place[0])}
            return
        self.read -= 1
        self._kept[place] = replace(
            before,
            ru=before.ru + record.ru,
            parts=max(before.parts, record.parts),
            rows=before.rows + record.rows,
            loaded=before.loaded + record.loaded,
        )

    def _is_kept(self, together: str) -> bool:
        return self.share == 1.0 or crc32(together.encode()) < self.share * _HASHED

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._kept.values())


def _record(each: Captured, kind: str) -> RequestRecord:
    def digest(text: str) -> int:
        if text in each.values:
            return _digest_of_value(each.values[text])
        return int(text, 16) >> 2 or 1  # as a hash: its two top bits are clear

    def by_path(found: Mapping[str, str]) -> dict[str, int]:
        return {path: digest(value) for name, value in found.items() if (path := _path(name)) is not None}

    return RequestRecord(
        kind,
        float(each.t_ms),
        "/".join(each.key) if each.key is not None else None,
        digest(each.item_id) if each.item_id is not None else None,
        by_path(each.leaf),
        by_path(each.equal),
        {path: found.total for name, found in each.lists.items() if (path := _path(name)) is not None},
        each.ranges,
        tuple(path for path, _ in each.order),
        each.charge_ru,
        max(1, len(set(each.partitions))),
        each.rows,
        each.loaded,
        each.group,
        each.shape or "",
    )


def _digest_of_value(value: Any) -> int:
    try:
        return digest_number(value)
    except Failure:
        return digest_number(str(value))


@lru_cache(4_096)
def _path(text: str) -> str | None:
    """A path of the index as partition keys write it; None: inside an array."""
    steps = text_steps(text)
    return path_of(tuple(str(step) for step in steps)) if None not in steps else None


def finder(profile: Profile) -> FindItem:
    """Items of the sample by their ids."""
    reservoir = profile.reservoir
    ids = reservoir.column(("id",))
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    columns = {each.path: reservoir.column(each.steps) for each in profile.paths.values()}

    def find(digest: int) -> Leaves | None:
        at = int(np.searchsorted(ordered, np.uint64(digest)))
        if at >= len(ordered) or int(ordered[at]) != digest:
            return None
        row = order[at]
        return {path: int(column[row]) for path, column in columns.items()}

    return find


class _Items:
    """Leaves of items: of the request itself, of another write of the capture, or of the data."""

    def __init__(self, records: Iterable[RequestRecord], find: FindItem | None) -> None:
        self._written = {(each.key, each.id): each.leaf for each in records if each.leaf and each.id is not None}
        self._find = find

    def of(self, record: RequestRecord) -> Leaves:
        if record.leaf or record.eq:
            return record.leaf or record.eq
        if record.id is None:
            return {}
        found = self._written.get((record.key, record.id))
        if found is None and self._find is not None:
            found = self._find(record.id)
        return found or {}


def load_of_records(
    records: Iterable[RequestRecord],
    *,
    origin: str,
    share: float = 1.0,
    captured: int | None = None,
    present_key: tuple[str, ...] = (),
    find: FindItem | None = None,
) -> Load:
    """`share`: of the requests, that the records are; `captured`: how many there were, where not all were kept;
    `find`: items of the data by the digest of their id."""
    kept = list(records)
    items = _Items(kept, find)
    kinds: dict[tuple[str, tuple[str, ...], tuple[tuple[str, int], ...]], list[RequestRecord]] = defaultdict(list)
    grouped: dict[str, list[RequestRecord]] = defaultdict(list)
    for each in kept:
        kinds[each.op, tuple(sorted(each.eq)), tuple(sorted(each.lists.items()))].append(each)
        if each.group is not None:
            grouped[each.group].append(each)
    seconds = max((each.t_ms for each in kept), default=0.0) / 1000.0
    factor = _peak(kept, seconds) / max(seconds, 1.0) / share
    addressed = [each for each in kept if each.op in ADDRESSED]
    lost = sum(not items.of(each) for each in addressed)
    groups = [Group(tuple(items.of(each) for each in members)) for members in grouped.values() if len(members) > 1]
    return Load(
        tuple(_operation(*kind, kinds[kind], factor, items) for kind in sorted(kinds)),
        origin,
        len(kept) if captured is None else captured,
        seconds,
        lost / len(addressed) if addressed else 0.0,
        present_key,
        tuple(group for group in groups if all(group.members)),
        _changed(kept),
        tuple((each.t_ms / 1000.0, each.leaf) for each in kept if each.op in CREATING and each.leaf),
    )


def _peak(records: list[RequestRecord], seconds: float) -> float:
    """How many times the mean the busiest minute is."""
    windows = int(seconds // _PEAK_WINDOW_S)
    if windows < _PEAK_WINDOWS:
        return 1.0
    counts = np.bincount([int(max(0.0, each.t_ms) / 1000.0 // _PEAK_WINDOW_S) for each in records])
    return float(counts.max() / counts[:windows].mean())


def _operation(
    kind: str,
    eq: tuple[str, ...],
    lists: tuple[tuple[str, int], ...],
    records: list[RequestRecord],
    factor: float,
    items: _Items,
) -> Operation:
    count = len(records)
    known = [leaves for each in records if (leaves := items.of(each))]
    paths = sorted({path for leaves in known[:_LOOKED_AT] for path in leaves})
    visited = sum(each.parts for each in records) / count if kind == "query" else 0.0
    return Operation(
        kind,
        count * factor,
        frozenset(eq),
        lists,
        sum(each.rows for each in records) / count,
        sum(each.loaded for each in records) / count,
        charge_ru=max(0.0, sum(each.ru for each in records) / count - visited * visits.visit_ru()),
        shape=max((each.shape for each in records), key=len, default=""),
        values={path: np.array([leaves.get(path, MISSING) for leaves in known], np.uint64) for path in paths},
    )


def _changed(records: Iterable[RequestRecord]) -> dict[str, str]:
    """Paths whose value another write of the same item changed, with an example."""
    seen: dict[tuple[str | None, int], Leaves] = {}
    found: dict[str, str] = {}
    for each in records:
        if each.id is None or not each.leaf:
            continue
        for path, digest in seen.get((each.key, each.id), {}).items():
            if each.leaf.get(path, digest) != digest:
                found.setdefault(path, f"a {each.op} after {each.t_ms / 1000.0:,.1f} s gave an item another value")
        seen[each.key, each.id] = each.leaf
    return found
