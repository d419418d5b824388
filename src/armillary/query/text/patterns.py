"""Regular expressions as text to a tree: Perl's syntax, as the service takes it. `\\d \\w \\s` and word edges know
ASCII only. What is no pattern at all is an InvalidPattern; what Perl has and we do not (recursion, conditions, scripts)
is refused by name. How a pattern is matched is `pattern_matching.py`'s part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from armillary import limits
from armillary.errors import Failure, Kind

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class InvalidPattern(Exception):
    """The text is not a regular expression."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set."""

    ranges: Ranges
    categories: tuple[tuple[str, bool], ...] = ()  # of Unicode, and whether all others are meant
    is_negated: bool = False
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None
    suffix: str  # "": greedy, "?": lazy, "+": possessive


@dataclass(frozen=True, slots=True)
class Position:
    kind: str  # start, line start, end, last line end, line end, edge, no edge


@dataclass(frozen=True, slots=True)
class Group:
    number: int
    part: Node


@dataclass(frozen=True, slots=True)
class Atomic:
    part: Node


@dataclass(frozen=True, slots=True)
class Look:
    opening: str  # ?= ?! ?<= ?<!
    part: Node


@dataclass(frozen=True, slots=True)
class Reference:
    """What a group has matched, again."""

    number: int
    ignores_case: bool


Node: TypeAlias = Characters | Sequence | Choice | Repeat | Position | Group | Atomic | Look | Reference

_LAST: Final = 0x10FFFF
_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 13), (32, 32))
_HORIZONTAL: Ranges = ((9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x202F, 0x202F))
_VERTICAL: Ranges = ((10, 13), (0x85, 0x85), (0x2028, 0x2029))
_CLASSES: Final[dict[str, Ranges]] = {"d": _DIGITS, "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
_POSIX: Final[dict[str, Ranges]] = {
    "alpha": ((65, 90), (97, 122)),
    "digit": _DIGITS,
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "upper": ((65, 90),),
    "lower": ((97, 122),),
    "space": _SPACE,
    "blank": ((9, 9), (32, 32)),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
    "word": _WORD,
    "cntrl": ((0, 31), (127, 127)),
    "print": ((32, 126),),
    "graph": ((33, 126),),
    "ascii": ((0, 127),),
}
_CONTROL: Final = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_POSITIONS: Final = {"A": "start", "z": "end", "Z": "last line end", "b": "edge", "B": "no edge"}
_CATEGORIES: Final = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn".split()
)
_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{([0-9]{1,6})(?:(,)([0-9]{1,6})?)?\})([?+]?)")
_FLAGS: Final = re.compile(r"\?([imsx]*)(?:-([imsx]*))?([:)])")
_NAME: Final = re.compile(r"\?(?:P?<([A-Za-z_]\w{0,31})>|'([A-Za-z_]\w{0,31})')", re.ASCII)
_CODE: Final = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{0,2})|u([0-9A-Fa-f]{4})|c([ -~])|(0[0-7]{0,2})")
_CATEGORY: Final = re.compile(r"[pP](?:\{(\^?)([^}]{1,40})\}|([A-Z]))")
_REFERENCE: Final = re.compile(r"([1-9][0-9]?)|k(?:<(\w+)>|'(\w+)'|\{(\w+)\})", re.ASCII)
_COUNT_MAX: Final = 65_535
_SIMPLE_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def complement(ranges: Ranges) -> Ranges:
    gaps: list[tuple[int, int]] = []
    following = 0
    for low, high in sorted(ranges):
        if low > following:
            gaps.append((following, low - 1))
        following = max(following, high + 1)
    return (*gaps, (following, _LAST)) if following <= _LAST else tuple(gaps)


def parse_pattern(text: str, modifiers: str) -> Node:
    return _Parser(text, frozenset(modifiers)).whole()


