"""What clients were told, and whether what is stored agrees with it.

Every write is entered before it is sent and settled when its answer comes: OK, FAILED (refused, so it must not show) or
UNKNOWN (no answer, so it must show entirely or not at all). Three shapes cover what can go wrong. A `Group` is a set of
items that one client alone writes, in single writes or batches: its state is known exactly but for the last write. A
`Counter` is incremented by all writers. A `Chain` is replaced by all writers under If-Match, each version naming the
one before. `Ledger.compare` takes the items of a container and names every disagreement.
"""

from __future__ import annotations

import itertools
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

State = dict[str, str]  # item id -> mark, what `mark` makes of an item; without the items that are not there
HISTORY_LENGTH = 6


class Outcome(Enum):
    OK = "OK"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Violation:
    kind: str  # lost, phantom, torn, lsn, answer, check, start
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def mark(item: Mapping[str, Any]) -> str:
    """What tells one version of an item from every other: the token of its last write and how often it was patched."""
    return f"{item.get('token')}+{item.get('steps')}"


@dataclass
class Event:
    order: int
    what: str
    before: State
    after: State
    outcome: Outcome | None = None

    def __str__(self) -> str:
        return (
            f"#{self.order} {self.what} {self.outcome.value if self.outcome else 'in flight'} -> {_brief(self.after)}"
        )


@dataclass
class Group:
    name: str
    key: str  # the partition key of all its items
    settled: State = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    open_event: Event | None = None  # a write whose outcome is not known
    history: deque[Event] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    def item_id(self, number: int) -> str:
        return f"{self.name}.{number}"


@dataclass
class Counter:
    name: str
    key: str
    settled: int = 0
    unknown: int = 0


@dataclass
class Chain:
    name: str
    key: str
    settled: str = ""  # the token that is known to be stored, or an ancestor of what is
    parents: dict[str, str] = field(default_factory=dict)  # of writes since: token -> token that it replaces
    acknowledged: set[str] = field(default_factory=set)


