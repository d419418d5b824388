"""LIKE: `%` matches any run of characters, `_` one, `[a-f]` one of a set, `[^a-f]` one outside it; other characters
match themselves.

A pattern is split at its `%` into pieces of fixed length. The first must begin the text, the last must end it, and each
of the others is found at its leftmost position after the one before. This takes at most text length times pattern
length, while a backtracking regular expression could take exponential time. Long texts are searched in slices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from armillary import limits
from armillary.model.values import UNDEFINED, Value
from armillary.work import spend

Matcher = Callable[[str], bool]

_LONG = 1_024  # characters; shorter texts are not charged for
_STEPS = 500_000  # comparisons of characters at most between two charges to the work budget
_UNIT_STEPS = 32  # comparisons for one unit of work

_WILDCARDS = re.compile(r"[%_\[]")


def like(text: Any, pattern: Any, escape: str | None) -> Value:
    if text.__class__ is not str or pattern.__class__ is not str:
        return UNDEFINED
    matches = like_matcher(pattern, escape)
    return UNDEFINED if matches is None else matches(text)


def like_constant(pattern: Any, escape: str | None) -> Callable[[Any], Value]:
    """LIKE with a constant pattern."""
    if pattern.__class__ is not str:
        return lambda text: UNDEFINED
    matches = like_matcher(pattern, escape)
    if matches is None:
        return lambda text: UNDEFINED
    return lambda text: matches(text) if text.__class__ is str else UNDEFINED


def literal_prefix(pattern: str, escape: str | None) -> tuple[str, bool]:
    """The literal prefix of a pattern, and whether the pattern consists of it alone."""
    if len(pattern) > limits.PATTERN_CHARACTERS_MAX and (_WILDCARDS.search(pattern) or escape is not None):
        return "", False
    prefix: list[str] = []
    for kind, character in _tokens(pattern, escape):
        if kind != "literal":
            return "".join(prefix), False
        prefix.append(character)
    return "".join(prefix), True


@lru_cache(maxsize=256)
def like_matcher(pattern: str, escape: str | None) -> Matcher | None:
    """None if the pattern is too long. A text without wildcards may have any length."""
    if len(pattern) > limits.PATTERN_CHARACTERS_MAX:
        if _WILDCARDS.search(pattern) or escape is not None:
            return None
        return lambda text: text == pattern
    pieces: list[list[tuple[str, str]]] = [[]]
    for token in _tokens(pattern, escape):
        if token[0] == "run":
            pieces.append([])
        else:
            pieces[-1].append(token)
    found = [_Piece(piece) for piece in pieces]
    if len(found) == 1:
        only = found[0]
        return lambda text: len(text) == only.length and only.matches_at(text, 0)
    first, last, middle = found[0], found[-1], [piece for piece in found[1:-1] if piece.length]
    length_min = sum(piece.length for piece in found)

    def matches(text: str) -> bool:
        if len(text) > _LONG:
            spend(len(text) >> 6)
        end = len(text) - last.length
        if len(text) < length_min or not first.matches_at(text, 0) or not last.matches_at(text, end):
            return False
        at = first.length
        for piece in middle:
            at = piece.find(text, at, end)
            if at < 0:
                return False
            at += piece.length
        return True

    return matches


class _Piece:
    """A part of a pattern without `%`: it matches a fixed number of characters."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.length = len(tokens)
        self._text = "".join([character for _, character in tokens])
        self._pattern: re.Pattern[str] | None = None
        if any(kind != "literal" for kind, _ in tokens):
            self._pattern = re.compile("".join([_expression(*token) for token in tokens]), re.DOTALL)

    def matches_at(self, text: str, at: int) -> bool:
        if self._pattern is None:
            return text.startswith(self._text, at)
        return self._pattern.match(text, at) is not None

    def find(self, text: str, start: int, end: int) -> int:
        if self._pattern is None:
            return text.find(self._text, start, end)
        if (end - start) * self.length <= _STEPS:
            spend((end - start) * self.length // _UNIT_STEPS)
            found = self._pattern.search(text, start, end)
            return -1 if found is None else found.start()
        # All matches have the same length, so a slice needs to overlap the next only by that.
        stretch = max(1, _STEPS // self.length)
        for at in range(start, end, stretch):
            spend(stretch * self.length // _UNIT_STEPS)
            found = self._pattern.search(text, at, min(at + stretch + self.length - 1, end))
            if found is not None:
                return found.start()
        return -1


def _expression(kind: str, content: str) -> str:
    if kind == "one":
        return "."
    return re.escape(content) if kind == "literal" else content


def _tokens(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape and at < len(pattern):
            tokens.append(("literal", pattern[at]))
            at += 1
        elif character == "%":
            tokens.append(("run", ""))
        elif character == "_":
            tokens.append(("one", ""))
        elif character == "[" and (end := _set_end(pattern, at)) > 0:
            tokens.append(_set(pattern[at:end]))
            at = end + 1
        else:
            tokens.append(("literal", character))
    return tokens


def _set_end(pattern: str, at: int) -> int:
    """The end of the set that begins at a place; -1 if it is not closed: then the bracket is an ordinary character. A
    `]` right after the opening bracket is a member of the set."""
    start = at + 1 if pattern[at : at + 1] == "^" else at
    return pattern.find("]", start + 1)


def _set(content: str) -> tuple[str, str]:
    is_negated = content.startswith("^") and len(content) > 1
    members = content[1:] if is_negated else content
    parts: list[str] = []
    at = 0
    while at < len(members):
        if at + 2 < len(members) and members[at + 1] == "-":
            low, high = members[at], members[at + 2]
            at += 3
            if low <= high:  # an empty range has no members
                parts.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            parts.append(re.escape(members[at]))
            at += 1
    if not parts:
        return "set", "." if is_negated else r"(?!)."
    return "set", f"[{'^' if is_negated else ''}{''.join(parts)}]"
