"""What clients of a cluster asked and were told, and what is wrong with it.

Items are of two kinds. A *chain* counts: each version replaces the one before it under If-Match, so versions have a
total order, and what any level may answer follows from their numbers. Some chains are written together with other items
of their logical partition by batches, and read together with them. A *register* is created, replaced and deleted
without conditions; it is read at the strong level only. Both kinds must be linearizable in what strong reads and writes
say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from faults.checkers.items import Call, check_items
from faults.checkers.sessions import Observation, check_sessions
from faults.cluster_processes.processes import STALENESS_S
from faults.ledger import Violation

STRONG, BOUNDED, SESSION, PREFIX, EVENTUAL = "Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"


@dataclass(frozen=True, slots=True)
class ChainRead:
    client: str
    item: str
    level: str
    node: str  # that answered, with its incarnation
    begun: float
    ended: float
    version: int  # 0: absent
    value: str | None
    asked: str  # the session token of the request
    told: str  # that of the answer

    def __str__(self) -> str:
        return (
            f"[{self.begun:.6f}, {self.ended:.6f}] {self.client} at {self.node}: {self.level} {self.item} is version"
            f" {self.version} {self.value} (token {self.asked} -> {self.told})"
        )


@dataclass
class History:
    calls: list[Call] = field(default_factory=list)
    reads: list[ChainRead] = field(default_factory=list)
    written: dict[tuple[str, int], tuple[str, float]] = field(default_factory=dict)  # value, and when it was told
    observed: list[Observation] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    acknowledged_at: list[float] = field(default_factory=list)  # writes
    _lsns: dict[tuple[int, int], str] = field(default_factory=dict)

    def accuse(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))

    def call(self, call: Call) -> None:
        self.calls.append(call)
        self.tally[f"{call.verb.value} {call.said.value}"] += 1

    def acknowledge(self, call: Call, range_id: str, lsn: str) -> None:
        """A write was answered. Its lsn must be its own: two leaders would give the same one twice. The answer to a
        batch does not tell it."""
        self.acknowledged_at.append(call.ended)
        if not lsn:
            return
        what = f"{call.verb.value} of {call.item} by {call.client}: {call.value}"
        other = self._lsns.setdefault((int(range_id), int(lsn)), what)
        if other != what:
            self.accuse("two leaders", f"lsn {lsn} of range {range_id} was given to {other} and to {what}")

    def wrote(self, item: str, version: int, value: str, ended: float) -> None:
        """A new version of a chain was acknowledged."""
        before = self.written.setdefault((item, version), (value, ended))
        if before[0] != value:
            self.accuse("lost update", f"version {version} of {item} is {before[0]} and {value}")

    def read(self, read: ChainRead) -> None:
        self.reads.append(read)
        self.tally[f"read {read.level}"] += 1

    # Judging.

    def judge(self) -> list[Violation]:
        """Everything that is wrong with what was recorded since the last time, which is forgotten then."""
        found = self.violations
        found += check_items(self.calls)
        found += [self._explained(each) for each in check_sessions(self.observed)]
        found += self._check_values()
        found += self._check_order()
        found += self._check_staleness()
        self.calls, self.reads, self.observed, self.violations = [], [], [], []
        self.written.clear()
        return found

    def _explained(self, violation: Violation) -> Violation:
        """With the reads of the session that a violation names: CLIENT read version NUMBER of ITEM."""
        client, *_, version, _, item = violation.text.partition(" after ")[0].split()
        reads = [each for each in self.reads if (each.client, each.item) == (client, item)]
        at = next((place for place, each in enumerate(reads) if str(each.version) == version), len(reads))
        told = "\n    ".join(str(each) for each in reads[max(0, at - 4) : at + 8])
        return Violation(violation.kind, f"{violation.text}\n    {told}")

    def _check_values(self) -> Iterable[Violation]:
        """A version has one value, at every node and level."""
        values = {place: value for place, (value, _) in self.written.items()}
        for read in self.reads:
            if read.version and values.setdefault((read.item, read.version), str(read.value)) != read.value:
                yield Violation("lost update", f"{read} is not {values[read.item, read.version]}")

    def _check_order(self) -> Iterable[Violation]:
        """What one node shows never goes back, while it runs."""
        places: dict[tuple[str, str], list[ChainRead]] = defaultdict(list)
        for read in self.reads:
            places[read.node, read.item].append(read)
        for reads in places.values():
            by_end = sorted(reads, key=lambda read: read.ended)
            highest, done = by_end[0], 0
            for read in sorted(reads, key=lambda read: read.begun):
                while by_end[done].ended < read.begun:
                    highest = max(highest, by_end[done], key=lambda each: each.version)
                    done += 1
                if done and read.version < highest.version:
                    yield Violation("consistent prefix", f"{read}\n    after {highest}")

    def _check_staleness(self) -> Iterable[Violation]:
        for read in self.reads:
            told = self.written.get((read.item, read.version + 1))
            if read.level == BOUNDED and told is not None and told[1] < read.begun - STALENESS_S:
                late_s = read.begun - told[1]
                yield Violation("bounded staleness", f"{read} was replaced {late_s:.3f} s before by {told[0]}")

    def longest_pause(self, begun: float, ended: float) -> float:
        """The longest time without an acknowledged write."""
        times = [begun, *(each for each in self.acknowledged_at if begun <= each <= ended), ended]
        return max(later - earlier for earlier, later in pairwise(times))
