"""The steps of `azure-cosmos`, the current Python client. tests/sdk has many more."""

from __future__ import annotations

import os
from typing import Any

os.environ["REQUESTS_CA_BUNDLE"] = os.environ["ARMILLARY_CERTIFICATE"]  # read when the client is made

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
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

step = Steps()
client: Any = CosmosClient(ENDPOINT, KEY)
database: Any = client.get_database_client(DATABASE)
items: Any = database.get_container_client("items")
FOUR_PARTITIONS_RU = 24_000


def refused(status: int, call: Any, *arguments: Any, **options: Any) -> Any:
    try:
        call(*arguments, **options)
    except CosmosHttpResponseError as error:
        equal(error.status_code, status)
        return error
    raise AssertionError(f"expected {status}, and the request succeeded")


def query(text: str, **options: Any) -> list[Any]:
    return list(items.query_items(text, enable_cross_partition_query=True, **options))


@step
def create_database() -> None:
    equal(client.create_database(DATABASE).id, DATABASE)


@step
def create_existing_database_409() -> None:
    refused(409, client.create_database, DATABASE)


@step
def list_databases() -> None:
    equal([each["id"] for each in client.list_databases()], [DATABASE])


@step
def create_container_four_partitions() -> None:
    key = PartitionKey("/pk")
    database.create_container("items", key, offer_throughput=FOUR_PARTITIONS_RU, default_ttl=-1)
    equal(len(list(items.read_feed_ranges())), 4)


@step
def list_containers() -> None:
    equal([each["id"] for each in database.list_containers()], ["items"])


@step
def create_item() -> None:
    for each in ITEMS:
        equal(user_part(items.create_item(each)), each)


@step
def create_existing_item_409() -> None:
    refused(409, items.create_item, ITEMS[0])


@step
def read_item() -> None:
    equal(user_part(items.read_item("item-07", "key-7")), ITEMS[7])


@step
def read_many_items() -> None:
    found = items.read_items([(each["id"], each["pk"]) for each in ITEMS[:20]])
    equal(sorted(each["id"] for each in found), [each["id"] for each in ITEMS[:20]])


@step
def read_missing_item_404() -> None:
    refused(404, items.read_item, "none", "key-7")


@step
def upsert_item() -> None:
    equal(items.upsert_item(ITEMS[3] | {"upserted": 1})["upserted"], 1)


@step
def replace_item() -> None:
    equal(user_part(items.replace_item("item-03", ITEMS[3])), ITEMS[3])


@step
def replace_with_stale_etag_412() -> None:
    from azure.core import MatchConditions

    etag = items.read_item("item-04", "key-4")["_etag"]
    options = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    items.replace_item("item-04", ITEMS[4], **options)
    refused(412, items.replace_item, "item-04", ITEMS[4], **options)


@step
def patch_item() -> None:
    changes = [
        {"op": "add", "path": "/patched", "value": [1]},
        {"op": "incr", "path": "/number", "value": 5},
        {"op": "remove", "path": "/nested/even"},
    ]
    found = items.patch_item("item-10", "key-2", changes)
    equal((found["patched"], found["number"], found["nested"]), ([1], 15, {"tags": ["tag-0", "all"]}))
    items.replace_item("item-10", ITEMS[10])


@step
def delete_item() -> None:
    items.create_item({"id": "short-lived", "pk": "key-0"})
    items.delete_item("short-lived", "key-0")
    refused(404, items.delete_item, "short-lived", "key-0")


@step
def batch() -> None:
    operations = [
        ("create", ({"id": "batch-1", "pk": "batch"},)),
        ("upsert", ({"id": "batch-2", "pk": "batch"},)),
        ("patch", ("batch-1", [{"op": "set", "path": "/n", "value": 1}])),
        ("read", ("batch-1",)),
        ("delete", ("batch-1",)),
        ("delete", ("batch-2",)),
    ]
    found = items.execute_item_batch(operations, "batch")
    equal([each["statusCode"] for each in found], [201, 201, 200, 200, 204, 204])


