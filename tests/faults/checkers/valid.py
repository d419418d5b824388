"""Histories that a right system can give, made from a seed: what checkers must not accuse.

A store that does one thing after the other, asked by clients whose calls overlap: each call takes effect at one moment
between its beginning and its end, and some never hear of it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from typing import Any

from faults.checkers.appends import Action, Append, Read, Transaction
from faults.checkers.feeds import Change
from faults.checkers.items import NEVER, Call, Said, Verb
from faults.checkers.sessions import Observation
from faults.ledger import Outcome

CLIENTS, CALLS = 6, 60
UNKNOWN_SHARE = 0.06


def valid_items(seed: int) -> list[Call]:
    dice = random.Random(f"items/{seed}")
    state: dict[str, Any] = {}
    calls: list[Call] = []
    for number, (client, begun, ended, _) in enumerate(_moments(dice)):
        item = dice.choice(("a", "b", "counter"))
        verb = dice.choice(list(Verb)[:-1] if item != "counter" else [Verb.INCREMENT, Verb.READ])
        present: Any = state.setdefault(item, 0) if item == "counter" else state.get(item)
        expected = None
        if verb in (Verb.REPLACE, Verb.DELETE) and dice.random() < 0.6:
            expected = present if present is not None and dice.random() < 0.6 else f"v{dice.randrange(number + 1)}"
        value = present if verb is Verb.READ else present + 1 if verb is Verb.INCREMENT else f"v{number}"
        said = _outcome(verb, present, expected)
        is_told = dice.random() >= UNKNOWN_SHARE
        was_there = present is not None if verb is Verb.UPSERT else None
        if said is Said.OK and verb is not Verb.READ and (is_told or dice.random() < 0.5):
            state[item] = None if verb is Verb.DELETE else value
        if not is_told:
            said, ended, was_there = Said.UNKNOWN, dice.choice((ended, NEVER)), None
        calls.append(Call(client, item, verb, begun, ended, said, value, expected, was_there))
    return calls


def _outcome(verb: Verb, present: Any, expected: Any) -> Said:
    if verb is Verb.CREATE:
        return Said.EXISTS if present is not None else Said.OK
    if verb is Verb.UPSERT:
        return Said.OK
    if present is None:
        return Said.ABSENT
    return Said.OK if expected in (None, present) else Said.STALE


def valid_appends(seed: int) -> list[Transaction]:
    dice = random.Random(f"appends/{seed}")
    lists: dict[str, tuple[int, ...]] = {}
    transactions = []
    for number, (_, begun, ended, _) in enumerate(_moments(dice)):
        after = dict(lists)
        actions: list[Action] = []
        for step in range(dice.randint(1, 4)):
            item = dice.choice("xyz")
            if dice.random() < 0.5:
                actions.append(Append(item, number * 10 + step))
                after[item] = (*after.get(item, ()), number * 10 + step)
            else:
                actions.append(Read(item, after.get(item, ())))
        outcome = dice.choices(list(Outcome), [0.85, 0.08, 0.07])[0]
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and dice.random() < 0.5):
            lists = after
        transactions.append(Transaction(f"t{number}", tuple(actions), begun, ended, outcome))
    return transactions


def valid_sessions(seed: int) -> list[Observation]:
    dice = random.Random(f"sessions/{seed}")
    versions = {"a": 0, "b": 0}
    observations = []
    for client, _, _, _ in _moments(dice):
        item = dice.choice(list(versions))
        is_write = dice.random() < 0.4
        versions[item] += is_write
        observations.append(Observation(client, item, versions[item], is_write))
    return observations


def valid_feed(seed: int) -> tuple[list[list[Change]], dict[str, list[str]], dict[str, str], frozenset[str]]:
    """Pages, versions, final items and deleted ones: what `check_feed` takes."""
    dice = random.Random(f"feeds/{seed}")
    log: dict[str, Change] = {}  # the latest of each item
    versions: dict[str, list[str]] = {}
    deleted: set[str] = set()
    pages: list[list[Change]] = []
    position = 0
    for lsn in range(1, CALLS):
        batch = f"batch{lsn}" if dice.random() < 0.3 else None
        for item in dice.sample("abcdefgh", dice.randint(2, 4) if batch else 1):
            if dice.random() < 0.1:
                log.pop(item, None)
                deleted.add(item)
            else:
                log[item] = Change(item, f"{item}{lsn}", lsn, batch)
                versions.setdefault(item, []).append(f"{item}{lsn}")
        if dice.random() < 0.3 or lsn == CALLS - 1:
            for page in _cut(sorted(log.values(), key=lambda change: change.lsn), position, dice):
                pages.append(page)
                position = page[-1].lsn
    return pages, versions, {item: change.version for item, change in log.items()}, frozenset(deleted)


def _cut(changes: list[Change], position: int, dice: random.Random) -> Iterator[list[Change]]:
    page: list[Change] = []
    for change in changes:
        if change.lsn > position:
            if page and page[-1].lsn != change.lsn and dice.random() < 0.4:
                yield page
                page = []
            page.append(change)
    if page:
        yield page


def valid_pages(seed: int) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Pages in order of "rank", and the untouched rows among them."""
    dice = random.Random(f"pages/{seed}")
    rows = sorted(
        ({"id": f"i{number}", "rank": dice.randrange(40)} for number in range(CALLS)),
        key=lambda row: (row["rank"], row["id"]),
    )
    shown = [row for row in rows if int(str(row["id"])[1:]) % 5 or dice.random() < 0.5]
    pages: list[list[dict[str, Any]]] = [[]]
    for row in shown:
        while dice.random() < 0.2:
            pages.append([])
        pages[-1].append(row)
    return pages, [row for row in rows if int(str(row["id"])[1:]) % 5]


def _moments(dice: random.Random) -> Iterator[tuple[str, float, float, float]]:
    """Calls in the order in which they take effect: client, beginning, end, effect. A client has one at a time."""
    waiting: list[tuple[float, str, float, float]] = []
    draw: Callable[[], float] = dice.random
    for number in range(CLIENTS):
        begun = draw()
        ended = begun + draw() * 3
        heapq.heappush(waiting, (dice.uniform(begun, ended), f"c{number}", begun, ended))
    for _ in range(CALLS):
        effect, client, begun, ended = heapq.heappop(waiting)
        yield client, begun, ended, effect
        begun = ended + draw() * 0.1
        ended = begun + draw() * 3
        heapq.heappush(waiting, (dice.uniform(begun, ended), client, begun, ended))
