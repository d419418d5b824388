"""The steps of `pydocumentdb`, the Python client of 2015 to 2018."""

from __future__ import annotations

import os
from typing import Any

import pydocumentdb.documents as documents
import pydocumentdb.errors as errors
from clients.program_steps import (
    DATABASE,
    ENDPOINT,
    ITEMS,
    KEY,
    Missing,
    Steps,
    advance_clock,
    equal,
    hits,
    split,
    throttle,
    user_part,
)
from pydocumentdb.document_client import DocumentClient

step = Steps()


def connect() -> Any:
    policy = documents.ConnectionPolicy()
    policy.SSLConfiguration = documents.SSLConfiguration()
    policy.SSLConfiguration.SSLCaCerts = os.environ["ARMILLARY_CERTIFICATE"]
    return DocumentClient(ENDPOINT, {"masterKey": KEY}, policy)


client: Any = connect()
DATABASE_LINK = f"dbs/{DATABASE}"
ITEMS_LINK = f"{DATABASE_LINK}/colls/items"
FOUR_PARTITIONS_RU = 24_000


def refused(status: int, call: Any, *arguments: Any) -> Any:
    try:
        call(*arguments)
    except errors.HTTPFailure as error:
        equal(error.status_code, status)
        return error
    raise AssertionError(f"expected {status}, and the request succeeded")


def link(identifier: str, container: str = ITEMS_LINK) -> str:
    return f"{container}/docs/{identifier}"


def at(key: Any) -> dict[str, Any]:
    return {"partitionKey": key}


def query(text: str, **options: Any) -> list[Any]:
    return list(client.QueryDocuments(ITEMS_LINK, text, {"enableCrossPartitionQuery": True} | options))


def pages(text: str, size: int) -> list[list[Any]]:
    found = client.QueryDocuments(ITEMS_LINK, text, {"enableCrossPartitionQuery": True, "maxItemCount": size})
    blocks: list[list[Any]] = []
    while block := found.fetch_next_block():
        blocks.append(block)
    return blocks


@step
def create_database() -> None:
    equal(client.CreateDatabase({"id": DATABASE})["id"], DATABASE)


@step
def create_existing_database_409() -> None:
    refused(409, client.CreateDatabase, {"id": DATABASE})


@step
def read_database() -> None:
    equal(client.ReadDatabase(DATABASE_LINK)["_self"], f"dbs/{client.ReadDatabase(DATABASE_LINK)['_rid']}/")


@step
def list_databases() -> None:
    equal([each["id"] for each in client.ReadDatabases()], [DATABASE])


@step
def query_databases() -> None:
    text = {"query": "SELECT * FROM r WHERE r.id = @id", "parameters": [{"name": "@id", "value": DATABASE}]}
    equal([each["id"] for each in client.QueryDatabases(text)], [DATABASE])


@step
def create_container_four_partitions() -> None:
    definition = {"id": "items", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}, "defaultTtl": -1}
    made = client.CreateCollection(DATABASE_LINK, definition, {"offerThroughput": FOUR_PARTITIONS_RU})
    equal(made["partitionKey"]["paths"], ["/pk"])


@step
def read_container() -> None:
    equal(client.ReadCollection(ITEMS_LINK)["defaultTtl"], -1)


@step
def list_containers() -> None:
    equal([each["id"] for each in client.ReadCollections(DATABASE_LINK)], ["items"])


@step
def create_item() -> None:
    for each in ITEMS:
        equal(user_part(client.CreateDocument(ITEMS_LINK, each)), each)


@step
def create_existing_item_409() -> None:
    refused(409, client.CreateDocument, ITEMS_LINK, ITEMS[0])


@step
def read_item() -> None:
    equal(user_part(client.ReadDocument(link("item-07"), at("key-7"))), ITEMS[7])


@step
def read_item_by_self_link() -> None:
    item = client.ReadDocument(link("item-07"), at("key-7"))
    equal(client.ReadDocument(item["_self"], at("key-7")), item)


@step
def read_missing_item_404() -> None:
    refused(404, client.ReadDocument, link("none"), at("key-7"))


