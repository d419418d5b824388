"""Are the histories of single items linearizable? Wing and Gong's search as Lowe and Porcupine do it, item by item.

Every write brings a value that no other write has, so a state is the value that is stored, or None. A call whose
outcome is not known may have happened at any moment after it began, until the server that had it was dead, or never.
The clients record what they asked and what was answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from faults.ledger import Violation

Value = Any  # hashable, and never None
STEPS_MAX = 5_000_000


class Verb(Enum):
    READ = "read"
    CREATE = "create"
    UPSERT = "upsert"
    REPLACE = "replace"  # whatever is there, or `expected` alone
    DELETE = "delete"  # the same
    INCREMENT = "increment"  # of a number; the value is what the answer said it is now


class Said(Enum):
    """What the answer was."""

    OK = "ok"
    ABSENT = "absent"  # 404
    EXISTS = "exists"  # 409
    STALE = "stale"  # 412
    REFUSED = "refused"  # for a reason that has nothing to do with the item; it must not show
    UNKNOWN = "unknown"  # no answer


@dataclass(frozen=True, slots=True)
class Call:
    client: str
    item: str
    verb: Verb
    begun: float
    ended: float  # of one without an answer: when the server that had it was certainly dead, or inf
    said: Said
    value: Value | None = None  # written or, by READ, found
    expected: Value | None = None  # the value that must be there (If-Match)
    was_there: bool | None = None  # of an upsert: whether it replaced something, if the answer said so

    def __str__(self) -> str:
        condition = f" if {self.expected}" if self.expected is not None else ""
        return (
            f"[{self.begun:.6f}, {self.ended:.6f}] {self.client}: {self.verb.value} {self.value}{condition}"
            f" -> {self.said.value}"
        )


def check_items(calls: Iterable[Call], first: dict[str, Value] | None = None) -> list[Violation]:
    """`first`: what was there before the first call; nothing unless told."""
    by_item: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_item[call.item].append(call)
    violations = []
    for item, history in by_item.items():
        stuck = _stuck_at(sorted(history, key=lambda call: call.begun), (first or {}).get(item))
        if stuck is not None:
            around = [call for call in history if call.begun <= stuck.ended and call.ended >= stuck.begun]
            around += [call for call in history if call.ended < stuck.begun][-6:]
            told = "\n    ".join(map(str, sorted(around, key=lambda call: call.begun)))
            violations.append(Violation("linearizability", f"{item}: no order explains {stuck}\n    {told}"))
    return violations


class _Node:
    """The beginning or the end of a call in the list of what is still to be explained."""

    __slots__ = ("alternatives_tried", "call", "end", "index", "next", "previous")

    def __init__(self, call: Call, index: int, end: _Node | None) -> None:
        self.call = call
        self.index = index
        self.end = end  # None: this is the end
        self.previous: _Node | None = None
        self.next: _Node | None = None
        self.alternatives_tried = 0

    def lift(self) -> None:
        assert self.end is not None
        for node in (self, self.end):
            assert node.previous is not None
            node.previous.next = node.next
            if node.next is not None:
                node.next.previous = node.previous

    def lower(self) -> None:
        assert self.end is not None
        for node in (self.end, self):
            assert node.previous is not None
            node.previous.next = node
            if node.next is not None:
                node.next.previous = node


def _stuck_at(history: Sequence[Call], first: Value | None) -> Call | None:
    """None if there is an order; else the call that the longest attempt could not get past."""
    observed = _observed(history)
    head = _linked(history)
    state, done, done_most = first, 0, -1
    seen: set[tuple[int, Value | None]] = set()
    path: list[tuple[_Node, Value | None, int]] = []
    stuck: Call | None = None
    node = head.next
    for _ in range(STEPS_MAX):
        if node is None:
            return None
        if node.end is not None:
            for number, following in enumerate(_following(state, node.call, observed)):
                if number < node.alternatives_tried:
                    continue
                node.alternatives_tried = number + 1
                place = (done | 1 << node.index, following)
                if place not in seen:
                    seen.add(place)
                    path.append((node, state, done))
                    done, state = place
                    node.lift()
                    node = head.next
                    break
            else:
                node.alternatives_tried = 0
                node = node.next
            continue
        # An end is reached that nothing explains: go back to the last choice.
        if len(path) > done_most:
            done_most, stuck = len(path), node.call
        if not path:
            return stuck
        node, state, done = path.pop()
        node.lower()
    raise AssertionError(f"undecided after {STEPS_MAX} steps: {len(history)} calls on {history[0].item}")


def _linked(history: Sequence[Call]) -> _Node:
    moments: list[tuple[float, int, int, _Node]] = []
    for index, call in enumerate(history):
        end = _Node(call, index, None)
        moments.append((call.begun, 0, index, _Node(call, index, end)))
        moments.append((call.ended, 1, index, end))
    head = last = _Node(history[0], -1, None)
    for _, _, _, node in sorted(moments, key=lambda each: each[:3]):
        last.next, node.previous = node, last
        last = node
    return head


def _observed(history: Sequence[Call]) -> set[Value]:
    """Values that a reader has seen: a write of unknown outcome that brought one of them has happened, unless a client
    sent it again."""
    seen = {call.value for call in history if call.verb is Verb.READ and call.said is Said.OK}
    seen |= {call.expected for call in history if call.said is Said.OK and call.expected is not None}
    written = Counter(call.value for call in history if call.verb in (Verb.CREATE, Verb.UPSERT, Verb.REPLACE))
    return {value for value in seen if written[value] < 2}


def _following(state: Value | None, call: Call, observed: set[Value]) -> tuple[Value | None, ...]:
    """The states that a call may leave behind; none if its answer cannot have been given in this state."""
    if call.said is Said.REFUSED:
        return (state,)
    if call.said is not Said.UNKNOWN:
        return _answered(state, call)
    if call.verb is Verb.READ:
        return (state,)
    if call.verb is Verb.INCREMENT:
        return (state, state + 1) if state is not None else (state,)
    if call.verb is Verb.CREATE:
        is_possible = state is None
    elif call.verb is Verb.UPSERT:
        is_possible = True
    else:
        is_possible = state is not None and call.expected in (None, state)
    effect = None if call.verb is Verb.DELETE else call.value
    if call.verb is not Verb.DELETE and call.value in observed:
        return (effect,) if is_possible else ()
    return (state, effect) if is_possible else (state,)


def _answered(state: Value | None, call: Call) -> tuple[Value | None, ...]:
    verb, said = call.verb, call.said
    is_there = state is not None
    if said is Said.ABSENT:
        is_possible = not is_there and verb not in (Verb.CREATE, Verb.UPSERT)
        return (state,) if is_possible else ()
    if said is Said.EXISTS:
        return (state,) if is_there and verb is Verb.CREATE else ()
    if said is Said.STALE:
        return (state,) if is_there and call.expected not in (None, state) else ()
    if verb is Verb.READ:
        return (state,) if state == call.value else ()
    if verb is Verb.INCREMENT:
        return (call.value,) if state is not None and call.value == state + 1 else ()
    if verb is Verb.CREATE:
        return () if is_there else (call.value,)
    if verb is Verb.UPSERT:
        return (call.value,) if call.was_there in (None, is_there) else ()
    if not is_there or call.expected not in (None, state):
        return ()
    return (None if verb is Verb.DELETE else call.value,)


NEVER = inf
