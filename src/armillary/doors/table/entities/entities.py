"""Entities between the wire and the core: the JSON of a request to the members of an item, and an item to the JSON of
an answer. Which members mean what is in `model/edm.py`; reading and writing the items is `account/`'s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from armillary import limits
from armillary.doors.table.errors import STORAGE_BAD_VALUE, bad_input, refused
from armillary.errors import Failure, Kind
from armillary.model import edm

Members = dict[str, Any]

_ANNOTATION: Final = "@odata.type"
_SYSTEM: Final = "odata."
_TIMESTAMP: Final = "Timestamp"
_KEYS: Final = ("PartitionKey", "RowKey")
_LEFT_OUT_OF_STORAGE: Final = frozenset((_TIMESTAMP,))
_LEFT_OUT: Final = frozenset((_TIMESTAMP, "Etag"))  # the service's own name; it keeps `etag` and `ETag`
_TIME_MIN: Final = edm.parse_ticks("1601-01-01T00:00:00Z")  # the first that a table takes
_NAMES_REMEMBERED_MAX: Final = 64
_is_identifier = re.compile(r"[^\W\d]\w*").fullmatch
_is_plain = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII).fullmatch  # in an address
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?", re.ASCII)


class Sent(NamedTuple):
    """An entity as a request has it. Keys that it leaves out are the address's."""

    partition_key: str | None
    row_key: str | None
    members: Members


def read_entity(body: Any, *, is_storage: bool = False, is_addressed: bool = False) -> Sent:
    """The JSON of a request. What is null is as good as absent; what only the server can know is left out. Azure
    Storage does not mind of what type keys are that the address has too."""
    if type(body) is not dict:
        raise bad_input("An entity must be a JSON object.")
    keys: dict[str, str] = {}
    members: Members = {}
    names = tuple(body)
    # The entities of a table are often all alike; large ones would fill the memory.
    properties = _sent_properties if len(names) <= _NAMES_REMEMBERED_MAX else _sent_properties.__wrapped__
    for name, member, note in properties(names, is_storage):
        value = body[name]
        if value is None:
            continue
        annotation = body[note] if note is not None else None
        if not member:
            is_free = is_storage and is_addressed
            if type(value) is not str or (annotation not in (None, "Edm.String") and not is_free):
                raise bad_input(f"{name} must be a string.")
            keys[name] = value
        elif annotation is None and value.__class__ is str:
            members[member] = {"$t": edm.STRING, "$v": value}
        else:
            members[member] = _read_value(name, value, annotation)
    return Sent(keys.get("PartitionKey"), keys.get("RowKey"), members)


@lru_cache(maxsize=1024)
def _sent_properties(names: tuple[str, ...], is_storage: bool) -> tuple[tuple[str, str, str | None], ...]:
    """Of the names in a body those of properties: with where each is kept (empty for the keys) and its annotation, if
    it has one."""
    left_out = _LEFT_OUT_OF_STORAGE if is_storage else _LEFT_OUT
    found = []
    for name in names:
        if name.endswith(_ANNOTATION) or name.startswith(_SYSTEM) or name in left_out:
            continue
        note = name + _ANNOTATION
        found.append((name, "" if name in _KEYS else _member(name), note if note in names else None))
    return tuple(found)


def _member(name: str) -> str:
    """Where a property is kept, if it can have that name."""
    if len(name) > limits.TABLE_PROPERTY_CHARACTERS_MAX:
        raise refused("PropertyNameTooLong", "The property name exceeds the maximum allowed length (255).")
    if not _is_identifier(name):
        details = {"table_code": "PropertyNameInvalid", "storage_text": "The property name is invalid."}
        raise Failure(Kind.BAD_REQUEST, f"The property name '{name}' is invalid.", details=details)
    return edm.member_name(name)


def item_of(partition_key: str, row_key: str, members: Members) -> dict[str, Any]:
    return {"id": edm.item_id(row_key), edm.ROW_KEY: row_key, edm.PARTITION_KEY: partition_key, **members}


def _read_value(name: str, value: Any, annotation: Any) -> Members:
    kind = _NATURAL.get(type(value)) if annotation is None else None
    if annotation is not None:
        kind = edm.TYPES.get(annotation) if type(annotation) is str else None
        if kind is None:
            raise bad_input(f"The type of '{name}' is not one of {', '.join(edm.TYPES)}.")
    if kind is None:
        raise bad_input(f"'{name}' is an object or an array, which properties of tables cannot be.")
    try:
        return {"$t": kind, "$v": _READERS[kind](value)}
    except ValueError:
        raise bad_input(f"The value of '{name}' is no {edm.NAMES[kind]}.", STORAGE_BAD_VALUE) from None


