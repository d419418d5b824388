"""Adoption of a published group by the partitions of a node that follows: what they keep in memory is brought to the
stored state, in the step of the event loop that showed the group to readers. A partition mirrors its head, the path
coverage, the period of keeping versions and the records of retryable writes; the times of its log are derived from it.

The group is the physical content of a transaction or of several: keys with the prefix of their store. Records of the
catalog are adopted by `account/following.py`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from armillary.model import layout
from armillary.partition.history import log, versions
from armillary.partition.history.retryable_write_records import session_of
from armillary.partition.partition import Partition
from armillary.partition.writing.path_coverage import COVERAGE_KEY, trusted_coverage
from armillary.storage.engine import View
from armillary.storage.overlay import Layer
from armillary.storage.rocks_store import PREFIX_BYTES

_CHANGES, _META, _RECORDS = layout.CHANGES[0], layout.META[0], layout.RECORDS[0]
_MIRRORED: Final = frozenset((_CHANGES, _META, _RECORDS))
_NEVER: Final = 1 << 64


@dataclass(slots=True)
class StoreChanges:
    """What a group has written to one store, as far as memory mirrors it."""

    head: bytes | None = None
    has_coverage: bool = False
    has_versions: bool = False
    sessions: set[bytes] = field(default_factory=set)  # with records of retryable writes
    first_lsn: int = _NEVER  # the lowest of the entries that were put into the log
    is_cleared: bool = False  # a range that holds any of these was deleted

    def note(self, key: bytes, value: bytes | None) -> None:
        space = key[0]
        if space == _CHANGES:
            if value is not None:
                self.first_lsn = min(self.first_lsn, log.change_lsn(key))
        elif space == _RECORDS:
            self.sessions.add(session_of(key))
        elif key == layout.HEAD_KEY:
            self.head = value
        elif key == COVERAGE_KEY:
            self.has_coverage = True
        elif key == versions.SINCE_KEY:
            self.has_versions = True


def changes_by_store(layer: Layer, prefixes: Container[bytes]) -> dict[bytes, StoreChanges]:
    """By the prefix of the store, for those with these prefixes. Keys of other spaces, which are most, cost one look at
    a byte."""
    found: dict[bytes, StoreChanges] = {}
    for key, value in layer.writes.items():
        if key[PREFIX_BYTES] in _MIRRORED:
            prefix = key[:PREFIX_BYTES]
            changes = found.get(prefix)
            if changes is None:
                if prefix not in prefixes:
                    continue  # the catalog, or the child of a split that is being filled
                changes = found[prefix] = StoreChanges()
            changes.note(key[PREFIX_BYTES:], value)
    return found


def is_cleared(layer: Layer, prefix: bytes) -> bool:
    """Whether a deleted range holds any of what a partition mirrors."""
    low, high = prefix + layout.META, prefix + layout.space_end(layout.RECORDS)
    return any(each_low < high and each_high > low for each_low, each_high in layer.cleared)


def adopt(partition: Partition, changes: StoreChanges, view: View) -> None:
    """`view`: the published state of the partition's store."""
    if changes.first_lsn <= partition.head.lsn:
        partition.times = log.LogTimes()  # a rewind has inserted entries, so noted times are invalid
    if changes.is_cleared:
        partition.load(view)
        partition.records.load(view)
        return
    if changes.head is not None:
        partition.head = log.unpack_head(changes.head)
        partition.reached_lsn = partition.head.lsn
    generation = partition.coverage.generation if partition.coverage is not None else 0
    if changes.has_coverage or generation != partition.head.coverage_generation:
        partition.coverage = trusted_coverage(view, partition.head)
    if changes.has_versions:
        partition.versions_number = versions.begun_number(view)
    if changes.sessions:
        partition.records.reload(view, changes.sessions)
