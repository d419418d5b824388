"""The arguments of a step while it is built: taken from the left, their number and types checked here and nowhere else.
The functions that build steps from them are registered with `pipeline.builds`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.tokens import Scope, Token
from armillary.languages.gremlin.values.comparing import shown
from armillary.languages.gremlin.values.predicates import P
from armillary.languages.gremlin.values.typed_values import Set

Kind = TypeVar("Kind", bound=Token)


class Arguments:
    """Arguments of one step, taken from the left."""

    def __init__(self, step: str, values: list[Any]) -> None:
        self.step = step
        self.values = list(values)

    def __len__(self) -> int:
        return len(self.values)

    def take(self) -> Any:
        if not self.values:
            raise compilation(f"{self.step}() lacks an argument.")
        return self.values.pop(0)

    def rest(self) -> list[Any]:
        taken, self.values = self.values, []
        return taken

    def end(self) -> None:
        if self.values:
            raise compilation(f"{self.step}() does not take {shown(self.values[0])} there.")

    def is_next(self, *kinds: type) -> bool:
        return bool(self.values) and isinstance(self.values[0], kinds)

    def token(self, family: type[Kind]) -> Kind:
        value = self.take()
        if not isinstance(value, family):
            raise compilation(f"{self.step}() takes a {family.__name__}, not {shown(value)}.")
        return value

    def scope(self) -> Scope:
        """The scope if the next argument is one, otherwise global."""
        return self.token(Scope) if self.is_next(Scope) else Scope.global_

    def text(self) -> str:
        value = self.take()
        if not isinstance(value, str):
            raise compilation(f"{self.step}() takes a text, not {shown(value)}.")
        return value

    def text_or_null(self) -> str | None:
        value = self.take()
        if value is not None and not isinstance(value, str):
            raise compilation(f"{self.step}() takes a text, not {shown(value)}.")
        return value

    def texts(self) -> tuple[str, ...]:
        """All remaining texts, without nulls: no label and no key is null."""
        values = self.rest()
        if len(values) == 1 and isinstance(values[0], list):
            values = list(values[0])
        for value in values:
            if value is not None and not isinstance(value, str):
                raise compilation(f"{self.step}() takes texts, not {shown(value)}.")
        return tuple(value for value in values if value is not None)

    def count(self) -> int:
        value = self.take()
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise compilation(f"{self.step}() takes a whole number, not {shown(value)}.")
        return int(value)

    def traversal(self) -> Traversal:
        value = self.take()
        if not isinstance(value, Traversal):
            raise compilation(f"{self.step}() takes a traversal, not {shown(value)}.")
        return value

    def traversals(self) -> list[Traversal]:
        found = []
        while self.values:
            found.append(self.traversal())
        return found

    def predicate(self) -> P:
        value = self.take()
        if not isinstance(value, P):
            raise compilation(f"{self.step}() takes a predicate, not {shown(value)}.")
        return value


def flattened(values: list[Any]) -> list[Any]:
    """Replaces lists by their members."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Set | list):
            found.extend(value)
        else:
            found.append(value)
    return found
