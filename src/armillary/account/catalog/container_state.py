"""The state of a container and of an offer, as typed values: what the catalog keeps of them that clients do not see. A
record stores its state as a JSON object; `parse` and `to_json` convert it, and are the only place that knows the names
of the stored fields.

Fields that are unknown here (a protocol may keep some of its own) are kept, and a field that does not change is written
as it was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from armillary import limits
from armillary.model.bson.bson_json import from_json, to_json
from armillary.model.bson.bson_values import Document
from armillary.model.ranges import KeyRange

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PastRange:
    """A range that was split or merged away. Continuation tokens and change feeds may still name it."""

    id: int
    low: bytes
    high: bytes


@dataclass(frozen=True, slots=True)
class ReshapeChild:
    """What a split or merge makes: its keys, and the store that they are copied to."""

    low: bytes
    high: bytes
    store: int


@dataclass(frozen=True, slots=True)
class ReshapeState:
    """A split or merge that has begun and is not switched yet."""

    number: int
    parents: tuple[int, ...]  # range ids
    children: tuple[ReshapeChild, ...]  # in the order of their keys
    reason: str

    @property
    def stores(self) -> list[int]:
        return [child.store for child in self.children]


@dataclass(frozen=True, slots=True)
class RetiredStore:
    """The store of a range that was split, merged or restored over; emptied when its readers have had time to end."""

    range_id: int
    store: int
    until_s: float


@dataclass(frozen=True, slots=True)
class IndexState:
    """An index of a MongoDB collection."""

    definition_json: Any  # as it was declared, in the JSON form of BSON
    slot: int  # of a unique index: where its values are kept; 0 for others

    @classmethod
    def of(cls, definition: Document, slot: int) -> IndexState:
        return cls(to_json(definition), slot)

    @property
    def definition(self) -> Document:
        definition: Document = from_json(self.definition_json)
        return definition

    @property
    def name(self) -> str:
        name: str = self.definition["name"]
        return name


@dataclass(frozen=True, slots=True)
class OlderRules:
    """Policies and indexes that some items still follow, while a change works through the others."""

    policies: Body
    indexes: tuple[IndexState, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionState:
    """What makes a container a collection of the MongoDB protocol."""

    uuid: str | None = None
    options: str | None = None  # as given at its creation: BSON, in hexadecimal digits
    keeps_images: bool = False  # change streams show documents as they were before
    cap: tuple[int, int | None] | None = None  # of a capped collection: most bytes, most documents
    rest: Body = field(default_factory=dict)  # unknown fields


@dataclass(frozen=True, slots=True)
class FormerKey:
    """What a container was partitioned by before a migration. Clients that know the old key use it for a while."""

    definition: Body | None  # None: it had no partition key


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """Marks a container that another one is being migrated to."""

    source_rid: str
    adds_policy: bool  # the migration switched the source's change feed policy on, and switches it off at the end
    like: Body | None  # the source's definition when the target was made
    filter: str | None = None  # of the items that are moved; None: all


class MovedItems(NamedTuple):
    """Items that were moved to a container of their own: they are no longer written here."""

    filter: str
    target: str  # the name of that container
    target_rid: str  # which it is: another one may have the name after it


@dataclass(frozen=True)
class ContainerState:
    ranges: tuple[KeyRange, ...]
    next_range: int  # the id of the next range; ids are never used twice
    rules_number: int
    first_lsn: int  # of new partitions
    older_rules: Mapping[int, OlderRules] = field(default_factory=dict)  # by their number
    past: tuple[PastRange, ...] = ()
    reshapes: tuple[ReshapeState, ...] = ()
    next_reshape: int = 1
    retired: tuple[RetiredStore, ...] = ()
    wanted_ranges: int = 0  # how many ranges the throughput needs; 0: as many as there are
    is_watched: bool = False  # change streams were opened on it, so events are kept
    versions_number: int = 1  # how often all versions began to be kept
    throughput_mode: str | None = None  # None: the server's
    throughput_buckets: Mapping[int, int] = field(default_factory=dict)  # percent of the budget by bucket
    collection: CollectionState | None = None
    indexes: tuple[IndexState, ...] = ()
    former_key: FormerKey | None = None
    former_rid: str | None = None  # hexadecimal: the container that it was before a migration
    migration: MigrationTarget | None = None
    moved: tuple[MovedItems, ...] = ()
    stored: Body = field(default_factory=dict, compare=False, repr=False)  # what it was parsed from

    @classmethod
    def parse(cls, stored: Body) -> ContainerState:
        given = {attribute: codec.parse(stored[name]) for attribute, name, codec in _FIELDS if name in stored}
        missing = [name for attribute, name, _ in _FIELDS if attribute in _REQUIRED and name not in stored]
        if missing:
            raise KeyError(missing[0])
        return cls(**given, stored=stored)

    def to_json(self) -> Body:
        before = ContainerState.parse(self.stored) if self.stored else None
        written = dict(self.stored)
        for attribute, name, codec in _FIELDS:
            value = getattr(self, attribute)
            if before is not None and value == getattr(before, attribute):
                continue
            if attribute in _DROPPED_IF_EMPTY and not value:
                written.pop(name, None)
            elif attribute in _REQUIRED or name in written or value != getattr(_EMPTY, attribute):
                written[name] = codec.write(value)
        return written

    @property
    def stores(self) -> list[int]:
        """All stores with something of the container: of its ranges, of the children of reshapes, and of retired ranges
        that are not emptied yet."""
        children = [store for reshape in self.reshapes for store in reshape.stores]
        return [*[each.store for each in self.ranges], *children, *[each.store for each in self.retired]]

    def reshape(self, number: int) -> ReshapeState | None:
        return next((each for each in self.reshapes if each.number == number), None)

    def retired_with(self, ranges: Iterable[KeyRange], until_s: float) -> tuple[RetiredStore, ...]:
        """The retired stores when these ranges have been replaced too."""
        return (*self.retired, *[RetiredStore(each.id, each.store, until_s) for each in ranges])

    def past_with(self, ranges: Iterable[KeyRange]) -> tuple[PastRange, ...]:
        """The past ranges when these have been replaced too; the oldest are forgotten."""
        past = (*self.past, *[PastRange(each.id, each.low, each.high) for each in ranges])
        return past[-limits.PAST_RANGES_MAX :]

    def without_reshape(self, number: int) -> tuple[ReshapeState, ...]:
        return tuple([each for each in self.reshapes if each.number != number])


def as_collection(state: ContainerState) -> ContainerState:
    """A new container as a collection of the MongoDB protocol, without options."""
    return replace(state, collection=CollectionState())


def stored_change(change: Callable[[ContainerState], ContainerState]) -> Callable[[Body], Body]:
    """A change of a container's state as the catalog applies it: to the stored form."""
    return lambda stored: change(ContainerState.parse(stored)).to_json()


