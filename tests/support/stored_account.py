"""An account that uses much of what can be stored, and what it answers. `tests/support/make_stored.py` writes its files
with one version of the program; `tests/faults/test_stored_fixture.py` asks every later version the same."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote_plus

import bson
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue
from azure.data.tables import EdmType, EntityProperty, TableServiceClient
from bson import json_util
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from pymongo import MongoClient
from support.process import ServerProcess

LONG_TTL_S = (
    10 * 365 * 86_400
)  # longer than any release is supported: these items are there until a test moves the clock
OWN = ("_rid", "_self", "_attachments")  # differ where a snapshot file made new resources

PROCEDURE = """function (prefix) {
    var text = "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.id, '" + prefix + "')";
    __.queryDocuments(__.getSelfLink(), text, function (error, found) {
        if (error) throw error;
        __.response.setBody(found.sort());
    });
}"""
TRIGGER = """function () {
    var item = __.request.getBody();
    item.stamped = true;
    __.request.setBody(item);
}"""
FUNCTION = "function (n) { return n * 2; }"


def sql_client(server: ServerProcess) -> CosmosClient:
    return CosmosClient(server.url, server.key)


def mongo_client(server: ServerProcess) -> MongoClient[dict[str, Any]]:
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@")
    return MongoClient(f"{address}/?replicaSet=globaldb")


def gremlin_answers(server: ServerProcess, *texts: str) -> list[list[Any]]:
    logging.getLogger("gremlinpython").setLevel(logging.CRITICAL)
    client = Client(
        f"{server.doors['gremlin']}/gremlin",
        "g",
        username="/dbs/graphs/colls/people",
        password=server.key,
        message_serializer=serializer.GraphSONSerializersV2d0(),
        pool_size=1,
    )
    try:
        return [client.submit(text).all().result(60) for text in texts]
    finally:
        client.close()


def table_service(server: ServerProcess) -> TableServiceClient:
    address = server.doors["table"].replace("127.0.0.1", "localhost")
    return TableServiceClient(address, credential=AzureNamedKeyCredential("localhost", server.key))


def fill(server: ServerProcess) -> None:
    """Everything but the split that is under way, which needs the control API."""
    with sql_client(server) as client:
        _fill_sql(client)
    with mongo_client(server) as mongo:
        _fill_mongo(mongo)
    with sql_client(server) as client:
        graphs = client.create_database("graphs")
        graphs.create_container("people", PartitionKey("/city"), offer_throughput=400)
    gremlin_answers(
        server,
        *(
            f"g.addV('person').property('id', 'p{n}').property('city', 'c{n % 3}').property('age', {20 + n})"
            for n in range(9)
        ),
        *(f"g.V(['c{n % 3}', 'p{n}']).addE('knows').to(g.V('p{n + 1}')).property('since', {n})" for n in range(8)),
    )
    with table_service(server) as service:
        table = service.create_table("Devices")
        for n in range(12):
            entity = {
                "PartitionKey": f"hall {n % 3}",
                "RowKey": f"{n:03}",
                "Count": EntityProperty(n << 40, EdmType.INT64),
                "Weight": n / 4,
                "Name": f"dévice {n}",
                "On": n % 2 == 0,
            }
            table.create_entity(entity)


def _fill_sql(client: CosmosClient) -> None:
    shop = client.create_database("shop")
    orders = shop.create_container(
        "orders",
        PartitionKey("/customer"),
        offer_throughput=20_000,
        unique_key_policy={"uniqueKeys": [{"paths": ["/number"]}]},
        indexing_policy={
            "indexingMode": "consistent",
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/note/?"}],
            "compositeIndexes": [
                [{"path": "/total", "order": "ascending"}, {"path": "/number", "order": "descending"}]
            ],
        },
        computed_properties=[{"name": "upper", "query": "SELECT VALUE UPPER(c.customer) FROM c"}],
    )
    for n in range(60):
        orders.create_item(
            {
                "id": f"o{n}",
                "customer": f"customer-{n % 7}",
                "number": n,
                "total": n % 5 * 1.5,
                "note": "a note " * (n % 4),
                "tags": [f"t{n % 3}", n, None, {"deep": [n]}],
            }
        )
    orders.upsert_item({"id": "o3", "customer": "customer-3", "number": 3, "total": -1, "due": "2030-01-01"})
    orders.patch_item("o4", "customer-4", [{"op": "incr", "path": "/total", "value": 100}])
    orders.delete_item("o5", "customer-5")
    steps = [("create", ({"id": f"b{n}", "customer": "customer-1", "number": 100 + n},)) for n in range(3)]
    orders.execute_item_batch(steps, "customer-1")
    keys = (True, False, 0, 1, -1.5, 1e300, "", "1", "ü" * 200)
    mixed = shop.create_container("mixed", PartitionKey("/pk"), offer_throughput=400, default_ttl=-1)
    for n, key in enumerate(keys):
        mixed.create_item({"id": f"m{n}", "pk": key})
    mixed.create_item({"id": "without"})
    for n in range(4):
        mixed.create_item({"id": f"long{n}", "pk": "ttl", "ttl": LONG_TTL_S})
    tenants = shop.create_container(
        "tenants",
        PartitionKey(["/tenant", "/user", "/session"], kind="MultiHash"),
        offer_throughput=400,
        change_feed_policy={"retentionDuration": 10},
    )
    for n in range(30):
        tenants.create_item({"id": f"s{n}", "tenant": f"tenant {n % 2}", "user": n % 5, "session": f"{n}"})
    for n in range(0, 30, 4):
        tenants.upsert_item(
            {"id": f"s{n}", "tenant": f"tenant {n % 2}", "user": n % 5, "session": f"{n}", "again": True}
        )
    scripts = orders.scripts
    scripts.create_stored_procedure({"id": "ids", "body": PROCEDURE})
    scripts.create_trigger({"id": "stamp", "body": TRIGGER, "triggerType": "Pre", "triggerOperation": "Create"})
    scripts.create_user_defined_function({"id": "double", "body": FUNCTION})
    orders.create_item({"id": "stamped", "customer": "customer-0", "number": 999}, pre_trigger_include="stamp")
    user = shop.create_user({"id": "ann"})
    user.create_permission({"id": "all", "permissionMode": "Read", "resource": "dbs/shop/colls/orders"})
    user.create_permission(
        {
            "id": "one",
            "permissionMode": "All",
            "resource": "dbs/shop/colls/orders",
            "resourcePartitionKey": ["customer-1"],
        }
    )
    growing = shop.create_container("growing", PartitionKey("/pk"), offer_throughput=400)
    for n in range(80):
        growing.create_item({"id": f"g{n}", "pk": f"k{n % 20}", "text": f"{n} " * 20})
    single = shop.create_container("moved", PartitionKey("/old"), offer_throughput=400)
    for n in range(12):
        single.create_item({"id": f"v{n}", "old": f"o{n % 3}", "new": f"n{n % 4}"})


def _fill_mongo(mongo: MongoClient[dict[str, Any]]) -> None:
    library = mongo["library"]
    library.command({"customAction": "CreateCollection", "collection": "books", "shardKey": "author"})
    books = library["books"]
    books.insert_many(
        [
            {
                "_id": n,
                "author": f"author {n % 4}",
                "isbn": bson.Int64(n << 33),
                "price": bson.Decimal128(f"{n}.50"),
                "tags": ["a", n % 3, None],
                "added": bson.datetime_ms.DatetimeMS(1_700_000_000_000 + n),
                "raw": bson.Binary(bytes([n]), 0),
            }
            for n in range(20)
        ]
    )
    books.create_index([("tags", 1), ("price", -1)], name="tags_price")
    books.create_index("author")
    loans = library["loans"]
    loans.create_index("isbn", unique=True)
    loans.create_index("until", expireAfterSeconds=LONG_TTL_S)
    for n in range(6):
        loans.insert_one({"_id": bson.ObjectId(f"{n:024x}"), "isbn": n})
    with mongo.start_session() as session:  # of a session that is not used again: its record of a retryable write stays
        loans.insert_one({"_id": "once", "isbn": "once"}, session=session)
    library.create_collection("recent", capped=True, size=4096, max=3)
    library["recent"].insert_many([{"_id": n} for n in range(5)])


def answers(server: ServerProcess) -> dict[str, Any]:
    """What a later version must answer too, as JSON."""
    told: dict[str, Any] = {}
    with sql_client(server) as client:
        for database in ("shop", "library", "graphs", "TablesDB"):
            for container in sorted(each["id"] for each in client.get_database_client(database).list_containers()):
                name = f"{database}/{container}"
                told[f"items of {name}"] = items(client.get_database_client(database).get_container_client(container))
        shop = client.get_database_client("shop")
        told["definitions"] = {each["id"]: _without(each, *OWN) for each in shop.list_containers()}
        for text in (
            "SELECT c.id, c.total, c.number FROM c WHERE c.total >= -1 ORDER BY c.total ASC, c.number DESC",
            "SELECT c.id FROM c WHERE c.number >= 50 AND c.total = 1.5 ORDER BY c.number",
            "SELECT c.id, udf.double(c.number) AS twice FROM c WHERE c.upper = 'CUSTOMER-2' ORDER BY c.number",
            "SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 't1' AND c.number < 9 ORDER BY c.number",
            "SELECT VALUE COUNT(1) FROM c WHERE NOT IS_DEFINED(c.due)",
        ):
            found = shop.get_container_client("orders").query_items(text, enable_cross_partition_query=True)
            told[f"orders: {text}"] = list(found)
        mixed = shop.get_container_client("mixed")
        for key in (NonePartitionKeyValue, NullPartitionKeyValue, True, False, 0, 1, "1", ""):
            named = key.__name__ if isinstance(key, type) else json.dumps(key)
            told[f"mixed with key {named}"] = sorted(each["id"] for each in _of_key(mixed, key))
        told["mixed: c.pk = 0"] = _ids(mixed, "SELECT * FROM c WHERE c.pk = 0")
        tenants = shop.get_container_client("tenants")
        told["tenants of a prefix"] = sorted(
            each["id"] for each in tenants.query_items("SELECT * FROM c", partition_key=["tenant 1", 3])
        )
        changes = tenants.query_items_change_feed(start_time="Beginning")
        told["changes of tenants"] = sorted(each["id"] for each in changes)
        user = shop.get_user_client("ann")
        permissions = sorted(user.list_permissions(), key=lambda each: str(each["id"]))
        told["permissions"] = [_without(each, "_token", *OWN) for each in permissions]
    with mongo_client(server) as mongo:
        library = mongo["library"]
        for name in ("books", "loans", "recent"):
            told[f"documents of {name}"] = json.loads(
                json_util.dumps(library[name].find().sort("_id"), json_options=json_util.CANONICAL_JSON_OPTIONS)
            )
            told[f"indexes of {name}"] = json.loads(json_util.dumps(library[name].index_information()))
        found = library["books"].find({"tags": 1, "price": {"$gt": bson.Decimal128("4")}}).sort("price", -1)
        told["books by an index"] = [each["_id"] for each in found]
    graph = (
        "g.V().hasLabel('person').order().by('age').values('id')",
        "g.V(['c0', 'p0']).repeat(out('knows')).times(3).values('age')",
        "g.E().order().by('since').values('since')",
    )
    told |= dict(zip(graph, gremlin_answers(server, *graph), strict=True))
    with table_service(server) as service:
        found = service.get_table_client("Devices").query_entities("PartitionKey eq 'hall 1' and Weight ge 1.0")
        told["devices of hall 1"] = [json.loads(json.dumps(dict(each), default=str)) for each in found]
    decoded: dict[str, Any] = json.loads(json.dumps(told))
    return decoded


def items(container: ContainerProxy) -> list[dict[str, Any]]:
    return sorted(
        (dict(each) for each in container.read_all_items()), key=lambda item: json.dumps(item, sort_keys=True)
    )


def without_rids(told: dict[str, Any]) -> dict[str, Any]:
    """What is left equal where resources were made anew from a snapshot file."""
    found: dict[str, Any] = json.loads(json.dumps(told), object_hook=lambda each: _without(each, *OWN))
    found["definitions"] = {name: _without(each, "_etag", "_ts") for name, each in found["definitions"].items()}
    found["permissions"] = [_without(each, "_etag", "_ts") for each in found["permissions"]]
    return found


def _of_key(container: ContainerProxy, key: Any) -> Any:
    return container.query_items("SELECT * FROM c", partition_key=key)


def _ids(container: ContainerProxy, text: str) -> list[str]:
    return sorted(each["id"] for each in container.query_items(text, enable_cross_partition_query=True))


def _without(content: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in names}