class Ledger:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.counters: dict[str, Counter] = {}
        self.chains: dict[str, Chain] = {}
        self.definitions = Group("definitions", "")  # containers and what tells one version of each from another
        self.violations: list[Violation] = []
        self.tally: Tally[str] = Tally()
        self._lsn_floor: dict[int, int] = {}  # by range: the highest lsn acknowledged before the last crash
        self._lsn_highest: dict[int, int] = {}
        self._lsns: dict[tuple[int, int], str] = {}  # acknowledged since the last crash
        self._etags: dict[str, str] = {}
        self._order = itertools.count(1)
        self._tokens = itertools.count(1)

    def token(self) -> str:
        """A value that no other write has."""
        return f"t{next(self._tokens)}"

    def accuse(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))

    # Writes of a group.

    def begin(self, group: Group, what: str, after: State) -> Event:
        assert group.open_event is None, "a write of unknown outcome must be resolved first"
        event = Event(next(self._order), what, group.settled, after)
        group.open_event = event
        group.history.append(event)
        return event

    def end(self, group: Group, outcome: Outcome) -> None:
        event = group.open_event
        assert event is not None
        event.outcome = outcome
        self.tally[outcome.value] += 1
        if outcome is Outcome.UNKNOWN:
            return
        group.open_event = None
        if outcome is Outcome.OK:
            group.settled = event.after

    # Writes of a chain.

    def begin_link(self, chain: Chain, parent: str) -> str:
        token = self.token()
        chain.parents[token] = parent
        return token

    def end_link(self, chain: Chain, token: str, outcome: Outcome) -> None:
        self.tally[outcome.value] += 1
        if outcome is Outcome.FAILED:
            del chain.parents[token]
        elif outcome is Outcome.OK:
            chain.acknowledged.add(token)

    def end_count(self, counter: Counter, outcome: Outcome) -> None:
        self.tally[outcome.value] += 1
        if outcome is Outcome.OK:
            counter.settled += 1
        elif outcome is Outcome.UNKNOWN:
            counter.unknown += 1

    # What answers say about the log.

    def note_lsn(self, range_id: int, lsn: int, what: str) -> None:
        """An acknowledged write has an lsn of its own, above everything that was acknowledged before a crash."""
        floor = self._lsn_floor.get(range_id, 0)
        if lsn <= floor:
            self.accuse("lsn", f"{what} got lsn {lsn} of range {range_id}, which had reached {floor} before the crash")
        other = self._lsns.setdefault((range_id, lsn), what)
        if other != what:
            self.accuse("lsn", f"lsn {lsn} of range {range_id} was given to {other} and again to {what}")
        self._lsn_highest[range_id] = max(lsn, self._lsn_highest.get(range_id, 0))

    def note_etag(self, etag: str, what: str) -> None:
        other = self._etags.setdefault(etag, what)
        if other != what:
            self.accuse("lsn", f"the etag {etag} was given to {other} and again to {what}")

    @property
    def session(self) -> dict[int, int]:
        """What a client that has seen every acknowledged write may insist on, by range."""
        return {**self._lsn_floor, **self._lsn_highest}

    # After a crash.

    def compare(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Compare with every item that the container shows now, and take over what the unknown writes came to."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for item in items:
            of_group = found.setdefault(item["id"].partition(".")[0], {})
            if item["id"] in of_group:
                self.accuse("phantom", f"{item['id']} is listed twice")
            of_group[item["id"]] = item
        for name in found.keys() - self.groups.keys() - self.counters.keys() - self.chains.keys():
            self.accuse("phantom", f"nobody ever wrote {sorted(found[name])}")
        for group in self.groups.values():
            self._compare_group(group, found.get(group.name, {}))
        for counter in self.counters.values():
            self._compare_counter(counter, found.get(counter.name, {}).get(counter.name))
        for chain in self.chains.values():
            self._compare_chain(chain, found.get(chain.name, {}).get(chain.name))
        self._lsn_floor.update(self._lsn_highest)
        self._lsns.clear()
        self._etags.clear()

    def _compare_group(self, group: Group, found: Mapping[str, Mapping[str, Any]]) -> None:
        state = {item_id: mark(item) for item_id, item in found.items()}
        for item in found.values():
            if item["filler"] != filler(item["origin"], len(item["filler"])) or item["key"] != group.key:
                self.accuse("torn", f"{item['id']} has parts of different writes: {item}")
        self._compare_state(group, state)
        group.etags = {item_id: item["_etag"] for item_id, item in found.items()}

    def compare_definitions(self, state: State) -> None:
        self._compare_state(self.definitions, state)

    def _compare_state(self, group: Group, state: State) -> None:
        event = group.open_event
        if event is not None:
            group.open_event = None
            self.tally["UNKNOWN, there" if state == event.after else "UNKNOWN, not there"] += 1
        possible = [group.settled] if event is None else [group.settled, event.after]
        if state not in possible:
            told = "\n    ".join(map(str, group.history))
            wanted = " or ".join(_brief(each) for each in possible)
            self.accuse(self._kind(state, possible), f"{group.name} is {_brief(state)}, not {wanted}:\n    {told}")
        group.settled = state

    @staticmethod
    def _kind(state: State, possible: list[State]) -> str:
        if len(possible) == 2 and all(each in (*possible[0].items(), *possible[1].items()) for each in state.items()):
            return "torn"  # some of an unknown batch and not all of it
        if any(each not in state.items() for each in possible[0].items()):
            return "lost"
        return "phantom"

    def _compare_counter(self, counter: Counter, item: Mapping[str, Any] | None) -> None:
        count = item["count"] if item is not None else -1
        if not counter.settled <= count <= counter.settled + counter.unknown:
            kind = "lost" if count < counter.settled else "phantom"
            text = f"{counter.settled} increments were acknowledged and {counter.unknown} not answered"
            self.accuse(kind, f"{counter.name} stands at {count}; {text}")
        counter.settled, counter.unknown = count, 0

    def _compare_chain(self, chain: Chain, item: Mapping[str, Any] | None) -> None:
        token = item["token"] if item is not None else ""
        missing, at = set(chain.acknowledged), token
        while at in chain.parents:
            missing.discard(at)
            at = chain.parents[at]
        if at != chain.settled or missing:
            text = f"{chain.name} ends in {token!r}, which does not follow on {chain.settled!r}"
            self.accuse("lost", f"{text} or leaves out the acknowledged {sorted(missing)}")
        chain.settled, chain.parents, chain.acknowledged = token, {}, set()


def filler(origin: str, length: int) -> str:
    """Ballast that shows which write it came from."""
    return (origin * (length // len(origin) + 1))[:length]


def _brief(state: State) -> str:
    text = ", ".join(f"{item_id.partition('.')[2]}={mark_text}" for item_id, mark_text in sorted(state.items()))
    return f"{{{text if len(text) < 400 else text[:400] + '...'}}}"
