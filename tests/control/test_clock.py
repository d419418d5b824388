"""A server whose clock can be moved, seen by the released client: items expire, tokens end, budgets are filled, and
signatures go on to be made by real time."""

from __future__ import annotations

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from control.conftest import Start
from support.process import KEY
from support.server_operator import Operator


def test_items_expire_when_the_clock_is_moved(start_operator: Start) -> None:
    operator = start_operator("--clock", "movable")
    operator.ask("POST", "clock", {"frozen": True})
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database("db")
        container = database.create_container("c", PartitionKey("/pk"), default_ttl=3600)
        made = container.create_item({"id": "1", "pk": "K"})
        operator.ask("POST", "clock", {"advanceSeconds": 3599})
        assert container.read_item("1", "K")["_ts"] == made["_ts"]
        moved = operator.ask("POST", "clock", {"advanceSeconds": 1})
        with pytest.raises(CosmosResourceNotFoundError):
            container.read_item("1", "K")
        later = container.create_item({"id": "1", "pk": "K"})
        assert later["_ts"] == int(moved["nowSeconds"]) == made["_ts"] + 3600


def test_tokens_end_when_the_clock_is_moved(start_operator: Start) -> None:
    operator = start_operator("--clock", "movable")
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database("db")
        database.create_container("c", PartitionKey("/pk"))
        user = database.create_user({"id": "ann"})
        permission = user.create_permission({"id": "p", "permissionMode": "All", "resource": "dbs/db/colls/c"})
        token = permission.properties["_token"]
        with CosmosClient(operator.server.url, {"dbs/db/colls/c": token}) as bearer:
            held = bearer.get_database_client("db").get_container_client("c")
            assert list(held.query_items("SELECT * FROM c", partition_key="K")) == []
            operator.ask("POST", "clock", {"advanceSeconds": 3601})
            with pytest.raises(CosmosHttpResponseError) as caught:
                list(held.query_items("SELECT * FROM c", partition_key="K"))
            assert caught.value.status_code == 401
        # Keys sign with real time, hours away from the server's.
        operator.ask("POST", "clock", {"advanceSeconds": 86_400})
        assert [each["id"] for each in client.list_databases()] == ["db"]


def test_budgets_are_filled_by_the_clock(start_operator: Start) -> None:
    """A frozen second never ends: what it has is spent to the last unit, and moving on by one gives as much again."""
    operator = start_operator("--clock", "movable", "--throughput", "enforce")
    operator.ask("POST", "clock", {"frozen": True})
    with CosmosClient(operator.server.url, KEY, retry_throttle_total=1) as client:
        container = client.create_database("db").create_container("c", PartitionKey("/pk"), offer_throughput=400)
        container.create_item({"id": "1", "pk": "K"})
        operator.ask("POST", "clock", {"advanceSeconds": 1})
        for _ in range(2):
            for _ in range(400):
                container.read_item("1", "K")
            with pytest.raises(CosmosHttpResponseError) as caught:
                container.read_item("1", "K")
            assert (caught.value.status_code, caught.value.sub_status) == (429, 3200)
            operator.ask("POST", "clock", {"advanceSeconds": 1})
        refused = operator.metric("refused_total", database="db", container="c")
        assert refused == 4  # the client asks once more
        assert operator.metric("charge_request_units_total", database="db", container="c") >= 800


def test_the_clock_of_other_servers_stands_firm(operator: Operator) -> None:
    status, body = operator.send("POST", "clock", {"advanceSeconds": 1})
    assert status == 400
    assert b"--clock movable" in body
    assert operator.ask("GET", "clock")["movable"] is False
