"""The protocol through which queries call user-defined functions, implemented by `scripts/functions.py`. `Run` is
passed to generated code and counts the calls, rows and memory of one execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from armillary.languages.sql.syntax.check import not_yet
from armillary.model.values import UNDEFINED, Value
from armillary.query.selection import Meter


class UserFunctions(Protocol):
    """The user-defined functions of a container."""

    def check_function(self, name: str) -> None:
        """Called for each function that a query uses, before it runs. Raises a Failure if it does not exist."""

    async def ready(self) -> None:
        """Prepare for calls; awaited before the query runs."""

    def call_function(self, name: str, arguments: Sequence[Value]) -> Value:
        """Call a function. Raises a Failure if it does not exist, throws, or exceeds its time limit."""


class Run(Meter):
    """One execution of a query, as generated code sees it."""

    __slots__ = ("_functions",)

    def __init__(self, functions: UserFunctions | None, names: Iterable[str]) -> None:
        super().__init__()
        self._functions = functions
        for name in names:
            if functions is None:
                raise not_yet(f"The user-defined function udf.{name}")
            functions.check_function(name)

    def call_user_function(self, name: str, arguments: Sequence[Value]) -> Value:
        assert self._functions is not None, "the constructor refuses such queries"
        if any(argument is UNDEFINED for argument in arguments):
            return UNDEFINED
        self.user_calls += 1
        return self._functions.call_function(name, arguments)
