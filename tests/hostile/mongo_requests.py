"""Hostile commands to the MongoDB door: legal ones whose cost grows with the square or the cube of a document, or whose
values grow while they are computed. Named ones, and a generator of more from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty")


class Command(NamedTuple):
    name: str
    body: dict[str, Any]
    sequences: dict[str, list[Any]] | None = None


def collections(size: int) -> dict[str, list[dict[str, Any]]]:
    """What is stored, by collection. `size`: elements of the large arrays."""
    dice = random.Random(5)
    deep: Any = 1
    for level in range(80):
        deep = {"x": deep} if level % 2 else [deep]
    ring = [[10 + n / 1000, 10 + (n % 7) / 1000] for n in range(min(size // 10, 1_500))]
    ring = [*ring, [ring[-1][0], 9.0], [10.0, 9.0], ring[0]]
    return {
        "large": [
            {
                "_id": 1,
                "a": list(range(size)),
                "b": [size - n for n in range(size)],
                "o": [{"k": n, "v": WORDS[n % 10], "w": [n % 5, True]} for n in range(size // 4)],
                "t": " ".join(dice.choices(WORDS, k=size)),
                "u": "".join(dice.choices("aé\U0001f600ß", k=size)),
                "m": {f"f{n}": n for n in range(size // 4)},
                "d": deep,
            }
        ],
        "places": [
            {"_id": 1, "g": {"type": "Polygon", "coordinates": [ring]}},
            *[{"_id": 2 + n, "g": {"type": "Point", "coordinates": [10 + n / 1e4, 9.5]}} for n in range(50)],
        ],
        "many": [
            {"_id": n, "n": n % 97, "t": WORDS[n % 10] + str(n), "a": list(range(100)), "p": n // 2}
            for n in range(max(200, size // 20))
        ],
        "one": [{"_id": 1, "n": 1, "a": list(range(1_000))}],
    }


def _range(count: int) -> dict[str, Any]:
    return {"$range": [0, count]}


def nested(depth: int, count: int) -> Any:
    """A sum over so many loops in one another, each of so many turns."""
    body: Any = {"$add": [f"$$v{level}" for level in range(depth)]}
    for level in reversed(range(depth)):
        body = {"$sum": {"$map": {"input": _range(count), "as": f"v{level}", "in": body}}}
    return body


def _shown(collection: str, expression: Any, **more: Any) -> dict[str, Any]:
    return {"aggregate": collection, "pipeline": [{"$project": {"x": expression}}], "cursor": {}, **more}


def _run(collection: str, *stages: Any, **more: Any) -> dict[str, Any]:
    return {"aggregate": collection, "pipeline": list(stages), "cursor": {}, **more}


def _size(expression: Any) -> Any:
    return {"$size": expression}


def named(size: int) -> Iterator[Command]:
    """Those that stopped the server once, and shapes of their kind."""
    loops = max(20, int(size**0.5))
    third = max(10, int(size ** (1 / 3)) * 2)
    slow = {"$gt": [{"$sum": {"$map": {"input": "$a", "in": {"$multiply": ["$$this", 2]}}}}, 1e12]}
    yield Command("three nested $map", _shown("one", nested(3, third)))
    yield Command("$expr over arrays with maxTimeMS", {"find": "many", "filter": {"$expr": slow}, "maxTimeMS": 100})
    yield Command("$expr over arrays", {"find": "many", "filter": {"$expr": slow}})
    yield Command("count with maxTimeMS", {"count": "many", "query": {"$expr": slow}, "maxTimeMS": 50})
    yield Command(
        "distinct with maxTimeMS", {"distinct": "many", "key": "a", "query": {"$expr": slow}, "maxTimeMS": 50}
    )
    yield Command(
        "$map of $range of long strings",
        _shown("large", {"$map": {"input": _range(1_000_000), "in": {"$concat": ["$t", {"$toString": "$$this"}]}}}),
    )
    yield Command(
        "$filter by $in", _shown("large", _size({"$filter": {"input": "$a", "cond": {"$in": ["$$this", "$b"]}}}))
    )
    yield Command(
        "$filter by $indexOfArray",
        _shown("one", _size({"$filter": {"input": "$a", "cond": {"$gt": [{"$indexOfArray": ["$a", "$$this"]}, 5]}}})),
    )
    append = {"$concatArrays": ["$$value", ["$$this"]]}
    prepend = {"$concatArrays": [["$$this"], "$$value"]}
    for text, body in (("to the end", append), ("to the front", prepend)):
        reduce = {"$reduce": {"input": _range(size // 2), "initialValue": [], "in": body}}
        yield Command(f"$reduce adds {text}", _shown("one", _size(reduce)))
    longer = {"$reduce": {"input": _range(size), "initialValue": "", "in": {"$concat": ["$$value", "abcdefgh"]}}}
    yield Command("$reduce of $concat", _shown("one", {"$strLenCP": longer}))
    turned = {"$reduce": {"input": _range(size // 2), "initialValue": "", "in": {"$concat": ["abcdefgh", "$$value"]}}}
    yield Command("$reduce of $concat to the front", _shown("one", {"$strLenCP": turned}))
    grown = {"$reduce": {"input": _range(40), "initialValue": [1, "x" * 100], "in": ["$$value", "$$value"]}}
    yield Command("$reduce that doubles", _shown("one", grown))
    mixed = {"$map": {"input": _range(2 * size), "in": {"$mod": [{"$multiply": ["$$this", 7919]}, 10_007]}}}
    yield Command("$sortArray", _shown("one", _size({"$sortArray": {"input": mixed, "sortBy": -1}})))
    yield Command(
        "$sortArray by field", _shown("large", _size({"$sortArray": {"input": "$o", "sortBy": {"v": 1, "k": -1}}}))
    )
    for name in ("$setUnion", "$setIntersection", "$setDifference", "$setIsSubset", "$setEquals"):
        yield Command(name, _shown("large", {"$ifNull": [{"$isArray": [{name: ["$a", "$b"]}]}, 0]}))
    yield Command("$setUnion of a million", _shown("one", _size({"$setUnion": [_range(1_000_000), [1]]})))
    yield Command("$zip", _shown("one", _size({"$zip": {"inputs": [_range(1_000_000)] * 4}})))
    yield Command("$objectToArray", _shown("large", _size({"$objectToArray": "$m"})))
    pairs = {"$map": {"input": _range(size), "in": {"k": {"$toString": "$$this"}, "v": "$$this"}}}
    yield Command("$arrayToObject", _shown("one", _size({"$objectToArray": {"$arrayToObject": pairs}})))
    merged = {"$reduce": {"input": "$o", "initialValue": "$m", "in": {"$mergeObjects": ["$$value", "$$this"]}}}
    yield Command("$reduce of $mergeObjects", _shown("large", _size({"$objectToArray": merged})))
    replaced = {"$replaceAll": {"input": "$t", "find": "a", "replacement": "x" * 500}}
    yield Command("$replaceAll", _shown("large", {"$strLenCP": replaced}))
    yield Command("$split", _shown("large", _size({"$split": ["$t", "a"]})))
    yield Command("$regexFindAll", _shown("large", _size({"$regexFindAll": {"input": "$t", "regex": "[aeiou]"}})))
    yield Command("$toUpper", _shown("large", {"$strLenCP": {"$toUpper": "$u"}}))
    yield Command("$trim", _shown("large", {"$strLenCP": {"$trim": {"input": "$u", "chars": "aé\U0001f600ß"}}}))
    for name in ("$max", "$min", "$avg", "$stdDevPop"):
        yield Command(f"{name} of an array", _shown("large", {name: "$a"}))
    yield Command("$median", _shown("large", {"$median": {"input": "$a", "method": "approximate"}}))
    yield Command("$maxN", _shown("large", _size({"$maxN": {"n": size, "input": "$b"}})))
    yield Command("equality of large arrays", _shown("large", {"$eq": ["$a", {"$reverseArray": "$b"}]}))
    yield Command("equality of deep documents", _run("large", {"$group": {"_id": "$d"}}))
    yield Command("paths through arrays", _shown("large", {"$sum": "$o.k"}))
    unwound = {"$unwind": "$a"}
    yield Command(
        "$unwind and $group", _run("large", unwound, {"$group": {"_id": {"$mod": ["$a", 100]}, "n": {"$sum": 1}}})
    )
    yield Command(
        "$unwind twice",
        _run(
            "one", unwound, {"$unwind": "$a"}, {"$addFields": {"b": _range(loops)}}, {"$unwind": "$b"}, {"$count": "n"}
        ),
    )
    yield Command(
        "$unwind and $sort", _run("large", unwound, {"$project": {"a": 1}}, {"$sort": {"a": -1}}, {"$limit": 3})
    )
    yield Command("$group with $push", _run("large", unwound, {"$group": {"_id": None, "x": {"$push": "$$ROOT.t"}}}))
    yield Command(
        "$group with $addToSet",
        _run("large", unwound, {"$group": {"_id": None, "x": {"$addToSet": "$a"}}}, {"$project": {"n": _size("$x")}}),
    )
    yield Command("$group by documents", _run("many", {"$group": {"_id": "$$ROOT", "n": {"$sum": 1}}}, {"$count": "n"}))
    facets = {"a": [{"$sort": {"t": 1}}], "b": [{"$group": {"_id": "$n"}}], "c": [unwound, {"$count": "n"}]}
    yield Command("$facet", _run("many", {"$facet": facets}, {"$project": {"n": _size("$a")}}))
    yield Command(
        "$bucketAuto",
        _run(
            "large",
            unwound,
            {"$project": {"a": 1}},
            {"$bucketAuto": {"groupBy": "$a", "buckets": 9, "output": {"x": {"$push": "$a"}}}},
            {"$project": {"n": _size("$x")}},
        ),
    )
    window = {"sortBy": {"t": 1}, "output": {"x": {"$push": "$t", "window": {"documents": ["unbounded", "current"]}}}}
    yield Command(
        "$setWindowFields that grow", _run("many", {"$setWindowFields": window}, {"$project": {"n": _size("$x")}})
    )
    around = {"sortBy": {"n": 1}, "output": {"x": {"$stdDevPop": "$n", "window": {"documents": [-200, 200]}}}}
    yield Command("$setWindowFields that move", _run("many", {"$setWindowFields": around}, {"$count": "n"}))
    ranged = {"sortBy": {"p": 1}, "output": {"x": {"$covariancePop": ["$n", "$p"], "window": {"range": [-100, 100]}}}}
    yield Command("$setWindowFields over ranges", _run("many", {"$setWindowFields": ranged}, {"$count": "n"}))
    steps = {"field": "n", "range": {"step": 1, "bounds": [0, size]}}
    yield Command("$densify", _run("many", {"$densify": steps}, {"$count": "n"}))
    joined = {"from": "many", "localField": "n", "foreignField": "n", "as": "x"}
    yield Command("$lookup", _run("many", {"$lookup": joined}, {"$project": {"k": _size("$x")}}))
    inner = [{"$match": {"$expr": {"$gt": ["$n", "$$n"]}}}, {"$count": "c"}]
    by_pipeline = {"from": "many", "let": {"n": "$n"}, "pipeline": inner, "as": "x"}
    yield Command("$lookup with a pipeline", _run("many", {"$limit": 30}, {"$lookup": by_pipeline}))
    graph = {"from": "many", "startWith": "$n", "connectFromField": "p", "connectToField": "_id", "as": "x"}
    yield Command(
        "$graphLookup", _run("many", {"$limit": 20}, {"$graphLookup": graph}, {"$project": {"k": _size("$x")}})
    )
    hidden = {"$cond": [{"$gt": [_size({"$ifNull": ["$w", []]}), 5]}, "$$PRUNE", "$$DESCEND"]}
    yield Command("$redact", _run("large", {"$redact": hidden}, {"$project": {"_id": 1}}))
    yield Command("sort without an index", {"find": "many", "filter": {}, "sort": {"t": -1}})
    yield Command(
        "sort by a collation", {"find": "many", "filter": {}, "sort": {"t": 1}, "collation": {"locale": "en"}}
    )
    yield Command("sort by large arrays", {"find": "large", "filter": {}, "sort": {"a": 1, "n": 1}})
    yield Command(
        "collation of a long text", _shown("large", {"$eq": ["$u", "$t"]}, collation={"locale": "de", "strength": 1})
    )
    yield Command("$or of many", {"find": "many", "filter": {"$or": [{"x": n} for n in range(size)]}, "limit": 3})
    yield Command("$in of many", {"find": "many", "filter": {"x": {"$in": list(range(size * 4))}}})
    yield Command("$all of many", {"find": "many", "filter": {"a": {"$all": list(range(100))}}})
    yield Command(
        "$all of very many", {"find": "large", "filter": {"a": {"$all": list(range(size))}}, "projection": {"_id": 1}}
    )
    yield Command("$elemMatch", {"find": "large", "filter": {"o": {"$elemMatch": {"k": -1, "v": "amber"}}}})
    yield Command("$regex", {"find": "large", "filter": {"t": {"$regex": "(a|b|amber)+x$"}}})
    yield Command(
        "$nor of $regex",
        {
            "find": "large",
            "filter": {"$nor": [{"t": {"$regex": f"{word} x"}} for word in WORDS]},
            "projection": {"_id": 1},
        },
    )
    yield Command(
        "$geoWithin",
        {
            "find": "places",
            "filter": {"g": {"$geoWithin": {"$geometry": collections(size)["places"][0]["g"]}}},
            "projection": {"_id": 1},
        },
    )
    yield Command(
        "$geoIntersects",
        {
            "find": "places",
            "filter": {"g": {"$geoIntersects": {"$geometry": collections(size)["places"][0]["g"]}}},
            "projection": {"_id": 1},
        },
    )
    schema = {
        "properties": {
            "o": {"items": {"properties": {"k": {"minimum": 0}, "v": {"pattern": "^[a-z]+$"}}}},
            "a": {"uniqueItems": True},
        }
    }
    yield Command("$jsonSchema", {"find": "large", "filter": {"$jsonSchema": schema}, "projection": {"_id": 1}})
    yield Command("projection of arrays", {"find": "large", "filter": {}, "projection": {"o.k": 1, "o.w": 1}})
    yield Command(
        "$slice of arrays",
        {"find": "large", "filter": {}, "projection": {"a": {"$slice": 1}, "o": 0, "b": 0, "t": 0, "u": 0, "m": 0}},
    )
    yield Command(
        "fields without number",
        _run("one", {"$addFields": {f"f{n}": {"$add": [n, 1]} for n in range(min(size, 3_000))}}),
    )
    yield Command("deep expression", _shown("one", _deep(40)))
    yield Command("distinct", {"distinct": "large", "key": "a"})
    yield Command("explain", {"explain": {"find": "many", "filter": {"$expr": slow}}, "verbosity": "executionStats"})
    heavy = [{"$set": {"z": nested(2, loops)}}]
    yield Command("update by a pipeline", {"update": "one", "updates": [{"q": {"_id": 1}, "u": heavy}]})
    yield Command(
        "update of many by a pipeline",
        {
            "update": "many",
            "updates": [
                {
                    "q": {},
                    "u": [{"$set": {"z": {"$sum": {"$map": {"input": "$a", "in": {"$add": ["$$this", "$n"]}}}}}}],
                    "multi": True,
                }
            ],
        },
    )
    yield Command(
        "update of many by $addToSet",
        {
            "update": "many",
            "updates": [
                {"q": {"_id": {"$lt": 100}}, "u": {"$addToSet": {"a": {"$each": list(range(500))}}}, "multi": True}
            ],
        },
    )
    yield Command(
        "$pull of many",
        {"update": "large", "updates": [{"q": {"_id": 1}, "u": {"$pull": {"o": {"k": {"$in": list(range(100))}}}}}]},
    )
    yield Command(
        "$push with $sort",
        {
            "update": "large",
            "updates": [{"q": {"_id": 1}, "u": {"$push": {"b": {"$each": [1], "$sort": 1, "$slice": size}}}}],
        },
    )
    yield Command(
        "findAndModify by a pipeline", {"findAndModify": "one", "query": {"_id": 1}, "update": heavy, "new": True}
    )
    yield Command("delete by an expression", {"delete": "many", "deletes": [{"q": {"$expr": slow}, "limit": 0}]})
    yield Command(
        "delete one by an expression",
        {"delete": "one", "deletes": [{"q": {"$expr": {"$lt": [nested(2, loops), 0]}}, "limit": 1}]},
    )
    yield Command(
        "$merge",
        _run(
            "many",
            {"$limit": 50},
            {"$project": {"n": 1}},
            {"$merge": {"into": "one", "whenMatched": [{"$set": {"q": nested(1, 100)}}]}},
        ),
    )
    yield Command("insert of many", {"insert": "made"}, {"documents": [{"n": n} for n in range(size // 4)]})
    yield Command(
        "insert of a large one", {"insert": "made"}, {"documents": [{"a": [{"x": n} for n in range(size // 4)]}]}
    )


def long_document(size: int) -> dict[str, Any]:
    pairs = {f"f{n}": n for n in range(size // 4)}
    return {"_id": 1, "a": list(range(size)), "o": [{"k": n} for n in range(size // 4)], "m": pairs}


def over_long_lists(size: int) -> Iterator[Command]:
    """One pass over a list of so many elements: in a document of the collection `long`, or in the command. Such a pass
    has to be made in portions, however fast it is for each element."""
    mapped = {"$map": {"input": "$a", "in": {"$add": ["$$this", 1]}}}
    expressions: dict[str, Any] = {
        **{name: {name: "$a"} for name in ("$sum", "$max", "$stdDevPop", "$allElementsTrue", "$reverseArray")},
        **{name: {name: ["$a", "$a"]} for name in ("$setUnion", "$setDifference", "$setIntersection", "$setIsSubset")},
        **{name: {name: ["$a", "$a"]} for name in ("$setEquals", "$concatArrays")},
        **{name: {name: {"n": size - 1, "input": "$a"}} for name in ("$firstN", "$maxN")},
        "$eq": {"$eq": ["$a", {"$concatArrays": ["$a", []]}]},
        "$indexOfArray": {"$indexOfArray": ["$a", -1]},
        "$map": mapped,
        "$objectToArray": {"$objectToArray": "$m"},
        "$range": {"$range": [0, size]},
        "$sortArray": {"$sortArray": {"input": "$a", "sortBy": -1}},
        "$zip": {"$zip": {"inputs": ["$a", "$a"]}},
        "path": "$o.k",
        "text": "$$ROOT",
    }
    for name, expression in expressions.items():
        yield Command(f"{name} of a long array", _shown("long", {"$bsonSize": {"x": expression}}))
    numbers = list(range(size))
    filters: dict[str, Any] = {
        "$in": {"x": {"$in": numbers}},
        "$in of ids": {"_id": {"$in": numbers}},
        "$in of texts": {"x": {"$in": [str(n) for n in numbers]}},
        "$all": {"a": {"$all": numbers}},
        "equality": {"a": numbers},
        "$or": {"$or": [{"x": n} for n in range(size // 4)]},
        "$or of ids": {"$or": [{"_id": n} for n in range(size // 4)]},
        "$nor": {"$nor": [{"x": n} for n in range(size // 4)]},
    }
    for name, given in filters.items():
        yield Command(f"{name} with a long list", {"find": "long", "filter": given, "projection": {"_id": 1}})
    yield Command("sort by a long array", {"find": "long", "filter": {}, "sort": {"a": -1, "q": 1}})
    yield Command("distinct of a long array", {"distinct": "long", "key": "a"})
    changes: dict[str, Any] = {
        "$addToSet": {"$addToSet": {"a": {"$each": [-1, *numbers]}}},
        "$pullAll": {"$pullAll": {"a": numbers[size // 2 :]}},
        "$inc of all": {"$inc": {"a.$[]": 1}},
        "$push": {"$push": {"a": {"$each": [1], "$sort": -1}}},
        "$set of many": {"$set": {f"m.f{n}": -n for n in range(size // 8)}},
    }
    for name, change in changes.items():
        yield Command(f"{name} in a long array", {"update": "long", "updates": [{"q": {"_id": 1}, "u": change}]})


def _deep(depth: int) -> Any:
    return 1 if depth == 0 else {"$cond": [{"$gt": ["$n", depth]}, "$n", _deep(depth - 1)]}


# Generated.


def generated(seed: int, count: int, size: int) -> Iterator[Command]:
    """Expressions and stages put together at random, over the large arrays."""
    dice = random.Random(seed)
    for number in range(count):
        author = _Author(dice, size)
        stages = [author.stage() for _ in range(dice.randint(1, 3))]
        yield Command(
            f"generated {seed}/{number}", _run(dice.choice(("large", "many", "one")), *stages, {"$limit": 20})
        )


class _Author:
    def __init__(self, dice: random.Random, size: int) -> None:
        self._dice, self._size, self._variables = dice, size, 0

    def stage(self) -> dict[str, Any]:
        dice = self._dice
        field = dice.choice(("a", "b", "o", "t", "n"))
        makers: list[Callable[[], dict[str, Any]]] = [
            lambda: {"$project": {"n": 1, "a": self.array(3, [])}},
            lambda: {"$addFields": {"x": self.number(3, [])}},
            lambda: {"$addFields": {"t": self.text(3, [])}},
            lambda: {"$unwind": {"path": f"${dice.choice('abo')}", "preserveNullAndEmptyArrays": True}},
            lambda: {
                "$group": {"_id": self.number(2, []), "a": {dice.choice(("$push", "$addToSet", "$max")): f"${field}"}}
            },
            lambda: {"$sort": {field: dice.choice((1, -1)), "_id": 1}},
            lambda: {"$match": {"$expr": {"$gte": [self.number(2, []), 0]}}},
            lambda: {"$match": {field: {"$in": list(range(dice.choice((5, 500))))}}},
            lambda: {"$facet": {"a": [{"$limit": 20}], "b": [{"$project": {"x": self.number(2, [])}}]}},
            lambda: {"$bucketAuto": {"groupBy": f"${field}", "buckets": dice.randint(1, 9)}},
        ]
        return dice.choice(makers)()

    def array(self, depth: int, bound: list[str]) -> Any:
        dice = self._dice
        if depth == 0:
            return dice.choice(
                (_range(dice.choice((10, 100, self._size))), {"$ifNull": ["$a", []]}, {"$ifNull": ["$b", []]})
            )

        def array() -> Any:
            return self._listed(self.array(depth - 1, bound))

        def other() -> Any:
            return self._listed(self.array(0, bound))

        self._variables += 1
        name = f"v{self._variables}"
        makers: list[Callable[[], Any]] = [
            lambda: {"$map": {"input": array(), "as": name, "in": self.any(depth - 1, [*bound, name])}},
            lambda: {"$filter": {"input": array(), "as": name, "cond": {"$in": [f"$${name}", other()]}}},
            lambda: {
                "$filter": {"input": array(), "as": name, "cond": {"$gt": [self.number(depth - 1, [*bound, name]), 3]}}
            },
            lambda: {"$concatArrays": [array(), other()]},
            lambda: {dice.choice(("$setUnion", "$setDifference", "$setIntersection")): [array(), other()][:2]},
            lambda: {"$sortArray": {"input": array(), "sortBy": dice.choice((1, -1))}},
            lambda: {"$reverseArray": array()},
            lambda: {"$zip": {"inputs": [array(), other()]}},
            lambda: {"$slice": [array(), dice.choice((5, 500, -100))]},
            lambda: {"$split": [self.text(depth - 1, bound), dice.choice(("a", " ", "be"))]},
            lambda: {
                "$reduce": {"input": array(), "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}
            },
            lambda: {"$reduce": {"input": other(), "initialValue": [], "in": {"$setUnion": ["$$value", ["$$this"]]}}},
        ]
        return dice.choice(makers)()

    def _listed(self, array: Any) -> Any:
        return {"$ifNull": [array, []]}

    def number(self, depth: int, bound: list[str]) -> Any:
        dice = self._dice
        if depth == 0:
            return dice.choice((1, 7, "$_id", *[{"$size": {"$ifNull": [f"${each}", []]}} for each in "ab"]))
        array = self._listed(self.array(depth - 1, bound))
        makers: list[Callable[[], Any]] = [
            lambda: {"$size": array},
            lambda: {dice.choice(("$sum", "$max", "$avg")): array},
            lambda: {"$add": [self.number(depth - 1, bound), self.number(0, bound)]},
            lambda: {"$indexOfArray": [array, self.number(0, bound)]},
            lambda: {"$strLenCP": self.text(depth - 1, bound)},
            lambda: {"$cond": [{"$eq": [array, array]}, 1, 0]},
            lambda: {"$bsonSize": {"a": array}},
        ]
        return {"$ifNull": [dice.choice(makers)(), 0]}

    def text(self, depth: int, bound: list[str]) -> Any:
        dice = self._dice
        if depth == 0:
            return dice.choice(("amber", "x" * 500, {"$toString": {"$ifNull": ["$t", "cedar"]}}))
        text = self.text(depth - 1, bound)
        makers: list[Callable[[], Any]] = [
            lambda: {"$concat": [text, text]},
            lambda: {"$toUpper": text},
            lambda: {"$replaceAll": {"input": text, "find": dice.choice("ae"), "replacement": "xyz" * 9}},
            lambda: {"$substrCP": [text, 0, 50]},
            lambda: {"$reduce": {"input": _range(200), "initialValue": "", "in": {"$concat": ["$$value", text]}}},
        ]
        return dice.choice(makers)()

    def any(self, depth: int, bound: list[str]) -> Any:
        if bound and self._dice.random() < 0.4:
            return f"$${self._dice.choice(bound)}"
        return self._dice.choice((self.array, self.number, self.text))(max(0, depth), bound)