@step
def upsert_item() -> None:
    equal(client.UpsertDocument(ITEMS_LINK, ITEMS[3] | {"upserted": 1})["upserted"], 1)
    equal(client.UpsertDocument(ITEMS_LINK, {"id": "new", "pk": "key-new"})["id"], "new")
    client.DeleteDocument(link("new"), at("key-new"))


@step
def replace_item() -> None:
    made = client.ReplaceDocument(link("item-03"), ITEMS[3] | {"replaced": True}, at("key-3"))
    equal(user_part(made), ITEMS[3] | {"replaced": True})
    client.ReplaceDocument(link("item-03"), ITEMS[3], at("key-3"))


@step
def replace_with_stale_etag_412() -> None:
    before = client.ReadDocument(link("item-04"), at("key-4"))
    condition = {"accessCondition": {"type": "IfMatch", "condition": before["_etag"]}} | at("key-4")
    client.ReplaceDocument(link("item-04"), ITEMS[4], condition)
    refused(412, client.ReplaceDocument, link("item-04"), ITEMS[4], condition)


@step
def read_if_none_match_304() -> None:
    before = client.ReadDocument(link("item-05"), at("key-5"))
    condition = {"accessCondition": {"type": "IfNoneMatch", "condition": before["_etag"]}} | at("key-5")
    client.ReadDocument(link("item-05"), condition)
    equal(client.last_response_headers["etag"], before["_etag"])


@step
def delete_item() -> None:
    client.CreateDocument(ITEMS_LINK, {"id": "short-lived", "pk": "key-0"})
    client.DeleteDocument(link("short-lived"), at("key-0"))
    refused(404, client.DeleteDocument, link("short-lived"), at("key-0"))


step.missing("the client is older than the feature", "patch-item", "batch", "batch-rolls-back", "bulk")
step.missing("the client is older than the feature", "hierarchical-keys-create", "hierarchical-keys-query-prefix")


@step
def unicode_ids() -> None:
    made = client.CreateDocument(ITEMS_LINK, {"id": "naïve-ключ-鍵", "pk": "schlüssel"})
    equal(client.ReadDocument(made["_self"], at("schlüssel"))["id"], "naïve-ключ-鍵")
    equal(client.ReadDocument(link("naïve-ключ-鍵"), at("schlüssel"))["id"], "naïve-ключ-鍵")
    client.DeleteDocument(made["_self"], at("schlüssel"))


@step
def large_item_refused_413() -> None:
    refused(413, client.CreateDocument, ITEMS_LINK, {"id": "large", "pk": "key-0", "text": "x" * 2_200_000})


@step
def list_items_pages() -> None:
    found = client.ReadDocuments(ITEMS_LINK, {"maxItemCount": 7})
    equal(sorted(each["id"] for each in found), [each["id"] for each in ITEMS])


@step
def query_one_partition() -> None:
    found = list(client.QueryDocuments(ITEMS_LINK, "SELECT VALUE c.number FROM c", at("key-2")))
    equal(sorted(found), [2, 10, 18, 26, 34])


@step
def query_parameters() -> None:
    text = {"query": "SELECT * FROM c WHERE c.number = @n", "parameters": [{"name": "@n", "value": 11}]}
    found = list(client.QueryDocuments(ITEMS_LINK, text, {"enableCrossPartitionQuery": True}))
    equal([user_part(each) for each in found], [ITEMS[11]])


@step
def query_without_cross_partition_option_400() -> None:
    refused(400, lambda: list(client.QueryDocuments(ITEMS_LINK, "SELECT * FROM c")))


@step
def query_bad_syntax_400() -> None:
    refused(400, lambda: query("SELEC * FROM c"))


@step
def query_order_by_pages() -> None:
    found = pages("SELECT VALUE c.number FROM c ORDER BY c.number DESC", 6)
    equal([each for block in found for each in block], list(range(39, -1, -1)))


@step
def query_order_by_strings() -> None:
    found = query("SELECT c.id FROM c ORDER BY c.id", maxItemCount=5)
    equal([each["id"] for each in found], [each["id"] for each in ITEMS])


@step
def query_top() -> None:
    equal(query("SELECT TOP 5 VALUE c.number FROM c ORDER BY c.number"), [0, 1, 2, 3, 4])


