"""The context of compiling and evaluating expressions: the variables in scope, the comparison of values (collation),
and the values of the current run ($$NOW, `let`). Compiled functions may be cached and run again with other values.
`begin` sets the values and must be called again after every `await`, because another run of the same compiled function
may have set its own. Reading `$$name` costs one list access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, Key, order_key

Scope = list[Any]  # 0: $$CURRENT, 1: $$ROOT, then the variables that expressions bind
Expression = Callable[[Scope], Any]
Values = Sequence[Any]  # of a run: NOW, CLUSTER_TIME, random numbers, JavaScript, then the values of `let`
Javascript = Callable[[Document], Any]  # answers a request to run a function (`javascript/requests.py`)

CURRENT, ROOT = 0, 1
SEARCH_META: Final = "__cosmos_meta__"  # the field with the score of a vector search
NOW, CLUSTER_TIME, RANDOM, JAVASCRIPT = 0, 1, 2, 3
_FIRST_OF_LET: Final = JAVASCRIPT + 1
_GIVEN: Final = {"NOW": NOW, "CLUSTER_TIME": CLUSTER_TIME}


def no_javascript(request: Document) -> Any:
    raise refusal(2, "JavaScript is not allowed in this context.")


def run_values(
    now_ms: int,
    random: Callable[[], float],
    let: Iterable[Any] = (),
    cluster_time: Timestamp | None = None,
    javascript: Javascript = no_javascript,
) -> list[Any]:
    return [DatetimeMS(now_ms), cluster_time or Timestamp(now_ms // 1000, 1), random, javascript, *let]


class Context:
    """The context of one command, or of one pipeline inside it."""

    __slots__ = ("_count", "_frame", "_let", "_local", "has_search_score", "key", "score", "values")

    def __init__(self, let: Iterable[str] = (), key: Callable[[Any], Key] = order_key) -> None:
        self.key = key  # comparison key: of a collation, or of the plain order of values
        self.values: list[Any] = []
        self.score: Callable[[Document], float] | None = None  # the score of a preceding text search
        self.has_search_score = False  # whether a vector search gives documents their scores
        self._let: Mapping[str, int] = {name: _FIRST_OF_LET + place for place, name in enumerate(let)}
        self._count = len(self._let)  # number of values from `let`, including outer ones hidden by an inner name
        self._local: Mapping[str, int] = {}
        self._frame = [2]  # length of a scope; shared with the contexts that `bind` makes

    @classmethod
    def of(
        cls,
        now_ms: int,
        random: Callable[[], float],
        let: Mapping[str, Any] | None = None,
        key: Callable[[Any], Key] = order_key,
        javascript: Javascript = no_javascript,
    ) -> Context:
        """A context for a command that is compiled and run once."""
        context = cls(let or (), key)
        context.begin(run_values(now_ms, random, (let or {}).values(), None, javascript))
        return context

    def begin(self, values: Values) -> None:
        """Sets the values of the current run."""
        self.values[:] = values

    def given_values(self) -> Document:
        """The values of `let`, by name."""
        return {name: self.values[place] for name, place in self._let.items()}

    def scope(self, document: Document) -> Scope:
        """A new scope for evaluating expressions on a document. It can be reused for other documents by setting 0 and
        1.
        """
        return [document, document, *[None] * (self._frame[0] - 2)]

    # While compiling.

    def place(self, name: str) -> tuple[bool, int]:
        """Whether the variable is bound by an expression, and its index in the scope or in the values of the run."""
        local = self._local.get(name)
        if local is not None:
            return True, local
        if name == "ROOT":
            return True, ROOT
        if name == "CURRENT":
            return True, CURRENT
        found = self._let.get(name, _GIVEN.get(name))
        if found is None:
            raise refusal(17276, f"Use of undefined variable: {name}")
        return False, found

    def bind(self, *names: str) -> tuple[Context, list[int]]:
        """A context with additional variables, and their indexes in the scope."""
        inner = Context.__new__(Context)
        inner.key, inner.values, inner._let, inner._count = self.key, self.values, self._let, self._count
        inner._frame, inner.score, inner.has_search_score = self._frame, self.score, self.has_search_score
        first = self._frame[0]
        self._frame[0] += len(names)
        places = list(range(first, self._frame[0]))
        inner._local = {**self._local, **dict(zip(names, places, strict=True))}
        return inner, places

    def nested(self, let: Iterable[str] = ()) -> Context:
        """The context of a nested pipeline. Its values are those of this context followed by those of its own `let`."""
        inner = Context((), self.key)
        first = _FIRST_OF_LET + self._count
        own = {name: first + place for place, name in enumerate(let)}
        inner._let = {**self._let, **own}
        inner._count = self._count + len(own)
        return inner
