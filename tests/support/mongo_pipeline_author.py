"""Random aggregation pipelines over small documents whose fields mostly have the types that expressions want, so that
most pipelines run to their end and some are refused on the way."""

from __future__ import annotations

import random
from typing import Any

from bson.decimal128 import Decimal128
from bson.int64 import Int64

NUMBERS: list[Any] = [
    0,
    1,
    2,
    -3,
    7,
    2**31 - 1,
    Int64(5),
    Int64(2**40),
    1.0,
    2.5,
    -0.5,
    Decimal128("1.5"),
    Decimal128("2"),
]
TEXTS = ["", "a", "ab", "B", "grün", "a-b-c"]
GROUPED: list[Any] = [1, 1.0, Int64(2), "a", "b", None, True, [1], {"x": 1}]
ACCUMULATORS = ["$sum", "$avg", "$min", "$max", "$push", "$addToSet", "$first", "$last"]


class PipelineAuthor:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._choose = self._random.choice

    def collections(self) -> dict[str, list[Any]]:
        return {"c": [self._document(n) for n in range(12)], "o": [self._document(n) for n in range(6)]}

    def _document(self, number: int) -> dict[str, Any]:
        document: dict[str, Any] = {
            "n": self._choose(NUMBERS),
            "m": self._choose([*NUMBERS, None]),
            "s": self._choose(TEXTS),
            "v": [self._choose([*NUMBERS, None]) for _ in range(self._random.randrange(4))],
            "w": [{"x": self._choose(NUMBERS[:5]), "y": self._choose(TEXTS)} for _ in range(self._random.randrange(3))],
            "o": {"p": self._choose(NUMBERS), "q": self._choose(TEXTS)},
            "k": self._choose(GROUPED),
        }
        kept = {name: value for name, value in document.items() if self._random.random() < 0.85}
        return {"_id": number, **kept}

    # Expressions of a kind.

    def _one(self, *writers: Any) -> Any:
        return self._choose(writers)()

    def any(self, depth: int = 0, names: tuple[str, ...] = ()) -> Any:
        return self._one(
            lambda: self.number(depth, names),
            lambda: self.text(depth, names),
            lambda: self.array(depth, names),
            lambda: self.truth(depth, names),
            lambda: {"x": self.number(depth + 1, names), "y": self._choose(["$k", "$nope", "$w.x", "$o"])},
            lambda: self._choose(["$k", "$w.y", "$o.p", "$$ROOT.k", "$$REMOVE", None]),
            lambda: {"$type": self._choose(["$k", "$m", "$v"])},
            lambda: {"$mergeObjects": ["$o", {"p": self.number(depth + 1, names)}]},
        )

    def number(self, depth: int = 0, names: tuple[str, ...] = ()) -> Any:
        if depth > 2 or self._random.random() < 0.35:
            paths = ["$n", "$m", "$o.p", "$_id", *[f"$${name}" for name in names]]
            if self._random.random() < 0.03:
                return self._choose(["$s", "$k", "$v"])  # for refusals
            return self._choose(paths) if self._random.random() < 0.7 else self._choose(NUMBERS)
        inner = depth + 1
        return self._one(
            lambda: {
                self._choose(["$add", "$multiply"]): [
                    self.number(inner, names) for _ in range(self._random.randrange(1, 4))
                ]
            },
            lambda: {"$subtract": [self.number(inner, names), self.number(inner, names)]},
            lambda: {
                self._choose(["$divide", "$mod"]): [
                    self.number(inner, names),
                    self._choose([2, 4.0, -2, Decimal128("2")]),
                ]
            },
            lambda: {"$abs": self.number(inner, names)},
            lambda: {"$cond": [self.truth(inner, names), self.number(inner, names), self.number(inner, names)]},
            lambda: {"$ifNull": [self.number(inner, names), 0]},
            lambda: {"$size": {"$ifNull": [self.array(inner, names), []]}},
            lambda: {self._choose(["$sum", "$avg", "$min", "$max"]): "$v"},
            lambda: {"$sum": [self.number(inner, names), self.number(inner, names)]},
            lambda: {"$strLenCP": {"$ifNull": [self.text(inner, names), ""]}},
            lambda: {
                "$reduce": {"input": "$v", "initialValue": 0, "in": {"$add": ["$$value", {"$ifNull": ["$$this", 1]}]}}
            },
            lambda: {"$let": {"vars": {"z": self.number(inner, names)}, "in": self.number(inner, (*names, "z"))}},
            lambda: {"$cmp": [self.any(inner, names), self.any(inner, names)]},
        )

    def text(self, depth: int = 0, names: tuple[str, ...] = ()) -> Any:
        if depth > 2 or self._random.random() < 0.4:
            return self._choose(["$s", "$o.q", *TEXTS])
        inner = depth + 1
        return self._one(
            lambda: {"$concat": [self.text(inner, names), self.text(inner, names)]},
            lambda: {self._choose(["$toUpper", "$toLower"]): self.text(inner, names)},
            lambda: {"$substrCP": [self.text(inner, names), self._random.randrange(3), self._random.randrange(3)]},
            lambda: {"$first": {"$split": [self.text(inner, names), "-"]}},
        )

    def array(self, depth: int = 0, names: tuple[str, ...] = ()) -> Any:
        if depth > 2 or self._random.random() < 0.4:
            return self._choose(["$v", "$w", "$w.x", ["$n", "$nope", 1]])
        inner = depth + 1
        return self._one(
            lambda: {"$map": {"input": "$v", "as": "e", "in": self.number(inner, (*names, "e"))}},
            lambda: {
                "$filter": {"input": self.array(inner, names), "cond": {"$gt": ["$$this", self.number(inner, names)]}}
            },
            lambda: {"$concatArrays": [self.array(inner, names), self.array(inner, names)]},
            lambda: {"$slice": [self.array(inner, names), self._choose([1, 2, -1])]},
            lambda: {"$reverseArray": [self.array(inner, names)]},
            lambda: {
                self._choose(["$setUnion", "$setIntersection", "$setDifference"]): [
                    self.array(inner, names),
                    self.array(inner, names),
                ]
            },
            lambda: {"$sortArray": {"input": "$v", "sortBy": self._choose([1, -1])}},
            lambda: {"$split": ["$s", "-"]},
            lambda: {"$objectToArray": "$o"},
            lambda: [self.any(inner, names), self.any(inner, names)],
        )

    def truth(self, depth: int = 0, names: tuple[str, ...] = ()) -> Any:
        inner = depth + 1
        if depth > 2:
            return self._choose(["$n", "$k", True])
        return self._one(
            lambda: {
                self._choose(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): [
                    self.any(inner, names),
                    self.any(inner, names),
                ]
            },
            lambda: {self._choose(["$eq", "$lt", "$gte"]): [self.number(inner, names), self.number(inner, names)]},
            lambda: {self._choose(["$and", "$or"]): [self.truth(inner, names), self.truth(inner, names)]},
            lambda: {"$not": [self.any(inner, names)]},
            lambda: {"$in": [self.number(inner, names), {"$ifNull": ["$v", []]}]},
            lambda: {"$isArray": [self.any(inner, names)]},
        )

    # Stages.

    def pipeline(self, depth: int = 0) -> list[Any]:
        return [self._stage(depth) for _ in range(self._random.randrange(1, 5 if depth == 0 else 3))]

    def _filter(self, names: tuple[str, ...] = ()) -> Any:
        return self._one(
            lambda: {"n": {self._choose(["$gt", "$lte", "$ne"]): self._choose(NUMBERS)}},
            lambda: {"v": self._choose(NUMBERS)},
            lambda: {"k": {"$in": [1, "a", None]}, "w.x": {"$exists": True}},
            lambda: {"$expr": self.truth(0, names)},
            lambda: {"s": {"$gte": "a"}, "$expr": self.truth(1, names)},
        )

    def _path(self) -> str:
        return self._choose(["n", "m", "s", "k", "o.p", "_id", "v", "w.x"])

    def _stage(self, depth: int) -> Any:
        return self._one(
            lambda: {"$match": self._filter()},
            lambda: {"$match": self._filter()},
            lambda: {"$project": {"n": 1, "v": 1, "k": 1, "r": self._computed()}},
            lambda: {"$project": {self._choose(["n", "s", "_id"]): 0, "w": 0}},
            lambda: {"$addFields": {self._choose(["n", "r", "o.p", "w.x", "v.z"]): self.any(), "extra": self.number()}},
            lambda: {"$unset": [self._choose(["n", "k", "o"])]},
            lambda: {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"n": self.number()}]}},
            lambda: {"$sort": {self._path(): self._choose([1, -1])}},
            lambda: {"$sort": {"k": 1, "_id": -1}},
            lambda: {"$limit": self._random.randrange(1, 8)},
            lambda: {"$skip": self._random.randrange(4)},
            lambda: {"$count": "n"},
            lambda: {"$unwind": {"path": self._choose(["$v", "$w", "$k"]), **self._unwinding()}},
            lambda: {"$group": {"_id": self.any(1), **self._accumulated()}},
            lambda: {"$group": {"_id": self._choose(["$k", "$s", None]), **self._accumulated()}},
            lambda: {"$sortByCount": "$k"},
            lambda: {"$bucket": {"groupBy": "$n", "boundaries": [-5, 0, 2, 10], "default": "other"}},
            lambda: self._window(),
            lambda: self._joining(depth) if depth < 2 else {"$skip": 1},
        )

    def _computed(self) -> Any:
        """Never 0 or 1 or true, which would mean something else in a projection."""
        while True:
            found = self.any()
            if isinstance(found, (str, list)) or (isinstance(found, dict) and next(iter(found)).startswith("$")):
                return found

    def _unwinding(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._random.random() < 0.4:
            options["preserveNullAndEmptyArrays"] = self._choose([True, False])
        if self._random.random() < 0.4:
            options["includeArrayIndex"] = self._choose(["i", "k"])
        return options

    def _accumulated(self) -> dict[str, Any]:
        rules = {f"r{n}": {self._choose(ACCUMULATORS): self._operand()} for n in range(self._random.randrange(1, 3))}
        return {**rules, "n": {"$sum": self.number(1)}}

    def _operand(self) -> Any:
        """Of an accumulator, which takes an array for a list of operands."""
        found = self.any(1)
        return {"$concatArrays": [found]} if isinstance(found, list) else found

    def _window(self) -> dict[str, Any]:
        window = self._choose([["unbounded", "current"], [-1, 1], ["current", "unbounded"], [-2, 0], [1, 2]])
        name = self._choose(["$sum", "$min", "$max", "$push", "$first", "$last", "$addToSet"])
        outputs = {
            "win": {name: self._choose(["$n", "$m", "$s"]), "window": {"documents": window}},
            "n": {"$sum": "$m"},
        }
        return {
            "$setWindowFields": {"partitionBy": self._choose(["$s", "$m"]), "sortBy": {"_id": 1}, "output": outputs}
        }

    def _joining(self, depth: int) -> Any:
        inner = depth + 1
        return self._one(
            lambda: {"$lookup": {"from": "o", **self._fields(), "as": "j"}},
            lambda: {"$lookup": {"from": "o", **self._variables(self.pipeline(inner)), "as": "j"}},
            lambda: {
                "$lookup": {
                    "from": "o",
                    **self._fields(),
                    **self._variables([{"$addFields": {"z": "$$z"}}]),
                    "as": "o.j",
                }
            },
            lambda: {"$unionWith": {"coll": "o", "pipeline": self.pipeline(inner)}},
            lambda: {"$facet": {"f": self.pipeline(2), "g": self.pipeline(2)}},
        )

    def _fields(self) -> dict[str, Any]:
        names = ["n", "v", "k", "w.x"]
        return {"localField": self._choose(names), "foreignField": self._choose(names)}

    def _variables(self, stages: list[Any]) -> dict[str, Any]:
        return {"let": {"z": "$n"}, "pipeline": [{"$match": self._filter(("z",))}, *stages]}