class _Parser:
    def __init__(self, text: str, flags: frozenset[str]) -> None:
        self._text = text
        self._at = 0
        self._flags = flags
        self._groups = 0
        self._names: dict[str, int] = {}
        self._depth = 0
        self._highest_reference = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise InvalidPattern("a bracket is closed that was not opened")
        if self._highest_reference > self._groups:
            raise InvalidPattern("a reference to a group that is not there")
        return node

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > limits.PATTERN_DEPTH_MAX:
            raise Failure(Kind.BAD_REQUEST, f"The regular expression nests over {limits.PATTERN_DEPTH_MAX} levels.")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if "x" in self._flags and self._skip_blank():
                continue
            if self._text.startswith("\\Q", self._at):
                parts += self._quoted()
                continue
            if self._text.startswith("(?#", self._at):
                self._after(")")
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._quantified(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quantified(self, atom: Node) -> Node:
        is_repeated = False
        while True:
            while "x" in self._flags and self._skip_blank():
                pass
            match = _QUANTIFIER.match(self._text, self._at)
            if match is None:
                return atom
            if isinstance(atom, (Position, Look)):
                atom = Group(0, atom)
            self._at = match.end()
            simple, least, comma, most, suffix = match.groups()
            if simple and is_repeated:
                raise InvalidPattern("a repetition of a repetition")
            is_repeated = True
            if simple:
                low, high = _SIMPLE_QUANTIFIERS[simple]
            else:
                low = int(least)
                high = (int(most) if most else None) if comma else low
            if low > _COUNT_MAX or (high is not None and not low <= high <= _COUNT_MAX):
                raise InvalidPattern("a repetition out of range")
            atom = Repeat(atom, low, high, suffix)

    def _atom(self) -> Node | None:
        character = self._text[self._at]
        self._at += 1
        match character:
            case ".":
                return self._any("s" in self._flags)
            case "^":
                return Position("line start" if "m" in self._flags else "start")
            case "$":
                return Position("line end" if "m" in self._flags else "last line end")
            case "(":
                return self._group()
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise InvalidPattern("nothing to repeat")
        return self._one(ord(character))

    def _any(self, is_all: bool) -> Characters:
        return Characters(((0, _LAST),) if is_all else ((0, 9), (11, _LAST)))

    def _one(self, code: int) -> Characters:
        return Characters(((code, code),), ignores_case="i" in self._flags)

    # Groups.

    def _group(self) -> Node | None:
        outer = self._flags
        flags = _FLAGS.match(self._text, self._at)
        if flags is not None:
            self._at = flags.end()
            changed = (outer | set(flags[1])) - set(flags[2] or "")
            self._flags = changed
            if flags[3] == ")":
                return None  # until the end of the group around it
            return self._closed(outer)
        name = _NAME.match(self._text, self._at)
        if name is not None:
            self._at = name.end()
            self._names[name[1] or name[2]] = self._groups + 1
        elif self._text.startswith("?", self._at):
            for opening in ("?<=", "?<!", "?=", "?!", "?>"):
                if self._take(opening):
                    part = self._closed(outer)
                    return Atomic(part) if opening == "?>" else Look(opening, part)
            shown = self._text[self._at - 1 : self._at + 3]
            if not re.match(r"\?(?:[RP&|(0-9+-])", self._text[self._at :]):
                raise InvalidPattern(f"an unknown group {shown}")
            raise _unsupported(f"the group {shown}")
        elif self._text.startswith("*", self._at):
            raise _unsupported("verbs like (*FAIL)")
        self._groups += 1
        number = self._groups
        return Group(number, self._closed(outer))

    def _closed(self, outer: frozenset[str]) -> Node:
        node = self._choice()
        if not self._take(")"):
            raise InvalidPattern("a bracket is not closed")
        self._flags = outer  # flags that were set inside end here
        return node

    # Escapes.

    def _escape(self) -> Node:
        if self._at >= len(self._text):
            raise InvalidPattern("a backslash at the end")
        character = self._text[self._at]
        reference = _REFERENCE.match(self._text, self._at)
        if reference is not None:
            return self._reference(reference)
        if character in _POSITIONS:
            self._at += 1
            return Position(_POSITIONS[character])
        if character == "N":
            self._at += 1
            return self._any(False)
        if character == "R":
            self._at += 1
            pair = Sequence((Characters(((13, 13),)), Characters(((10, 10),))))
            return Choice((pair, Characters(_VERTICAL)))
        ranges, categories = self._class()
        return Characters(ranges, categories, ignores_case="i" in self._flags)

    def _reference(self, match: re.Match[str]) -> Node:
        self._at = match.end()
        number, *names = match.groups()
        if number is not None:
            place = int(number)
        else:
            found = self._names.get(next(name for name in names if name is not None))
            if found is None:
                raise InvalidPattern("a reference to a name that is not there")
            place = found
        self._highest_reference = max(self._highest_reference, place)
        return Reference(place, "i" in self._flags)

    def _class(self) -> tuple[Ranges, tuple[tuple[str, bool], ...]]:
        """What an escape stands for as a set, inside brackets or outside; the position is behind its backslash."""
        character = self._text[self._at]
        category = _CATEGORY.match(self._text, self._at)
        if category is not None:
            self._at = category.end()
            return (), self._category(category)
        code = _CODE.match(self._text, self._at)
        if code is not None:
            self._at = code.end()
            braced, short, unit, control, octal = code.groups()
            if control is not None:
                value = ord(control.upper()) ^ 64
            elif octal is not None:
                value = int(octal, 8)
            else:
                value = int(braced or short or unit or "0", 16)
            if value > _LAST:
                raise InvalidPattern("a character beyond the last")
            return ((value, value),), ()
        self._at += 1
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return (complement(ranges) if character.isupper() else ranges), ()
        if character in _CONTROL:
            return ((_CONTROL[character], _CONTROL[character]),), ()
        if character in "gGKXCE":
            raise _unsupported(f"\\{character}")
        if character.isascii() and character.isalnum():
            raise InvalidPattern(f"an unknown escape \\{character}")
        return ((ord(character), ord(character)),), ()

    def _category(self, match: re.Match[str]) -> tuple[tuple[str, bool], ...]:
        name = match[2] or match[3]
        is_negated = (match[0][0] == "P") != bool(match[1])
        if name not in _CATEGORIES:
            raise _unsupported(f"the character property {name}")
        return ((name, is_negated),)

    def _quoted(self) -> list[Node]:
        self._at += 2
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at += len(quoted) + (2 if end >= 0 else 0)
        nodes: list[Node] = [self._one(ord(character)) for character in quoted]
        if nodes:
            nodes[-1] = self._quantified(nodes[-1])
        return nodes

    # Sets.

    def _set(self) -> Node:
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not self._text.startswith("]", self._at):
            is_first = False
            found, named = self._member()
            categories += named
            if (
                len(found) == 1
                and found[0][0] == found[0][1]
                and self._text.startswith("-", self._at)
                and not self._text.startswith("-]", self._at)
            ):
                self._at += 1
                last, more = self._member()
                if len(last) == 1 and last[0][0] == last[0][1] and not more:
                    if last[0][0] < found[0][0]:
                        raise InvalidPattern("a range that goes backwards")
                    found = ((found[0][0], last[0][0]),)
                else:
                    found = (*found, (45, 45), *last)  # a hyphen beside a class stands for itself
                    categories += more
            ranges += found
        self._at += 1
        return Characters(tuple(ranges), tuple(categories), is_negated, "i" in self._flags)

    def _member(self) -> tuple[Ranges, tuple[tuple[str, bool], ...]]:
        if self._at >= len(self._text):
            raise InvalidPattern("a set is not closed")
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at)
            name = self._text[self._at + 2 : end] if end >= 0 else ""
            ranges = _POSIX.get(name.removeprefix("^"))
            if ranges is not None:
                self._at = end + 2
                return (complement(ranges) if name.startswith("^") else ranges), ()
        character = self._text[self._at]
        self._at += 1
        if character != "\\":
            return ((ord(character), ord(character)),), ()
        if self._at >= len(self._text):
            raise InvalidPattern("a set is not closed")
        if self._take("b"):
            return ((8, 8),), ()
        return self._class()

    # Text.

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _skip_blank(self) -> bool:
        if self._at < len(self._text):
            if self._text[self._at] in " \t\n\r\f\v":
                self._at += 1
                return True
            if self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = end + 1 if end >= 0 else len(self._text)
                return True
        return False

    def _after(self, text: str) -> None:
        end = self._text.find(text, self._at)
        if end < 0:
            raise InvalidPattern("a comment is not closed")
        self._at = end + len(text)


def _unsupported(what: str) -> Failure:
    return Failure(Kind.UNSUPPORTED, f"Regular expressions with {what} are not supported: write it without.")