@step
def query_count() -> None:
    equal(query("SELECT VALUE COUNT(1) FROM c"), [40])


@step
def query_sum() -> None:
    equal(query("SELECT VALUE SUM(c.number) FROM c"), [780])


@step
def query_avg() -> None:
    equal(query("SELECT VALUE AVG(c.number) FROM c"), [19.5])


@step
def query_min_max() -> None:
    equal(query("SELECT VALUE MIN(c.number) FROM c"), [0])
    equal(query("SELECT VALUE MAX(c.number) FROM c"), [39])


@step
def query_join() -> None:
    found = query("SELECT VALUE t FROM c JOIN t IN c.nested.tags WHERE c.number < 3")
    equal(sorted(found), ["all", "all", "all", "tag-0", "tag-1", "tag-2"])


@step
def query_group_by() -> None:
    found = query("SELECT c['group'], COUNT(1) AS n FROM c GROUP BY c['group']")
    equal(sorted((each["group"], each["n"]) for each in found), [("a", 14), ("b", 13), ("c", 13)])


@step
def query_distinct() -> None:
    equal(sorted(query("SELECT DISTINCT VALUE c['group'] FROM c")), ["a", "b", "c"])


@step
def query_offset_limit() -> None:
    equal(query("SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 10 LIMIT 3"), [10, 11, 12])


step.missing("the client sends no continuation that it is given", "query-continuation-resumed")


def changes_of(range_id: str, **options: Any) -> tuple[list[Any], str]:
    options = {"partitionKeyRangeId": range_id} | options
    found = list(client.QueryDocumentsChangeFeed(ITEMS_LINK, options))
    return found, client.last_response_headers["etag"]


positions: dict[str, str] = {}


@step
def change_feed_from_beginning() -> None:
    seen: list[str] = []
    for each in client._ReadPartitionKeyRanges(ITEMS_LINK):
        found, positions[each["id"]] = changes_of(each["id"], isStartFromBeginning=True)
        seen += [change["id"] for change in found]
    equal(sorted(seen), [each["id"] for each in ITEMS])


@step
def change_feed_resumed() -> None:
    client.ReplaceDocument(link("item-09"), ITEMS[9] | {"changed": True}, at("key-1"))
    found = [change for each in positions for change in changes_of(each, continuation=positions[each])[0]]
    equal([(each["id"], each["changed"]) for each in found], [("item-09", True)])
    client.ReplaceDocument(link("item-09"), ITEMS[9], at("key-1"))


step.missing("the client has no change feed processor", "change-feed-processor")


@step
def split_underneath_reads() -> None:
    global client
    split("items")
    for each in ITEMS:
        equal(user_part(client.ReadDocument(link(each["id"]), at(each["pk"]))), each)
    client.ReplaceDocument(link("item-01"), ITEMS[1], at("key-1"))
    client = connect()  # the client keeps the ranges that it has read


@step
def split_underneath_query_pages() -> None:
    global client
    text = "SELECT VALUE c.number FROM c ORDER BY c.number"
    found = client.QueryDocuments(ITEMS_LINK, text, {"enableCrossPartitionQuery": True, "maxItemCount": 5})
    equal(found.fetch_next_block(), [0, 1, 2, 3, 4])
    split("items")
    refused(410, lambda: list(found))
    client = connect()
    equal(list(client.QueryDocuments(ITEMS_LINK, text, {"enableCrossPartitionQuery": True})), list(range(40)))
    raise Missing("the client does not handle the 410 of a running query; a new client does")


@step
def throttled_429_retried() -> None:
    rule = throttle("items", "read", 2)
    equal(user_part(client.ReadDocument(link("item-02"), at("key-2"))), ITEMS[2])
    equal(hits(rule), 2)


@step
def session_read_own_write() -> None:
    client.UpsertDocument(ITEMS_LINK, ITEMS[6] | {"session": 1})
    token = client.last_response_headers["x-ms-session-token"]
    other = connect()
    equal(other.ReadDocument(link("item-06"), at("key-6") | {"sessionToken": token})["session"], 1)
    client.UpsertDocument(ITEMS_LINK, ITEMS[6])


