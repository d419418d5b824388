"""The itemised charge of a request that asks for it with `x-armillary-explain: true`: the header `x-armillary-charge`,
a JSON list of what was done and what it cost, which adds up to `x-ms-request-charge`. A header of our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from armillary.model.charges import Part


def charge_header(parts: Iterable[Part]) -> tuple[bytes, bytes]:
    return b"x-armillary-charge", orjson.dumps([_line(part) for part in parts])


def _line(part: Part) -> dict[str, Any]:
    line: dict[str, Any] = {"what": part.what}
    if part.count:
        line["count"] = part.count
    if part.size_bytes:
        line["bytes"] = part.size_bytes
    line["ru"] = part.ru
    return line
