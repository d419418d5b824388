"""The predicates P and TextP of has(), is(), where() and other steps.

The result of a comparison may be undefined (`None`): not, and, or propagate it, and a filter treats it as false.
Regular expressions are matched in bounded time by `query/text/pattern_matching.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Final

from armillary import limits, work
from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.values.comparing import compare, equal, identity, is_nan, shown
from armillary.languages.gremlin.values.typed_values import Long, Set
from armillary.languages.gremlin.values.types import is_of, type_named
from armillary.query.text.pattern_matching import Matcher
from armillary.query.text.patterns import InvalidPattern, parse_pattern
from armillary.work import spend

NEGATIONS: Final = {
    "eq": "neq",
    "lt": "gte",
    "gt": "lte",
    "inside": "notInside",
    "within": "without",
    "startingWith": "notStartingWith",
    "endingWith": "notEndingWith",
    "containing": "notContaining",
    "regex": "notRegex",
    "typeOf": "notTypeOf",
}
NEGATIONS.update({after: before for before, after in list(NEGATIONS.items())})
TEXT: Final = frozenset(
    "startingWith notStartingWith endingWith notEndingWith containing notContaining regex notRegex".split()
)
COMPARISONS: Final = frozenset("eq neq lt lte gt gte".split())
RANGES: Final = frozenset("between inside outside".split())
NAMES: Final = TEXT | COMPARISONS | RANGES | {"within", "without", "typeOf", "not", "and", "or", "test"}


class P:
    """A predicate: `name` with its value, or `and`/`or` with parts."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value  # for and/or: the list of predicates

    def __repr__(self) -> str:
        if self.name in ("and", "or"):
            return f"{self.name}({', '.join(map(repr, self.value))})"
        return f"{self.name}({self.value!r})"

    def test(self, value: Any) -> bool | None:
        return _TESTS[self.name](self.value, value)

    def holds(self, value: Any) -> bool:
        return _TESTS[self.name](self.value, value) is True

    def negated(self) -> P:
        if self.name in ("and", "or"):
            return P("or" if self.name == "and" else "and", [part.negated() for part in self.value])
        return P(NEGATIONS[self.name], self.value)

    def parts(self) -> Iterator[P]:
        """The predicates inside that compare with a value."""
        if self.name in ("and", "or"):
            for part in self.value:
                yield from part.parts()
        else:
            yield self

    def with_values(self, change: Callable[[Any], Any]) -> P:
        """The same predicate with other values."""
        if self.name in ("and", "or"):
            return P(self.name, [part.with_values(change) for part in self.value])
        return P(self.name, change(self.value))


def make(name: str, arguments: list[Any]) -> P:
    """Builds a predicate from a call in a script or from bytecode and checks its arguments."""
    if name in COMPARISONS:
        return P(name, _only(name, arguments))
    if name in TEXT:
        text = _only(name, arguments)
        if not isinstance(text, str):
            raise compilation(f"{name}() takes a text, not {shown(text)}.")
        if name in ("regex", "notRegex"):
            matcher(text)
        return P(name, text)
    if name in RANGES:
        if len(arguments) == 1 and isinstance(arguments[0], list):
            arguments = arguments[0]
        if len(arguments) != 2:
            raise compilation(f"{name}() takes two values, not {len(arguments)}.")
        low, high = arguments
        if name == "between":
            return P("and", [P("gte", low), P("lt", high)])
        if name == "inside":
            return P("and", [P("gt", low), P("lt", high)])
        return P("or", [P("lt", low), P("gt", high)])
    if name in ("within", "without"):
        if len(arguments) == 1 and isinstance(arguments[0], list):
            arguments = list(arguments[0])
        return P(name, list(arguments))
    if name == "typeOf":
        return P(name, type_named(_only(name, arguments)))
    if name == "not":
        inner = _only(name, arguments)
        if not isinstance(inner, P):
            raise compilation("P.not() takes a predicate.")
        return inner.negated()
    if name in ("and", "or"):
        if len(arguments) == 1 and isinstance(arguments[0], list):
            arguments = arguments[0]
        if not arguments or not all(isinstance(part, P) for part in arguments):
            raise compilation(f"The predicate {name}() takes predicates.")
        return P(name, list(arguments))
    raise compilation(f"'{name}' is not a predicate.")


def _only(name: str, arguments: list[Any]) -> Any:
    if len(arguments) != 1:
        raise compilation(f"{name}() takes one value, not {len(arguments)}.")
    return arguments[0]


