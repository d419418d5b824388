"""Does a pattern occur in a text? Answered in bounded time whatever the pattern.

Python's own `re` is fast and goes back over its steps, for some patterns exponentially often. So the steps it could
take are counted beforehand (`work`), and it is used while they are few. For the others there is an automaton that reads
each character once and makes its states as it needs them. It cannot look around or refer back: patterns that do so are
refused when `re` would have too much to do. All of it depends on pattern and text alone, never on the time it takes.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NoReturn

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.query.text.patterns import (
    Atomic,
    Characters,
    Choice,
    Group,
    Look,
    Node,
    Position,
    Reference,
    Repeat,
    Sequence,
)
from armillary.work import spend

_ENDLESS: Final = 10**12
_UNIT_STEPS: Final = 16  # of `re` for one unit of work
_PIECE: Final = 4_096  # characters that the automaton reads before the event loop may have its turn
_MOVE_UNITS: Final = 4  # for each step that is looked at to make a transition
_NOT_ALIKE: Final = "[A-Za-z0-9_]"
_EDGE: Final = f"(?:(?<!{_NOT_ALIKE})(?={_NOT_ALIKE})|(?<={_NOT_ALIKE})(?!{_NOT_ALIKE}))"
_POSITIONS: Final = {
    "start": r"\A",
    "line start": "(?m:^)",
    "end": r"\Z",
    "last line end": "(?-m:$)",
    "line end": "(?m:$)",
    "edge": _EDGE,
    "no edge": f"(?!{_EDGE})",
}


class Matcher:
    """One pattern, ready to be looked for in many texts."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_anchored = _is_anchored(node)
        self._needs_re = _looks_around(node)
        self._re = _compile(node)
        self._length_max = -1 if self._re is None else self._affordable_length()
        self._automaton: Automaton | None = None
        self._units: dict[int, int] = {}  # of work, by the number of bits of a text's length

    def _affordable_length(self) -> int:
        """The longest text on which `re` cannot take too many steps; the steps grow with the text."""
        steps_max = limits.PATTERN_STEPS_MAX if self._needs_re else limits.PATTERN_STEPS_CHEAP
        low, high = -1, limits.ITEM_BYTES_MAX
        while low < high:
            length = (low + high + 1) // 2
            starts = 1 if self._is_anchored else length + 1
            if starts * work(self._node, length)[0] <= steps_max:
                low = length
            else:
                high = length - 1
        return low

    def occurs_in(self, text: str) -> bool:
        if self._re is not None and len(text) <= self._length_max:
            self._spend(text)
            found = self._re.match(text) if self._is_anchored else self._re.search(text)
            return found is not None
        if self._needs_re:
            if self._re is None:
                _refuse_unwritable()
            _refuse(text)
        if self._automaton is None:
            self._automaton = Automaton(self._node, self._is_anchored)
        return self._automaton.occurs_in(text)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Where the pattern occurs and what its groups hold. The automaton does not know, so the text must be short
        enough for `re`."""
        if self._re is None:
            _refuse_unwritable()
        if len(text) > self._length_max and not self._is_affordable(text):
            _refuse(text)
        self._spend(text)
        return self._re.search(text, start)

    def _spend(self, text: str) -> None:
        """Count the steps that `re` may take on a text, by the next power of two of its length."""
        size = len(text).bit_length()
        units = self._units.get(size)
        if units is None:
            length = 1 << size
            steps = (1 if self._is_anchored else length + 1) * work(self._node, length)[0]
            # Most texts need far fewer steps than the worst; no text of this length takes more than its limit.
            units = self._units[size] = min(steps, limits.PATTERN_STEPS_FOUND_MAX) // _UNIT_STEPS
        if units:
            spend(units)

    def _is_affordable(self, text: str) -> bool:
        starts = 1 if self._is_anchored else len(text) + 1
        return starts * work(self._node, len(text))[0] <= limits.PATTERN_STEPS_FOUND_MAX


def _refuse_unwritable() -> NoReturn:
    raise Failure(
        Kind.UNSUPPORTED,
        "This regular expression is not supported: what it looks back for must be of one length, and looking around, "
        "referring back or asking for what was found do not go together with \\p. Write it without.",
    )


def _refuse(text: str) -> NoReturn:
    raise Failure(
        Kind.BAD_REQUEST,
        f"The regular expression takes too many steps on a string of {len(text)} characters. Use a pattern with "
        "fewer repetitions inside one another, and without looking around or referring back.",
    )


# What `re` would have to do.


def work(node: Node, length: int) -> tuple[int, int]:
    """At most how many steps a match of the node from one place takes, and in how many ways it can end."""
    match node:
        case Characters() | Position():
            return 1, 1
        case Reference():
            return length + 1, 1
        case Group():
            return work(node.part, length)
        case Atomic() | Look():
            return work(node.part, length)[0], 1
        case Choice():
            pairs = [work(part, length) for part in node.parts]
            return _bounded(sum(steps for steps, _ in pairs)), _bounded(sum(ways for _, ways in pairs))
        case Sequence():
            total, endings = 1, 1
            for place, part in enumerate(node.parts):
                steps, ways = work(part, length)
                if ways > 1 and place + 1 < len(node.parts) and _ends_before(part, node.parts[place + 1]):
                    steps, ways = _bounded(2 * steps), 1
                total, endings = _bounded(total + endings * steps), _bounded(endings * ways)
            return total, endings
        case Repeat():
            steps, ways = work(node.part, length)
            times = max(node.least, length + 1 if node.most is None else min(node.most, length + 1))
            if ways > 1:
                endings = _ENDLESS if times > 40 else _bounded(ways**times * max(times, 1))
                return _bounded(endings * steps), endings
            endings = 1 if node.suffix == "+" else max(1, times - node.least + 1)
            return _bounded(1 + times * steps), endings


def _ends_before(part: Node, following: Node) -> bool:
    """Whether what is repeated can end at one place only, because nothing of it is what must come next."""
    part, following = _bare(part), _bare(following)
    if isinstance(following, Repeat) and following.least:
        following = _bare(following.part)
    if not isinstance(part, Repeat) or not isinstance(following, Characters):
        return False
    repeated = _bare(part.part)
    if not isinstance(repeated, Characters) or repeated.categories or following.categories:
        return False
    ranges = _ranges(following)
    return not any(
        low <= high_other and low_other <= high for low, high in _ranges(repeated) for low_other, high_other in ranges
    )


def _bare(node: Node) -> Node:
    while isinstance(node, Group) or (isinstance(node, Sequence) and len(node.parts) == 1):
        node = node.part if isinstance(node, Group) else node.parts[0]
    return node


def _ranges(node: Characters) -> list[tuple[int, int]]:
    """Of code points; letters in both cases where case does not count."""
    ranges = [*node.ranges]
    if node.ignores_case:
        for low, high in node.ranges:
            letters = [chr(code) for code in range(low, min(high, 127) + 1) if chr(code).isalpha()]
            ranges += [(ord(each.swapcase()), ord(each.swapcase())) for each in letters]
    if not node.is_negated:
        return ranges
    others, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            others.append((start, low - 1))
        start = max(start, high + 1)
    return [*others, (start, 0x10FFFF)]


def _bounded(count: int) -> int:
    return min(count, _ENDLESS)


def _is_anchored(node: Node) -> bool:
    match node:
        case Position():
            return node.kind == "start"
        case Group() | Atomic():
            return _is_anchored(node.part)
        case Sequence():
            return bool(node.parts) and _is_anchored(node.parts[0])
        case Choice():
            return all(_is_anchored(part) for part in node.parts)
    return False


def _looks_around(node: Node) -> bool:
    match node:
        case Look() | Reference() | Atomic():
            return True
        case Repeat():
            return node.suffix == "+" or _looks_around(node.part)
        case Group():
            return _looks_around(node.part)
        case Sequence() | Choice():
            return any(_looks_around(part) for part in node.parts)
    return False


# As `re` writes it.


def _compile(node: Node) -> re.Pattern[str] | None:
    text = _written(node)
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


def _written(node: Node) -> str | None:
    match node:
        case Characters():
            return _written_set(node)
        case Position():
            return _POSITIONS[node.kind]
        case Reference():
            return f"(?i:(?:\\{node.number}))" if node.ignores_case else f"(?:\\{node.number})"
        case Group() | Atomic() | Look():
            part = _written(node.part)
            if part is None:
                return None
            if isinstance(node, Group):
                return f"({part})" if node.number else f"(?:{part})"
            return f"(?>{part})" if isinstance(node, Atomic) else f"({node.opening}{part})"
        case Repeat():
            part = _written(node.part)
            most = "" if node.most is None else node.most
            return None if part is None else f"(?:{part}){{{node.least},{most}}}{node.suffix}"
    parts = [_written(part) for part in node.parts]
    if None in parts:
        return None
    joint = "" if isinstance(node, Sequence) else "|"
    return f"(?:{joint.join([part for part in parts if part is not None])})"


def _written_set(node: Characters) -> str | None:
    if node.categories:
        return None
    ranges = "".join([f"\\U{low:08x}-\\U{high:08x}" for low, high in node.ranges])
    text = f"[{'^' if node.is_negated else ''}{ranges}]"
    return f"(?i:{text})" if node.ignores_case else text


# The automaton.


def holds(node: Characters, character: str) -> bool:
    if _is_among(node, character):
        found = True
    elif node.ignores_case:
        found = any(len(case) == 1 and _is_among(node, case) for case in (character.lower(), character.upper()))
    else:
        found = False
    return found != node.is_negated


def _is_among(node: Characters, character: str) -> bool:
    code = ord(character)
    if any(low <= code <= high for low, high in node.ranges):
        return True
    return any(unicodedata.category(character).startswith(name) != is_negated for name, is_negated in node.categories)


_MATCH: Final = -1  # in place of a state: found
_DEAD: Final = -2  # in place of a state: nothing can be found any more
_END: Final = ""  # in place of a character
_LAST_NEWLINE: Final = "\n$"  # a newline that is the last character
_BEFORE_START, _AFTER_NEWLINE, _AFTER_WORD, _AFTER_OTHER = range(4)


class Automaton:
    """Steps of the pattern, numbered; a state is the set of steps that are due, with what stood before. Transitions
    are remembered by state and character until there are too many of them."""

    def __init__(self, node: Node, is_anchored: bool = False) -> None:
        self._steps: list[tuple[Characters | Position | None, tuple[int, ...]]] = [(None, ())]  # 0: the match
        self._first = self._add(node, 0)
        self._is_anchored = is_anchored
        self._sets = list({step: None for step, _ in self._steps if isinstance(step, Characters)})
        self._alike: dict[str, str] = {}  # by character: the first one seen that is in the same sets
        self._firsts: dict[tuple[bool, ...], str] = {}
        self._kinds = {step.kind for step, _ in self._steps if isinstance(step, Position)}
        self._forget()

    def occurs_in(self, text: str) -> bool:
        budget = limits.PATTERN_MOVES_MAX
        state = self._number(frozenset([self._first]), _BEFORE_START)
        body = text[:-1] if text.endswith("\n") else text
        for start in range(0, len(body), _PIECE):
            if start:
                state = self._pause(state, _PIECE)
            state, budget = self._read(state, body[start : start + _PIECE], budget, text)
            if state < 0:
                return state == _MATCH
        if body is not text:
            state, budget = self._move(state, _LAST_NEWLINE, budget, text)
            if state < 0:
                return state == _MATCH
        return self._move(state, _END, budget, text)[0] == _MATCH

    def _read(self, state: int, piece: str, budget: int, text: str) -> tuple[int, int]:
        """Read characters. `text` is the whole that they are of."""
        table, alike = self._table, self._alike
        paid = budget
        for character in piece:
            kind = alike.get(character) or self._classify(character)
            following = table[state].get(kind)
            if following is None:
                following, budget = self._move(state, kind, budget, text)
                if following >= 0 and (paid - budget) * _MOVE_UNITS > limits.WORK_SLICE_UNITS:
                    following = self._pause(following, (paid - budget) * _MOVE_UNITS)
                    paid = budget
                table = self._table
            if following < 0:
                return following, budget
            state = following
        return state, budget

    def _pause(self, state: int, units: int) -> int:
        """Spend; the same state afterwards, whose number is perhaps another: patterns are shared, and another text may
        have had the states forgotten meanwhile."""
        due = self._states[state]
        spend(units)
        return self._number(*due)

    # Building.

    def _add(self, node: Node, then: int) -> int:
        """The step at which the node begins, when what follows it is known."""
        match node:
            case Characters() | Position():
                return self._new(node, then)
            case Group():
                return self._add(node.part, then)
            case Sequence():
                for part in reversed(node.parts):
                    then = self._add(part, then)
                return then
            case Choice():
                return self._new(None, *[self._add(part, then) for part in node.parts])
            case Repeat():
                return self._repeat(node, then)
        raise AssertionError(f"not for an automaton: {node.__class__.__name__}")

    def _repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._new(None)
            self._steps[loop] = (None, (self._add(node.part, loop), then))
            then = loop
        else:
            after = then
            for _ in range(node.most - node.least):
                then = self._new(None, self._add(node.part, then), after)
        for _ in range(node.least):
            then = self._add(node.part, then)
        return then

    def _new(self, step: Characters | Position | None, *following: int) -> int:
        if len(self._steps) >= limits.PATTERN_SIZE_MAX:
            raise Failure(
                Kind.BAD_REQUEST,
                f"The regular expression is too large: with repetitions written out it has over "
                f"{limits.PATTERN_SIZE_MAX} steps.",
            )
        self._steps.append((step, following))
        return len(self._steps) - 1

    # Running.

    def _classify(self, character: str) -> str:
        if len(self._alike) > limits.PATTERN_MEMORY_MAX:
            self._alike.clear()
        marks = (character == "\n", _is_word(character), *[holds(each, character) for each in self._sets])
        first = self._alike[character] = self._firsts.setdefault(marks, character)
        return first

    def _forget(self) -> None:
        self._numbers: dict[tuple[frozenset[int], int], int] = {}
        self._states: list[tuple[frozenset[int], int]] = []
        self._table: list[dict[str, int]] = []
        self._remembered = 0

    def _number(self, due: frozenset[int], before: int) -> int:
        state = (due, before)
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._table.append({})
        return number

    def _move(self, state: int, character: str, budget: int, text: str) -> tuple[int, int]:
        due, before = self._states[state]
        reached: set[int] = set()
        pending = list(due)
        following: set[int] = set()
        number = _AFTER_OTHER
        while pending:
            place = pending.pop()
            if place in reached:
                continue
            reached.add(place)
            step, targets = self._steps[place]
            if place == 0:
                number = _MATCH
                break
            if step is None or (isinstance(step, Position) and _is_at(step.kind, before, character)):
                pending += targets
            elif isinstance(step, Characters) and character and holds(step, character[0]):
                following.update(targets)
        budget -= len(reached) + 1
        if budget < 0:
            _refuse(text)
        if number != _MATCH:
            if not self._is_anchored:
                following.add(self._first)
            number = self._number(frozenset(following), self._after(character)) if following else _DEAD
        self._table[state][character] = number
        self._remembered += 1 + len(reached) // 8
        if self._remembered > limits.PATTERN_MEMORY_MAX:
            kept = self._states[number] if number >= 0 else None
            self._forget()
            if kept is not None:
                number = self._number(*kept)
        return number, budget

    def _after(self, character: str) -> int:
        """What the positions of this pattern need to know of the character before them."""
        if character[:1] == "\n" and "line start" in self._kinds:
            return _AFTER_NEWLINE
        if ("edge" in self._kinds or "no edge" in self._kinds) and _is_word(character):
            return _AFTER_WORD
        return _AFTER_OTHER


def _is_at(kind: str, before: int, character: str) -> bool:
    match kind:
        case "start":
            return before == _BEFORE_START
        case "line start":
            return before in (_BEFORE_START, _AFTER_NEWLINE)
        case "end":
            return character == _END
        case "last line end":
            return character in (_END, _LAST_NEWLINE)
        case "line end":
            return character in (_END, _LAST_NEWLINE, "\n")
    is_edge = (before == _AFTER_WORD) != _is_word(character)
    return is_edge == (kind == "edge")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")
