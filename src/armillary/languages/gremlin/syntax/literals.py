"""Values that a text writes as calls: datetime('…'), UUID('…'), new Vertex(…), new Date(…).

What is written with signs alone, numbers, lists and maps, is read by `lexer` and `grammar`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.values.dates import from_milliseconds, parse_date
from armillary.languages.gremlin.values.elements import Uuid, Vertex

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
CALLED: Final = frozenset({"datetime", "DateTime", "UUID"})


def called(name: str, arguments: list[Any]) -> datetime | Uuid:
    """One of CALLED."""
    if not arguments:
        raise compilation(f"{name}() without a text has no value here: name it.")
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise compilation(f"{name}() takes a text.")
    return parse_date(arguments[0]) if name != "UUID" else _uuid(arguments[0])


def constructed(name: str, arguments: list[Any]) -> Any:
    """`new …`; strategies are the grammar's part."""
    if name in ("Vertex", "ReferenceVertex"):
        if len(arguments) != 2 or not isinstance(arguments[1], str):
            raise compilation(f"new {name}() takes an id and a label.")
        return Vertex(arguments[0], arguments[1])
    if name == "Date":
        if len(arguments) == 1 and isinstance(arguments[0], int):
            return from_milliseconds(arguments[0])
        if len(arguments) == 1 and isinstance(arguments[0], str):
            return parse_date(arguments[0])
        raise compilation("new Date() takes milliseconds since 1970 or a text here.")
    raise compilation(f"'new {name}' is not supported.")


def _uuid(text: str) -> Uuid:
    if not _UUID.fullmatch(text):
        raise compilation(f"{text[:40]!r} is no UUID.")
    return Uuid(text.lower())