@step
def batch_rolls_back() -> None:
    operations = [("create", ({"id": "batch-1", "pk": "batch"},)), ("read", ("none",))]
    try:
        items.execute_item_batch(operations, "batch")
    except CosmosBatchOperationError as error:
        equal((error.error_index, [each["statusCode"] for each in error.operation_responses]), (1, [424, 404]))
    refused(404, items.read_item, "batch-1", "batch")


step.missing("the client has no bulk mode", "bulk")


@step
def hierarchical_keys_create() -> None:
    key = PartitionKey(["/tenant", "/user"], kind="MultiHash")
    tenants = database.create_container("tenants", key)
    for number in range(8):
        tenants.create_item({"id": str(number), "tenant": "ab"[number % 2], "user": str(number // 2)})
    equal(tenants.read_item("3", ["b", "1"])["user"], "1")


@step
def hierarchical_keys_query_prefix() -> None:
    tenants = database.get_container_client("tenants")
    found = tenants.query_items("SELECT VALUE c.id FROM c", partition_key=["a"])
    equal(sorted(found), ["0", "2", "4", "6"])
    database.delete_container("tenants")


@step
def unicode_ids() -> None:
    items.create_item({"id": "naïve-ключ-鍵", "pk": "schlüssel"})
    equal(items.read_item("naïve-ключ-鍵", "schlüssel")["id"], "naïve-ключ-鍵")
    items.delete_item("naïve-ключ-鍵", "schlüssel")


@step
def large_item_refused_413() -> None:
    refused(413, items.create_item, {"id": "large", "pk": "key-0", "text": "x" * 2_200_000})


@step
def list_items_pages() -> None:
    found = items.read_all_items(max_item_count=7)
    equal(sorted(each["id"] for each in found), [each["id"] for each in ITEMS])


@step
def query_one_partition() -> None:
    found = items.query_items("SELECT VALUE c.number FROM c", partition_key="key-2")
    equal(sorted(found), [2, 10, 18, 26, 34])


@step
def query_parameters() -> None:
    found = query("SELECT * FROM c WHERE c.number = @n", parameters=[{"name": "@n", "value": 11}])
    equal([user_part(each) for each in found], [ITEMS[11]])


@step
def query_bad_syntax_400() -> None:
    refused(400, query, "SELEC * FROM c")


@step
def query_order_by_pages() -> None:
    found = query("SELECT VALUE c.number FROM c ORDER BY c.number DESC", max_item_count=6)
    equal(found, list(range(39, -1, -1)))


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
def query_group_by() -> None:
    refused(400, query, "SELECT c['group'], COUNT(1) AS n FROM c GROUP BY c['group']")
    raise Missing("the client announces no GROUP BY, so the service and this server refuse it")


@step
def query_distinct() -> None:
    equal(sorted(query("SELECT DISTINCT VALUE c['group'] FROM c")), ["a", "b", "c"])


@step
def query_offset_limit() -> None:
    equal(query("SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 10 LIMIT 3"), [10, 11, 12])


@step
def query_continuation_resumed() -> None:
    options = {"partition_key": "key-1", "max_item_count": 2}
    pages = items.query_items("SELECT VALUE c.number FROM c", **options).by_page()
    found = list(next(pages))
    rest = items.query_items("SELECT VALUE c.number FROM c", **options).by_page(pages.continuation_token)
    equal(sorted([*found, *(each for page in rest for each in page)]), [1, 9, 17, 25, 33])


positions: list[str] = []


@step
def change_feed_from_beginning() -> None:
    pages = items.query_items_change_feed(start_time="Beginning").by_page()
    found = [each["id"] for page in pages for each in page]
    positions.append(pages.continuation_token)
    equal(sorted(found), [each["id"] for each in ITEMS])


@step
def change_feed_resumed() -> None:
    items.replace_item("item-09", ITEMS[9] | {"changed": True})
    found = list(items.query_items_change_feed(continuation=positions[-1]))
    equal([(each["id"], each["changed"]) for each in found], [("item-09", True)])
    items.replace_item("item-09", ITEMS[9])


step.missing("the client has no change feed processor", "change-feed-processor")


@step
def split_underneath_reads() -> None:
    split("items")
    for each in ITEMS:
        equal(user_part(items.read_item(each["id"], each["pk"])), each)


@step
def split_underneath_query_pages() -> None:
    text = "SELECT VALUE c.number FROM c ORDER BY c.number"
    pages = items.query_items(text, enable_cross_partition_query=True, max_item_count=5).by_page()
    found = list(next(pages))
    split("items")
    equal([*found, *(each for page in pages for each in page)], list(range(40)))


@step
def throttled_429_retried() -> None:
    rule = throttle("items", "read", 2)
    equal(user_part(items.read_item("item-02", "key-2")), ITEMS[2])
    equal(hits(rule), 2)


@step
def session_read_own_write() -> None:
    headers: dict[str, Any] = {}
    items.upsert_item(ITEMS[6] | {"session": 1}, response_hook=lambda given, _: headers.update(given))
    other = CosmosClient(ENDPOINT, KEY).get_database_client(DATABASE).get_container_client("items")
    found = other.read_item("item-06", "key-6", session_token=headers["x-ms-session-token"])
    equal(found["session"], 1)
    items.upsert_item(ITEMS[6])


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
    items.scripts.create_stored_procedure({"id": "create", "body": PROCEDURE})
    equal(items.scripts.execute_stored_procedure("create", "script", [*TWO, False]), "by-script-2")
    for each in TWO:
        items.delete_item(each["id"], "script")


@step
def stored_procedure_rolls_back() -> None:
    refused(400, items.scripts.execute_stored_procedure, "create", "script", [*TWO, True])
    refused(404, items.read_item, "by-script-1", "script")


@step
def user_defined_function() -> None:
    items.scripts.create_user_defined_function({"id": "twice", "body": "function twice(n) { return 2 * n; }"})
    equal(query("SELECT VALUE udf.twice(c.number) FROM c WHERE c.number = 21"), [42])


@step
def trigger() -> None:
    body = """function stamp() {
        var request = getContext().getRequest(), item = request.getBody();
        item.stamped = true;
        request.setBody(item);
    }"""
    definition = {"id": "stamp", "body": body, "triggerType": "Pre", "triggerOperation": "All"}
    items.scripts.create_trigger(definition)
    made = items.create_item({"id": "stamped", "pk": "key-0"}, pre_trigger_include="stamp")
    equal(made["stamped"], True)
    items.delete_item("stamped", "key-0")


@step
def ttl_expires() -> None:
    items.create_item({"id": "brief", "pk": "key-0", "ttl": 20})
    equal(items.read_item("brief", "key-0")["ttl"], 20)
    advance_clock(30)
    refused(404, items.read_item, "brief", "key-0")


@step
def delete_all_items_by_partition_key() -> None:
    items.delete_all_items_by_partition_key("key-7")
    equal(query("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'key-7'"), [0])


@step
def throughput_read() -> None:
    equal(items.get_throughput().offer_throughput, FOUR_PARTITIONS_RU)


@step
def throughput_replace() -> None:
    items.replace_throughput(20_000)
    equal(items.get_throughput().offer_throughput, 20_000)


@step
def users_and_resource_tokens() -> None:
    user = database.create_user({"id": "reader"})
    permission = {"id": "read-items", "permissionMode": "Read", "resource": items.read()["_self"]}
    made = user.create_permission(permission)
    reader = CosmosClient(ENDPOINT, {items.container_link: made.properties["_token"]})
    found = reader.get_database_client(DATABASE).get_container_client("items")
    equal(user_part(found.read_item("item-08", "key-0")), ITEMS[8])
    refused(403, found.delete_item, "item-08", "key-0")


@step
def delete_container() -> None:
    database.delete_container("items")
    refused(404, items.read)


@step
def delete_database() -> None:
    client.delete_database(DATABASE)
    refused(404, database.read)


if __name__ == "__main__":
    step.run()
