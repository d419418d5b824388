"""Calls of user-defined functions out of a query: the seam that the scripts fill. One execution of a query counts its
calls and what its joins make here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from armillary.languages.sql.syntax.check import not_yet
from armillary.model.values import UNDEFINED, Value
from armillary.query.selection import Meter


class UserFunctions(Protocol):
    """The functions of a container."""

    def check_function(self, name: str) -> None:
        """Said of each function that a query calls, before it runs. A Failure if there is none of this name."""

    async def ready(self) -> None:
        """To be awaited before the query runs."""

    def call_function(self, name: str, arguments: Sequence[Value]) -> Value:
        """What the function returns. A Failure if it does not exist, throws, or takes too long."""


class Run(Meter):
    """One execution, as compiled code sees it."""

    __slots__ = ("_functions",)

    def __init__(self, functions: UserFunctions | None, names: Iterable[str]) -> None:
        super().__init__()
        self._functions = functions
        for name in names:
            if functions is None:
                raise not_yet(f"The user-defined function udf.{name}")
            functions.check_function(name)

    def call_user_function(self, name: str, arguments: Sequence[Value]) -> Value:
        assert self._functions is not None
        if any(argument is UNDEFINED for argument in arguments):
            return UNDEFINED
        self.user_calls += 1
        return self._functions.call_function(name, arguments)
