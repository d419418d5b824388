"""Requests as the scores see them: operations of one kind with a rate, the paths that they pin and what they cost.
Captures, workload files and exports of the cloud's diagnostic tables all come in as these records, so that nothing
behind this module knows where requests were written down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.planning.toml_tables import DAY_S
from armillary.insight.planning.workload import Workload

POINT_KINDS: Final = frozenset(("read", "create", "upsert", "replace", "patch", "delete", "batch"))
CREATING: Final = frozenset(("create", "upsert", "batch"))  # the item is at hand, with every value of a key
ADDRESSED: Final = frozenset(("read", "patch", "delete"))  # by key and id alone
REQUESTS_MIN: Final = 1_000  # captured requests that say something


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was captured. Digests are those of one capture: equal values have equal ones."""

    op: str
    t_ms: float = 0.0
    key: str | None = None
    id: int | None = None  # its digest
    leaf: Mapping[str, int] = field(default_factory=dict)  # of a write: digests of its item by path
    eq: Mapping[str, int] = field(default_factory=dict)  # of a query: digests by path pinned by equality
    lists: Mapping[str, int] = field(default_factory=dict)  # of a query: how many values by path
    ranges: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    ru: float = 0.0
    parts: int = 1
    rows: int = 0
    loaded: int = 0
    group: str | None = None  # of a batch, a script run, a transaction
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    kind: str
    rate: float  # a second, at the peak
    eq: frozenset[str] = frozenset()
    lists: tuple[tuple[str, int], ...] = ()
    rows: float = 1.0
    loaded: float = 0.0
    seeks: int = 1
    charge_ru: float | None = None  # as measured; of a query without its visits. None: by the request-unit model
    shape: str = ""
    values: Mapping[str, Digests] = field(default_factory=dict, compare=False)  # by path, one for each request seen

    @property
    def is_query(self) -> bool:
        return self.kind == "query"

    @property
    def named(self) -> str:
        """For texts."""
        if not self.is_query:
            return f"{self.kind}s"
        pinned = [*sorted(self.eq), *(f"{path} IN {count}" for path, count in self.lists)]
        return f"queries by {', '.join(pinned)}" if pinned else "queries without an equality"


@dataclass(frozen=True, slots=True)
class Group:
    """What is written together: the digests of its members by path."""

    members: tuple[Mapping[str, int], ...]

    def agrees_in(self, paths: Iterable[str]) -> bool:
        return all(len({member.get(path) for member in self.members}) == 1 for path in paths)


@dataclass(slots=True)
class Load:
    """All requests of a plan."""

    operations: tuple[Operation, ...] = ()
    origin: str = ""  # for texts: which file
    captured: int = 0  # requests that were seen; 0: a plan, which is taken as it is
    seconds: float = 0.0
    unjoined_share: float = 0.0  # of reads and deletes whose item was not found
    present_key: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)  # path whose value changed → an example
    writes: tuple[tuple[float, Mapping[str, int]], ...] = ()  # second and digests of each write
    lacks_conditions: bool = False  # an export of the cloud: what its queries pin is not in it

    @property
    def queries(self) -> list[Operation]:
        return [each for each in self.operations if each.is_query]

    @property
    def query_rate(self) -> float:
        return sum(each.rate for each in self.queries)

    @property
    def rate(self) -> float:
        return sum(each.rate for each in self.operations)

    @property
    def is_known(self) -> bool:
        return bool(self.operations)

    @property
    def is_enough(self) -> bool:
        return self.captured == 0 or self.captured >= REQUESTS_MIN

    def filter_shares(self) -> dict[str, float]:
        """For each path the share of queries that pin it, the most frequent first."""
        shares: dict[str, float] = defaultdict(float)
        for each in self.queries:
            for path in each.eq:
                shares[path] += each.rate / self.query_rate
        return dict(sorted(shares.items(), key=lambda found: (-found[1], found[0])))


def load_of_workload(workload: Workload, origin: str, horizon_days: float) -> Load:
    """The operations of a workload file at its peak. Sizes, terms and keys are those of the data that is read."""
    factor = workload.shape.highest(horizon_days * DAY_S)
    operations = []
    for each in workload.operations:
        pinned = frozenset(each.filter)
        lists: tuple[tuple[str, int], ...] = ()
        if each.values > 1:  # an IN over the present key
            lists = tuple((path, each.values) for path in workload.partition_key[:1] if path in pinned)
            pinned -= {path for path, _ in lists}
        rows = float(each.batch_items) if each.kind == "batch" else each.query.rows
        operations.append(
            Operation(each.kind, each.rate * factor, pinned, lists, rows, each.query.loaded, each.query.seeks)
        )
    return Load(tuple(operations), origin)