_NATURAL: Final = {bool: edm.BOOLEAN, int: edm.INT32, float: edm.DOUBLE, str: edm.STRING}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(value)
    return value


def _truth(value: Any) -> bool:
    if type(value) is bool:
        return value
    word = _text(value).lower()
    if word not in ("true", "false"):
        raise ValueError(value)
    return word == "true"


def _whole(value: Any, low: int, high: int) -> int:
    return edm.parse_int(str(value) if type(value) is int else _text(value), low, high)


def _double(value: Any) -> float | str:
    if type(value) is str:
        if value in edm.SPECIAL_DOUBLES:
            return value
        if not _DECIMAL.fullmatch(value):
            raise ValueError(value)
    elif type(value) is not int and type(value) is not float:
        raise ValueError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _moment(value: Any) -> str:
    ticks = edm.parse_ticks(_text(value))
    if ticks < _TIME_MIN:
        raise ValueError(value)
    return edm.stored_ticks(ticks)


_READERS: Final[Mapping[int, Callable[[Any], Any]]] = {
    edm.STRING: _text,
    edm.BOOLEAN: _truth,
    edm.INT32: lambda value: _whole(value, edm.INT32_MIN, edm.INT32_MAX),
    edm.INT64: lambda value: str(_whole(value, edm.INT64_MIN, edm.INT64_MAX)),
    edm.DOUBLE: _double,
    edm.DATETIME: _moment,
    edm.GUID: lambda value: edm.parse_guid(_text(value)),
    edm.BINARY: lambda value: edm.encode_binary(edm.decode_binary(_text(value))),
}


# What is answered.


class Form(NamedTuple):
    """How entities are to look: how much is said about them, and which of their properties are wanted."""

    level: str = "minimal"  # no, minimal or full
    wanted: frozenset[str] | None = None  # None: all
    place: str = ""  # of full metadata: the table's address
    type_name: str = ""  # of full metadata
    table: str = ""


def entity_json(document: Mapping[str, Any], form: Form) -> dict[str, Any] | None:
    """An item as an entity; None if it is none: something that another door wrote and that has not the form."""
    partition_key, row_key = document.get(edm.PARTITION_KEY), document.get(edm.ROW_KEY)
    if type(partition_key) is not str or type(row_key) is not str or edm.item_id(row_key) != document["id"]:
        return None
    moment = edm.full_moment_text(edm.written_ticks(document))
    entity: dict[str, Any] = {}
    if form.level != "no":
        if form.level == "full":
            link = edit_link(form.table, partition_key, row_key)
            entity["odata.type"] = form.type_name
            entity["odata.id"] = f"{form.place}/{link}"
        entity["odata.etag"] = etag_text(moment)
        if form.level == "full":
            entity["odata.editLink"] = link
    wanted = form.wanted
    if wanted is None or "PartitionKey" in wanted:
        entity["PartitionKey"] = partition_key
    if wanted is None or "RowKey" in wanted:
        entity["RowKey"] = row_key
    if wanted is None or _TIMESTAMP in wanted:
        if form.level == "full":
            entity[_TIMESTAMP + _ANNOTATION] = "Edm.DateTime"
        entity[_TIMESTAMP] = moment
    is_typed = form.level != "no"
    members = tuple(document)
    properties = _properties if len(members) <= _NAMES_REMEMBERED_MAX else _properties.__wrapped__
    for member, name in properties(members):
        value = document[member]
        if value.__class__ is not dict or len(value) != 2:
            return None
        show = _SHOWN.get(value.get("$t"))
        shown = show(value.get("$v")) if show is not None and name else None
        if shown is None:
            return None
        if wanted is not None and name not in wanted:
            continue
        annotation, plain = shown
        if annotation is not None and is_typed:
            entity[name + _ANNOTATION] = annotation
        entity[name] = plain
    return entity