PROCEDURE = """function create(one, two, fails) {
    var items = getContext().getCollection();
    items.createDocument(items.getSelfLink(), one, function (error) {
        if (error) throw error;
        items.createDocument(items.getSelfLink(), two, function (error, made) {
            if (error || fails) throw error || new Error("as it was told");
            getContext().getResponse().setBody(made.id);
        });
    });
}"""
TWO = [{"id": "by-script-1", "pk": "script"}, {"id": "by-script-2", "pk": "script"}]


@step
def stored_procedure() -> None:
    client.CreateStoredProcedure(ITEMS_LINK, {"id": "create", "body": PROCEDURE})
    found = client.ExecuteStoredProcedure(f"{ITEMS_LINK}/sprocs/create", [*TWO, False], at("script"))
    equal(found, "by-script-2")
    for each in TWO:
        client.DeleteDocument(link(each["id"]), at("script"))


@step
def stored_procedure_rolls_back() -> None:
    call = client.ExecuteStoredProcedure
    error = refused(400, call, f"{ITEMS_LINK}/sprocs/create", [*TWO, True], at("script"))
    assert "as it was told" in str(error), str(error)
    refused(404, client.ReadDocument, link("by-script-1"), at("script"))


@step
def user_defined_function() -> None:
    body = "function twice(n) { return 2 * n; }"
    client.CreateUserDefinedFunction(ITEMS_LINK, {"id": "twice", "body": body})
    equal(query("SELECT VALUE udf.twice(c.number) FROM c WHERE c.number = 21"), [42])


@step
def trigger() -> None:
    body = """function stamp() {
        var request = getContext().getRequest(), item = request.getBody();
        item.stamped = true;
        request.setBody(item);
    }"""
    definition = {"id": "stamp", "body": body, "triggerType": "Pre", "triggerOperation": "All"}
    client.CreateTrigger(ITEMS_LINK, definition)
    made = client.CreateDocument(ITEMS_LINK, {"id": "stamped", "pk": "key-0"}, {"preTriggerInclude": "stamp"})
    equal(made["stamped"], True)
    client.DeleteDocument(made["_self"], at("key-0"))


@step
def ttl_expires() -> None:
    client.CreateDocument(ITEMS_LINK, {"id": "brief", "pk": "key-0", "ttl": 20})
    equal(client.ReadDocument(link("brief"), at("key-0"))["ttl"], 20)
    advance_clock(30)
    refused(404, client.ReadDocument, link("brief"), at("key-0"))


def offer() -> Any:
    container = client.ReadCollection(ITEMS_LINK)
    (found,) = [each for each in client.ReadOffers() if each["resource"] == container["_self"]]
    return found


@step
def throughput_read() -> None:
    equal(offer()["content"]["offerThroughput"], FOUR_PARTITIONS_RU)


@step
def throughput_replace() -> None:
    found = offer()
    found["content"]["offerThroughput"] = 20_000
    equal(client.ReplaceOffer(found["_self"], found)["content"]["offerThroughput"], 20_000)
    equal(offer()["content"]["offerThroughput"], 20_000)


@step
def users_and_resource_tokens() -> None:
    user = client.CreateUser(DATABASE_LINK, {"id": "reader"})
    container = client.ReadCollection(ITEMS_LINK)
    permission = {"id": "read-items", "permissionMode": "Read", "resource": container["_self"]}
    made = client.CreatePermission(user["_self"], permission)
    reader = DocumentClient(ENDPOINT, {"permissionFeed": [made]}, client.connection_policy)
    first = client.ReadDocument(link("item-08"), at("key-0"))
    equal(user_part(reader.ReadDocument(first["_self"], at("key-0"))), ITEMS[8])
    refused(403, reader.DeleteDocument, first["_self"], at("key-0"))


@step
def delete_container() -> None:
    client.DeleteCollection(ITEMS_LINK)
    refused(404, client.ReadCollection, ITEMS_LINK)


@step
def delete_database() -> None:
    client.DeleteDatabase(DATABASE_LINK)
    refused(404, client.ReadDatabase, DATABASE_LINK)


if __name__ == "__main__":
    step.run()
