"""A part of the query corpora on a server with three processes: queries of SQL as the released client sends them, and
commands of MongoDB, on containers of several partitions. `make soak` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conformance import test_mongo_client, test_sql_client
from conformance.test_mongo_client import house as house
from conformance.test_sql import CASES
from conformance.test_sql_client import client as client
from conformance.test_sql_client import container_for as container_for
from pymongo.database import Database
from support.process import SETTINGS

SQL = CASES[::3]
MONGO = test_mongo_client.CASES[::4]


@pytest.fixture(scope="module", autouse=True)
def _three_processes() -> Iterator[None]:
    """Of the server that `house` starts."""
    former = SETTINGS[:]
    SETTINGS[:] = ["--processes", "3"]
    yield
    SETTINGS[:] = former


@pytest.mark.parametrize("case", SQL, ids=[case["id"] for case in SQL])
def test_sql(case: dict[str, Any], container_for: Any, request: pytest.FixtureRequest) -> None:
    test_sql_client.test_merged_by_the_client(case, container_for, request)


@pytest.mark.parametrize("case", MONGO, ids=[case["id"] for case in MONGO])
def test_mongo(house: Database[Any], case: dict[str, Any]) -> None:
    test_mongo_client.check(house, case, 4)
