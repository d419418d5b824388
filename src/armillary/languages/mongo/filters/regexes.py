"""Regular expressions of filters and expressions: checks options, caches compiled patterns, and refuses invalid ones
with MongoDB's code. Matching in bounded time is done by `query/text/pattern_matching.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from bson.regex import Regex

from armillary import limits
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.model.bson.bson_values import regex_options
from armillary.query.text.pattern_matching import Matcher
from armillary.query.text.patterns import Characters, Group, InvalidPattern, Node, Position, Sequence, parse_pattern

INVALID_PATTERN, INVALID_OPTIONS = 51091, 51108
_OPTIONS: Final = frozenset("imsxu")
_UNICODE_MARKS: Final = ("(*UTF8)", "(*UTF)")  # prefixes of older patterns that switch UTF-8 on, which it always is


def regex_matcher(pattern: str, options: str) -> Matcher:
    for letter in options:
        if letter not in _OPTIONS:
            raise refusal(INVALID_OPTIONS, f"invalid flag in regex options: {letter}")
    if "\0" in pattern:
        raise bad_value("Regular expression cannot contain an embedded null byte")
    if len(pattern) > limits.PATTERN_CHARACTERS_MAX:
        raise refusal(INVALID_PATTERN, f"Regular expression is longer than {limits.PATTERN_CHARACTERS_MAX} characters")
    return _matcher(_unmarked(pattern), "".join(sorted(set(options) - {"u"})))


def _unmarked(pattern: str) -> str:
    mark = next((each for each in _UNICODE_MARKS if pattern.startswith(each)), "")
    return pattern.removeprefix(mark)


def matcher_of(value: Regex[Any]) -> Matcher:
    """The compiled pattern of a BSON regular expression."""
    pattern = value.pattern
    return regex_matcher(pattern if isinstance(pattern, str) else pattern.decode(), regex_options(value))


@lru_cache(maxsize=limits.PATTERNS_KEPT)
def _matcher(pattern: str, options: str) -> Matcher:
    try:
        return Matcher(parse_pattern(pattern, options))
    except InvalidPattern as invalid:
        raise refusal(INVALID_PATTERN, f"Regular expression is invalid: {invalid}") from None


def literal_prefix(pattern: str, options: str) -> str:
    """The prefix of every text that matches; empty if there is none."""
    try:
        node = parse_pattern(_unmarked(pattern), "".join(set(options) - {"u"}))
    except InvalidPattern:
        return ""
    parts = _parts(node)
    if not parts or not isinstance(parts[0], Position) or parts[0].kind != "start":
        return ""
    prefix = ""
    for part in parts[1:]:
        if (
            not isinstance(part, Characters)
            or part.ignores_case
            or part.is_negated
            or part.categories
            or len(part.ranges) != 1
            or part.ranges[0][0] != part.ranges[0][1]
        ):
            break
        prefix += chr(part.ranges[0][0])
    return prefix


def _parts(node: Node) -> list[Node]:
    if isinstance(node, Sequence):
        return [each for part in node.parts for each in _parts(part)]
    return _parts(node.part) if isinstance(node, Group) else [node]
