"""The same of splits and of what the other protocols, captures and the clock do over several processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from control.test_captures import container as container
from control.test_captures import sql as sql
from control.test_captures import test_mongo as test_mongo
from control.test_captures import test_sql as test_sql
from sdk import test_ttl
from sdk.test_gremlin import _quiet_client as _quiet_client
from sdk.test_gremlin import graph as graph
from sdk.test_gremlin import run as run
from sdk.test_gremlin import test_both_doors_work_on_one_graph as test_both_doors_work_on_one_graph
from sdk.test_gremlin import test_fluent as test_fluent
from sdk.test_mongo import house as house
from sdk.test_mongo import test_documents as test_documents
from sdk.test_mongo import test_sharded_collections as test_sharded_collections
from sdk.test_mongo import test_transactions_streams_and_tails as test_transactions_streams_and_tails
from sdk.test_splits import filled as filled
from sdk.test_splits import test_a_continuation_of_before_a_split as test_a_continuation_of_before_a_split
from sdk.test_splits import test_an_old_map_gives_no_row_twice as test_an_old_map_gives_no_row_twice
from sdk.test_splits import test_sessions_over_a_split as test_sessions_over_a_split
from sdk.test_tables import service as service
from sdk.test_tables import table as table
from sdk.test_tables import test_queries_filter_select_and_page as test_queries_filter_select_and_page
from sdk.test_tables import test_tables_and_sql_see_the_same as test_tables_and_sql_see_the_same
from sdk.test_tables import test_transactions_are_all_or_nothing as test_transactions_are_all_or_nothing
from support.server_operator import Operator

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def stopped_clock(operator: Operator) -> Iterator[Operator]:
    """Time stands still in all processes until it is moved."""
    operator.ask("POST", "clock", {"frozen": True})
    yield operator
    operator.ask("POST", "clock", {"frozen": False})


async def test_items_expire(database: Any, stopped_clock: Operator) -> None:
    await test_ttl.test_expiry(database, stopped_clock)