@lru_cache(maxsize=limits.PATTERNS_KEPT)
def matcher(pattern: str) -> Matcher:
    if len(pattern) > limits.PATTERN_CHARACTERS_MAX:
        raise compilation(f"A regular expression has at most {limits.PATTERN_CHARACTERS_MAX} characters.")
    try:
        return Matcher(parse_pattern(pattern, ""))
    except InvalidPattern as invalid:
        raise compilation(f"The regular expression {pattern!r} is invalid: {invalid}") from None


def _eq(expected: Any, value: Any) -> bool:
    return equal(value, expected)


def _neq(expected: Any, value: Any) -> bool:
    return not equal(value, expected)


def _lt(expected: Any, value: Any) -> bool | None:
    found = compare(value, expected)
    return None if found is None else found < 0


def _lte(expected: Any, value: Any) -> bool | None:
    found = compare(value, expected)
    return None if found is None else found <= 0


def _gt(expected: Any, value: Any) -> bool | None:
    found = compare(value, expected)
    return None if found is None else found > 0


def _gte(expected: Any, value: Any) -> bool | None:
    found = compare(value, expected)
    return None if found is None else found >= 0


_FEW: Final = 8  # up to so many values are compared one by one


def _within(expected: list[Any], value: Any) -> bool:
    if len(expected) > _FEW:
        known = _identities(expected)
        if known is not None:
            if is_nan(value) or identity(value) not in known:
                return False
            if not isinstance(value, list | dict):
                return True
    spend(4 * len(expected))
    return any(equal(value, each) for each in expected)


def _identities(expected: list[Any]) -> set[Hashable] | None:
    """The identities of the values of a long list, cached while the list is searched repeatedly. Lists only grow, so a
    list of the same length is unchanged.
    """
    run = work.current()
    if not isinstance(run, work.Run):
        return None
    if run.derived is None:
        run.derived = {}
    kept = run.derived.get(("within", id(expected)))
    if kept is not None and kept[0] is expected and kept[1] == len(expected):
        return kept[2]  # type: ignore[no-any-return]
    work.make(100 * len(expected))
    spend(8 * len(expected))
    made = {identity(each) for each in expected}
    run.derived["within", id(expected)] = (expected, len(expected), made)
    return made


def _without(expected: list[Any], value: Any) -> bool:
    return not _within(expected, value)


def _and(parts: list[P], value: Any) -> bool | None:
    undefined = False
    for part in parts:
        found = part.test(value)
        if found is False:
            return False
        undefined = undefined or found is None
    return None if undefined else True


def _or(parts: list[P], value: Any) -> bool | None:
    undefined = False
    for part in parts:
        found = part.test(value)
        if found is True:
            return True
        undefined = undefined or found is None
    return None if undefined else False


def _text(holds: Callable[[str, str], bool], is_wanted: bool) -> Callable[[Any, Any], bool | None]:
    def test(expected: str, value: Any) -> bool | None:
        if not isinstance(value, str):
            return None
        return holds(value, expected) is is_wanted

    return test


def _matches(value: str, pattern: str) -> bool:
    spend(5 + len(value) // 8)
    return matcher(pattern).occurs_in(value)


_TESTS: Final[dict[str, Callable[[Any, Any], bool | None]]] = {
    "eq": _eq,
    "neq": _neq,
    "lt": _lt,
    "lte": _lte,
    "gt": _gt,
    "gte": _gte,
    "within": _within,
    "without": _without,
    "and": _and,
    "or": _or,
    "startingWith": _text(str.startswith, True),
    "notStartingWith": _text(str.startswith, False),
    "endingWith": _text(str.endswith, True),
    "notEndingWith": _text(str.endswith, False),
    "containing": _text(str.__contains__, True),
    "notContaining": _text(str.__contains__, False),
    "regex": _text(_matches, True),
    "notRegex": _text(_matches, False),
    "typeOf": lambda expected, value: is_of(value, expected),
    "notTypeOf": lambda expected, value: not is_of(value, expected),
}


def as_predicate(value: Any) -> P:
    """The argument of is(), has() and other filters as a predicate; a plain value means equality."""
    return value if isinstance(value, P) else P("eq", value)


def within(values: list[Any]) -> P:
    return P("eq", values[0]) if len(values) == 1 and not isinstance(values[0], Set) else P("within", values)


def count_of(value: Any, step: str) -> int:
    """A number of steps, items or loops: a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise compilation(f"{step}() takes a whole number, not {shown(value)}.")
    return Long(value)
