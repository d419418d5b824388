"""The workload file: a container, its data, the operations on it and their course over time, as TOML. Every field is
checked; unknown names are refused with their place (`toml_tables.py`). docs/foresight.md describes the format.

What the operations cost and where they go is left to `workload_demands.py`.
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from armillary import limits
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, bad_request
from armillary.insight.planning.distributions import HEAVIEST, KeyShares, KeyValue
from armillary.insight.planning.operation_charges import KINDS, ItemShape, QueryShape
from armillary.insight.planning.partition_counts import DEFAULT_LIMITS, PartitionLimits
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S, MONTH_S, Table
from armillary.model.charges import consistency_factor
from armillary.model.keys import HASH, MULTI_HASH, PartitionKeyDefinition

MANUAL, AUTOSCALE, SERVERLESS = "manual", "autoscale", "serverless"
# Of refused requests: as long as the SDKs do, never, or until they are served.
SDK_RETRIES, NO_RETRIES, UNLIMITED_RETRIES = RETRIES = ("sdk", "none", "unlimited")
SECOND_LEVEL: Final = 10_000  # values of the further levels of a hierarchical key, below one of the first
_CONSISTENCY: Final = ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual")
_CHANGES_MAX, _OPERATIONS_MAX, _SPIKES_MAX = 100, 100, 100
_KEYS_MAX: Final = 10**12
_FILE_KEYS_MAX: Final = 1_000_000
_FILTER_MAX: Final = 64  # as many as a capture keeps of one query
_STEADY: Final = 1e-15  # growth a second that is none
_WEEK_DAYS, _DAY_HOURS = 7, 24

ReadFile = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Provision:
    """What is provisioned: RU/s of manual throughput, the top of an autoscale range, or nothing (serverless)."""

    kind: str
    ru: int

    @property
    def is_autoscale(self) -> bool:
        return self.kind == AUTOSCALE


@dataclass(frozen=True, slots=True)
class Change:
    """Of the throughput, of the kind that the container has."""

    at_s: float
    ru: int


@dataclass(frozen=True, slots=True)
class Keys:
    """How values of the partition key are distributed; of a hierarchical key, those of its first level."""

    shares: KeyShares
    second_level: int  # values of the further levels below each; 1: the key has one level
    text: str


@dataclass(frozen=True, slots=True)
class DataShape:
    size_bytes: int
    item: ItemShape
    ttl_s: float  # 0: items stay
    keys: Keys


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of request. Fields that its kind has no use for are refused in the file."""

    kind: str
    rate: float  # a second
    item: ItemShape
    keys: Keys
    query: QueryShape = field(default_factory=QueryShape)
    filter: tuple[str, ...] = ()  # paths that a query pins by equality
    values: int = 1  # of an IN over the partition key
    existing: float = 1.0  # share of upserts that replace
    changed_values: int = 1
    patch_operations: int = 1
    batch_items: int = 1


@dataclass(frozen=True, slots=True)
class Spike:
    at_s: float
    hours: float
    factor: float
    key: str | None  # all that comes on top goes to this key


