"""Expressions of aggregation, family by family: values with their exact types, and the codes of what is refused. The
corpus in `conformance/mongo` has the commonest cases; here are the corners."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from support.limits import WithLimits
from support.mongo_cases import exact

from armillary import limits
from armillary.errors import Failure
from armillary.languages.mongo.collation import parse_collation
from armillary.languages.mongo.expression_context import Context, run_values
from armillary.languages.mongo.expressions import compile_over_documents
from armillary.model.bson.bson_values import MISSING

NOW_MS = 1_700_000_000_123
DAY = DatetimeMS(1_709_212_455_167)  # 2024-02-29T13:14:15.167Z
DOCUMENT: dict[str, Any] = {
    "_id": 1,
    "n": 5,
    "s": "Grün",
    "a": [3, 1, 2],
    "o": {"x": 1, "y": {"z": 2}},
    "d": DAY,
    "rows": [{"k": "b", "v": 1}, {"k": "a", "v": 2}, 7],
    "null": None,
}


def evaluated(spec: Any, document: dict[str, Any] | None = None, **options: Any) -> Any:
    context = Context.of(NOW_MS, random.Random(1).random, **options)
    return compile_over_documents(spec, context)(DOCUMENT if document is None else document)


def code_of(spec: Any) -> int:
    with pytest.raises(Failure) as caught:
        evaluated(spec)
    return int(caught.value.details["code"])


def decimal(text: str) -> Decimal128:
    return Decimal128(text)


VALUES: list[tuple[Any, Any]] = [
    # Paths and variables.
    ("$o.y.z", 2),
    ("$rows.v", [1, 2]),
    ("$a.x", []),
    ("$n.x", MISSING),
    ("$$ROOT.o.x", 1),
    ("$$CURRENT.n", 5),
    ("$$REMOVE", MISSING),
    ("$$NOW", DatetimeMS(NOW_MS)),
    ({"$let": {"vars": {"CURRENT": "$o"}, "in": "$y.z"}}, 2),
    ({"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"}, "in": ["$$x", "$$y"]}}}}, [2, 1]),
    ({"p": "$nope", "q": {"r": "$n"}}, {"q": {"r": 5}}),
    ({}, {}),
    (
        {"$map": {"input": "$a", "as": "e", "in": {"$map": {"input": "$a", "in": {"$add": ["$$e", "$$this"]}}}}},
        [[6, 4, 5], [4, 2, 3], [5, 3, 4]],
    ),
    # Arithmetic: types.
    ({"$add": []}, 0),
    ({"$add": [1, 1.5]}, 2.5),
    ({"$add": [0.1, 0.2, 0.3]}, 0.6),
    ({"$add": [Int64(2**63 - 1), 1]}, float(2**63)),
    ({"$add": [decimal("1.10"), 2]}, decimal("3.10")),
    ({"$add": ["$d", 0.6]}, DatetimeMS(int(DAY) + 1)),
    ({"$add": [math.inf, -math.inf]}, math.nan),
    ({"$subtract": [-(2**31), 1]}, Int64(-(2**31) - 1)),
    ({"$subtract": ["$d", DatetimeMS(0)]}, Int64(int(DAY))),
    ({"$subtract": [None, "x"]}, None),
    ({"$multiply": []}, 1),
    ({"$multiply": [2**30, 4]}, Int64(2**32)),
    ({"$multiply": [0.1, decimal("3")]}, decimal("0.300000000000000")),
    ({"$divide": [7, 2]}, 3.5),
    ({"$mod": [-7.5, 2]}, -1.5),
    ({"$mod": [Int64(7), -4]}, Int64(3)),
    ({"$mod": [decimal("7.5"), 2]}, decimal("1.5")),
    ({"$abs": -(2**31)}, Int64(2**31)),
    ({"$abs": decimal("-1.50")}, decimal("1.50")),
    ({"$ceil": -0.5}, -0.0),
    ({"$floor": decimal("-1.5")}, decimal("-2")),
    ({"$floor": Int64(3)}, Int64(3)),
    ({"$round": [-2.5]}, -2.0),
    ({"$round": [1234, -2]}, 1200),
    ({"$round": [1250, -2]}, 1200),
    ({"$round": [2**31 - 1, -1]}, Int64(2147483650)),
    ({"$round": [decimal("2.665"), 2]}, decimal("2.66")),
    ({"$trunc": [-7.89, 1]}, -7.8),
    ({"$trunc": math.inf}, math.inf),
    ({"$pow": [2, 10]}, 1024),
    ({"$pow": [2, 40]}, Int64(2**40)),
    ({"$pow": [2, 64]}, float(2**64)),
    ({"$pow": [2, -1]}, 0.5),
    ({"$pow": [-1, -3]}, -1),
    ({"$pow": [-8.0, 0.5]}, math.nan),
    ({"$sqrt": decimal("16")}, decimal("4")),
    ({"$log": [8, 2]}, 3.0),
    ({"$log10": decimal("1000")}, decimal("3")),
    ({"$exp": 1000}, math.inf),
    ({"$sigmoid": 0}, 0.5),
    ({"$bitAnd": [12, Int64(10)]}, Int64(8)),
    ({"$bitAnd": []}, -1),
    ({"$bitNot": 5}, -6),
    ({"$bitXor": [1, None]}, None),
    ({"$sum": ["$a", 1]}, 1),
    ({"$sum": "$a"}, 6),
    ({"$sum": [1, Int64(1)]}, Int64(2)),
    ({"$sum": [0.1, 0.2, decimal("1")]}, decimal("1.300000000000000016653345369377348")),
    ({"$avg": [1, 2]}, 1.5),
    ({"$avg": [decimal("1"), 2]}, decimal("1.5")),
    ({"$max": [1, "x", None]}, "x"),
    ({"$min": ["$null", "$nope"]}, None),
    ({"$stdDevPop": [1, 3]}, 1.0),
    ({"$stdDevSamp": [1]}, None),
    ({"$median": {"input": "$a", "method": "approximate"}}, 2.0),
    ({"$percentile": {"input": [1, 2, 3, 4], "p": [0.5, 0.9], "method": "approximate"}}, [2.0, 4.0]),
    ({"$atan2": [0, -1]}, math.pi),
    ({"$sin": math.nan}, math.nan),
    ({"$atanh": 1}, math.inf),
    ({"$radiansToDegrees": math.pi}, 180.0),
    # Comparing and choosing.
    ({"$eq": [1, decimal("1.0")]}, True),
    ({"$eq": [None, "$nope"]}, False),
    ({"$lt": ["$nope", None]}, True),
    ({"$cmp": [MaxKey(), {"a": 1}]}, 1),
    ({"$gt": [True, "text"]}, True),
    ({"$eq": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, False),
    ({"$and": []}, True),
    ({"$not": ["$nope"]}, True),
    ({"$cond": {"if": "$nope", "then": {"$divide": [1, "$zero"]}, "else": 2}}, 2),
    ({"$ifNull": ["$nope", "$null", "$n"]}, 5),
    ({"$ifNull": ["$nope", "$nope"]}, MISSING),
    ({"$switch": {"branches": [{"case": "$nope", "then": 1}], "default": "$n"}}, 5),
    ({"$literal": {"$add": [1, 2]}}, {"$add": [1, 2]}),
    # Strings.
    ({"$toUpper": "grün"}, "GRüN"),
    ({"$toLower": 5}, "5"),
    ({"$toUpper": "$d"}, "2024-02-29T13:14:15.167Z"),
    ({"$substrBytes": ["$s", 0, 4]}, "Grü"),
    ({"$substrCP": ["$s", 2, 9]}, "ün"),
    ({"$indexOfBytes": ["$s", "n"]}, 4),
    ({"$indexOfCP": ["$s", "n"]}, 3),
    ({"$indexOfCP": ["", ""]}, 0),
    ({"$indexOfCP": ["abc", "c", 1, 2]}, -1),
    ({"$strLenBytes": "$s"}, 5),
    ({"$split": ["a--b", "-"]}, ["a", "", "b"]),
    ({"$trim": {"input": " \t x\u2003"}}, "x"),
    ({"$rtrim": {"input": "abc", "chars": ""}}, "abc"),
    ({"$trim": {"input": "x", "chars": None}}, None),
    ({"$replaceAll": {"input": "aaa", "find": "a", "replacement": "ba"}}, "bababa"),
    ({"$replaceOne": {"input": None, "find": "a", "replacement": "b"}}, None),
    ({"$strcasecmp": [None, "a"]}, -1),
    ({"$regexFind": {"input": "xüab", "regex": "(a)|(b)"}}, {"match": "a", "idx": 2, "captures": ["a", None]}),
    ({"$regexFindAll": {"input": "ab", "regex": "x*"}}, [{"match": "", "idx": n, "captures": []} for n in range(2)]),
    ({"$regexMatch": {"input": "A\nB", "regex": Regex("^b", "im")}}, True),
    ({"$regexMatch": {"input": "$nope", "regex": "a"}}, False),
    # Arrays.
    ({"$arrayElemAt": ["$a", -1]}, 2),
    ({"$arrayElemAt": ["$a", 1.0]}, 1),
    ({"$first": [[]]}, MISSING),
    ({"$first": "$null"}, None),
    ({"$slice": ["$a", -5, 2]}, [3, 1]),
    ({"$slice": ["$a", 0]}, []),
    ({"$range": [3, 0]}, []),
    ({"$reverseArray": "$a"}, [2, 1, 3]),
    ({"$in": [1.0, "$a"]}, True),
    ({"$indexOfArray": ["$a", Int64(2)]}, 2),
    ({"$concatArrays": ["$a", None]}, None),
    ({"$filter": {"input": "$rows", "cond": {"$gt": ["$$this.v", 1]}}}, [{"k": "a", "v": 2}, 7][:1]),
    ({"$map": {"input": "$rows", "in": "$$this.v"}}, [1, 2, None]),
    ({"$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": [["$$this"], "$$value"]}}}, [2, 1, 3]),
    ({"$zip": {"inputs": ["$a", ["x"]]}}, [[3, "x"]]),
    ({"$zip": {"inputs": ["$a", None]}}, None),
    ({"$sortArray": {"input": [3, "a", None, 1.5], "sortBy": -1}}, ["a", 3, 1.5, None]),
    ({"$sortArray": {"input": "$rows", "sortBy": {"k": 1}}}, [7, {"k": "a", "v": 2}, {"k": "b", "v": 1}]),
    ({"$minN": {"n": 2, "input": [3, None, 1, "x"]}}, [1, 3]),
    ({"$lastN": {"n": 9, "input": "$a"}}, [3, 1, 2]),
    ({"$arrayToObject": [[["a", 1], ["a", 2]]]}, {"a": 2}),
    ({"$objectToArray": "$o"}, [{"k": "x", "v": 1}, {"k": "y", "v": {"z": 2}}]),
    ({"$mergeObjects": ["$o", None, {"x": 2}]}, {"x": 2, "y": {"z": 2}}),
    ({"$getField": {"field": {"$literal": "$x"}, "input": {"$literal": {"$x": 4}}}}, 4),
    ({"$getField": "n"}, 5),
    ({"$setField": {"field": "a.b", "input": "$o", "value": 3}}, {"x": 1, "y": {"z": 2}, "a.b": 3}),
    ({"$setField": {"field": "x", "input": "$o", "value": "$$REMOVE"}}, {"y": {"z": 2}}),
    ({"$setUnion": [[1, 2, 1.0], [2, 3]]}, [1, 2, 3]),
    ({"$setIntersection": [[1, 2], [2.0, 5]]}, [2]),
    ({"$setDifference": [[3, 1, 3], [1]]}, [3]),
    ({"$setIsSubset": [[1, 1], [1, 2]]}, True),
    ({"$anyElementTrue": [[None, 0]]}, False),
    # Dates.
    ({"$dayOfWeek": "$d"}, 5),
    ({"$week": "$d"}, 8),
    ({"$isoWeekYear": DatetimeMS(1735516800000)}, Int64(2025)),
    ({"$dayOfYear": ObjectId("5f0000000000000000000001")}, 186),
    ({"$year": {"date": DatetimeMS(-62_200_000_000_000)}}, -2),
    ({"$hour": {"date": "$d", "timezone": "America/New_York"}}, 8),
    ({"$month": None}, None),
    (
        {"$dateToString": {"date": "$d", "format": "%d.%m.%y".replace("y", "Y") + " %j %U %V %G %u %w %B %%"}},
        "29.02.2024 060 08 09 2024 4 5 February %",
    ),
    ({"$dateToString": {"date": "$d", "format": "%H:%M%z|%Z", "timezone": "+05:30"}}, "18:44+0530|330"),
    ({"$dateFromString": {"dateString": "07.06.2020", "format": "%d.%m.%Y"}}, DatetimeMS(1591488000000)),
    ({"$dateFromString": {"dateString": "June 7, 2020 10:30 PM"}}, DatetimeMS(1591569000000)),
    ({"$dateFromString": {"dateString": "2020-06-07T10:00:00.5+02:00"}}, DatetimeMS(1591516800500)),
    ({"$dateFromString": {"dateString": "$nope", "onNull": "none"}}, "none"),
    ({"$dateFromParts": {"year": 2020, "month": 14, "day": -1, "hour": 25}}, DatetimeMS(1612054800000)),
    ({"$dateFromParts": {"year": 2020, "timezone": "Europe/Berlin"}}, DatetimeMS(1577833200000)),
    (
        {"$dateToParts": {"date": "$d", "timezone": "Asia/Tokyo"}},
        {"year": 2024, "month": 2, "day": 29, "hour": 22, "minute": 14, "second": 15, "millisecond": 167},
    ),
    ({"$dateAdd": {"startDate": DatetimeMS(1706659200000), "unit": "month", "amount": 1}}, DatetimeMS(1709164800000)),
    ({"$dateSubtract": {"startDate": "$d", "unit": "quarter", "amount": 1}}, DatetimeMS(1701263655167)),
    # Clocks went forward on 2024-03-10 in New York: a day later shows the same time, 23 hours on.
    (
        {
            "$dateAdd": {
                "startDate": DatetimeMS(1709996400000),
                "unit": "day",
                "amount": 1,
                "timezone": "America/New_York",
            }
        },
        DatetimeMS(1710079200000),
    ),
    ({"$dateDiff": {"startDate": DatetimeMS(0), "endDate": "$d", "unit": "year"}}, Int64(54)),
    (
        {
            "$dateDiff": {
                "startDate": DatetimeMS(0),
                "endDate": DatetimeMS(4 * 86400000),
                "unit": "week",
                "startOfWeek": "monday",
            }
        },
        Int64(1),
    ),
    ({"$dateDiff": {"startDate": "$d", "endDate": DatetimeMS(0), "unit": "hour"}}, Int64(-474781)),
    ({"$dateTrunc": {"date": "$d", "unit": "week", "startOfWeek": "mon"}}, DatetimeMS(1708905600000)),
    ({"$dateTrunc": {"date": "$d", "unit": "quarter"}}, DatetimeMS(1704067200000)),
    ({"$dateTrunc": {"date": "$d", "unit": "day", "timezone": "Asia/Tokyo"}}, DatetimeMS(1709132400000)),
    ({"$tsSecond": Timestamp(7, 3)}, Int64(7)),
    ({"$tsIncrement": Timestamp(7, 3)}, Int64(3)),
    # Conversions.
    ({"$toInt": Int64(7)}, 7),
    ({"$toLong": "-12"}, Int64(-12)),
    ({"$toDouble": "1e3"}, 1000.0),
    ({"$toDecimal": 0.1}, decimal("0.100000000000000")),
    ({"$toString": 1e20}, "1e+20"),
    ({"$toString": Int64(5)}, "5"),
    ({"$toDate": Int64(5)}, DatetimeMS(5)),
    ({"$toDate": "2020-05-06T07:08:09Z"}, DatetimeMS(1588748889000)),
    ({"$toBool": "$nope"}, None),
    ({"$convert": {"input": "x", "to": "int", "onError": "$n"}}, 5),
    ({"$convert": {"input": 1.9, "to": 16}}, 1),
    ({"$convert": {"input": [1], "to": "string", "onError": "no"}}, "no"),
    ({"$toUUID": "00112233-4455-6677-8899-aabbccddeeff"}, Binary(bytes.fromhex("00112233445566778899aabbccddeeff"), 4)),
    ({"$toString": Binary(bytes(16), 4)}, "00000000-0000-0000-0000-000000000000"),
    ({"$isNumber": decimal("1")}, True),
    ({"$binarySize": "ü"}, 2),
    ({"$bsonSize": {"$literal": {}}}, 5),
    ({"$type": "$nope"}, "missing"),
]

CODES: list[tuple[Any, int]] = [
    ("$", 16872),
    ("$a.", 40353),
    ("$a..b", 15998),
    ("$a.$b", 16410),
    ("$$nope", 17276),
    ("$$a.", 40353),
    ("$$_a", 9),
    ({"$cond": ["$a", 1, {"$divide": [1, 0]}]}, 2),
    ({"$nope": 1}, 168),
    ({"$add": 1, "x": 1}, 15983),
    ({"a.b": 1}, 16412),
    ({"a": 1, "$b": 1}, 16410),
    ({"$let": {"vars": {"X": 1}, "in": 1}}, 9),
    ({"$let": {"vars": {}}}, 16877),
    ({"$add": ["x", 1]}, 14),
    ({"$multiply": ["x"]}, 14),
    ({"$mod": [1, 0]}, 16610),
    ({"$mod": ["x", 1]}, 16611),
    ({"$abs": "x"}, 28765),
    ({"$abs": Int64(-(2**63))}, 28680),
    ({"$round": [1, 101]}, 51083),
    ({"$round": ["x"]}, 51081),
    ({"$log": [1, 1]}, 28759),
    ({"$bitOr": [1.0]}, 14),
    ({"$acos": 2}, 50989),
    ({"$sin": math.inf}, 50989),
    ({"$cond": [1, 2]}, 16020),
    ({"$or": [{"$divide": [1, 0]}, True]}, 2),
    ({"$cond": {"if": 1, "then": 2, "else": 3, "x": 4}}, 17083),
    ({"$switch": {"branches": [{"case": False, "then": 1}]}}, 40069),
    ({"$switch": {"branches": [{"case": "$nope", "then": 1}]}}, 40066),
    ({"$switch": {"branches": [{"case": 1}]}}, 40065),
    ({"$substrBytes": ["$s", 3, 1]}, 28656),
    ({"$substrBytes": ["$s", 0, 3]}, 28657),
    ({"$indexOfCP": ["a", None]}, 40094),
    ({"$indexOfCP": ["a", "a", -1]}, 40097),
    ({"$trim": {"input": "a", "chars": 1}}, 50700),
    ({"$trim": {"x": 1}}, 50694),
    ({"$replaceOne": {"input": 1, "find": "", "replacement": ""}}, 51746),
    ({"$regexMatch": {"input": "a", "regex": "("}}, 51111),
    ({"$regexMatch": {"input": "a", "regex": "a", "options": "q"}}, 51108),
    ({"$regexFind": {"input": 1, "regex": "a"}}, 51104),
    ({"$toLower": {"$literal": {}}}, 16007),
    ({"$size": "$nope"}, 17124),
    ({"$slice": ["$a", 1, 0]}, 28729),
    ({"$range": [0, 1.5]}, 34446),
    ({"$range": [0, 2_000_000]}, 146),
    ({"$filter": {"input": "$a", "cond": 1, "limit": 0}}, 327392),
    ({"$map": {"input": 1, "in": 1}}, 16883),
    ({"$zip": {"inputs": ["$a"], "defaults": [1]}}, 34466),
    ({"$firstN": {"n": 0, "input": "$a"}}, 5787908),
    ({"$sortArray": {"input": 1, "sortBy": 1}}, 2942504),
    ({"$arrayToObject": [[{"k": "a"}]]}, 40392),
    ({"$objectToArray": 1}, 40390),
    ({"$setField": {"field": "a", "input": 1, "value": 1}}, 4161105),
    ({"$setUnion": [[1], 1]}, 17043),
    ({"$year": {"date": "$d", "zone": "x"}}, 40535),
    ({"$year": ["$d", "$d"]}, 40536),
    ({"$dateToString": {"date": "$d", "format": "%q"}}, 18536),
    ({"$dateToString": {"date": "$d", "format": "%"}}, 18535),
    ({"$dateFromString": {"dateString": "2020-13-01"}}, 241),
    ({"$dateFromString": {"dateString": "2020-02-30"}}, 241),
    ({"$dateFromParts": {"month": 1}}, 40516),
    ({"$dateFromParts": {"year": 10000}}, 40523),
    ({"$dateFromParts": {"year": 2020, "isoWeek": 1}}, 40489),
    ({"$dateAdd": {"startDate": "$d", "unit": "eon", "amount": 1}}, 9),
    ({"$dateAdd": {"startDate": "$d", "unit": "day", "amount": 1.5}}, 5166405),
    ({"$dateTrunc": {"date": "$d", "unit": "day", "binSize": 0}}, 5439018),
    ({"$tsSecond": 1}, 5687301),
    ({"$toInt": Int64(2**31)}, 241),
    ({"$toInt": "1.5"}, 241),
    ({"$toDouble": " 1"}, 241),
    ({"$toLong": math.nan}, 241),
    ({"$toObjectId": "zz"}, 241),
    ({"$toString": [[1]]}, 241),
    ({"$convert": {"input": 1}}, 9),
    ({"$bsonSize": 1}, 31393),
    ({"$meta": "textScore"}, 40218),
    ({"$rand": 1}, 3040501),
    ({"$percentile": {"input": 1, "p": [2], "method": "approximate"}}, 7750303),
]


@pytest.mark.parametrize(("spec", "expected"), VALUES, ids=[str(spec)[:60] for spec, _ in VALUES])
def test_value(spec: Any, expected: Any) -> None:
    found = evaluated(spec)
    if found is MISSING or expected is MISSING:
        assert found is expected
    else:
        assert exact(found) == exact(expected)


@pytest.mark.parametrize(("spec", "code"), CODES, ids=[str(spec)[:60] for spec, _ in CODES])
def test_refusal(spec: Any, code: int) -> None:
    assert code_of(spec) == code


def test_let_of_the_command_and_dice() -> None:
    assert evaluated({"$add": ["$$x", "$n"]}, let={"x": 10}) == 15
    assert evaluated("$$x.y", let={"x": {"y": 2}}) == 2
    assert evaluated({"$rand": {}}) == random.Random(1).random()


def test_values_of_a_run_are_those_begun_last() -> None:
    context = Context(["x"])
    evaluate = compile_over_documents({"$add": ["$$x", "$n"]}, context)
    for number in (1, 2):
        context.begin(run_values(0, random.random, [number], None))
        assert evaluate({"n": 10}) == 10 + number


def test_collation_decides_what_is_equal() -> None:
    collation = parse_collation({"locale": "en", "strength": 2})
    assert collation is not None
    options: dict[str, Any] = {"key": collation.order_key}
    assert evaluated({"$eq": ["a", "A"]}, **options) is True
    assert evaluated({"$in": ["B", ["a", "b"]]}, **options) is True
    assert evaluated({"$setUnion": [["a"], ["A"]]}, **options) == ["a"]
    assert evaluated({"$eq": ["a", "A"]}) is False


def test_constants_are_worked_out_once_and_never_changed() -> None:
    spec = {"$concatArrays": [[1], [2]]}
    evaluate = compile_over_documents(spec, Context.of(0, random.random))
    assert evaluate({}) == evaluate({}) == [1, 2]


@pytest.mark.parametrize("value", [1, 1.0, Int64(1), decimal("1")])
def test_hashed_index_keys(value: Any) -> None:
    """What MongoDB's own `convertShardKeyToHashed` gives for 1 is well known; equal numbers hash alike."""
    found = evaluated({"$toHashedIndexKey": {"$literal": value}})
    assert found == 5902408780260971510 and type(found) is Int64


def doubled(initial: Any, body: Any) -> Any:
    return {"$reduce": {"input": {"$range": [0, 80]}, "initialValue": initial, "in": body}}


@pytest.mark.parametrize(
    "spec",
    [
        doubled(1, ["$$value", "$$value"]),
        doubled([1], {"$concatArrays": ["$$value", "$$value"]}),
        doubled("x", {"$concat": ["$$value", "$$value"]}),
        doubled({}, {"a": "$$value", "b": "$$value"}),
        {"$map": {"input": {"$range": [0, 9000]}, "in": {"$literal": "x" * 10_000}}},
        {"$replaceAll": {"input": "a" * 10_000, "find": "a", "replacement": "b" * 10_000}},
    ],
    ids=range(6),
)
def test_values_do_not_grow_without_bounds(spec: Any, with_limits: WithLimits) -> None:
    with_limits(MONGO_VALUE_BYTES_MAX=4 * limits.MB)
    assert code_of(spec) == 10334
