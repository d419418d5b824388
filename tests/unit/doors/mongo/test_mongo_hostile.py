"""Operators with operands of any kind in any place: a filter, update, projection, sort or collation is compiled and
run, or refused with a Failure; nothing else comes out."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.code import Code
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.regex import Regex
from bson.timestamp import Timestamp
from support.mongo_author import PATHS, SCALARS, MongoAuthor

from armillary.errors import Failure
from armillary.languages.mongo.collation import parse_collation
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.accumulators import distinct_values
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.languages.mongo.indexes.index_conditions import filter_condition, pinned_fields
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.languages.mongo.updates.updates import compile_update
from armillary.languages.mongo.updates.upserts import upserted_document
from armillary.model.bson.bson_values import encode

SEEDS = [random.Random(20240801 + place).getrandbits(32) for place in range(3)]
CONTEXT = Context.of(1_700_000_000_000, lambda: 0.5)
INDEX = TextIndex({"a": 1.0, "$**": 2.0})
ODD: list[Any] = [
    *SCALARS,
    *("$", "$a", "a.", ".a", "\0", "(", "(a+)+$", "\ud7ff", "x" * 300, -1, 2**31, Int64(2**63 - 1), Int64(-(2**63))),
    *(
        1e308,
        -1e308,
        5e-324,
        float("-inf"),
        Decimal128("NaN"),
        Decimal128("sNaN"),
        Decimal128("-Infinity"),
        Decimal128("1E+6000"),
    ),
    *(Decimal128("1E-6000"), Code("x"), Code("x", {"a": 1}), Timestamp(1, 1), DBRef("c", 1), Regex("(", "i")),
    *([], {}, [[]], [{}], {"": 1}, {"$": 1}, {"$ref": "c", "$id": 1}, {"type": "Point", "coordinates": [0, 0]}),
    *({"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [0, 0]]]}, [1, 2], ["$a"], {"$each": [1]}),
]
OPERATORS = (
    "$eq $ne $gt $gte $lt $lte $in $nin $not $exists $type $size $mod $all $elemMatch $regex $options $bitsAllSet "
    "$bitsAnyClear $geoWithin $geoIntersects $near $nearSphere $minDistance $maxDistance $geometry $box $polygon "
    "$center $centerSphere $comment $foo $and $or $nor $expr $jsonSchema $text $search $language $sampleRate $where "
    "$alwaysTrue $slice $meta $each $position $sort $literal $add"
).split()
UPDATES = (
    "$set $unset $inc $mul $min $max $push $addToSet $pop $pull $pullAll $rename $bit $currentDate $setOnInsert $foo"
).split()
KEYWORDS = (
    "type bsonType enum required properties additionalProperties patternProperties minimum maximum exclusiveMinimum "
    "multipleOf minLength pattern items additionalItems minItems uniqueItems minProperties dependencies allOf anyOf not"
).split()
COLLATION = "locale strength caseLevel caseFirst numericOrdering alternate maxVariable backwards foo".split()


class Hostile(MongoAuthor):
    def anything(self, depth: int = 0) -> Any:
        dice = self._random.random()
        if depth > 3 or dice < 0.45:
            return self._random.choice(ODD)
        if dice < 0.6:
            return [self.anything(depth + 1) for _ in range(self._random.randrange(3))]
        return self.object(self.names(), depth)

    def names(self) -> list[str]:
        return self._random.choice([OPERATORS, OPERATORS, PATHS, KEYWORDS, [*PATHS, "a.$", "$", "a.$[]", "a.$[x].b"]])

    def object(self, names: list[str], depth: int = 0) -> dict[str, Any]:
        count = self._random.choice([1, 1, 2])
        return {self._random.choice(names): self.anything(depth + 1) for _ in range(count)}

    def list_or_anything(self) -> Any:
        return [self.object(["x", "x.a", "$or"]) for _ in range(self._random.randrange(3))] or self.anything()


def allowed(action: Any) -> Any:
    """What it gives, None if it is refused."""
    try:
        return action()
    except Failure:
        return None


@pytest.mark.parametrize("seed", SEEDS)
def test_filters(seed: int) -> None:
    hostile = Hostile(seed)
    documents = [hostile.document(number) for number in range(12)]
    documents += [{"_id": 1, "a": each} for each in ODD if not isinstance(each, Code)]
    for _ in range(1_500):
        given = hostile.object([*OPERATORS, *PATHS])
        matcher = allowed(lambda given=given: compile_filter(given, CONTEXT, text_index=INDEX))
        if matcher is None:
            continue
        filter_condition(given)
        pinned_fields(given, ["a", "_id"])
        for document in documents:
            allowed(lambda document=document, matcher=matcher: matcher.matches(document))
            allowed(lambda document=document, matcher=matcher: matcher.first_match(document, "a"))


@pytest.mark.parametrize("seed", SEEDS)
def test_updates(seed: int) -> None:
    hostile = Hostile(seed)
    dice = random.Random(seed)
    for number in range(2_000):
        given: Any = {dice.choice(UPDATES): hostile.object([*PATHS, "_id", "a.$", "a.$[]", "b.$[x]", "", "a..b", "$a"])}
        if dice.random() < 0.1:
            given = hostile.anything()
        filters = hostile.list_or_anything() if dice.random() < 0.2 else None
        update = allowed(lambda given=given, filters=filters: compile_update(given, CONTEXT, filters))
        if update is None:
            continue
        document = hostile.document(number)
        found = allowed(lambda document=document, update=update: update.apply(document, dice.choice([None, 0, 5])))
        if found is not None:
            encode(found)
        query = hostile.filter()
        allowed(lambda update=update, query=query: encode(upserted_document(query, update)))


@pytest.mark.parametrize("seed", SEEDS)
def test_projections_sorts_and_collations(seed: int) -> None:
    hostile = Hostile(seed)
    documents = [hostile.document(number) for number in range(12)]
    matcher = compile_filter({"a": 1}, CONTEXT)
    for _ in range(1_000):
        given = hostile.object([*PATHS, "a.$", "_id", "$a", ""])
        project = allowed(lambda given=given: compile_projection(given, CONTEXT, matcher))
        order = allowed(lambda given=given: compile_sort(given))
        collation = allowed(lambda: parse_collation(hostile.object(COLLATION)))
        for document in documents:
            if project is not None:
                allowed(lambda document=document, project=project: project(document))
            if order is not None:
                allowed(lambda document=document, order=order: order.key(document))
        if collation is not None:
            distinct_values(documents, "a", collation)


def test_ids_are_left_to_the_door() -> None:
    assert upserted_document({}, compile_update({"$set": {"a": 1}}, CONTEXT)) == {"a": 1}