@dataclass(frozen=True, slots=True)
class LoadShape:
    """The course of all rates over time: factors by weekday (the first day is the first), by hour, by month, and
    spikes."""

    weekly: tuple[float, ...] = (1.0,) * _WEEK_DAYS
    daily: tuple[float, ...] = (1.0,) * _DAY_HOURS
    growth_per_month: float = 1.0
    spikes: tuple[Spike, ...] = ()

    def regular(self, at_s: float) -> float:
        """The factor at a time, without spikes."""
        day, hour = int(at_s // DAY_S) % _WEEK_DAYS, int(at_s // HOUR_S) % _DAY_HOURS
        return float(self.weekly[day] * self.daily[hour] * self.growth_per_month ** (at_s / MONTH_S))

    def spikes_at(self, at_s: float) -> list[Spike]:
        return [each for each in self.spikes if each.at_s <= at_s < each.at_s + each.hours * HOUR_S]

    def grown_s(self, until_s: float) -> float:
        """How many seconds at the first rates write as much as the rates do up to a time, as they grow or shrink."""
        rate = math.log(self.growth_per_month) / MONTH_S
        return until_s if abs(rate) < _STEADY else math.expm1(rate * until_s) / rate

    def until_s(self, grown_s: float) -> float | None:
        """When that much is written; None: never, because the rates shrink."""
        rate = math.log(self.growth_per_month) / MONTH_S
        if abs(rate) < _STEADY:
            return grown_s
        return math.log1p(grown_s * rate) / rate if grown_s * rate > -1.0 else None

    def highest(self, until_s: float) -> float:
        """The highest regular factor up to a time."""
        growth = max(1.0, self.growth_per_month ** (until_s / MONTH_S))
        return float(max(self.weekly) * max(self.daily) * growth)


@dataclass(frozen=True, slots=True)
class Workload:
    partition_key: tuple[str, ...]
    provision: Provision | None  # None: to be found out
    data: DataShape
    operations: tuple[Operation, ...]
    changes: tuple[Change, ...] = ()
    shape: LoadShape = field(default_factory=LoadShape)
    bounds: PartitionLimits = DEFAULT_LIMITS
    read_factor: int = 1  # 2: reads ask two replicas
    regions: int = 1
    retries: str = RETRIES[0]
    has_burst: bool = False
    merges: bool = False
    hash_version: int = 2
    split_s: float | None = None  # how long a split takes, whatever its size

    @property
    def is_hierarchical(self) -> bool:
        return len(self.partition_key) > 1


def refuse_files(name: str) -> str:
    """The `read_file` of workloads that were sent to a server."""
    raise bad_request("A workload that is sent to a server cannot name a file: give the keys as 'explicit'.")


def parse_workload(
    text: str, read_file: ReadFile, seed: int = 1, defaults: PartitionLimits = DEFAULT_LIMITS
) -> Workload:
    """A workload from the text of its file. `read_file` gives the text of a file of shares that it names, `defaults`
    are the limits that it does not name."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise bad_request(f"The workload is not valid TOML: {error}.") from None
    return read_workload(document, read_file, seed, defaults)


def read_workload(
    document: Mapping[str, Any], read_file: ReadFile, seed: int = 1, defaults: PartitionLimits = DEFAULT_LIMITS
) -> Workload:
    """A workload from the content of its file. With another seed the keys of a distribution have other names, and so
    lie elsewhere."""
    return _Reader(read_file, seed, defaults).read(Table(document, ""))


class _Reader:
    def __init__(self, read_file: ReadFile, seed: int, defaults: PartitionLimits) -> None:
        self._read_file, self._seed, self._defaults = read_file, seed, defaults
        self._is_hierarchical = False

    def read(self, top: Table) -> Workload:
        container = top.table("container", is_needed=True)
        paths = container.paths("partition_key", limits.KEY_LEVELS_MAX, is_needed=True)
        kind = MULTI_HASH if len(paths) > 1 else HASH
        version = container.whole("hash_version", 2, 1, 2)
        definition = PartitionKeyDefinition.parse({"paths": list(paths), "kind": kind, "version": version})
        self._is_hierarchical = len(paths) > 1
        provision = _provision(container)
        level = container.word("consistency", "Session", _CONSISTENCY)
        data = self._data(top.table("data", is_needed=True))
        workload = Workload(
            definition.paths,
            provision,
            data,
            tuple(self._operation(each, data) for each in top.tables("operations", _OPERATIONS_MAX, is_needed=True)),
            _changes(top, provision),
            self._shape(top.table("shape")),
            _bounds(bounds := top.table("limits"), self._defaults),
            consistency_factor(level),
            container.whole("regions", 1, 1, 100),
            top.word("retries", RETRIES[0], RETRIES),
            container.truth("burst", False),
            container.truth("merge_policy", False),
            definition.version,
            bounds.duration("split_time") if bounds.has("split_time") else None,
        )
        for table in (container, bounds, top):
            table.end()
        _check_range(workload)
        return workload

    def _data(self, table: Table) -> DataShape:
        item = ItemShape(
            table.whole("item_bytes", None, 1, limits.ITEM_BYTES_MAX), table.whole("terms", 10, 0, 100_000)
        )
        ttl_s = table.number("ttl_days", 0.0, 0.0, 100_000.0) * DAY_S
        data = DataShape(table.size("size", 0), item, ttl_s, self._keys(table.table("keys", is_needed=True)))
        table.end()
        return data

    def _keys(self, table: Table) -> Keys:
        kinds = [name for name in ("zipf", "uniform", "explicit", "file") if table.has(name)]
        if len(kinds) != 1:
            raise bad_request(
                f"{table.own_place} needs one of zipf (with count), uniform, explicit and file; it has "
                f"{' and '.join(kinds) or 'none of them'}."
            )
        if kinds[0] == "zipf":
            exponent, count = table.number("zipf", None, 0.0, 5.0), table.whole("count", None, 1, _KEYS_MAX)
            shares, text = self._named(count, exponent), f"Zipf({count:,}; {exponent:g})"
        elif kinds[0] == "uniform":
            count = table.whole("uniform", None, 1, _KEYS_MAX)
            shares, text = self._named(count, 0.0), f"{count:,} keys of equal weight"
        elif kinds[0] == "explicit":
            shares = _weighed(dict(table.mapping("explicit")), table.place("explicit"))
            text = f"{shares.count:,} given keys"
        else:
            name = table.text("file", None)
            shares = _weighed(_rows(self._read_file(name), table.place("file")), table.place("file"))
            text = f"{shares.count:,} keys of {name}"
        second_level = table.whole("second_level", SECOND_LEVEL, 1, _KEYS_MAX) if self._is_hierarchical else 1
        table.end()
        return Keys(shares, second_level, text)

    def _named(self, count: int, exponent: float) -> KeyShares:
        shares = KeyShares.of_zipf(count, exponent)
        if self._seed == 1:
            return shares
        named = tuple((self._seeded(str(value)), share) for value, share in shares.named)
        return KeyShares(named, shares.rest_share, shares.rest_count, shares.zipf)

    def _seeded(self, name: str) -> str:
        return name if self._seed == 1 else f"{name}.{self._seed}"

    def _operation(self, table: Table, data: DataShape) -> Operation:
        kind = table.word("kind", None, KINDS)
        rate = table.number("rate", None, 0.0, 1e9)
        item = ItemShape(
            table.whole("item_bytes", data.item.size_bytes, 1, limits.ITEM_BYTES_MAX),
            table.whole("terms", data.item.terms, 0, 100_000),
        )
        keys = self._keys(table.table("keys")) if table.has("keys") else data.keys
        fields: dict[str, Any] = {}
        if kind == "query":
            rows = table.number("rows", 1.0, 0.0, 1e9)
            loaded = table.number("loaded", rows, 0.0, 1e9)
            fields["query"] = QueryShape(rows, max(rows, loaded), table.whole("seeks", 1, 0, 1_000))
            fields["filter"] = table.paths("filter", _FILTER_MAX, is_needed=False)
            fields["values"] = table.whole("values", 1, 1, 10_000)
        if kind == "upsert":
            fields["existing"] = table.number("existing", 1.0, 0.0, 1.0)
        if kind in ("replace", "upsert", "patch"):
            fields["changed_values"] = table.whole("changed_values", 1, 0, 100_000)
        if kind == "patch":
            fields["patch_operations"] = table.whole("operations", 1, 1, limits.PATCH_OPERATIONS_MAX)
        if kind == "batch":
            fields["batch_items"] = table.whole("items", None, 1, limits.BATCH_OPERATIONS_MAX)
        table.end()
        return Operation(kind, rate, item, keys, **fields)

    def _shape(self, table: Table) -> LoadShape:
        spikes = []
        for each in table.tables("spikes", _SPIKES_MAX):
            key = each.text("key", None) if each.has("key") else None
            factor = each.number("factor", None, 1.0 if key is not None else 0.0, 1e6)
            spikes.append(
                Spike(each.duration("at"), each.number("hours", None, 0.001, 1e6), factor, key and self._seeded(key))
            )
            each.end()
        shape = LoadShape(
            table.numbers("weekly", _WEEK_DAYS),
            table.numbers("daily", _DAY_HOURS),
            table.number("growth_per_month", 1.0, 0.01, 10.0),
            tuple(sorted(spikes, key=lambda spike: spike.at_s)),
        )
        table.end()
        return shape


def _provision(table: Table) -> Provision | None:
    kinds = [name for name in ("throughput", AUTOSCALE, SERVERLESS) if table.has(name)]
    if len(kinds) > 1:
        raise bad_request(f"container has {' and '.join(kinds)}; expected one of throughput, autoscale, serverless.")
    if not kinds:
        return None
    if kinds[0] == SERVERLESS:
        if not table.truth(SERVERLESS, False):
            raise table.wrong(SERVERLESS, "true, or throughput or autoscale instead")
        return Provision(SERVERLESS, 0)
    ru = table.whole(kinds[0], None, 1, 10**9)
    return Provision(MANUAL if kinds[0] == "throughput" else AUTOSCALE, _checked(ru, kinds[0], table.place(kinds[0])))


def _checked(ru: int, kind: str, place: str) -> int:
    """Throughput that the engine takes."""
    try:
        return (Throughput.autoscale(ru, None) if kind == AUTOSCALE else Throughput.manual(ru)).ru
    except Failure as failure:
        raise bad_request(f"{place}: {failure.message}") from None


def _changes(top: Table, provision: Provision | None) -> tuple[Change, ...]:
    found = []
    for each in top.tables("changes", _CHANGES_MAX):
        name = AUTOSCALE if provision is not None and provision.is_autoscale else "throughput"
        if provision is None or provision.kind == SERVERLESS:
            raise bad_request(f"{each.own_place}: a container without throughput has none to change.")
        at_s, ru = each.duration("at"), each.whole(name, None, 1, 10**9)
        found.append(Change(at_s, _checked(ru, name, each.place(name))))
        each.end()
    return tuple(sorted(found, key=lambda change: change.at_s))


def _check_range(workload: Workload) -> None:
    """Of throughput, by the limits of the account."""
    provision = workload.provision
    if provision is None or provision.kind == SERVERLESS:
        return
    name = AUTOSCALE if provision.is_autoscale else "throughput"
    workload.bounds.check(Throughput(provision.ru, provision.is_autoscale), f"container.{name}")
    for index, change in enumerate(workload.changes):
        workload.bounds.check(Throughput(change.ru, provision.is_autoscale), f"changes[{index}].{name}")


def _bounds(table: Table, known: PartitionLimits) -> PartitionLimits:
    storage_bytes = table.size("partition_storage", known.storage_bytes)
    logical_bytes = table.size("logical_partition_storage", known.logical_bytes)
    for name, size in (("partition_storage", storage_bytes), ("logical_partition_storage", logical_bytes)):
        if size < 1:
            raise table.wrong(name, "a size from 1 byte on")
    return replace(
        known,
        storage_bytes=storage_bytes,
        logical_bytes=min(logical_bytes, storage_bytes),  # as `account/account.py` has it: a key lies in one partition
        throughput_ru=table.whole("partition_throughput", known.throughput_ru, 1, 10**6),
    )


def _weighed(weights: Mapping[str, Any], place: str) -> KeyShares:
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e18:
            raise bad_request(f"{place}: the share of {name[:60]!r} is {weight!r}; expected a number from 0 on.")
    known: dict[KeyValue, float] = {name: float(weight) for name, weight in weights.items() if weight}
    if not known:
        raise bad_request(f"{place}: expected at least one key with a share above 0.")
    return KeyShares.of_weights(known, HEAVIEST)


def _rows(text: str, place: str) -> dict[str, float]:
    """Lines of value,share; a first line without a number is a heading."""
    found: dict[str, float] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            value, share = row[0], float(row[1])
        except (IndexError, ValueError):
            if number == 1 and len(row) == 2:
                continue
            raise bad_request(f"{place}, line {number}: expected a value and its share, as in de,0.76.") from None
        found[value] = found.get(value, 0.0) + share
        if len(found) > _FILE_KEYS_MAX:
            raise bad_request(f"{place} has more than {_FILE_KEYS_MAX:,} keys; leave out the lightest.")
    return found