@dataclass(frozen=True, slots=True)
class OfferState:
    owner: str  # rid of the database or container
    highest_ru: int  # that was ever provisioned: the minimum follows from it
    before: Body | None = None  # the offer's body that is served while a change is pending

    @classmethod
    def parse(cls, stored: Body) -> OfferState:
        return cls(stored["owner"], stored["highest_ru"], stored.get("before"))

    def to_json(self, stored: Mapping[str, Any] | None = None) -> Body:
        """`stored`: what it was parsed from, with fields that are unknown here."""
        before = {"before": self.before} if self.before is not None else {}
        return {**(stored or {}), "owner": self.owner, "highest_ru": self.highest_ru, **before}


# The stored form of each part.


@dataclass(frozen=True, slots=True)
class _Codec:
    parse: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _listed(parse: Callable[[Body], Any], write: Callable[[Any], Body]) -> _Codec:
    return _Codec(lambda stored: tuple([parse(each) for each in stored]), lambda given: [write(each) for each in given])


def _parse_range(stored: Body) -> KeyRange:
    low, high = bytes.fromhex(stored["low"]), bytes.fromhex(stored["high"])
    return KeyRange(stored["id"], low, high, tuple(stored["parents"]), stored["store"])


def _write_range(given: KeyRange) -> Body:
    return {
        "id": given.id,
        "low": given.low.hex(),
        "high": given.high.hex(),
        "parents": list(given.parents),
        "store": given.store,
    }


def _parse_past(stored: Body) -> PastRange:
    return PastRange(stored["id"], bytes.fromhex(stored["low"]), bytes.fromhex(stored["high"]))


def _write_past(given: PastRange) -> Body:
    return {"id": given.id, "low": given.low.hex(), "high": given.high.hex()}


def _parse_reshape(stored: Body) -> ReshapeState:
    children = [
        ReshapeChild(bytes.fromhex(child["low"]), bytes.fromhex(child["high"]), child["store"])
        for child in stored["children"]
    ]
    return ReshapeState(stored["number"], tuple(stored["parents"]), tuple(children), stored["reason"])


def _write_reshape(given: ReshapeState) -> Body:
    children = [{"low": each.low.hex(), "high": each.high.hex(), "store": each.store} for each in given.children]
    return {"number": given.number, "parents": list(given.parents), "children": children, "reason": given.reason}


def _parse_retired(stored: Body) -> RetiredStore:
    return RetiredStore(stored["id"], stored["store"], stored["until_s"])


