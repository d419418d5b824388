"""Fault injection for tests of applications: rules that make chosen requests fail, wait or lose their connection.

A rule says which requests it is about (operation, container, key, range) and which of those it hits (every so many, so
many in all, by a seeded chance). `account/visits` and `account/queries/merged_queries.py` ask before they do anything
else, and only where there are rules: without one a container's `faults` is None. Rules live in memory. The control door
decides which clients may make them; the door that a request came through says how a `Kind` looks to its client.

One kind of rule is not about requests: on a node of a cluster that follows, the operation `apply` holds back the rows
of the log, so that tests of applications see stale reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from armillary import audit
from armillary.account.catalog.records import Record
from armillary.clock import Clock, Dice
from armillary.errors import Failure, Kind, bad_request
from armillary.limits import FAULT_RULES_MAX
from armillary.model.keys import Key
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.model.sendable import LOCAL
from armillary.partition.operations import Verb

WRITES = ("create", "upsert", "replace", "patch", "delete", "batch", "execute")
OPERATIONS = ("read", *WRITES, "query", "feed", "changes")
APPLY = "apply"  # of groups of the replicated log, by a node that follows: no request, and not among the operations
_NAMES = {Verb.CHANGE: "replace", Verb.MERGE: "patch"}  # what other doors do, by the nearest name


class FaultTarget(Protocol):
    """What rules look at of the container that a request is about."""

    name: str
    record: Record
    database: Record
    map: PartitionMap

    def key_range(self, key: Key) -> tuple[bytes, bytes]: ...


@dataclass(slots=True)
class FaultRule:
    """One rule. What is None or empty does not narrow it."""

    # Which requests.
    operations: frozenset[str] = frozenset(OPERATIONS)
    database: str | None = None
    container: str | None = None
    key: Key | None = None  # a partition key, or a prefix of a hierarchical one
    range_id: int | None = None
    # Which of them.
    skip: int = 0  # the first ones, left alone
    every: int = 1
    count: int | None = None  # how many are hit in all
    probability: float = 1.0
    seed: int = 0
    # What happens to them.
    kind: Kind | None = None  # None: they are only delayed
    details: Mapping[str, Any] = field(default_factory=dict)  # of the failure, where the kind alone does not say it
    retry_after_ms: int | None = None
    delay_ms: int = 0
    is_after: bool = False  # a write is carried out, and its answer lost
    # What came of it.
    id: int = 0
    seen: int = 0
    hits: int = 0
    _dice: Dice = field(default_factory=lambda: Dice(0), compare=False, metadata=LOCAL)
    _stretches: dict[bytes, tuple[bytes, bytes] | None] = field(
        default_factory=dict, metadata=LOCAL
    )  # of the key, by container

    def __post_init__(self) -> None:
        self._dice = Dice(self.seed)

    @property
    def is_spent(self) -> bool:
        return self.count is not None and self.hits >= self.count

    def meets(
        self, operation: str, container: FaultTarget, low: bytes, high: bytes, ranges: Sequence[KeyRange]
    ) -> bool:
        """Whether the rule is about a request for the keys in [low, high), which goes to these ranges."""
        if operation not in self.operations or self.is_spent:
            return False
        if self.container is not None and self.container != container.name:
            return False
        if self.database is not None and self.database != container.database.name:
            return False
        if self.range_id is not None and all(each.id != self.range_id for each in ranges):
            return False
        if self.key is None:
            return True
        stretch = self._stretch(container)
        return stretch is not None and stretch[0] <= low and high <= stretch[1]

    def fires(self) -> bool:
        """Count a request that the rule is about. Whether it is hit."""
        self.seen += 1
        turn = self.seen - self.skip
        is_hit = turn > 0 and turn % self.every == 0 and (self.probability >= 1 or self._dice.falls(self.probability))
        self.hits += is_hit
        return is_hit

    def failure(self) -> Failure | None:
        if self.kind is None:
            return None
        message = f"Fault rule {self.id} asked for this failure."
        return Failure(self.kind, message, retry_after_ms=self.retry_after_ms, details=self.details)

    def _stretch(self, container: FaultTarget) -> tuple[bytes, bytes] | None:
        rid = container.record.rid
        if rid not in self._stretches:
            assert self.key is not None
            try:
                self._stretches[rid] = container.key_range(self.key)
            except Failure:  # a container whose keys have another form
                self._stretches[rid] = None
        return self._stretches[rid]


Decide = Callable[[FaultRule, FaultTarget], Awaitable[bool]]


class Faults:
    """The rules of an account, in the order in which they were made. The first that hits a request decides."""

    def __init__(self, clock: Clock, on_changed: Callable[[], None]) -> None:
        """`on_changed`: gives `armed` to every container."""
        self.rules: dict[int, FaultRule] = {}
        self._clock = clock
        self._on_changed = on_changed
        self._last_id = 0
        self.on_hit: Callable[[FaultRule, FaultTarget], None] = lambda rule, container: None
        self.decide: Decide | None = None  # asks the process that counts, if it is another one

    @property
    def armed(self) -> Faults | None:
        """What containers ask before each request; None where there are no rules."""
        return self if self.rules else None

    @property
    def apply_delay_s(self) -> float:
        """How long a follower holds back the rows of the log."""
        return max((rule.delay_ms for rule in self.rules.values() if APPLY in rule.operations), default=0) / 1000

    def add(self, rule: FaultRule) -> FaultRule:
        if len(self.rules) >= FAULT_RULES_MAX:
            raise bad_request(f"There are {FAULT_RULES_MAX} fault rules, the most there may be. Delete some first.")
        self._last_id += 1
        rule.id = self._last_id
        self.rules[rule.id] = rule
        self._on_changed()
        audit.record("fault.set", number=rule.id, database=rule.database, container=rule.container)
        return rule

    def remove(self, rule_id: int) -> FaultRule:
        rule = self.rules.pop(rule_id, None)
        if rule is None:
            raise Failure(Kind.NOT_FOUND, f"There is no fault rule {rule_id}.")
        self._on_changed()
        audit.record("fault.removed", number=rule_id)
        return rule

    def clear(self) -> int:
        """Delete all rules; how many there were."""
        count = len(self.rules)
        self.rules.clear()
        self._on_changed()
        audit.record("faults.removed", count=count)
        return count

    def follow(self, rules: Iterable[FaultRule]) -> None:
        """Have the rules of another process."""
        self.rules = {rule.id: rule for rule in rules}
        self._last_id = max([self._last_id, *self.rules])
        self._on_changed()

    def fires(self, rule: FaultRule, container: FaultTarget) -> bool:
        """Count a request that a rule is about. Whether it is hit."""
        is_hit = not rule.is_spent and rule.fires()
        if is_hit:
            self.on_hit(rule, container)
        return is_hit

    async def at_key(self, operation: str, container: FaultTarget, epk: bytes) -> Failure | None:
        """Ask for a request about one key. Raises, waits, or returns what to raise once the work is done."""
        return await self._meet(operation, container, epk, epk + b"\x00", (container.map.find(epk),))

    async def over(
        self, operation: str, container: FaultTarget, low: bytes, high: bytes, ranges: Sequence[KeyRange]
    ) -> None:
        """Ask for a request about a stretch of keys that is read from these ranges."""
        await self._meet(operation, container, low, high, ranges)

    async def _meet(
        self, operation: str, container: FaultTarget, low: bytes, high: bytes, ranges: Sequence[KeyRange]
    ) -> Failure | None:
        for rule in list(self.rules.values()):
            if rule.meets(operation, container, low, high, ranges) and (
                self.fires(rule, container) if self.decide is None else await self.decide(rule, container)
            ):
                if rule.delay_ms:
                    await self._clock.sleep(rule.delay_ms / 1000)
                failure = rule.failure()
                if failure is not None and not (rule.is_after and operation in WRITES):
                    raise failure
                return failure
        return None


def write_name(verb: Verb) -> str:
    """What rules call a write."""
    return _NAMES.get(verb) or verb.name.lower()
