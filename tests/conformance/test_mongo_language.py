"""The corpus of MongoDB behaviour over plain lists of documents: the language alone, without door, index or store."""

from __future__ import annotations

from typing import Any

import pytest
from support.mongo_cases import decoded, difference, load_cases
from support.mongo_lists import Lists

from armillary.errors import Failure
from armillary.model.bson.bson_values import order_key

CASES = [*load_cases(), *load_cases("own_cases"), *load_cases("own_find_cases")]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    collections = {name: decoded(documents) for name, documents in case.get("other", {}).items()}
    lists = Lists({**collections, "c": decoded(case["docs"])})
    try:
        reply = lists.run(decoded(case["command"]))
    except Failure as failure:
        if case["expect"].get("error") in (True, failure.details.get("code")):
            return
        raise
    after = sorted(lists.documents("c"), key=lambda document: order_key(document["_id"]))
    assert difference(case, reply, after) is None
