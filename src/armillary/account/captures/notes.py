"""What a request did, as a capture records it: plain data that visits and pages of queries hand to the recorder of
their container. `capture_lines.py` turns a note into a line of the file.

The request itself (its door, its activity, the text of its query) is in a context variable, which doors set while a
capture of the account runs, and only then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from armillary.errors import Kind
from armillary.model.indexes.index_paths import path_text
from armillary.model.keys import Key
from armillary.partition.operations import Operation, Outcome, Result, Verb
from armillary.query.conditions import And, Condition, Equal, In, Range
from armillary.query.selection import Selection

OrderPaths = Sequence[tuple[str, bool]]  # index paths, and whether each descends


@dataclass(slots=True)
class QueryNote:
    """What a query asks for: the part of its filter that is a conjunction, and its order."""

    condition: Condition
    order: OrderPaths = ()
    key: Key | None = None  # of the logical partition, or a prefix of it, that the request names beside the filter


@dataclass(slots=True)
class Note:
    """One operation. Those of one transaction, and the pages and parts of one query, are notes of their own."""

    operation: str
    outcome: Result | Kind
    charge_ru: float
    key: Key | None = None
    item_id: str | None = None
    rows: int = 0
    size_bytes: int = 0  # of the item or of the rows
    loaded: int = 0  # items that a query has looked at
    document: Mapping[str, Any] | None = None  # that was stored, as JSON or BSON values
    payload: bytes | None = None  # the same as JSON text, where it is not known as values
    query: QueryNote | None = None
    is_grouped: bool = False  # one transaction with the other notes of its request
    is_alone: bool = True  # a point operation, which no other note of its request belongs to


class Request:
    """A request of a client while a capture runs, or while a log or a trace asks for what requests did."""

    __slots__ = ("activity", "condition", "door", "group", "loaded", "order", "partitions", "query", "rows", "shape")

    def __init__(self, door: str, activity: str, group: str | None = None) -> None:
        self.door = door
        self.activity = activity  # the same for all pages of a query
        self.group = group  # of a transaction of several requests
        self.shape: str | None = None  # the query's text without its constants
        self.condition: Condition | None = None  # in place of the one that is searched for
        self.order: OrderPaths = ()
        self.partitions: set[int] = set()  # that it visited
        self.rows = 0
        self.loaded = 0  # items that its query has looked at
        self.query: QueryNote | None = None  # the last page's

    def count(self, notes: Sequence[Note], parts: Sequence[int]) -> None:
        """Add up what was done for it, for logs and traces."""
        self.partitions.update(parts)
        for note in notes:
            self.rows += note.rows
            self.loaded += note.loaded
            self.query = note.query or self.query

    def search_paths(self) -> dict[str, list[str]]:
        """By which paths its query searches and orders, without the values."""
        found: dict[str, list[str]] = {"equal": [], "range": [], "order": []}
        if self.query is None:
            return found
        condition = self.query.condition if self.condition is None else self.condition
        for part in condition.parts if isinstance(condition, And) else (condition,):
            if isinstance(part, Equal | In):
                found["equal"].append(part.path)
            elif isinstance(part, Range):
                found["range"].append(part.path)
        found["order"] += [path for path, _ in self.query.order or self.order]
        return {name: list(dict.fromkeys(paths)) for name, paths in found.items()}


REQUEST: Final[ContextVar[Request | None]] = ContextVar("armillary.captured_request", default=None)
_SHAPE_CHARACTERS_MAX: Final = 2_000
_NAMES: Final = {Verb.CHANGE: "replace", Verb.MERGE: "patch"}


_numbers = count(1)


def begin(door: str, activity: str | None = None, group: str | None = None) -> Request:
    """A door begins to answer a request. Called while a capture of the account runs, or a log or a trace asks for
    details. `activity`: the client's name for the request, if it has given one."""
    request = Request(door, activity or f"{door}-{os.getpid()}-{next(_numbers)}", group)
    REQUEST.set(request)
    return request


def describe(shape: Callable[[], str], condition: Condition | None = None) -> None:
    """Note the shape of the query that the current request runs. `condition`: what its filter says, if that is not the
    condition that is searched for."""
    request = REQUEST.get()
    if request is not None and request.shape is None:
        request.shape = shape()[:_SHAPE_CHARACTERS_MAX]
        request.condition = condition


def describe_order(order: OrderPaths) -> None:
    """Note the order of the current request's query, where that is not part of what is searched for."""
    request = REQUEST.get()
    if request is not None:
        request.order = order


def resume(request: Request | None) -> None:
    """A request goes on with what an earlier one has begun: the next page of a cursor."""
    if request is not None and REQUEST.get() is not None:
        REQUEST.set(request)


def query_note(selection: Selection, key: Key | None) -> QueryNote:
    ordering = selection.ordering
    order: OrderPaths = ()
    if ordering is not None:
        order = [(each.path, each.is_descending) for each in ordering.keys if each.path is not None]
        order = order or [(path_text(field.split(".")), is_descending) for field, is_descending in ordering.fields]
    return QueryNote(selection.condition, order, key)


def note_of(operation: Operation, outcome: Outcome | None, *, is_alone: bool = True, is_grouped: bool = False) -> Note:
    """Of an operation on an item. Without an outcome it failed: the recorder adds why."""
    name = _NAMES.get(operation.verb) or operation.verb.name.lower()
    note = Note(name, Kind.INTERNAL, 0.0, operation.key, operation.item_id, is_alone=is_alone, is_grouped=is_grouped)
    made, verb = operation.draft, operation.verb
    if made is not None:
        note.document, note.size_bytes = made.document, len(made.text)
    if outcome is None:
        return note
    note.outcome, note.charge_ru = outcome.result, outcome.charge_ru
    note.rows = int(outcome.payload is not None)
    if outcome.payload is not None:
        note.size_bytes = len(outcome.payload)
    if verb in (Verb.PATCH, Verb.MERGE):
        note.document, note.payload = None, outcome.payload
    elif outcome.changed is not None:
        note.document = outcome.changed.after
    return note


def spread(notes: Iterable[Note], charge_ru: float) -> list[Note]:
    """Notes whose charges add up to what their partition was charged for all of them: the first has what rounding
    leaves over."""
    found = list(notes)
    for each in found:
        each.charge_ru = round(each.charge_ru, 2)
    if found:
        found[0].charge_ru += charge_ru - sum([each.charge_ru for each in found])
    return found
