"""Requests to run a JavaScript function: its source as commands give it, and values in extended JSON both ways. The
function that runs a request is among the values of a run (`expression_context.py`); `scripts/documents.js` answers it
in a process of its own.

JavaScript has one type of number: integers come back as doubles, as from MongoDB. A 64-bit integer beyond 2^53 is a
NumberLong there, and stays one if it is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bson.code import Code

from armillary import work
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.expression_context import JAVASCRIPT, Context
from armillary.model.bson.bson_json import from_json, to_json
from armillary.model.bson.bson_values import MISSING, Document, type_name
from armillary.model.values import UNDEFINED

_IS_FUNCTION: Final = re.compile(r"\s*(\(\s*)?(async\s+)?function\b|\s*(\([^()]*\)|[A-Za-z_$][\w$]*)\s*=>")
_RETURNS: Final = re.compile(r"\breturn\b")


class Source(NamedTuple):
    """A function's source, and the global variables that it is given."""

    text: str
    scope: Document

    def with_scope(self, more: Document) -> Source:
        return Source(self.text, {**more, **self.scope})


def source_of(given: Any, name: str) -> Source:
    """The source of a function: a string or BSON's type for code. Text that is not a function is taken for its body, or
    for the expression that it returns."""
    if not isinstance(given, str):
        raise bad_value(f"{name} must be a string or JavaScript code, found {type_name(given)}")
    scope: Document = dict(given.scope or {}) if isinstance(given, Code) else {}
    text = str(given).strip().rstrip(";")
    if not text:
        raise bad_value(f"{name} must not be empty")
    if not _IS_FUNCTION.match(text):
        text = f"function () {{ {'' if _RETURNS.search(text) else 'return '}{text}\n}}"
    return Source(text, scope)


class Scripts:
    """The functions of one compiled command. Which process runs them is known when a run begins."""

    def __init__(self, context: Context) -> None:
        self._values = context.values

    def call(self, source: Source, values: Sequence[Any], this: Any = None) -> Any:
        return self._run(source, "call", this=to_json(this), values=to_json([_present(each) for each in values]))

    def test(self, source: Source, document: Document) -> bool:
        return bool(self._run(source, "test", this=to_json(document)))

    def emitted(self, source: Source, document: Document) -> list[Any]:
        """The keys and values that a function emits."""
        found = self._run(source, "emit", this=to_json(document))
        # Code can change how its context writes JSON, and so what arrives here.
        return [each for each in found if type(each) is dict] if type(found) is list else []

    def fold(self, source: Source, state: Any, rows: list[Any]) -> Any:
        return self._run(source, "fold", state=to_json(state), rows=to_json(rows))

    def _run(self, source: Source, action: str, **given: Any) -> Any:
        request = {"action": action, "source": source.text, **given}
        if source.scope:
            request["scope"] = to_json(source.scope)
        answer = self._values[JAVASCRIPT](request)
        return from_json(_as_doubles(answer)) if answer is not UNDEFINED else None  # JSON has no symbols


def _present(value: Any) -> Any:
    return None if value is MISSING else value


def _as_doubles(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return float(value)
    if kind is list:
        work.spend(3 * len(value))
        return [_as_doubles(each) for each in value]
    if kind is dict and "$timestamp" not in value:
        work.spend(3 * len(value))
        return {name: _as_doubles(each) for name, each in value.items()}
    return value


def check_language(name: str, given: Document) -> None:
    if given.get("lang") != "js":
        raise refusal(4544703, f"{name} has the language 'js' only")
