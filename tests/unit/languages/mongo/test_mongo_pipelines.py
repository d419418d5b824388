"""Stages of aggregation over plain lists: what the corpus in `conformance/mongo` does not have, limits, refusals, and
that one compiled pipeline can be run by several at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from support.limits import WithLimits
from support.mongo_cases import exact
from support.mongo_pipelines import ListCollections, aggregate, gathered, run_pipeline

from armillary.errors import Failure
from armillary.languages.mongo.expression_context import Context, run_values
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.languages.mongo.pipeline import Facts, compile_pipeline, compile_transform
from armillary.languages.mongo.stages.outputs import Merge, Out
from armillary.languages.mongo.stages.stage import Run, of_list
from armillary.model.bson.bson_values import Document

DAY_MS = 86_400_000


def numbered(*fields: Document) -> list[Document]:
    return [{"_id": number, **each} for number, each in enumerate(fields, 1)]


def run(
    stages: list[Any],
    documents: list[Document] | None = None,
    others: dict[str, list[Document]] | None = None,
    facts: Facts | None = None,
    **options: Any,
) -> list[Document]:
    context = Context.of(1_700_000_000_000, random.Random(7).random, **options)
    collections = {**(others or {}), "c": documents or []}
    return aggregate(collections, {"aggregate": "c", "pipeline": stages}, context, facts=facts)


def code_of(stages: Any, documents: list[Document] | None = None, **options: Any) -> int:
    with pytest.raises(Failure) as caught:
        run(stages, documents or [{"_id": 1}], **options)
    return int(caught.value.details["code"])


def same(found: list[Document], expected: list[Document]) -> bool:
    assert [exact(each) for each in found] == [exact(each) for each in expected]
    return True


# Shaping.


def test_fields_are_added_where_they_are_and_through_arrays() -> None:
    documents = numbered({"a": {"x": 1}, "b": [{"y": 1}, 2, [3]], "c": 5})
    assert same(
        run([{"$addFields": {"c": "$a.x", "a.z": 9, "b.y": "$c", "d": {"e": {"f": "$_id"}}}}], documents),
        numbered({"a": {"x": 1, "z": 9}, "b": [{"y": 5}, {"y": 5}, [{"y": 5}]], "c": 1, "d": {"e": {"f": 1}}}),
    )
    assert same(run([{"$set": {"c": "$$REMOVE", "a.x": "$nope"}}, {"$unset": "b"}], documents), numbered({"a": {}}))


def test_projections_keep_leave_out_and_compute() -> None:
    documents = numbered({"a": [{"x": 1, "y": 2}, 3], "b": {"c": 1, "d": 2}, "e": 5})
    assert same(run([{"$project": {"a.x": 1, "b": {"d": 1}}}], documents), numbered({"a": [{"x": 1}], "b": {"d": 2}}))
    assert same(
        run([{"$project": {"_id": 0, "a.y": 0, "e": 0}}], documents), [{"a": [{"x": 1}, 3], "b": documents[0]["b"]}]
    )
    assert same(run([{"$project": {"s": "text", "l": ["$e", 1]}}], documents), numbered({"s": "text", "l": [5, 1]}))


def test_redact_descends() -> None:
    documents = numbered({"level": 1, "in": [{"level": 5, "x": 1}, {"level": 0, "deep": {"level": 9}}], "v": 1})
    stage = {"$redact": {"$cond": [{"$gt": ["$level", 3]}, "$$PRUNE", "$$DESCEND"]}}
    assert same(run([stage], documents), numbered({"level": 1, "in": [{"level": 0}], "v": 1}))
    assert code_of([{"$redact": "$level"}]) == 17053


# Groups.


def test_group_by_object_and_accumulators_of_many() -> None:
    documents = numbered({"k": 1, "v": 3}, {"k": 1.0, "v": 1}, {"v": 2}, {"k": None, "v": None})
    found = run(
        [
            {"$group": {
                "_id": {"k": "$k", "one": {"$literal": 1}},
                "all": {"$push": "$v"},
                "set": {"$addToSet": "$v"},
                "top": {"$topN": {"n": 2, "sortBy": {"v": -1}, "output": "$_id"}},
                "few": {"$minN": {"n": 1, "input": "$v"}},
                "n": {"$count": {}},
                "merged": {"$mergeObjects": {"x": "$v"}},
            }},
        ],
        documents,
    )  # fmt: skip
    assert same(
        found,
        [
            {
                "_id": {"k": 1, "one": 1},
                "all": [3, 1],
                "set": [3, 1],
                "top": [1, 2],
                "few": [1],
                "n": 2,
                "merged": {"x": 1},
            },
            {"_id": {"one": 1}, "all": [2], "set": [2], "top": [3], "few": [2], "n": 1, "merged": {"x": 2}},
            {
                "_id": {"k": None, "one": 1},
                "all": [None],
                "set": [None],
                "top": [4],
                "few": [],
                "n": 1,
                "merged": {"x": None},
            },
        ],
    )


def test_the_only_field_of_a_key_is_null_where_it_is_missing() -> None:
    documents = numbered({"k": None}, {}, {"k": 1})
    found = run([{"$group": {"_id": {"k": "$k"}, "n": {"$sum": 1}}}], documents)
    assert found == [{"_id": {"k": None}, "n": 2}, {"_id": {"k": 1}, "n": 1}]


def test_how_many_are_kept_may_depend_on_the_group() -> None:
    documents = numbered(*[{"k": number % 2, "v": number} for number in range(8)])
    spec = {"$firstN": {"n": {"$cond": [{"$eq": ["$k", 0]}, 1, 3]}, "input": "$v"}}
    assert run([{"$group": {"_id": {"k": "$k"}, "v": spec}}], documents) == [
        {"_id": {"k": 0}, "v": [0]},
        {"_id": {"k": 1}, "v": [1, 3, 5]},
    ]


def test_buckets() -> None:
    documents = numbered(*[{"v": value} for value in (0, 1, 5, 10, 99)])
    assert run([{"$bucketAuto": {"groupBy": "$v", "buckets": 3, "granularity": "R5"}}], documents) == [
        {"_id": {"min": 0.0, "max": 1.6}, "count": 2},
        {"_id": {"min": 1.6, "max": 16.0}, "count": 2},
        {"_id": {"min": 16.0, "max": 100.0}, "count": 1},
    ]
    assert run([{"$bucketAuto": {"groupBy": "$v", "buckets": 2, "granularity": "POWERSOF2"}}], documents) == [
        {"_id": {"min": 0.0, "max": 8.0}, "count": 3},
        {"_id": {"min": 8.0, "max": 128.0}, "count": 2},
    ]
    spec = {"groupBy": "$v", "boundaries": [0, 5, 10], "default": "x", "output": {"s": {"$sum": "$v"}}}
    assert run([{"$bucket": spec}], documents) == [{"_id": 0, "s": 1}, {"_id": 5, "s": 5}, {"_id": "x", "s": 109}]


# Order and numbers of documents.


def test_a_limit_after_a_sort_keeps_few_and_stays_stable() -> None:
    documents = [{"_id": number, "v": number % 7} for number in range(5000)]
    expected = sorted(documents, key=lambda document: document["v"])
    assert run([{"$sort": {"v": 1}}, {"$skip": 3}, {"$limit": 40}], documents) == expected[3:43]
    assert run([{"$sort": {"v": 1}}], documents) == expected


def test_samples_are_of_the_size_asked_for() -> None:
    documents = [{"_id": number} for number in range(50)]
    found = [document["_id"] for document in run([{"$sample": {"size": 10}}], documents)]
    assert len(set(found)) == 10
    assert sorted(document["_id"] for document in run([{"$sample": {"size": 99}}], documents)) == list(range(50))


def test_unwinding_nested_arrays() -> None:
    documents = numbered({"a": {"b": [1, 2]}}, {"a": [{"b": [1]}]}, {"a": {"b": []}})
    stage = {"$unwind": {"path": "$a.b", "includeArrayIndex": "a.i"}}
    assert same(
        run([stage], documents),
        [{"_id": 1, "a": {"b": 1, "i": Int64(0)}}, {"_id": 1, "a": {"b": 2, "i": Int64(1)}}],
    )


# Other collections.


def test_lookup_by_fields_and_pipeline() -> None:
    documents = numbered({"x": 1, "least": 2}, {"x": [1, 2], "least": 0})
    others = {"o": numbered({"y": 1, "v": 1}, {"y": [1, 5], "v": 2}, {"y": 2, "v": 3})}
    stage = {
        "from": "o",
        "localField": "x",
        "foreignField": "y",
        "let": {"least": "$least"},
        "pipeline": [{"$match": {"$expr": {"$gte": ["$v", "$$least"]}}}, {"$project": {"_id": 1}}],
        "as": "found.here",
    }
    found = run([{"$lookup": stage}], documents, others)
    assert [each["found"]["here"] for each in found] == [[{"_id": 2}], [{"_id": 1}, {"_id": 2}, {"_id": 3}]]


def test_lookups_inside_lookups_see_outer_variables() -> None:
    others = {"o": numbered({"v": 1}, {"v": 2}), "p": numbered({"w": 1}, {"w": 2})}
    inner = {
        "from": "p",
        "let": {"v": "$v"},
        "pipeline": [{"$match": {"$expr": {"$eq": ["$w", {"$add": ["$$v", "$$shift"]}]}}}],
        "as": "p",
    }
    outer = {"from": "o", "let": {"shift": "$s"}, "pipeline": [{"$lookup": inner}, {"$sort": {"_id": 1}}], "as": "o"}
    found = run([{"$lookup": outer}], numbered({"s": 0}, {"s": 1}), others, let={"unused": 1})
    assert [[each["p"] for each in document["o"]] for document in found] == [
        [[{"_id": 1, "w": 1}], [{"_id": 2, "w": 2}]],
        [[{"_id": 2, "w": 2}], []],
    ]


def test_lookup_of_made_documents_and_of_nothing() -> None:
    stage = {"pipeline": [{"$documents": [{"a": 1}, {"a": 2}]}, {"$match": {"a": 2}}], "as": "m"}
    assert run([{"$lookup": stage}], [{"_id": 1}]) == [{"_id": 1, "m": [{"a": 2}]}]
    stage = {"from": "none", "localField": "x", "foreignField": "x", "as": "m"}
    assert run([{"$lookup": stage}], [{"_id": 1}]) == [{"_id": 1, "m": []}]


def test_graph_lookup_ends_in_circles_and_at_depths() -> None:
    others = {"g": [{"_id": n, "to": [(n + 1) % 5, (n + 2) % 5], "red": n != 2} for n in range(5)]}
    stage: Document = {
        "from": "g",
        "startWith": "$start",
        "connectFromField": "to",
        "connectToField": "_id",
        "as": "found",
        "depthField": "depth",
    }

    def found(**options: Any) -> dict[int, int]:
        (answer,) = run([{"$graphLookup": {**stage, **options}}], [{"_id": 1, "start": 0}], others)
        return {each["_id"]: each["depth"] for each in answer["found"]}

    assert found() == {0: 0, 1: 1, 2: 1, 3: 2, 4: 2}
    assert found(maxDepth=1) == {0: 0, 1: 1, 2: 1}
    assert found(restrictSearchWithMatch={"red": True}) == {0: 0, 1: 1, 3: 2, 4: 3}


def test_union_and_facets() -> None:
    others = {"o": numbered({"v": 1}, {"v": 2})}
    stage = {"$unionWith": {"coll": "o", "pipeline": [{"$match": {"v": 2}}, {"$set": {"from": "o"}}]}}
    assert run([{"$project": {"_id": 1}}, stage], [{"_id": 9, "x": 1}], others) == [
        {"_id": 9},
        {"_id": 2, "v": 2, "from": "o"},
    ]
    parts = {"all": [], "some": [{"$lookup": {"from": "o", "localField": "x", "foreignField": "v", "as": "o"}}]}
    assert run([{"$facet": parts}], [{"_id": 9, "x": 1}], others) == [
        {"all": [{"_id": 9, "x": 1}], "some": [{"_id": 9, "x": 1, "o": [{"_id": 1, "v": 1}]}]}
    ]


# Windows.

QUANTITIES = numbered(
    {"s": "a", "t": DatetimeMS(0), "q": 1},
    {"s": "a", "t": DatetimeMS(DAY_MS), "q": 2},
    {"s": "a", "t": DatetimeMS(3 * DAY_MS), "q": 4},
    {"s": "b", "t": DatetimeMS(0), "q": 8},
    {"s": "b", "t": DatetimeMS(DAY_MS), "q": None},
    {"s": "b", "t": DatetimeMS(2 * DAY_MS), "q": 16},
)


def windowed(output: Document, order: Document | None = None, partition: Any = "$s") -> list[Any]:
    stage = {"partitionBy": partition, "sortBy": order or {"t": 1}, "output": {"r": output}}
    return [document["r"] for document in run([{"$setWindowFields": stage}], QUANTITIES)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"$sum": "$q"}, [7, 7, 7, 24, 24, 24]),
        ({"$sum": "$q", "window": {"documents": ["unbounded", "current"]}}, [1, 3, 7, 8, 8, 24]),
        ({"$sum": "$q", "window": {"documents": [-1, 0]}}, [1, 3, 6, 8, 8, 16]),
        ({"$sum": "$q", "window": {"documents": [1, 2]}}, [6, 4, 0, 16, 16, 0]),
        ({"$sum": "$q", "window": {"range": [-1, 0], "unit": "day"}}, [1, 3, 4, 8, 8, 16]),
        (
            {"$push": "$q", "window": {"range": [-36, 0], "unit": "hour"}},
            [[1], [1, 2], [4], [8], [8, None], [None, 16]],
        ),
        ({"$first": "$q", "window": {"documents": [-1, 1]}}, [1, 1, 2, 8, 8, None]),
        ({"$rank": {}}, [1, 2, 3, 1, 2, 3]),
        ({"$shift": {"output": "$q", "by": 1}}, [2, 4, None, None, 16, None]),
        ({"$shift": {"output": "$q", "by": -2, "default": "none"}}, ["none", "none", 1, "none", "none", 8]),
        ({"$locf": "$q"}, [1, 2, 4, 8, 8, 16]),
        ({"$linearFill": "$q"}, [1, 2, 4, 8, 12.0, 16]),
        ({"$expMovingAvg": {"input": "$q", "N": 3}}, [1, 1.5, 2.75, 8, None, 12.0]),
        ({"$expMovingAvg": {"input": "$q", "alpha": 0.5}}, [1, 1.5, 2.75, 8, None, 12.0]),
        (
            {"$derivative": {"input": "$q", "unit": "day"}, "window": {"documents": [-1, 0]}},
            [None, 1.0, 1.0, None, None, None],
        ),
        (
            {"$integral": {"input": "$q", "unit": "day"}, "window": {"documents": ["unbounded", "current"]}},
            [0.0, 1.5, 7.5, 0.0, 0.0, 24.0],
        ),
        ({"$covariancePop": ["$q", "$q"]}, [14 / 9] * 3 + [16.0] * 3),
        ({"$covarianceSamp": ["$q", "$q"], "window": {"documents": [0, 0]}}, [None] * 6),
        ({"$count": {}, "window": {"range": ["current", "unbounded"]}}, None),
    ],
)  # fmt: skip
def test_window(output: Document, expected: list[Any] | None) -> None:
    if expected is None:
        assert code_of([{"$setWindowFields": {"sortBy": {"t": 1}, "output": {"r": output}}}], QUANTITIES) == 5429414
    else:
        assert [exact(each) for each in windowed(output)] == [exact(each) for each in expected]


def test_ranks_of_equal_documents() -> None:
    documents = numbered(*[{"v": value} for value in (3, 1, 3, 2)])
    outputs: Document = {name[1:]: {name: {}} for name in ("$rank", "$denseRank", "$documentNumber")}
    found = run([{"$setWindowFields": {"sortBy": {"v": -1}, "output": outputs}}], documents)
    assert [tuple(list(each.values())[1:]) for each in found] == [
        (3, 1, 1, 1),
        (3, 1, 1, 2),
        (2, 3, 2, 3),
        (1, 4, 3, 4),
    ]


def test_ranges_of_numbers_and_decimals() -> None:
    documents = numbered(*[{"v": value} for value in (1, 1.5, Int64(2), Decimal128("3.5"))])
    output = {"n": {"$sum": 1, "window": {"range": [-0.5, 0.5]}}}
    found = run([{"$setWindowFields": {"sortBy": {"v": 1}, "output": output}}], documents)
    assert [each["n"] for each in found] == [2, 3, 2, 1]


# Gaps.


def test_densify_anchors_at_the_least_value() -> None:
    documents = numbered(
        *[{"k": "a", "v": value} for value in (600, 750, 950)], *[{"k": "b", "v": value} for value in (1250, 1700)]
    )

    def found(bounds: Any) -> list[tuple[str, int]]:
        rule = {"step": 200, "bounds": bounds}
        stage = {"field": "v", "partitionByFields": ["k"], "range": rule}
        return [(each["k"], each["v"]) for each in run([{"$densify": stage}], documents)]

    assert found("partition") == [
        *[("a", value) for value in (600, 750, 800, 950)],
        *[("b", value) for value in (1250, 1450, 1650, 1700)],
    ]
    assert found("full") == [
        *[("a", value) for value in (600, 750, 800, 950, 1000, 1200, 1400, 1600)],
        *[("b", value) for value in (600, 800, 1000, 1200, 1250, 1400, 1600, 1700)],
    ]
    assert found([1000, 1400])[:5] == [("a", value) for value in (600, 750, 950, 1000, 1200)]


def test_densify_months_and_its_limit(with_limits: WithLimits) -> None:
    documents = numbered({"t": DatetimeMS(1_706_659_200_000)}, {"t": DatetimeMS(1_714_435_200_000)})
    stage = {"$densify": {"field": "t", "range": {"step": 1, "unit": "month", "bounds": "full"}}}
    days = [int(each["t"]) // DAY_MS for each in run([stage], documents)]
    assert days == [19753, 19782, 19811, 19842, 19843]  # each a month after the one before, which February cuts short
    with_limits(MONGO_DENSIFIED_MAX=1)
    assert code_of([stage], documents) == 5897900


def test_fill() -> None:
    documents = numbered({"v": 1}, {}, {"v": None}, {"v": 7})
    stage = {"sortBy": {"_id": 1}, "output": {"v": {"method": "linear"}, "w": {"value": "$_id"}}}
    assert [(each["v"], each["w"]) for each in run([{"$fill": stage}], documents)] == [
        (1, 1),
        (3.0, 2),
        (5.0, 3),
        (7, 4),
    ]


# Sources and outputs.


def test_documents_from_nothing() -> None:
    context = Context.of(0, random.random)
    command = {"aggregate": 1, "pipeline": [{"$documents": [{"a": {"$add": [1, 1]}}]}, {"$set": {"b": "$a"}}]}
    assert aggregate({}, command, context) == [{"a": 2, "b": 2}]


def test_geo_near() -> None:
    documents = numbered(*[{"at": {"type": "Point", "coordinates": [x, 0]}, "k": x} for x in (3, 0, 1)])
    stage = {
        "near": {"type": "Point", "coordinates": [0, 0]},
        "distanceField": "apart.m",
        "includeLocs": "there",
        "query": {"k": {"$lt": 3}},
        "distanceMultiplier": 0.001,
    }
    found = run([{"$geoNear": stage}, {"$limit": 5}], documents, facts=Facts(geo_paths=("at",)))
    assert [(each["_id"], round(each["apart"]["m"])) for each in found] == [(2, 0), (3, 111)]
    assert found[1]["there"] == {"type": "Point", "coordinates": [1, 0]}
    assert code_of([{"$geoNear": stage}]) == 27
    assert [each["_id"] for each in run([{"$geoNear": {**stage, "key": "at", "minDistance": 10}}], documents)] == [3]


def test_text_scores() -> None:
    documents = numbered({"t": "cats and dogs"}, {"t": "cats"}, {"t": "mice"})
    stages = [
        {"$match": {"$text": {"$search": "cats"}}},
        {"$sort": {"score": {"$meta": "textScore"}}},
        {"$project": {"score": {"$meta": "textScore"}, "twice": {"$multiply": [2, {"$meta": "textScore"}]}}},
    ]
    found = run(stages, documents, facts=Facts(text_index=TextIndex({"t": 1.0})))
    assert [each["_id"] for each in found] == [2, 1]
    assert all(each["twice"] == 2 * each["score"] for each in found)


def test_outputs_are_described() -> None:
    context = Context.of(0, random.random)
    assert compile_pipeline([{"$out": {"db": "d", "coll": "x"}}], context).output == Out("d", "x")
    spec = {
        "into": "t",
        "on": ["a", "b"],
        "let": {"k": "$k"},
        "whenMatched": [{"$set": {"sum": {"$add": ["$sum", "$$new.n", "$$k"]}}}],
        "whenNotMatched": "discard",
    }
    merge = compile_pipeline([{"$merge": spec}], context).output
    assert isinstance(merge, Merge) and merge.on == ("a", "b") and merge.when_not_matched == "discard"
    incoming, values = {"n": 10, "k": 100}, run_values(0, random.random)
    merged = merge.merged({"_id": 1, "sum": 1}, incoming, merge.variables(incoming, values), values)
    assert merged == {"_id": 1, "sum": 111}
    plain = compile_pipeline([{"$merge": "t"}], context).output
    assert isinstance(plain, Merge) and plain.merged({"a": 1, "b": 1}, {"b": 2}, {}, []) == {"a": 1, "b": 2}


def test_transforms_of_updates() -> None:
    transform = compile_transform(
        [{"$set": {"a": {"$add": ["$a", 1]}}}, {"$replaceWith": {"b": "$a"}}], Context.of(0, random.random)
    )
    assert transform({"_id": 1, "a": 1}) == {"b": 2}


# What can be done while reading.


def test_what_leads_is_offered_to_the_reader() -> None:
    context = Context.of(0, random.random)
    pipeline = compile_pipeline(
        [{"$match": {"a": 1}}, {"$match": {"b": 2}}, {"$sort": {"c": 1}}, {"$skip": 2}, {"$limit": 3}, {"$count": "n"}],
        context,
    )
    assert pipeline.leading_filter == {"$and": [{"a": 1}, {"b": 2}]}
    assert (pipeline.leading_sort, pipeline.leading_limit) == ({"c": 1}, 5)
    documents = [{"_id": n, "a": 1, "b": n % 3, "c": -n} for n in range(40)]
    for pushes in (False, True):
        found = asyncio.run(run_pipeline(pipeline, {"c": documents}, "c", context, pushes=pushes))
        assert found == [{"n": 3}]
    assert compile_pipeline([{"$group": {"_id": 1}}], context).leading_limit is None


class Counted:
    """A source that knows how far it was read, and whether it was closed."""

    def __init__(self) -> None:
        self.read = 0
        self.is_closed = False

    async def batches(self) -> Any:
        try:
            for number in range(100):
                self.read += 1
                yield [{"_id": number}]
        finally:
            self.is_closed = True


async def test_a_limit_stops_reading() -> None:
    source = Counted()
    context = Context.of(0, random.random)
    pipeline = compile_pipeline([{"$match": {"_id": {"$gte": 3}}}, {"$limit": 2}, {"$set": {"x": 1}}], context)
    found = await gathered(pipeline.run(source.batches(), Run(list(context.values), ListCollections({}))))
    assert [each["_id"] for each in found] == [3, 4]
    assert source.read == 5 and source.is_closed


@pytest.mark.parametrize(
    "stage",
    [
        {"$set": {"x": 1}},
        {"$unionWith": "o"},
        {"$lookup": {"from": "o", "localField": "_id", "foreignField": "_id", "as": "x"}},
        {"$lookup": {"from": "o", "pipeline": [], "as": "x"}},
        {
            "$graphLookup": {
                "from": "o",
                "startWith": 1,
                "connectFromField": "_id",
                "connectToField": "_id",
                "as": "x",
            }
        },
    ],
)
async def test_whoever_stops_early_closes_what_is_read(stage: Document) -> None:
    source = Counted()
    context = Context.of(0, random.random)
    pipeline = compile_pipeline([stage, {"$set": {"y": 1}}], context)
    batches = pipeline.run(source.batches(), Run(list(context.values), ListCollections({})))
    assert await anext(batches)
    assert not source.is_closed
    await batches.aclose()
    assert source.is_closed


async def test_one_pipeline_runs_for_several_at_a_time() -> None:
    context = Context(["x"])
    lookup = {
        "from": "o",
        "let": {"id": "$_id"},
        "pipeline": [{"$set": {"r": {"$add": ["$$x", "$$id"]}}}],
        "as": "m",
    }
    pipeline = compile_pipeline([{"$lookup": lookup}, {"$set": {"x": "$$x", "m": "$m.r"}}], context)
    collections = ListCollections({"o": [{"_id": n} for n in range(7)]}, 2)

    async def one(x: int) -> list[Document]:
        values = run_values(0, random.random, [x])
        return await gathered(pipeline.run(of_list([{"_id": n} for n in range(1200)]), Run(values, collections)))

    for x, found in enumerate(await asyncio.gather(*[one(x) for x in range(3)])):
        assert found == [{"_id": n, "m": [x + n] * 7, "x": x} for n in range(1200)]


# Limits and refusals.


@pytest.mark.parametrize(
    "stage",
    [
        {"$sort": {"v": 1}},
        {"$group": {"_id": "$_id"}},
        {"$group": {"_id": 1, "all": {"$push": "$$ROOT"}}},
        {"$setWindowFields": {"output": {"n": {"$sum": 1}}}},
        {"$bucketAuto": {"groupBy": "$v", "buckets": 2}},
        {"$facet": {"a": []}},
        {"$sample": {"size": 1000}},
    ],
)
def test_stages_hold_so_much_and_no_more(stage: Document, with_limits: WithLimits) -> None:
    with_limits(MONGO_STAGE_BYTES_MAX=20_000)
    documents = [{"_id": number, "v": "x" * 200} for number in range(100)]
    assert code_of([stage], documents) == 292
    assert run([stage], documents[:10])


def test_a_short_limit_keeps_a_sort_small(with_limits: WithLimits) -> None:
    with_limits(MONGO_STAGE_BYTES_MAX=300_000)
    documents = [{"_id": number, "v": -number, "t": "x" * 50} for number in range(20_000)]
    assert [each["_id"] for each in run([{"$sort": {"v": 1}}, {"$limit": 2}], documents)] == [19_999, 19_998]


def windows_of(order: Document, window: Document) -> Document:
    return {"$setWindowFields": {"sortBy": order, "output": {"a": {"$sum": 1, "window": window}}}}


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        ("x", 14),
        ([1], 14),
        ([{}], 40323),
        ([{"$match": {}, "$limit": 1}], 40323),
        ([{"$nope": 1}], 40324),
        ([{"$search": {}}], 9),
        ([{"$search": {"text": {}}}], 115),
        ([{"$searchMeta": {}}], 115),
        ([{"$match": {}}, {"$search": {"cosmosSearch": {}}}], 40602),
        ([{"$project": {"a": {"$meta": "searchScore"}}}], 40218),
        ([{"$match": 1}], 15959),
        ([{"$match": {"a": {"$near": [0, 0]}}}], 2),
        ([{"$project": {"a": 1, "b": 0}}], 31254),
        ([{"$project": {"a": 0, "b": {"$add": [1]}}}], 31252),
        ([{"$project": {"a": {"$nope": 1}}}], 31325),
        ([{"$project": {"a": {"$add": [{"$nope": 1}]}}}], 168),
        ([{"$project": {"a": {"$elemMatch": {}}}}], 31325),
        ([{"$project": {"a.$": 1}}], 16410),
        ([{"$addFields": {"a": 1, "a.b": 1}}], 40176),
        ([{"$addFields": {"a": {"$nope": 1}}}], 168),
        ([{"$replaceRoot": {"newRoot": 1}}], 40228),
        ([{"$replaceRoot": {}}], 40414),
        ([{"$group": {"_id": 1, "a": {"$nope": 1}}}], 15952),
        ([{"$group": {"_id": 1, "a": {"$sum": 1, "$avg": 1}}}], 40238),
        ([{"$group": {"_id": 1, "a": {"$sum": [1, 2]}}}], 40237),
        ([{"$group": {"_id": 1, "a": {"$accumulator": {}}}}], 4544704),
        ([{"$limit": 1.5}], 5107201),
        ([{"$skip": -1}], 5107200),
        ([{"$count": ""}], 40157),
        ([{"$unwind": {"path": "$a", "x": 1}}], 28811),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [2, 1]}}], 40194),
        ([{"$bucket": {"groupBy": 1, "boundaries": [1, 2]}}], 40202),
        ([{"$bucketAuto": {"groupBy": "$a", "buckets": 1, "granularity": "R7"}}], 40257),
        ([{"$facet": {"a": [{"$facet": {"b": []}}]}}], 40600),
        ([{"$facet": {"a": [{"$out": "x"}]}}], 40600),
        ([{"$lookup": {"from": "o", "as": "x", "pipeline": [{"$out": "x"}]}}], 51047),
        ([{"$lookup": {"from": "o", "as": "x"}}], 9),
        ([{"$lookup": {"as": "x", "pipeline": []}}], 9),
        ([{"$graphLookup": {"from": "o"}}], 40105),
        ([{"$unionWith": {"pipeline": []}}], 9),
        ([{"$out": "x"}, {"$match": {}}], 40601),
        ([{"$limit": 1}, {"$collStats": {}}], 40602),
        ([{"$indexStats": {"a": 1}}], 28803),
        ([{"$currentOp": {}}], 73),
        ([{"$merge": {"into": "x", "whenMatched": "never"}}], 2),
        ([{"$merge": {"into": "x", "whenMatched": [{"$match": {}}]}}], 72),
        ([{"$merge": {"into": "x", "on": []}}], 51187),
        ([{"$setWindowFields": {"output": {"a": {"$rank": {}}}}}], 5371602),
        ([{"$setWindowFields": {"sortBy": {"a": 1}, "output": {"a": {"$rank": {}, "window": {}}}}}], 5371601),
        ([{"$setWindowFields": {"output": {"a": {"$sum": 1, "window": {"documents": [0, 1]}}}}}], 5339901),
        ([windows_of({"a": 1}, {"documents": [1, 0]})], 5339900),
        ([windows_of({"a": -1}, {"range": [0, 1]})], 5339902),
        ([{"$setWindowFields": {"output": {"a": {"$nope": 1}}}}], 9),
        ([{"$densify": {"field": "a", "range": {"step": 0, "bounds": "full"}}}], 5733401),
        ([{"$densify": {"field": "a", "range": {"step": 1, "bounds": "partition"}}}], 5733408),
        ([{"$fill": {"output": {"a": {"method": "linear"}}}}], 605001),
        ([{"$match": {}}] * 1001, 7749501),
    ],
)  # fmt: skip
def test_refusal(stages: Any, code: int) -> None:
    assert code_of(stages) == code


def test_pipelines_in_pipelines_end() -> None:
    stages: list[Any] = []
    for _ in range(21):
        stages = [{"$lookup": {"from": "o", "pipeline": stages, "as": "x"}}]
    assert code_of(stages) == 232


def test_documents_given_are_left_alone() -> None:
    documents = numbered({"a": {"b": [1, {"c": 1}]}, "d": 1}, {"a": {"b": []}, "d": 2})
    before = repr(documents)
    run(
        [
            {"$set": {"a.b.c": 5, "d": "$$REMOVE"}},
            {"$unwind": {"path": "$a.b", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "a.i"}},
            {"$project": {"a.b": 0}},
        ],
        documents,
    )
    assert repr(documents) == before
