"""Reads GraphSON 1, 2 and 3: parsed JSON to values. Typed and untyped values are both taken, since clients mix them.
Parsing JSON and the frames of messages are `doors/gremlin`'s part; `graphson_write` is the other direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import malformed
from armillary.languages.gremlin.formats.message_limits import COMPOUND, ENTRY, SCALAR, Allowance
from armillary.languages.gremlin.syntax import bytecode
from armillary.languages.gremlin.syntax.tokens import FAMILIES
from armillary.languages.gremlin.values.comparing import map_key, unique
from armillary.languages.gremlin.values.dates import from_milliseconds, parse_date, parse_duration
from armillary.languages.gremlin.values.elements import Edge, Path, Property, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import (
    BigInt,
    BulkSet,
    Byte,
    Char,
    Float32,
    Long,
    Set,
    Short,
    Uuid,
    parse_uuid,
)

_EXPONENT_MAX: Final = 10_000


def read(value: Any, allowance: Allowance | None = None) -> Any:
    """Reads a binding, an argument or bytecode."""
    if allowance is None:
        allowance = Allowance()
    kind = type(value)
    if kind is dict:
        allowance.enter(COMPOUND)
        if "@type" in value:
            found = _typed(value["@type"], value.get("@value"), allowance)
        else:
            found = _entries(value, allowance)
        allowance.leave()
        return found
    if kind is list:
        allowance.enter(COMPOUND)
        found = [read(each, allowance) for each in value]
        allowance.leave()
        return found
    allowance.spend(SCALAR)
    if kind is int and not -(2**31) <= value < 2**31:
        return Long(value) if -(2**63) <= value < 2**63 else BigInt(value)
    return value


def _entries(value: dict[str, Any], allowance: Allowance) -> dict[str, Any]:
    allowance.spend(ENTRY * len(value))
    found: dict[str, Any] = {}
    for key, each in value.items():
        if type(each) is str:  # as most are
            allowance.spend(SCALAR)
            found[key] = each
        else:
            found[key] = read(each, allowance)
    return found


def _typed(kind: Any, value: Any, allowance: Allowance) -> Any:
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader(value, allowance)
    if isinstance(kind, str) and kind.startswith("g:"):
        name = kind[2:]
        if name in FAMILIES:
            return bytecode.token_of(name, value)
    if isinstance(kind, str) and kind.endswith("Strategy"):
        # The value is the settings, or since TinkerPop 3.8 an object with the class name and the settings.
        settings = value["conf"] if isinstance(value, dict) and "fqcn" in value and "conf" in value else value
        return bytecode.strategy_of(kind, read(settings, allowance) if settings is not None else {})
    raise malformed(f"GraphSON has no type {str(kind)[:60]!r}.")


def _integer(kind: type[int], bits: int) -> Callable[[Any, Allowance], Any]:
    def reader(value: Any, allowance: Allowance) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits) <= value < (1 << bits):
            raise malformed(f"{str(value)[:40]!r} is not a whole number of {bits + 1} bits.")
        return kind(value)

    return reader


def _number(kind: type[float]) -> Callable[[Any, Allowance], Any]:
    def reader(value: Any, allowance: Allowance) -> Any:
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            return kind(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise malformed(f"{str(value)[:40]!r} is not a number.")
        try:
            return kind(value)
        except OverflowError:
            raise malformed("A number is out of range.") from None

    return reader


def _list(value: Any, allowance: Allowance) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("A list was expected.")
    return [read(each, allowance) for each in value]


def _map(value: Any, allowance: Allowance) -> dict[Any, Any]:
    if isinstance(value, dict):
        return _entries(value, allowance)
    if not isinstance(value, list):
        raise malformed("A list was expected.")
    if len(value) % 2:
        raise malformed("A map has a value for each key.")
    found = {}
    for at in range(0, len(value), 2):
        before = allowance.left
        key = read(value[at], allowance)
        allowance.spend_key(key, before)
        found[map_key(key)] = read(value[at + 1], allowance)
    return found


def _bulk_set(value: Any, allowance: Allowance) -> BulkSet:
    if not isinstance(value, list):
        raise malformed("A list was expected.")
    found = BulkSet()
    for at in range(0, len(value) - 1, 2):
        before = allowance.left
        each, count = read(value[at], allowance), read(value[at + 1], allowance)
        if not isinstance(count, int) or not 0 <= count <= limits.GREMLIN_LIST_MAX - len(found):
            raise malformed("A bulk set holds values with counts.")
        allowance.spend_repeated(count, before)
        found.extend([each] * count)
    return found


def _text(value: Any, allowance: Allowance) -> str:
    if not isinstance(value, str):
        raise malformed("A text was expected.")
    return value


def _uuid(value: Any, allowance: Allowance) -> Uuid:
    found = parse_uuid(value) if isinstance(value, str) else None
    if found is None:
        raise malformed("A UUID was expected.")
    return found


def _date(value: Any, allowance: Allowance) -> datetime:
    number = read(value, allowance)
    if isinstance(number, bool) or not isinstance(number, int):
        raise malformed("A date is a number of milliseconds.")
    return from_milliseconds(number)


def _date_text(value: Any, allowance: Allowance) -> datetime:
    return parse_date(_text(value, allowance))


def _decimal(value: Any, allowance: Allowance) -> Decimal:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 1000:
            raise InvalidOperation
        number = Decimal(str(value))
        if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
            raise InvalidOperation
        return number
    except (InvalidOperation, ValueError):
        raise malformed("A decimal number was expected.") from None


def _big_integer(value: Any, allowance: Allowance) -> BigInt:
    try:
        if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > limits.GREMLIN_DIGITS_MAX:
            raise ValueError
        return BigInt(int(value))
    except ValueError:
        raise malformed("A whole number was expected.") from None


def _duration(value: Any, allowance: Allowance) -> timedelta:
    try:
        length = parse_duration(value) if isinstance(value, str) else None
    except OverflowError:
        raise malformed("A duration is out of range.") from None
    if length is None:
        raise malformed("A duration was expected.")
    return length


def _object(value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or any(name not in value for name in names):
        raise malformed(f"An object with {', '.join(names)} was expected.")
    return value


def _id(value: Any, allowance: Allowance) -> Any:
    return bytecode.id_of(read(value, allowance))


def _vertex(value: Any, allowance: Allowance) -> Vertex:
    given = _object(value, "id")
    return Vertex(_id(given["id"], allowance), _label(given.get("label", "vertex")))


def _label(value: Any) -> str:
    return value if isinstance(value, str) else "vertex"


def _edge(value: Any, allowance: Allowance) -> Edge:
    given = _object(value, "id", "inV", "outV")
    out = Vertex(_id(given["outV"], allowance), _label(given.get("outVLabel")))
    into = Vertex(_id(given["inV"], allowance), _label(given.get("inVLabel")))
    return Edge(_id(given["id"], allowance), _label(given.get("label", "edge")), out, into)


def _vertex_property(value: Any, allowance: Allowance) -> VertexProperty:
    given = _object(value, "id", "value")
    key = given.get("label", "")
    return VertexProperty(_id(given["id"], allowance), _text(key, allowance), read(given["value"], allowance))


def _property(value: Any, allowance: Allowance) -> Property:
    given = _object(value, "key", "value")
    return Property(_text(given["key"], allowance), read(given["value"], allowance))


def _path(value: Any, allowance: Allowance) -> Path:
    given = _object(value, "objects", "labels")
    objects, labels = read(given["objects"], allowance), read(given["labels"], allowance)
    return bytecode.path_of(objects, labels)


def _predicate(value: Any, allowance: Allowance) -> Any:
    given = _object(value, "predicate", "value")
    return bytecode.predicate_of(given["predicate"], read(given["value"], allowance))


def _bytecode(value: Any, allowance: Allowance) -> Any:
    if not isinstance(value, dict):
        raise malformed("Bytecode has source and step.")
    source = [_instruction(each, allowance) for each in _array(value.get("source", []))]
    steps = [_instruction(each, allowance) for each in _array(value.get("step", []))]
    return bytecode.traversal_of(source, steps)


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("Instructions are a list.")
    return value


def _instruction(value: Any, allowance: Allowance) -> list[Any]:
    return [read(each, allowance) for each in _array(value)]


def _binding(value: Any, allowance: Allowance) -> Any:
    return read(_object(value, "key", "value")["value"], allowance)


def _traverser(value: Any, allowance: Allowance) -> Any:
    return read(_object(value, "value")["value"], allowance)


def _lambda(value: Any, allowance: Allowance) -> Any:
    raise bytecode.refuse_lambda()


def _char(value: Any, allowance: Allowance) -> Char:
    if not isinstance(value, str) or len(value) != 1:
        raise malformed("A character was expected.")
    return Char(value)


def _set(value: Any, allowance: Allowance) -> Set:
    before = allowance.left
    values = _list(value, allowance)
    allowance.spend_members(len(values), before)
    return unique(values)


def _strategy(value: Any, allowance: Allowance) -> Any:
    given = _object(value, "fqcn")
    return bytecode.strategy_of(given["fqcn"], read(given.get("conf", {}), allowance))


_READERS: Final[dict[str, Callable[[Any, Allowance], Any]]] = {
    "g:Int32": _integer(int, 31),
    "g:Int64": _integer(Long, 63),
    "g:Double": _number(float),
    "g:Float": _number(Float32),
    "g:List": _list,
    "g:Set": _set,
    "g:Map": _map,
    "g:BulkSet": _bulk_set,
    "g:UUID": _uuid,
    "g:Date": _date,
    "g:Timestamp": _date,
    "g:Class": _text,
    "g:Vertex": _vertex,
    "g:Edge": _edge,
    "g:VertexProperty": _vertex_property,
    "g:Property": _property,
    "g:Path": _path,
    "g:P": _predicate,
    "g:TextP": _predicate,
    "g:Bytecode": _bytecode,
    "g:Binding": _binding,
    "g:Traverser": _traverser,
    "g:Lambda": _lambda,
    "g:TraversalStrategy": _strategy,
    "gx:BigDecimal": _decimal,
    "gx:BigInteger": _big_integer,
    "gx:Byte": _integer(Byte, 7),
    "gx:Int16": _integer(Short, 15),
    "gx:Char": _char,
    "gx:Duration": _duration,
    "gx:OffsetDateTime": _date_text,
    "gx:ZonedDateTime": _date_text,
    "gx:Instant": _date_text,
    "gx:LocalDate": _date_text,
    "gx:LocalDateTime": _date_text,
}


def special_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
