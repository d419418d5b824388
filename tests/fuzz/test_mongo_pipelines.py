"""Operators and stages of aggregation with arguments that are anything: each gives a value that can be stored or a
refusal with a code, and nothing else happens."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from support.mongo_pipelines import aggregate
from support.portions import first

from armillary.errors import Failure
from armillary.languages.mongo import pipeline
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions import accumulator_operators, compile_over_documents, compiling
from armillary.languages.mongo.indexes.vector_indexes import VectorIndex
from armillary.languages.mongo.stages import window_functions
from armillary.languages.mongo.stages.vector_search import Searchable
from armillary.model.bson.bson_values import MISSING, encode

SEEDS = [random.Random(20240603 + place).getrandbits(32) for place in range(4)]
INPUTS = 5_000

SCALARS: list[Any] = [
    *(0, 1, 2, -1, 2**31 - 1, Int64(2**62), 1.5, float("nan"), float("inf"), -0.0, 1e300),
    *(Decimal128("1.5"), Decimal128("NaN"), Decimal128("1E+6000"), None, True, False),
    *("", "a", "é", "$a", "$b.c", "$$ROOT", "$$this", "$$KEEP", "$$nope", "a.b", "$", "$$", "%Y", "UTC", "int", "day"),
    *("month", "monday", "approximate", "unbounded", "current", "full"),
    *(DatetimeMS(0), DatetimeMS(2**62), DatetimeMS(-(2**62)), ObjectId("5f0000000000000000000001"), Timestamp(1, 1)),
    *(Regex("a(b)?"), MinKey(), MaxKey(), Binary(b"x" * 16, 4), b"ab", Code("x"), Code("x", {}), DBRef("a", 1)),
]
OPERATORS = list(compiling._OPERATORS)
AGGREGATES = list(accumulator_operators._AGGREGATES)
WINDOWS = [*AGGREGATES, *window_functions._UNBOUND, *window_functions._BOUND]
STAGES = sorted(
    {*pipeline._TRANSFORMS, *pipeline._STAGES, *pipeline._JOINING, *pipeline._FIRST, *pipeline._LAST, "$match", "$sort"}
)
NAMES = (
    "input in as cond initialValue vars n sortBy output default by window documents range unit date timezone format "
    "onNull onError to dateString startDate endDate amount binSize startOfWeek field value inputs regex options find "
    "replacement chars branches case then k v year month isoWeekYear p method from localField foreignField let "
    "pipeline startWith maxDepth coll near key query path size groupBy boundaries buckets granularity partitionBy "
    "step bounds N alpha into on whenMatched newRoot a b _id limit"
).split()
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1, "a": 1, "b": {"c": [1, 2]}},
    {"_id": 2, "a": "x", "b": [{"c": 1}]},
    {"_id": 3, "a": None},
    {"_id": 4, "a": [1, None, "z"], "b": 5},
    {"_id": 5, "a": DatetimeMS(2**61), "b": DatetimeMS(0)},
    {"_id": 6, "a": Decimal128("NaN"), "b": DBRef("c", 1)},
    {"_id": 8, "a": [1, Decimal128("1.5"), Int64(2)]},
    {"_id": 7, "a": {"type": "Point", "coordinates": [1, 2]}},
]

FACTS = [
    pipeline.Facts(
        is_database=is_database,
        searchable=lambda: Searchable((VectorIndex("a", "COS", 3, is_compressed=True),), frozenset("ab")),
    )
    for is_database in (False, True)
]


class Scribe:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.choose = self.random.choice

    def value(self, depth: int = 0) -> Any:
        dice = self.random.random()
        if depth > 3 or dice < 0.55:
            return self.choose(SCALARS)
        if dice < 0.7:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if dice < 0.85:
            return self.operator(depth + 1)
        if dice < 0.92:
            return {self.choose([*WINDOWS, *STAGES]): self.value(depth + 1)}
        return {self.choose(NAMES): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def operator(self, depth: int = 0) -> dict[str, Any]:
        """With as many arguments as it takes, of the right names, mostly."""
        name = self.choose(OPERATORS)
        known = compiling._OPERATORS[name]
        if isinstance(known, compiling.Named) and self.random.random() < 0.9:
            given = [*known.required, *[each for each in known.optional if self.random.random() < 0.5]]
            return {name: {each: self.value(depth + 1) for each in given}}
        if isinstance(known, compiling.Function) and self.random.random() < 0.9:
            count = self.random.randrange(known.least, (known.most or 3) + 1)
            return {name: [self.value(depth + 1) for _ in range(count)]}
        return {name: self.value(depth + 1)}

    def stage(self) -> dict[str, Any]:
        name = self.choose(STAGES)
        inner = [{self.choose(STAGES): self.value(2)}]
        shaped: dict[str, Any] = {
            "$group": {"_id": self.value(2), "x": {self.choose(AGGREGATES): self.value(2)}},
            "$setWindowFields": {
                "partitionBy": self.choose(["$b", None]),
                "sortBy": self.choose([{"a": 1}, {"_id": 1}, {"a": -1, "b": 1}]),
                "output": {
                    "x.y": {
                        self.choose(WINDOWS): self.value(2),
                        self.choose(["window", "a"]): self.choose(
                            [{"documents": [self.value(3), 1]}, {"range": [-1, 1], "unit": "day"}, {"range": [-1, 2]}]
                        ),
                    }
                },
            },
            "$densify": {"field": "a", "range": {"step": self.value(3), "bounds": self.choose(["full", [0, 9]])}},
            "$fill": {
                "sortBy": {"_id": 1},
                "output": {"a": self.choose([{"method": "linear"}, {"value": self.value(2)}])},
            },
            "$bucket": {"groupBy": "$a", "boundaries": [self.value(3), self.value(3)], "default": self.value(3)},
            "$bucketAuto": {
                "groupBy": "$_id",
                "buckets": self.value(3),
                "granularity": self.choose(["R5", "POWERSOF2"]),
            },
            "$lookup": {"from": "o", "let": {"z": self.value(3)}, "pipeline": inner, "as": "b.c"},
            "$graphLookup": {
                "from": "o",
                "startWith": self.value(3),
                "connectFromField": "a",
                "connectToField": "b.c",
                "as": "x",
            },
            "$facet": {"x": inner},
            "$geoNear": {"near": self.choose([[0, 0], self.value(2)]), "key": "a", "distanceField": "d"},
            "$search": {
                "cosmosSearch": {
                    "vector": self.choose([[1, 2, 0.5], self.value(2)]),
                    "path": self.choose(["a", self.value(3)]),
                    "k": self.choose([2, self.value(3)]),
                    self.choose(["filter", "exact", "nProbes", "oversampling"]): self.value(3),
                }
            },
            "$vectorSearch": {"queryVector": [1, self.value(3), 0], "path": "a", "limit": self.value(3)},
        }
        if name in shaped and self.random.random() < 0.7:
            return {name: shaped[name]}
        return {name: self.value(1)}


def check(failure: Failure, what: str) -> None:
    assert type(failure.details.get("code")) is int, what


@pytest.mark.parametrize("seed", first(1, SEEDS))
def test_operators(seed: int) -> None:
    scribe = Scribe(seed)
    for _ in range(INPUTS):
        spec = scribe.operator()
        try:
            evaluate = compile_over_documents(spec, Context.of(10**12, scribe.random.random))
        except Failure as failure:
            check(failure, f"seed {seed}: {spec}")
            continue
        for document in DOCUMENTS:
            try:
                value = evaluate(document)
            except Failure as failure:
                check(failure, f"seed {seed}: {spec}")
            else:
                if value is not MISSING:
                    encode({"value": value})


@pytest.mark.parametrize("seed", first(1, SEEDS))
def test_stages(seed: int) -> None:
    scribe = Scribe(seed)
    for _ in range(INPUTS // 2):
        stages = [scribe.stage() for _ in range(scribe.random.randrange(1, 3))]
        command = {"aggregate": scribe.choose(["c", "c", "c", 1]), "pipeline": stages}
        collections = {"c": DOCUMENTS, "o": DOCUMENTS}
        pushes = scribe.random.random() < 0.5
        try:
            context = Context.of(10**12, scribe.random.random)
            found = aggregate(collections, command, context, pushes=pushes, facts=FACTS[command["aggregate"] == 1])
        except Failure as failure:
            check(failure, f"seed {seed}: {stages}")
        else:
            for document in found:
                encode(document)
