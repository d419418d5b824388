"""What the clients of an elastic test asked and were told, and what the checkers say to it all in the end."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from faults.checkers.appends import Action, Read, Transaction, check_appends
from faults.checkers.feeds import Change, check_feed
from faults.checkers.items import NEVER, Call, Said, Verb, check_items
from faults.checkers.sessions import Observation, check_sessions
from faults.elastic.port import Document, Refused
from faults.ledger import Outcome, Violation

Rows = Sequence[Mapping[str, Any]]


class History:
    def __init__(self, moment: Callable[[], float], *, outlives: bool = False) -> None:
        """`outlives`: what a dead process was asked may happen after its death, because another process has it."""
        self.moment = moment
        self._outlives = outlives
        self.calls: list[Call] = []
        self.transactions: list[Transaction] = []
        self.observations: list[Observation] = []
        self.violations: list[Violation] = []
        self.tally: Counter[str] = Counter()
        self.statics: dict[str, Document] = {}  # written before anything else and never touched again
        self.grown: dict[str, tuple[Document, float]] = {}  # written once, with the moment of the acknowledgement
        self.batches: list[tuple[list[str], float]] = []  # items created together, and when they were asked for
        self.sent: dict[str, set[str]] = defaultdict(set)  # by item: tokens that may have been stored
        self.first: dict[str, Any] = {}  # counters: what they were before the first call
        self.lists: set[str] = set()
        self.repeated: set[tuple[str, str]] = set()  # items and their values that a client may have sent twice
        self.transacted: Counter[str] = Counter()  # by key
        self.deaths: list[tuple[float, float]] = []  # from before the kill until the server was ready again
        self._tokens = itertools.count(1)

    def token(self, item: str) -> str:
        """A value that no other write has."""
        token = f"t{next(self._tokens)}"
        self.sent[item].add(token)
        return token

    # Death.

    def die(self) -> None:
        self.deaths.append((self.moment(), NEVER))

    def live(self) -> None:
        self.deaths[-1] = (self.deaths[-1][0], self.moment())

    def was_dead(self, begun: float) -> bool:
        return any(begun <= back and died <= self.moment() for died, back in self.deaths)

    def excuse(self, what: str, begun: float, error: Exception) -> None:
        """An error reached the application: right only if the server was dead meanwhile."""
        self.tally["errors"] += 1
        if not self.was_dead(begun):
            self.violations.append(Violation("error", f"{what} [{begun}, {self.moment()}]: {error!r}"))

    # Calls.

    def settle(self, begun: float, error: Exception) -> tuple[Said, float]:
        """What is known of a call that ended in an error, and until when it may have had an effect."""
        if isinstance(error, Refused) and (error.is_certain or not self.was_dead(begun)):
            return Said.REFUSED, self.moment()
        # The server that had it is dead by now, if one died; the next one never hears of it.
        return Said.UNKNOWN, self.moment() if self.was_dead(begun) and not self._outlives else NEVER

    def enter(
        self,
        client: str,
        item: str,
        verb: Verb,
        begun: float,
        said: Said,
        value: Any = None,
        expected: Any = None,
        was_there: bool | None = None,
        *,
        ended: float | None = None,
        repeats: bool = False,
    ) -> None:
        """`repeats`: the client sends writes again when the connection ends."""
        self.tally[f"{verb.value} {said.value}"] += 1
        ended = self.moment() if ended is None else ended
        call = Call(client, item, verb, begun, ended, said, value, expected, was_there)
        if repeats and verb is not Verb.READ and self.was_dead(begun):
            # The client may have sent it to the dead server and again to the next: then it may have happened twice.
            again = replace(call, said=Said.UNKNOWN, was_there=None, ended=NEVER if self._outlives else ended)
            self.calls.append(again)
            self.repeated.add((item, str(value)))
            call = again if said is not Said.OK else call
        self.calls.append(call)

    def enter_transaction(self, name: str, actions: Sequence[Action], begun: float, said: Said, ended: float) -> None:
        self.tally[f"transaction {said.value}"] += 1
        outcome = {Said.OK: Outcome.OK, Said.UNKNOWN: Outcome.UNKNOWN}.get(said, Outcome.FAILED)
        self.transactions.append(Transaction(name, tuple(actions), begun, ended, outcome))

    # The end.

    def verify(
        self, listed: Rows, begun: float, others: Mapping[str, Rows], feeds: Mapping[str, Sequence[Sequence[Change]]]
    ) -> list[Violation]:
        """`listed`: everything that is there now, read since `begun`; `others`: the same in other ways. `feeds`:
        pages of change feeds, from the beginning to the end."""
        ended = self.moment()
        items = {row["id"]: row for row in listed}
        if len(items) < len(listed):
            twice = [name for name, count in Counter(row["id"] for row in listed).items() if count > 1]
            self.violations.append(Violation("duplicate", f"listed more than once: {twice[:5]}"))
        for way, rows in others.items():
            self._compare(way, items, rows)
        for name, document in self.statics.items():
            if name not in items or any(items[name].get(each) != document[each] for each in document):
                self.violations.append(Violation("lost", f"{name} was {document} and is {items.get(name)}"))
        written = {call.item for call in self.calls}
        for name in items.keys() - written - self.statics.keys() - self.first.keys() - self.lists:
            self.violations.append(Violation("phantom", f"nobody wrote {name}"))
        for name in written:
            value = _value(items.get(name))
            said = Said.OK if value is not None else Said.ABSENT
            self.calls.append(Call("list", name, Verb.READ, begun, ended, said, value))
        reads = tuple(Read(name, tuple(items[name]["values"])) for name in sorted(self.lists & items.keys()))
        self.transactions.append(Transaction("list", reads, begun, ended, Outcome.OK))
        for names, _ in self.batches:
            there = [name for name in names if name in items]
            if there and len(there) < len(names):
                self.violations.append(Violation("torn", f"of the batch {names} only {there} are there"))
        final = {name: version_of(row) for name, row in items.items()}
        versions = self._versions(items)
        deleted = frozenset(call.item for call in self.calls if call.verb is Verb.DELETE)
        for reader, pages in feeds.items():
            self.tally["changes"] += sum(map(len, pages))
            found = check_feed(pages, versions, final, deleted, frozenset(self.repeated))
            self.violations += [Violation(each.kind, f"change feed of {reader}: {each.text}") for each in found]
        self.violations += check_items(self.calls, self.first)
        self.violations += check_appends(self.transactions)
        self.violations += check_sessions(self.observations)
        return self.violations

    def _versions(self, items: Mapping[str, Mapping[str, Any]]) -> dict[str, Collection[str]]:
        versions: dict[str, Collection[str]] = {name: {*tokens} for name, tokens in self.sent.items()}
        versions |= {name: [name] for name in self.statics}
        for name in self.first.keys() & items.keys():
            versions[name] = [str(count) for count in range(items[name]["count"] + 1)]
        for name in self.lists & items.keys():
            versions[name] = [str(length) for length in range(len(items[name]["values"]) + 1)]
        return versions

    def _compare(self, way: str, items: Mapping[str, Mapping[str, Any]], rows: Rows) -> None:
        other = {row["id"]: row for row in rows}
        if len(other) < len(rows):
            self.violations.append(Violation("duplicate", f"{way} has items twice"))
        for name in items.keys() | other.keys():
            if items.get(name, {}).get("_etag") != other.get(name, {}).get("_etag"):
                text = f"{name} is listed as {items.get(name)} and by {way} as {other.get(name)}"
                self.violations.append(Violation("disagreement", text))


def version_of(item: Mapping[str, Any]) -> str:
    """What tells one version of an item from another."""
    if item["kind"] == "list":
        return str(len(item["values"]))
    return str(_value(item))


def _value(item: Mapping[str, Any] | None) -> Any:
    if item is None:
        return None
    return item["count"] if item.get("kind") == "counter" else item.get("token")