@lru_cache(maxsize=1024)
def _properties(members: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Which members of an item are properties, and their names; empty for those that are none."""
    return tuple((member, edm.property_name(member) or "") for member in members if member not in _NOT_PROPERTIES)


_NOT_PROPERTIES: Final = frozenset(
    ("id", edm.ROW_KEY, edm.PARTITION_KEY, "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn", "ttl")
)


# The annotation and the value that is shown of a stored one; None if it is no value of its type.
_Shown = tuple[str | None, Any] | None


def _shown_double(value: Any) -> _Shown:
    if value.__class__ is float:
        # A client that knows one type of numbers only would take it for a whole one.
        return ("Edm.Double" if value.is_integer() else None), value
    if value.__class__ is int:
        return "Edm.Double", float(value)
    return ("Edm.Double", value) if value in edm.SPECIAL_DOUBLES else None


def _shown_moment(value: Any) -> _Shown:
    text = _moment_text(value) if value.__class__ is str else None
    return ("Edm.DateTime", text) if text is not None else None


@lru_cache(maxsize=4096)
def _moment_text(stored: str) -> str | None:
    ticks = edm.ticks_in(stored)
    return edm.moment_text(ticks) if ticks is not None else None


def _shown_int32(value: Any) -> _Shown:
    return (None, value) if value.__class__ is int and edm.INT32_MIN <= value <= edm.INT32_MAX else None


_SHOWN: Final[Mapping[Any, Callable[[Any], _Shown]]] = {
    edm.STRING: lambda value: (None, value) if value.__class__ is str else None,
    edm.INT32: _shown_int32,
    edm.BOOLEAN: lambda value: (None, value) if value.__class__ is bool else None,
    edm.DATETIME: _shown_moment,
    edm.DOUBLE: _shown_double,
    edm.INT64: lambda value: ("Edm.Int64", value) if edm.is_stored_int64(value) else None,
    edm.GUID: lambda value: ("Edm.Guid", value) if value.__class__ is str else None,
    edm.BINARY: lambda value: ("Edm.Binary", value) if value.__class__ is str else None,
}


def etag_text(moment: str) -> str:
    """The etag of an entity: its Timestamp, as clients without metadata make it of that themselves."""
    return f"W/\"datetime'{moment.replace(':', '%3A')}'\""


def edit_link(table: str, partition_key: str, row_key: str) -> str:
    return f"{table}(PartitionKey='{quoted(partition_key)}',RowKey='{quoted(row_key)}')"


def quoted(key: str) -> str:
    if _is_plain(key):
        return key
    return quote(key.replace("'", "''"), safe="'")


_TAIL_BYTES: Final = 200  # of an item: its rid and its etag are in them, which no other version of any item shares
_ENTRY_BYTES: Final = 200  # what keeping one takes beside its texts


class Rendered:
    """A cache of entities as JSON text: pages and points are often read again, and rendering takes longer than reading.
    Keyed by the end of the item, which has its etag. Bounded by bytes; the oldest are evicted first."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, bytes], bytes] = {}
        self._size_bytes = 0

    def text(self, payload: bytes, form: Form) -> bytes:
        """An item as the JSON of an entity; empty if it is none."""
        if form.level == "full" or form.wanted is not None:
            return _made(payload, form)
        key = (form.level, payload[-_TAIL_BYTES:])
        text = self._texts.get(key)
        if text is None:
            text = _made(payload, form)
            self._keep(key, text)
        return text

    def _keep(self, key: tuple[str, bytes], text: bytes) -> None:
        self._texts[key] = text
        self._size_bytes += len(text) + _TAIL_BYTES + _ENTRY_BYTES
        while self._size_bytes > limits.TABLE_RENDERED_BYTES_MAX:
            oldest = next(iter(self._texts))
            self._size_bytes -= len(self._texts.pop(oldest)) + _TAIL_BYTES + _ENTRY_BYTES


def _made(payload: bytes, form: Form) -> bytes:
    entity = entity_json(orjson.loads(payload), form)
    return orjson.dumps(entity) if entity is not None else b""


_find_illegal = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]").search


def check_keys(partition_key: str | None, row_key: str | None, *, is_storage: bool) -> tuple[str, str]:
    if partition_key is None or row_key is None:
        missing = "PartitionKey" if partition_key is None else "RowKey"
        raise refused(
            "PropertiesNeedValue",
            f"The values are not specified for all properties in the entity. {missing} is missing.",
        )
    if not is_storage and (not partition_key or not row_key):
        raise bad_input("PartitionKey/RowKey cannot be empty.")
    for name, key in (("PartitionKey", partition_key), ("RowKey", row_key)):
        if _find_illegal(key):
            raise _out_of_range(
                name, "it has a character out of / \\ # ? or a control character", is_storage=is_storage
            )
        if is_storage:
            if len(key.encode("utf-16-le", "surrogatepass")) > limits.STORAGE_KEY_BYTES_MAX:
                raise _out_of_range(name, "it is longer than 1 KiB of UTF-16", is_storage=True)
        else:
            is_row = name == "RowKey"
            most = limits.TABLE_ROW_KEY_BYTES_MAX if is_row else limits.TABLE_PARTITION_KEY_BYTES_MAX
            # Four bytes a character are the most, so the usual key is never encoded to be measured.
            if 4 * len(key) > most and len(key.encode("utf-8", "surrogatepass")) > most:
                raise _out_of_range(name, f"it has more than {most} bytes of UTF-8", is_storage=False)
    return partition_key, row_key


def _out_of_range(name: str, reason: str, *, is_storage: bool) -> Failure:
    if is_storage:
        return refused("OutOfRangeInput", f"One of the request inputs is out of range. The {name}: {reason}.")
    return bad_input(f"The {name} cannot be stored: {reason}.")
