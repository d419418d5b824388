"""The management API of a server process: what it makes is there for the clients of all doors, it is off unless it is
asked for, and it stands in the security log. The management SDK itself is run by `make clients`, and its requests are
replayed by `tests/clients`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import CosmosClient
from azure.data.tables import TableServiceClient
from pymongo import MongoClient
from pymongo.collection import Collection
from support.process import KEY, ServerProcess

CONTROL_KEY = "bWFuYWdlbWVudCB0ZXN0cycgY29udHJvbCBrZXkgb2YgdGhpcyBzZXJ2ZXI="
SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/group"
ACCOUNT = f"{SUBSCRIPTION}/providers/Microsoft.DocumentDB/databaseAccounts/localhost"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess.start(None, "--control-key", CONTROL_KEY, "--management-port", "0")
    yield server
    server.stop()


def ask(server: ServerProcess, method: str, path: str, content: Any = None, key: str = CONTROL_KEY) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server.doors["management"].partition("://")[2], timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps(content) if content is not None else None
    connection.request(method, f"{ACCOUNT}{path}?api-version=2025-04-15", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def put(server: ServerProcess, path: str, resource: dict[str, Any], **options: Any) -> None:
    status, found = ask(server, "PUT", path, {"properties": {"resource": resource, "options": options}})
    assert status == 200, found


def test_clients_of_all_doors_find_what_it_makes(server: ServerProcess) -> None:
    put(server, "/sqlDatabases/shop", {"id": "shop"})
    key = {"paths": ["/customer"], "kind": "Hash"}
    put(server, "/sqlDatabases/shop/containers/orders", {"id": "orders", "partitionKey": key}, throughput=1000)
    index = {"key": {"keys": ["title"]}, "options": {}}
    put(
        server,
        "/mongodbDatabases/shop/collections/books",
        {"id": "books", "shardKey": {"a": "Hash"}, "indexes": [index]},
    )
    put(server, "/tables/parts", {"id": "parts"}, throughput=500)

    orders = CosmosClient(server.doors["sql"], KEY).get_database_client("shop").get_container_client("orders")
    orders.create_item({"id": "1", "customer": "c"})
    assert orders.get_throughput().offer_throughput == 1000
    client: MongoClient[Any]
    with MongoClient(server.doors["mongo"], username="localhost", password=KEY) as client:
        books: Collection[Any] = client["shop"]["books"]
        books.insert_one({"a": 1, "title": "x"})
        books.create_index([("year", -1)])
        assert sorted(books.index_information()) == ["_id_", "title_1", "year_-1"]
    tables = server.doors["table"].replace("127.0.0.1", "localhost")
    with TableServiceClient(tables, credential=AzureNamedKeyCredential("localhost", KEY)) as service:
        assert [each.name for each in service.list_tables()] == ["parts"]

    status, found = ask(server, "GET", "/mongodbDatabases/shop/collections/books")
    assert status == 200
    indexes = found["properties"]["resource"]["indexes"]
    assert [each["key"]["keys"] for each in indexes] == [["_id"], ["title"], ["year"]]
    put(
        server,
        "/mongodbDatabases/shop/collections/books",
        {"id": "books", "shardKey": {"a": "Hash"}, "indexes": indexes[2:]},
    )
    with MongoClient(server.doors["mongo"], username="localhost", password=KEY) as client:
        information = client["shop"]["books"].index_information()
    assert sorted(information) == ["_id_", "year_-1"], "an index that is named by its fields stays as it is"


def test_the_account_names_the_doors(server: ServerProcess) -> None:
    properties = ask(server, "GET", "")[1]["properties"]
    assert properties["documentEndpoint"] == f"{server.doors['sql']}/"
    strings = ask(server, "POST", "/listConnectionStrings")[1]["connectionStrings"]
    primary = {each["type"]: each["connectionString"] for each in strings if each["keyKind"] == "Primary"}
    assert primary["Sql"] == f"AccountEndpoint={server.doors['sql']}/;AccountKey={KEY};"
    assert set(primary) == {"Sql", "Table", "MongoDB", "Gremlin"}


def test_it_stands_in_the_security_log(server: ServerProcess) -> None:
    put(server, "/sqlDatabases/logged", {"id": "logged"})
    assert ask(server, "GET", "", key=KEY)[0] == 401
    log = server.log
    assert 'signin.refused door=management address=127.0.0.1 credential="control key"' in log
    assert 'signin.granted door=management address=127.0.0.1 credential="control key"' in log
    assert "database.created name=logged door=management" in log
    assert CONTROL_KEY not in log


def test_there_is_none_unless_it_is_asked_for(server: ServerProcess) -> None:
    other = ServerProcess.start(None)
    assert "management" in server.doors
    assert "management" not in other.doors
    other.stop()
