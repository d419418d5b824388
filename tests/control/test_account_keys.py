"""The account's keys at all doors of a real server: which one opens what, and changing them with no failed request."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientError
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.data.tables import TableServiceClient
from control.conftest import Start
from gremlin_python.driver.client import Client as GremlinClient
from gremlin_python.driver.protocol import GremlinServerError
from gremlin_python.driver.serializer import GraphSONSerializersV2d0
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from support.process import KEY, READY_S
from support.server_operator import Operator

SECONDARY, READ_ONLY, SECOND_READ_ONLY, WRONG = (base64.b64encode(bytes([each]) * 64).decode() for each in range(4))
pytestmark = [
    # The client of Gremlin's own: when it is refused it leaves event loops to the collector.
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
OPTIONS = ("--secondary-key", SECONDARY, "--read-only-key", READ_ONLY, "--secondary-read-only-key", SECOND_READ_ONLY)


class Doors:
    """One reading and one writing request at each door, with a key."""

    def __init__(self, operator: Operator, key: str) -> None:
        self._doors, self._key = operator.server.doors, key
        self._url = operator.server.url
        self._cosmos: Any = None
        self._mongo: MongoClient[dict[str, Any]] | None = None
        self._gremlin: GremlinClient | None = None

    def sql(self) -> Any:
        if self._cosmos is None:
            self._cosmos = CosmosClient(self._url, self._key).get_database_client("db").get_container_client("c")
        return self._cosmos

    def read_sql(self) -> object:
        return self.sql().read_item("1", "1")

    def write_sql(self) -> object:
        return self.sql().upsert_item({"id": "new", "pk": "new"})

    def tables(self) -> TableServiceClient:
        return TableServiceClient(self._doors["table"], credential=AzureNamedKeyCredential("localhost", self._key))

    def read_table(self) -> object:
        with self.tables() as tables:
            return tables.get_table_client("t").get_entity("p", "1")

    def write_table(self) -> object:
        with self.tables() as tables:
            return tables.get_table_client("t").upsert_entity({"PartitionKey": "p", "RowKey": "new"})

    def mongo(self) -> MongoClient[dict[str, Any]]:
        if self._mongo is None:
            # A driver that was refused looks at the server again before it does anything else.
            address = self._doors["mongo"]
            self._mongo = MongoClient(address, username="localhost", password=self._key, heartbeatFrequencyMS=500)
        return self._mongo

    def read_mongo(self) -> object:
        return self.mongo()["m"]["docs"].find_one({"_id": 1})

    def write_mongo(self) -> object:
        return self.mongo()["m"]["docs"].update_one({"_id": 2}, {"$set": {"x": 1}}, upsert=True)

    def gremlin(self) -> GremlinClient:
        if self._gremlin is None:
            self._gremlin = GremlinClient(
                f"ws://{urlsplit(self._doors['gremlin']).netloc}/gremlin",
                "g",
                username="/dbs/db/colls/c",
                password=self._key,
                message_serializer=GraphSONSerializersV2d0(),
                pool_size=1,
            )
        return self._gremlin

    def read_gremlin(self) -> object:
        return self.gremlin().submit("g.V().count()").all().result()

    def write_gremlin(self) -> object:
        return self.gremlin().submit("g.addV('x').property('pk', 'v')").all().result()

    def close(self) -> None:
        if self._mongo is not None:
            self._mongo.close()
        if self._gremlin is not None:
            self._gremlin.close()


# A client of Gremlin that was refused finds its connection closed the next time; it says so with a RuntimeError when it
# was already reading.
REFUSALS = (HttpResponseError, PyMongoError, GremlinServerError, ClientError)
CLOSED = "Connection was closed by server."
DOORS = ("sql", "table", "mongo", "gremlin")


def prepare(operator: Operator) -> None:
    container = CosmosClient(operator.server.url, KEY).create_database("db").create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "1"})
    with closing(Doors(operator, KEY)) as doors:
        with doors.tables() as tables:
            tables.create_table("t").create_entity({"PartitionKey": "p", "RowKey": "1"})
        doors.mongo()["m"]["docs"].insert_one({"_id": 1})


def state(operator: Operator) -> list[tuple[str, int]]:
    found = operator.ask("GET", "containers")["containers"]
    return sorted((f"{each['database']}/{each['name']}", each["items"]) for each in found)


def outcome(request: Callable[[], object]) -> str:
    try:
        request()
    except REFUSALS as error:
        return f"refused: {type(error).__name__}"
    except RuntimeError as error:
        if str(error) != CLOSED:
            raise
        return f"refused: {error}"
    return "done"


def cells(operator: Operator, key: str) -> Iterator[tuple[str, str]]:
    with closing(Doors(operator, key)) as doors:
        for door in DOORS:
            for kind in ("read", "write"):
                yield f"{kind}_{door}", outcome(getattr(doors, f"{kind}_{door}"))


def test_each_key_opens_what_it_is_for(start_operator: Start) -> None:
    operator = start_operator(*OPTIONS)
    prepare(operator)
    before = state(operator)
    for key in (WRONG, READ_ONLY, SECOND_READ_ONLY):
        for name, found in cells(operator, key):
            is_allowed = key != WRONG and name.startswith("read")
            assert (found == "done") is is_allowed, (name, found)
    assert state(operator) == before
    for key in (SECONDARY, KEY):
        assert {found for _, found in cells(operator, key)} == {"done"}
    assert state(operator) != before


def test_keys_are_changed_without_a_failed_request(start_operator: Start) -> None:
    operator = start_operator(*OPTIONS)
    prepare(operator)
    failures: list[str] = []
    counts = dict.fromkeys(DOORS, 0)
    current = {"key": KEY}
    is_over = threading.Event()
    moved = threading.Barrier(len(DOORS) + 1)

    def work(door: str) -> None:
        """As an application does that can change its key: with new connections then."""
        key = ""
        doors = Doors(operator, KEY)
        while not is_over.is_set():
            if key != current["key"]:
                doors.close()
                is_first, key = not key, current["key"]
                doors = Doors(operator, key)
                if outcome(getattr(doors, f"read_{door}")) != "done":
                    failures.append(f"first read of {door}")
                if not is_first:
                    moved.wait(READY_S)
            for kind in ("read", "write"):
                found = outcome(getattr(doors, f"{kind}_{door}"))
                if found != "done":
                    failures.append(f"{kind} {door}: {found}")
            counts[door] += 1
        doors.close()

    threads = [threading.Thread(target=work, args=(door,)) for door in DOORS]
    for thread in threads:
        thread.start()
    try:
        with closing(Doors(operator, KEY)) as stale:
            assert outcome(stale.read_mongo) == outcome(stale.read_gremlin) == "done"
            current["key"] = SECONDARY
            moved.wait(READY_S)
            primary = operator.json("account-keys", "regenerate", "primary")["key"]
            # Clients with the old key are refused, on open connections too.
            assert outcome(stale.read_mongo) != "done"
            assert outcome(stale.read_gremlin) != "done"
            assert outcome(stale.read_sql) != "done"
            assert outcome(stale.read_table) != "done"
        current["key"] = primary
        moved.wait(READY_S)
        secondary = operator.ask("POST", "account/keys/secondary/regenerate")["key"]
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert min(counts.values()) > 0
    keys = {
        "primary": primary,
        "secondary": secondary,
        "primaryReadonly": READ_ONLY,
        "secondaryReadonly": SECOND_READ_ONLY,
    }
    assert operator.ask("GET", "account/keys")["keys"] == keys
    assert operator.send("POST", "account/keys/third/regenerate")[0] == 400
    # They are kept, until the settings say something else.
    operator.server.stop()
    again = start_operator(*OPTIONS)
    assert again.ask("GET", "account/keys")["keys"] == keys
    again.server.stop()
    changed = start_operator("--secondary-key", WRONG)
    assert changed.ask("GET", "account/keys")["keys"] == {
        "primary": primary,
        "secondary": WRONG,
        "primaryReadonly": None,
        "secondaryReadonly": None,
    }
    for operator_log in (operator.server.log, again.server.log, changed.server.log):
        assert primary not in operator_log


def test_read_only_keys_are_made_when_there_are_none(start_operator: Start) -> None:
    operator = start_operator()
    prepare(operator)
    key = operator.ask("POST", "account/keys/primaryReadonly/regenerate")["key"]
    doors = Doors(operator, key)
    assert outcome(doors.read_sql) == "done"
    with pytest.raises(CosmosHttpResponseError) as refused:
        doors.write_sql()
    assert refused.value.status_code == 403
