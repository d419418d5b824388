"""A container's settings as its partitions need them: the key definition, unique keys, and the rules by which items are
indexed and expire. All partitions of a container share one Schema, so a change of rules applies to all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from armillary import limits
from armillary.model.bson.bson_json import document_of
from armillary.model.documents import bson_ttl
from armillary.model.encoding import FORMAT_BSON, ItemHeader
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.items import item_ttl
from armillary.model.keys import PartitionKeyDefinition


@dataclass(frozen=True, slots=True)
class Rules:
    """An indexing policy and a default TTL, with a number. Each item's header names the rules it is stored under, so
    its index terms can be recomputed exactly, also while a change of rules is being applied to the stored items."""

    number: int
    indexing: IndexingPolicy
    default_ttl: int | None
    takes_ttl: bool = True  # an item's own ttl counts

    def ttl_of(self, form: int, document: Mapping[str, Any], ts: int) -> int:
        """The item's own TTL, from its `ttl` property or a TTL index on a date; 0: none."""
        as_bson = form == FORMAT_BSON
        ttl = (bson_ttl(document) if as_bson else item_ttl(document)) if self.takes_ttl else 0
        for index in self.indexing.dated_fields:
            when = index.expires_s(dict(document) if as_bson else document_of(document))
            if when is not None:
                left = min(max(1, when - ts), limits.TTL_SECONDS_MAX)
                ttl = left if ttl <= 0 else min(ttl, left)
        return ttl


class Cap(NamedTuple):
    """The limits of a capped collection."""

    size_bytes: int
    item_count: int | None = None  # None: limited by bytes only

    def holds(self, item_count: int, size_bytes: int) -> bool:
        return size_bytes <= self.size_bytes and (self.item_count is None or item_count <= self.item_count)


@dataclass(slots=True)
class Schema:
    rid: bytes
    self_link: str  # dbs/<rid>/colls/<rid>/
    key: PartitionKeyDefinition | None  # None: a fixed container without partition key
    unique: UniqueKeyPolicy
    rules: Rules
    older_rules: dict[int, Rules] = field(default_factory=dict)
    logical_partition_bytes_max: int = limits.LOGICAL_PARTITION_BYTES_MAX
    keeps_events: bool = False  # a change stream is open: events are kept
    keeps_images: bool = False  # events include the document before the change
    cap: Cap | None = None  # the limits of a capped collection; None: not capped
    versions_number: int = 0  # all versions are kept, and this counts the periods of keeping them; 0: they are not
    versions_seconds: int = 0  # how long versions are kept
    fence: Callable[[bytes], str | None] | None = None  # where an item was moved to, which is not written here then
    _copy: Schema | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_copy", None)

    def as_it_is(self) -> Schema:
        """A copy that stays unchanged, for a transaction that may give way."""
        copy = self._copy
        if copy is None:
            copy = replace(self)
            object.__setattr__(self, "_copy", copy)
        return copy

    def rules_of(self, header: ItemHeader) -> Rules:
        rules = self.rules
        return rules if header.policy == rules.number else self.older_rules[header.policy]

    def is_live(self, header: ItemHeader, now_s: float) -> bool:
        """Whether an item is visible to readers. Always by the current rules: switching TTL on or off, or changing its
        default, takes effect at once."""
        default_ttl = self.rules.default_ttl
        if default_ttl is None:
            return True
        ttl = header.ttl or default_ttl
        return ttl < 0 or header.ts + ttl > now_s


def expires_s(header: ItemHeader, default_ttl: int | None) -> int | None:
    """When an item stored under rules with this default TTL expires, for the expiry space; None if never."""
    if default_ttl is None:
        return None
    ttl = header.ttl or default_ttl
    return None if ttl < 0 else header.ts + ttl