def _write_retired(given: RetiredStore) -> Body:
    return {"id": given.range_id, "store": given.store, "until_s": given.until_s}


def _parse_index(stored: Body) -> IndexState:
    return IndexState(stored["definition"], stored["slot"])


def _write_index(given: IndexState) -> Body:
    return {"definition": given.definition_json, "slot": given.slot}


def _parse_older(stored: Body) -> dict[int, OlderRules]:
    return {
        int(number): OlderRules(
            {name: value for name, value in older.items() if name != "indexes"},
            tuple([_parse_index(each) for each in older.get("indexes", ())]),
        )
        for number, older in stored.items()
    }


def _write_older(given: Mapping[int, OlderRules]) -> Body:
    return {
        str(number): {**older.policies, **({"indexes": index_list(older.indexes)} if older.indexes else {})}
        for number, older in given.items()
    }


def index_list(indexes: Sequence[IndexState]) -> list[Body]:
    """Indexes as they are stored."""
    return [_write_index(each) for each in indexes]


def _parse_collection(stored: Body) -> CollectionState:
    cap = stored.get("cap")
    return CollectionState(
        stored.get("uuid"),
        stored.get("options"),
        "images" in stored,
        (cap[0], cap[1]) if cap is not None else None,
        {name: value for name, value in stored.items() if name not in ("uuid", "options", "images", "cap")},
    )


def _write_collection(given: CollectionState) -> Body:
    written: Body = {
        "uuid": given.uuid,
        "options": given.options,
        "images": given.keeps_images or None,
        "cap": list(given.cap) if given.cap is not None else None,
    }
    return {**{name: value for name, value in written.items() if value is not None}, **given.rest}


def _parse_migration(stored: Body) -> MigrationTarget:
    return MigrationTarget(stored["source"], stored["adds_policy"], stored.get("like"), stored.get("filter"))


def _write_migration(given: MigrationTarget) -> Body:
    written: Body = {"source": given.source_rid, "adds_policy": given.adds_policy, "like": given.like}
    if given.filter is not None:
        written["filter"] = given.filter
    return written


_AS_IT_IS: Final = _Codec(lambda stored: stored, lambda given: given)
_BUCKETS: Final = _Codec(
    lambda stored: {int(bucket): share for bucket, share in stored.items()},
    lambda given: {str(bucket): share for bucket, share in given.items()},
)
_FORMER_KEY: Final = _Codec(FormerKey, lambda given: given.definition)
_COLLECTION: Final = _Codec(_parse_collection, _write_collection)
_MIGRATION: Final = _Codec(_parse_migration, _write_migration)
# Attribute, stored name and form of each field, in the order in which new fields are written.
_FIELDS: Final[tuple[tuple[str, str, _Codec], ...]] = (
    ("ranges", "ranges", _listed(_parse_range, _write_range)),
    ("next_range", "next_range", _AS_IT_IS),
    ("rules_number", "rules", _AS_IT_IS),
    ("first_lsn", "first_lsn", _AS_IT_IS),
    ("throughput_mode", "throughput_mode", _AS_IT_IS),
    ("throughput_buckets", "throughput_buckets", _BUCKETS),
    ("collection", "mongo", _COLLECTION),
    ("is_watched", "watched", _Codec(lambda stored: True, lambda given: given)),
    ("older_rules", "older_rules", _Codec(_parse_older, _write_older)),
    ("indexes", "indexes", _listed(_parse_index, _write_index)),
    ("next_reshape", "next_reshape", _AS_IT_IS),
    ("reshapes", "reshapes", _listed(_parse_reshape, _write_reshape)),
    ("retired", "retired", _listed(_parse_retired, _write_retired)),
    ("past", "past", _listed(_parse_past, _write_past)),
    ("wanted_ranges", "wanted_ranges", _AS_IT_IS),
    ("versions_number", "versions", _AS_IT_IS),
    ("former_key", "former_key", _FORMER_KEY),
    ("former_rid", "former_rid", _AS_IT_IS),
    ("migration", "migration", _MIGRATION),
    ("moved", "moved", _listed(lambda stored: MovedItems(**stored), lambda given: given._asdict())),
)
_REQUIRED: Final = frozenset({"ranges", "next_range", "rules_number", "first_lsn"})
_DROPPED_IF_EMPTY: Final = frozenset(
    {
        "wanted_ranges",
        "is_watched",
        "older_rules",
        "throughput_mode",
        "throughput_buckets",
        "collection",
        "former_key",
        "former_rid",
        "migration",
        "moved",
    }
)
_EMPTY: Final = ContainerState((), 0, 0, 0)
