"""Random filters, sorts and updates: the compiled language and the slow reference agree on every document."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support import mongo_reference
from support.mongo_author import PATHS, MongoAuthor
from support.mongo_cases import exact

from armillary.errors import Failure
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.languages.mongo.updates.updates import compile_update
from armillary.model.bson.bson_values import encode

SEEDS = [random.Random(20240601 + place).getrandbits(32) for place in range(10)]
CONTEXT = Context.of(1_700_000_000_000, lambda: 0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_filters(seed: int) -> None:
    author = MongoAuthor(seed)
    documents = [author.document(number) for number in range(10)]
    for _ in range(300):
        given = author.filter()
        matcher = compile_filter(given, CONTEXT)
        found = [document["_id"] for document in documents if matcher.matches(document)]
        expected = [document["_id"] for document in documents if mongo_reference.matches(given, document)]
        assert found == expected, f"seed {seed}: {given}"


@pytest.mark.parametrize("seed", SEEDS)
def test_sorts(seed: int) -> None:
    author = MongoAuthor(seed)
    documents = [author.document(number) for number in range(10)]
    for path in PATHS:
        for direction in (1, -1):
            found = [document["_id"] for document in compile_sort({path: direction}).applied(documents)]
            expected = [document["_id"] for document in mongo_reference.sorted_by(documents, path, direction)]
            assert found == expected, f"seed {seed}: {path} {direction}"


@pytest.mark.parametrize("seed", SEEDS)
def test_updates(seed: int) -> None:
    author = MongoAuthor(seed)
    for number in range(300):
        document = author.document(number)
        before = encode(document)
        given, filters = author.update()
        expected, code = _expected(given, filters, document)
        found, refused = _found(given, filters, document)
        assert refused == code or (code == 0 and refused), f"seed {seed}: {given} {filters} {document}: {found}"
        if code is not None:
            continue
        assert exact(found) == exact(expected), f"seed {seed}: {given} {filters} {document}"
        assert encode(document) == before, "documents are not changed in place"
        assert (found is document) == (encode(found) == before), f"seed {seed}: {given} {document}: told as a change"


def _found(given: dict[str, Any], filters: list[dict[str, Any]], document: dict[str, Any]) -> tuple[Any, int | None]:
    try:
        return compile_update(given, CONTEXT, filters or None).apply(document), None
    except Failure as failure:
        return failure.message, failure.details["code"]


def _expected(given: dict[str, Any], filters: list[dict[str, Any]], document: dict[str, Any]) -> tuple[Any, int | None]:
    """The document, or the code of the refusal; 0 if several operators may be refused, each with its own."""
    named = {next(iter(each)).split(".")[0]: each for each in filters}
    used = {part[2:-1] for fields in given.values() for path in fields for part in path.split(".") if "$[" in part}
    if set(named) - used:
        return None, 9
    if used - set(named) - {""}:
        return None, 2
    try:
        return mongo_reference.updated(given, document, named, None), None
    except mongo_reference.Refused as refused:
        return None, refused.code if sum(map(len, given.values())) == 1 else 0
