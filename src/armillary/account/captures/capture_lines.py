"""The lines of a capture's file: one JSON object for each note. `docs/foresight.md` has the format;
`insight/captures.py` reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import orjson

from armillary import limits
from armillary.account.captures.notes import Note, QueryNote, Request
from armillary.account.captures.value_digests import Digests, is_scalar, leaves
from armillary.errors import Kind
from armillary.model.indexes.index_paths import path_text
from armillary.model.keys import Key, PartitionKeyDefinition
from armillary.model.values import UNDEFINED, as_double
from armillary.partition.operations import Result
from armillary.query.conditions import And, Condition, Equal, In, Nothing, Range

Statuses = Mapping[Result | Kind, tuple[int, int]]  # as answers of the SQL protocol have them; its door gives the table
Line = dict[str, Any]

_WRITES: Final = frozenset((Result.CREATED, Result.REPLACED))
_NO_STATUS: Final = (0, 0)
_SURROGATE: Final = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")  # as json.dumps writes one, alone or in a pair


class Read(Protocol):
    """What a point read has answered."""

    result: Result
    payload: bytes | None
    charge_ru: float


# Request, key, id, result, charge, size of the item or -1 if there is none, id of the partition, time.
PointRead: TypeAlias = tuple[Request, Key | None, str, Result, float, int, int, float]


class Lines:
    """Makes the lines of one capture."""

    def __init__(
        self, digests: Digests, key: PartitionKeyDefinition | None, statuses: Statuses, *, keeps_values: bool
    ) -> None:
        self._digests = digests
        self._statuses = statuses
        self._keeps_values = keeps_values
        steps = key.steps if key is not None else ()
        self._key_paths = [(path_text(each), each) for each in steps]
        self._values: dict[str, Any] = {}  # of the line that is being made

    def line(self, note: Note, request: Request, parts: Sequence[int], t_ms: int) -> bytes:
        status, sub = self._statuses.get(note.outcome, _NO_STATUS)
        line: Line = {"t": t_ms, "door": request.door, "op": note.operation, "status": status}
        if sub:
            line["sub"] = sub
        line["ru"] = round(note.charge_ru, 2)
        line["parts"] = parts
        line["rows"] = note.rows
        line["bytes"] = note.size_bytes
        if note.key is not None:
            line["key"] = [self._digest(each) for each in note.key]
        if note.item_id is not None:
            line["id"] = self._digest(note.item_id)
        if note.is_grouped or request.group is not None:
            line["group"] = self._digests.of(request.group or request.activity)
        if not note.is_alone:
            line["run"] = self._digests.of(request.activity)
        if note.outcome in _WRITES:
            document = _document(note)
            if document is not None:
                line["leaf"] = self._leaf(document, note.item_id)
        if note.query is not None:
            line["loaded"] = note.loaded
            self._describe(line, note.query, request)
        if self._values:
            line["values"], self._values = self._values, {}
        return _dumped(line)

    def read(self, read: PointRead, t_ms: int) -> bytes:
        """The line of a point read, which is the same as `line` makes, in a fifth of the time."""
        request, key, item_id, result, charge_ru, size_bytes, part, _ = read
        rows = 1
        if size_bytes < 0:
            rows = size_bytes = 0
        if self._keeps_values or request.group is not None or key is None or len(key) != 1:
            note = Note("read", result, charge_ru, key, item_id, rows, size_bytes)
            return self.line(note, request, (part,), t_ms)
        of = self._digests.of
        status, _ = self._statuses.get(result, _NO_STATUS)
        return (
            f'{{"t":{t_ms},"door":"{request.door}","op":"read","status":{status},"ru":{charge_ru!r},"parts":[{part}],'
            f'"rows":{rows},"bytes":{size_bytes},"key":["{of(key[0])}"],"id":"{of(item_id)}"}}\n'
        ).encode()

    def _digest(self, value: Any) -> str:
        digest = self._digests.of(value)
        if self._keeps_values and (kept := readable(value)) is not UNDEFINED:
            self._values[digest] = kept
        return digest

    def _leaf(self, document: Mapping[str, Any], item_id: str | None) -> dict[str, str]:
        found = {} if item_id is None else {"/id": self._digest(item_id)}
        for path, value in leaves(document, self._key_paths):
            if path not in found:
                found[path] = self._digest(value)
        return found

    def _describe(self, line: Line, query: QueryNote, request: Request) -> None:
        condition = query.condition if request.condition is None else request.condition
        equal: dict[str, str] = {}
        lists: dict[str, Any] = {}
        ranges: list[str] = []
        if query.key is not None:
            for (path, _), value in zip(self._key_paths, query.key, strict=False):
                equal[path] = self._digest(value)
        for part in conjunction(condition):
            if isinstance(part, Equal) and part.path not in equal:
                equal[part.path] = self._digest(part.value)
            elif isinstance(part, In) and len(part.values) == 1 and part.path not in equal:
                equal[part.path] = self._digest(part.values[0])
            elif isinstance(part, In):
                some = part.values[: limits.CAPTURE_VALUES_MAX]
                lists[part.path] = {"n": len(part.values), "digests": [self._digest(each) for each in some]}
            elif isinstance(part, Range) and part.path not in ranges:
                ranges.append(part.path)
        order = query.order or request.order
        found = {"eq": equal, "in": lists, "range": ranges, "order": [list(each) for each in order]}
        line.update({name: value for name, value in found.items() if value})
        if request.shape is not None:
            line["shape"] = request.shape


def conjunction(condition: Condition) -> Sequence[Condition]:
    """The conditions that all hold. One that is no conjunction, such as an OR, has none that is known to hold."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return [part for part in parts if not isinstance(part, Nothing)]


def _dumped(line: Line) -> bytes:
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a name or a query has a lone surrogate, which has no UTF-8 form
        text = json.dumps(line).encode("ascii")
        return orjson.dumps(json.loads(_SURROGATE.sub(b"?", text)), option=orjson.OPT_APPEND_NEWLINE)


def _document(note: Note) -> Mapping[str, Any] | None:
    if note.document is not None or note.payload is None:
        return note.document
    try:
        found = orjson.loads(note.payload)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def readable(value: Any) -> Any:
    """What a capture that keeps values writes of one; UNDEFINED: too long, or nothing that JSON has."""
    if not is_scalar(value):
        return UNDEFINED
    if not isinstance(value, str | bool | int | float | None):
        value = str(value)
    if isinstance(value, str):
        # A lone surrogate, which has no UTF-8 form, must not end the capture.
        encoded = value.encode("utf-8", "replace")
        return encoded.decode() if len(encoded) <= limits.CAPTURE_VALUE_BYTES_MAX else UNDEFINED
    return value if not isinstance(value, int) or -(2**63) <= value < 2**63 else as_double(value)
