"""Random documents, filters and updates for MongoDB, small enough that much of them meets: few names, few values."""

from __future__ import annotations

import random
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex

NAMES = ["a", "b", "c"]
PATHS = ["a", "b", "c", "a.b", "a.c", "b.a", "a.0", "a.1", "a.b.c", "b.0.a", "a.0.1", "c.1.b"]
SCALARS: list[Any] = [
    *(
        0,
        1,
        2,
        -3,
        7,
        Int64(1),
        Int64(2**40),
        1.0,
        2.5,
        -0.0,
        float("nan"),
        float("inf"),
        Decimal128("1"),
        Decimal128("2.50"),
    ),
    *(
        "",
        "a",
        "b",
        "ab",
        "ba",
        None,
        True,
        False,
        DatetimeMS(0),
        DatetimeMS(1000),
        ObjectId("5f0000000000000000000001"),
    ),
    *(MinKey(), MaxKey(), b"ab", Regex("^a", 0)),
]
TYPES = ["double", "string", "object", "array", "bool", "null", "int", "long", "decimal", "date", "objectId", "number"]


OPERATORS = "$eq $ne $gt $gte $lt $lte $in $nin $exists $type $size $mod $all $elemMatch $not $regex".split()
UPDATES = "$set $set $unset $inc $mul $min $max $push $addToSet $pop $pull $pullAll $rename".split()


class MongoAuthor:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        dice = self._random.random()
        if dice < 0.6 or depth > 2:
            return self._random.choice(SCALARS if dice < 0.1 else SCALARS[:22])
        if dice < 0.8:
            return [self.value(depth + 1) for _ in range(self._random.randrange(4))]
        return {
            name: self.value(depth + 1) for name in self._random.sample(NAMES, self._random.randrange(len(NAMES) + 1))
        }

    def document(self, number: int) -> dict[str, Any]:
        names = [name for name in NAMES if self._random.random() < 0.8]
        self._random.shuffle(names)
        return {"_id": number, **{name: self.value() for name in names}}

    def path(self) -> str:
        return self._random.choice(PATHS)

    # Filters.

    def filter(self, depth: int = 0) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for _ in range(self._random.choice([1, 1, 1, 2])):
            if depth < 2 and self._random.random() < 0.15:
                name = self._random.choice(["$and", "$or", "$nor"])
                given[name] = [self.filter(depth + 1) for _ in range(self._random.randrange(1, 3))]
            else:
                given[self.path()] = self.condition(depth)
        return given

    def condition(self, depth: int = 0) -> Any:
        if self._random.random() < 0.25:
            value = self.value(1)
            return value if not _begins_with_operator(value) else 1
        names = self._random.sample(OPERATORS, self._random.choice([1, 1, 2]))
        return {name: self._operand(name, depth) for name in names}

    def _operand(self, name: str, depth: int) -> Any:
        match name:
            case "$in" | "$nin":
                return [self.value(1) for _ in range(self._random.randrange(4))]
            case "$all":
                if self._random.random() < 0.3:
                    return [
                        {"$elemMatch": self._operand("$elemMatch", depth)} for _ in range(self._random.randrange(1, 3))
                    ]
                return [self.value(1) for _ in range(self._random.randrange(3))]
            case "$exists":
                return self._random.random() < 0.5
            case "$type":
                return self._random.choice(TYPES) if self._random.random() < 0.7 else self._random.sample(TYPES, 2)
            case "$size":
                return self._random.randrange(4)
            case "$mod":
                return [self._random.choice([2, 3, -2]), self._random.choice([0, 1, -1])]
            case "$regex":
                return self._random.choice(["^a", "b$", "a|b", "^$"])
            case "$not":
                return self.operators(depth + 1)
            case "$elemMatch":
                if depth < 2 and self._random.random() < 0.5:
                    return self.filter(depth + 1)
                return self.operators(depth + 1)
        value = self.value(1)
        return 1 if isinstance(value, Regex) else value

    def operators(self, depth: int) -> dict[str, Any]:
        while True:
            found = self.condition(depth)
            if _begins_with_operator(found):
                return dict(found)

    # Updates.

    def update(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """An update and its array filters."""
        given: dict[str, Any] = {}
        filters: list[dict[str, Any]] = []
        for _ in range(self._random.choice([1, 1, 1, 2, 3])):
            operator = self._random.choice(UPDATES)
            path = self.path()
            if operator != "$rename" and self._random.random() < 0.15:
                kind = self._random.choice(["$[]", "$[x]"])
                path = f"{self._random.choice(NAMES)}.{kind}" + self._random.choice(["", ".a", ".b"])
                if kind == "$[x]" and not filters:
                    filters.append({self._random.choice(["x", "x.a"]): self.condition(2)})
            fields = given.setdefault(operator, {})
            if path not in fields:
                fields[path] = self._amount(operator)
        return given, filters

    def _amount(self, operator: str) -> Any:
        match operator:
            case "$inc" | "$mul":
                return self._random.choice([1, 2.5, Int64(3), Decimal128("0.5"), -1, 2**31 - 1])
            case "$pop":
                return self._random.choice([1, -1])
            case "$unset":
                return ""
            case "$rename":
                return self._random.choice(["d", "d.e", "e"])
            case "$pullAll":
                return [self.value(1) for _ in range(self._random.randrange(3))]
            case "$pull":
                return self.operators(1) if self._random.random() < 0.5 else self.value(1)
            case "$push":
                if self._random.random() < 0.5:
                    return self._clauses()
        value = self.value(1)
        return 1 if isinstance(value, Regex) else value

    def _clauses(self) -> dict[str, Any]:
        clauses: dict[str, Any] = {"$each": [self.value(1) for _ in range(self._random.randrange(3))]}
        for name, values in (("$position", [0, 1, -1, 9]), ("$slice", [0, 2, -2, 9]), ("$sort", [1, -1])):
            if self._random.random() < 0.4:
                clauses[name] = self._random.choice(values)
        return clauses


def _begins_with_operator(value: Any) -> bool:
    return isinstance(value, dict) and next(iter(value), "").startswith("$")
