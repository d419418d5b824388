"""The corpus of MongoDB behaviour: how its cases are written, and when an answer is as expected. Run in process by
`conformance/test_mongo_language.py`; values compare exactly in numeric type and in the order of fields."""

from __future__ import annotations

import base64
import decimal
import json
import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

_CASES = Path(__file__).parents[1] / "conformance" / "mongo"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_cases(name: str = "cases") -> list[dict[str, Any]]:
    """`cases` are the corpus, `own_cases` and `own_find_cases` more of the same form, from MongoDB's documentation and
    its own tests."""
    return [json.loads(line) for line in (_CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]


def _date(value: Any) -> DatetimeMS:
    if isinstance(value, dict):
        return DatetimeMS(int(value["$numberLong"]))
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return DatetimeMS(round((moment - _EPOCH).total_seconds() * 1000))


_TAGS: dict[str, Any] = {
    "$numberLong": lambda value: Int64(int(value)),
    "$numberInt": int,
    "$numberDouble": float,
    "$numberDecimal": Decimal128,
    "$oid": ObjectId,
    "$date": _date,
    "$binary": lambda value: Binary(base64.b64decode(value["base64"]), int(value["subType"], 16)),
    "$regularExpression": lambda value: Regex(value["pattern"], value["options"]),
    "$timestamp": lambda value: Timestamp(value["t"], value["i"]),
    "$minKey": lambda _value: MinKey(),
    "$maxKey": lambda _value: MaxKey(),
    "$code": Code,
}


def decoded(value: Any) -> Any:
    """From Extended JSON; `{$regex, $options}` stays the query operator."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name in _TAGS and not (name == "$binary" and not isinstance(inner, dict)):
            return _TAGS[name](inner)
    return {name: decoded(each) for name, each in value.items()}


def exact(value: Any) -> Any:
    """A form that compares with its types and the order of fields; doubles to 12 digits."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, Int64):
        return ("long", int(value))
    if isinstance(value, int):
        return ("int" if -(2**31) <= value < 2**31 else "long", value)
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return ("double", str(value))
        return ("double", float(f"{value:.12g}"))
    if isinstance(value, Decimal128):
        return ("decimal", str(value))
    if isinstance(value, DatetimeMS):
        return ("date", int(value))
    if isinstance(value, dict):
        return ("document", tuple([(name, exact(each)) for name, each in value.items()]))
    if isinstance(value, list):
        return ("array", tuple([exact(each) for each in value]))
    if isinstance(value, bytes):
        return ("binary", getattr(value, "subtype", 0), bytes(value))
    return (type(value).__name__, repr(value))


def nearly_exact(value: Any) -> Any:
    """The same but for the last digits of decimals, which depend on the order of additions."""
    if isinstance(value, Decimal128):
        return ("decimal", value.to_decimal().normalize(decimal.Context(prec=30)))
    if isinstance(value, dict):
        return ("document", tuple([(name, nearly_exact(each)) for name, each in value.items()]))
    return ("array", tuple([nearly_exact(each) for each in value])) if isinstance(value, list) else exact(value)


def is_same(found: list[Any], expected: list[Any], *, is_ordered: bool = True) -> bool:
    left, right = [exact(each) for each in found], [exact(each) for each in expected]
    return left == right if is_ordered else Counter(map(repr, left)) == Counter(map(repr, right))


def difference(case: dict[str, Any], reply: dict[str, Any], after: list[dict[str, Any]]) -> str | None:
    """What is not as the case expects it, in a reply that is no failure."""
    expected, command = case["expect"], next(iter(case["command"]))
    if "error" in expected:
        errors = reply.get("writeErrors", [])
        if errors and expected["error"] in (True, errors[0]["code"]):
            return None
        return f"expected error {expected['error']}, got {reply}"
    if command in ("find", "aggregate"):
        if not is_same(reply["documents"], decoded(expected["docs"]), is_ordered=expected.get("ordered", False)):
            return f"got {reply['documents']}"
        return None
    if command == "distinct":
        return None if is_same(reply["values"], decoded(expected["values"]), is_ordered=False) else f"got {reply}"
    if command == "count":
        return None if reply["n"] == expected["n"] else f"got {reply}"
    if command == "findAndModify":
        for name, value in expected.get("lastErrorObject", {}).items():
            if reply["lastErrorObject"].get(name) != decoded(value):
                return f"lastErrorObject: {reply['lastErrorObject']}"
        if exact(reply["value"]) != exact(decoded(expected.get("value"))):
            return f"value: {reply['value']}"
    elif (reason := _write_difference(expected, reply)) is not None:
        return reason
    if "after" in expected and not is_same(after, decoded(expected["after"])):
        return f"after: {after}"
    return None


def _write_difference(expected: dict[str, Any], reply: dict[str, Any]) -> str | None:
    for name in ("n", "nModified"):
        if name in expected and reply.get(name) != expected[name]:
            return f"{name}: {reply.get(name)}"
    errors, wanted = reply.get("writeErrors", []), expected.get("writeErrors", [])
    if len(errors) != len(wanted):
        return f"writeErrors: {errors}"
    for found, row in zip(errors, wanted, strict=True):
        if found["index"] != row["index"] or ("code" in row and found["code"] != row["code"]):
            return f"writeErrors: {errors}"
    if "upserted" in expected and not is_same(reply.get("upserted", []), decoded(expected["upserted"])):
        return f"upserted: {reply.get('upserted')}"
    return None
