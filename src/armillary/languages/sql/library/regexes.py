"""REGEXMATCH: a search for a regular expression, with patterns kept ready. A text that is no pattern makes the result
undefined; a pattern that would take too long, or has what we do not support, is an error that says so.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from armillary import limits
from armillary.model.values import UNDEFINED, Value
from armillary.query.text.pattern_matching import Matcher
from armillary.query.text.patterns import InvalidPattern, parse_pattern
from armillary.work import spend

_COMPILE_UNITS = 40  # of work for each character of a pattern
_MODIFIERS = frozenset("msix")


def regex_match(text: Any, pattern: Any, modifiers: Any = "") -> Value:
    if text.__class__ is not str or pattern.__class__ is not str or modifiers.__class__ is not str:
        return UNDEFINED
    matcher = _matcher(pattern, modifiers)
    return UNDEFINED if matcher is None else matcher.occurs_in(text)


@lru_cache(maxsize=limits.PATTERNS_KEPT)
def _matcher(pattern: str, modifiers: str) -> Matcher | None:
    if not _MODIFIERS.issuperset(modifiers) or len(pattern) > limits.PATTERN_CHARACTERS_MAX:
        return None
    spend(_COMPILE_UNITS * (len(pattern) + 1))
    try:
        return Matcher(parse_pattern(pattern, modifiers))
    except InvalidPattern:
        return None
