"""Keys of documents in the indexes of collections: their order, their rows, and what is unique."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from support.bson_documents import NUMBERS, random_document, random_value

from armillary.errors import Failure, Reason
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.model.bson.bson_order import class_bounds, inverted, order_bytes, order_class
from armillary.model.bson.bson_values import order_key
from armillary.model.indexes.field_indexes import SEVERAL_TERM, FieldIndex, is_cut_key


def sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def test_bytes_are_in_the_order_of_values_and_none_begins_another(seed: int) -> None:
    dice = random.Random(seed)
    values = [*NUMBERS, *[random_value(dice) for _ in range(800)]]
    known = [(order_key(value), order_bytes(value)) for value in values]
    for key, encoded in known:
        for other_key, other in dice.sample(known, 100):
            assert sign(encoded, other) == sign(key, other_key)
            assert sign(inverted(encoded), inverted(other)) == -sign(key, other_key)
            assert encoded == other or not encoded.startswith(other)


def test_values_lie_in_their_class(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(1_000):
        value = random_value(dice)
        low, high = class_bounds(order_class(value))
        assert low <= order_bytes(value) < high


def an_index(key: dict[str, Any], **options: Any) -> FieldIndex:
    return FieldIndex.parse({"key": key, "name": "x", **options}, slot=16)


def terms(index: FieldIndex, document: dict[str, Any]) -> list[bytes]:
    return [term for name, term in index.terms(document) if name == index.term_name]


def test_an_index_has_the_order_of_a_sort(seed: int) -> None:
    dice = random.Random(seed)
    for key in ({"a": 1}, {"a": -1}, {"a": 1, "b": -1}, {"a.b": 1, "c": 1}):
        index = an_index(key)
        sort = compile_sort(key)
        places = []
        for _ in range(300):
            document = random_document(dice)
            try:
                found = index.terms(document)
            except Failure:
                continue
            if len(found) == 1 and not is_cut_key(found[0][1]):
                places.append((found[0][1], sort.key(document)))
        assert len(places) > 50
        for term, place in places:
            for other_term, other in dice.sample(places, 20):
                assert (term < other_term) == (place < other), (term, other_term)


def test_arrays_have_a_key_for_each_element() -> None:
    index = an_index({"a": 1})
    assert terms(index, {"a": [3, 1, 3.0]}) == [order_bytes(3), order_bytes(1)]
    assert (index.several_name, SEVERAL_TERM) in index.terms({"a": [3, 1]})
    assert terms(index, {"a": [3]}) == [order_bytes(3)] == terms(index, {"a": 3})
    assert terms(index, {}) == terms(index, {"a": None}) == [order_bytes(None)]
    assert terms(index, {"a": []}) != terms(index, {})
    inner = an_index({"a.b": 1, "a.c": -1})
    assert len(terms(inner, {"a": [{"b": 1, "c": 2}, {"b": 3}, 5]})) == 3
    with pytest.raises(Failure) as caught:
        an_index({"a": 1, "b": 1}).terms({"a": [1], "b": [2]})
    assert caught.value.details["reason"] is Reason.PARALLEL_ARRAYS


def test_sparse_and_partial_indexes_leave_documents_out() -> None:
    sparse = an_index({"a": 1, "b": 1}, sparse=True)
    assert terms(sparse, {"c": 1}) == []
    assert len(terms(sparse, {"b": None})) == 1
    partial = FieldIndex.parse({"key": {"a": 1}, "name": "x"}, keeps=lambda document: document["a"] > 5)
    assert terms(partial, {"a": 5}) == [] and len(terms(partial, {"a": 6})) == 1
    assert not sparse.is_complete and not partial.is_complete


def test_wildcards_have_every_leaf() -> None:
    index = an_index({"$**": 1})
    document = {"a": {"b": [1, {"c": 2}], "d": {}}, "e": None}
    assert len(terms(index, document)) == 4
    assert len(terms(an_index({"a.b.$**": 1}), document)) == 2


def test_unique_values_are_whole() -> None:
    index = an_index({"a": 1}, unique=True)
    long = "x" * 2000
    assert index.unique_values({"a": long}) != index.unique_values({"a": long + "y"})
    assert terms(index, {"a": long}) == terms(index, {"a": long + "y"}) and is_cut_key(terms(index, {"a": long})[0])
    assert index.unique_values({"a": 5}) == index.unique_values({"a": Decimal128("5.0")})
    assert index.unique_values({"a": [1, Int64(1), 2]}) == [order_bytes(1), order_bytes(2)]
    assert an_index({"a": 1}).unique_values({"a": 5}) == []


def test_dates_end_lives() -> None:
    index = an_index({"at": 1}, expireAfterSeconds=60)
    assert index.expires_s({"at": DatetimeMS(5_000)}) == 65
    assert index.expires_s({"at": [DatetimeMS(9_000), DatetimeMS(5_000)]}) == 65
    assert index.expires_s({"at": "later"}) is None
    assert an_index({"_ts": 1}, expireAfterSeconds=60).expires_s({}) is None
