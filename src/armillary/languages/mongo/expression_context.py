"""What compilers of the MongoDB language are given: the variables that expressions may name, how values are compared,
and the values of the run under way. Compiled functions may be kept and run again with other values: `begin` sets them,
and must be called before every stretch of evaluation that nobody else can interrupt. What `$$name` costs is one look
into a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, Key, order_key

Scope = list[Any]  # 0: $$CURRENT, 1: $$ROOT, then the variables that expressions bind, each in its place
Expression = Callable[[Scope], Any]
Values = Sequence[Any]  # of a run: NOW, CLUSTER_TIME, dice, then the values of `let`

CURRENT, ROOT = 0, 1
NOW, CLUSTER_TIME, RANDOM = 0, 1, 2
_GIVEN: Final = {"NOW": NOW, "CLUSTER_TIME": CLUSTER_TIME}


def run_values(
    now_ms: int, random: Callable[[], float], let: Iterable[Any] = (), cluster_time: Timestamp | None = None
) -> list[Any]:
    return [DatetimeMS(now_ms), cluster_time or Timestamp(now_ms // 1000, 1), random, *let]


class Context:
    """One command's, or one pipeline's inside it."""

    __slots__ = ("_count", "_frame", "_let", "_local", "key", "score", "values")

    def __init__(self, let: Iterable[str] = (), key: Callable[[Any], Key] = order_key) -> None:
        self.key = key  # of a collation, or of the plain order of values
        self.values: list[Any] = []
        self.score: Callable[[Document], float] | None = None  # of a text search that comes before
        self._let: Mapping[str, int] = {name: RANDOM + 1 + place for place, name in enumerate(let)}
        self._count = len(self._let)  # of values that `let` gives, also where an inner name hides an outer one
        self._local: Mapping[str, int] = {}
        self._frame = [2]  # how long a scope must be; shared by all that are made of this one by `bind`

    @classmethod
    def of(
        cls,
        now_ms: int,
        random: Callable[[], float],
        let: Mapping[str, Any] | None = None,
        key: Callable[[Any], Key] = order_key,
    ) -> Context:
        """For a command that is compiled and run at once."""
        context = cls(let or (), key)
        context.begin(run_values(now_ms, random, (let or {}).values()))
        return context

    def begin(self, values: Values) -> None:
        """These are the values from now on."""
        self.values[:] = values

    def scope(self, document: Document) -> Scope:
        """Where an expression over this document is evaluated. It may be used again with another at 0 and 1."""
        return [document, document, *[None] * (self._frame[0] - 2)]

    # While compiling.

    def place(self, name: str) -> tuple[bool, int]:
        """Whether the variable is bound by an expression, and its place in the scope, or in the values of the run."""
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
        """A context in which these are variables, and their places in the scope."""
        inner = Context.__new__(Context)
        inner.key, inner.values, inner._let, inner._count = self.key, self.values, self._let, self._count
        inner._frame, inner.score = self._frame, self.score
        first = self._frame[0]
        self._frame[0] += len(names)
        places = list(range(first, self._frame[0]))
        inner._local = {**self._local, **dict(zip(names, places, strict=True))}
        return inner, places

    def nested(self, let: Iterable[str] = ()) -> Context:
        """For a pipeline inside this one. Its values are this one's and then those of its own `let`."""
        inner = Context((), self.key)
        first = RANDOM + 1 + self._count
        own = {name: first + place for place, name in enumerate(let)}
        inner._let = {**self._let, **own}
        inner._count = self._count + len(own)
        return inner
