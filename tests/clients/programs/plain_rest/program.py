"""Steps without a client: signed requests as an application in PHP, Ruby or a shell sends them. It announces no query
features, so the server merges what spans partitions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import urllib.error
import urllib.request
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from clients.program_steps import (
    DATABASE,
    ENDPOINT,
    ITEMS,
    KEY,
    Steps,
    advance_clock,
    equal,
    hits,
    split,
    throttle,
    user_part,
)

step = Steps()
VERSION = "2020-07-15"
FOUR_PARTITIONS_RU = 24_000
ROOT = f"dbs/{DATABASE}"
ITEMS_LINK = f"{ROOT}/colls/items"
DOCS = f"{ITEMS_LINK}/docs"


Headers = dict[str, Any]


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers: Headers = {name.lower(): value for name, value in headers.items()}
        self.json: Any = json.loads(body) if body else None


def send(method: str, path: str, body: Any = None, *, expected: int | tuple[int, ...] = 200, **headers: Any) -> Answer:
    """A signed request. Paths of an odd number of words are feeds, which are signed by their parent."""
    words = path.split("/")
    is_feed = len(words) % 2 == 1
    kind, link = (words[-1], "/".join(words[:-1])) if is_feed else (words[-2], path)
    date = formatdate(usegmt=True)
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    given = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    given |= {"x-ms-date": date, "x-ms-version": VERSION}
    given["authorization"] = quote(f"type=master&ver=1.0&sig={signature}", safe="")
    given.setdefault("content-type", "application/json")
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{ENDPOINT}/{quote(path)}", content, given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            found = Answer(error.code, error.headers, error.read())
    if found.status not in (expected if isinstance(expected, tuple) else (expected,)):
        raise AssertionError(f"{method} {path} was answered {found.status}: {found.json}")
    return found


def at(key: Any) -> Headers:
    return {"x_ms_documentdb_partitionkey": json.dumps(key if isinstance(key, list) else [key])}


def create(item: dict[str, Any], *, expected: int = 201, **headers: Any) -> Any:
    return send("POST", DOCS, item, expected=expected, **at(item["pk"]), **headers).json


def read(identifier: str, key: str, *, expected: int = 200, **headers: Any) -> Answer:
    return send("GET", f"{DOCS}/{identifier}", expected=expected, **at(key), **headers)


def delete(identifier: str, key: str, *, expected: int = 204) -> None:
    send("DELETE", f"{DOCS}/{identifier}", expected=expected, **at(key))


QUERY: Headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "true"}
CROSS: Headers = {"x-ms-documentdb-query-enablecrosspartition": "true"}


def query(text: str, parameters: Any = (), *, page: int = 100, headers: Any = CROSS) -> tuple[list[Any], int]:
    """All rows, and the number of pages that they came in."""
    body = {"query": text, "parameters": list(parameters)}
    rows: list[Any] = []
    pages = 0
    continuation: Headers = {}
    while True:
        given = QUERY | headers | {"x-ms-max-item-count": page} | continuation
        answer = send("POST", DOCS, body, **given)
        rows += answer.json["Documents"]
        pages += 1
        if "x-ms-continuation" not in answer.headers:
            return rows, pages
        continuation = {"x-ms-continuation": answer.headers["x-ms-continuation"]}


def rows(text: str, **options: Any) -> list[Any]:
    return query(text, **options)[0]


@step
def read_account() -> None:
    date = formatdate(usegmt=True)
    text = f"get\n\n\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "x-ms-version": VERSION}
    headers["authorization"] = quote(f"type=master&ver=1.0&sig={signature}", safe="")
    with urllib.request.urlopen(urllib.request.Request(f"{ENDPOINT}/", headers=headers), timeout=60) as answer:
        equal(json.loads(answer.read())["userConsistencyPolicy"], {"defaultConsistencyLevel": "Session"})


@step
def create_database() -> None:
    equal(send("POST", "dbs", {"id": DATABASE}, expected=201).json["id"], DATABASE)


@step
def create_existing_database_409() -> None:
    send("POST", "dbs", {"id": DATABASE}, expected=409)


@step
def list_databases() -> None:
    equal([each["id"] for each in send("GET", "dbs").json["Databases"]], [DATABASE])


@step
def create_container_four_partitions() -> None:
    definition = {"id": "items", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": -1}
    send("POST", f"{ROOT}/colls", definition, expected=201, x_ms_offer_throughput=FOUR_PARTITIONS_RU)
    equal(len(send("GET", f"{ITEMS_LINK}/pkranges").json["PartitionKeyRanges"]), 4)


@step
def list_containers() -> None:
    equal([each["id"] for each in send("GET", f"{ROOT}/colls").json["DocumentCollections"]], ["items"])


@step
def create_item() -> None:
    for each in ITEMS:
        equal(user_part(create(each)), each)


@step
def create_existing_item_409() -> None:
    create(ITEMS[0], expected=409)


@step
def create_without_partition_key_400() -> None:
    send("POST", DOCS, ITEMS[0], expected=400, x_ms_documentdb_partitionkey='["another"]')


@step
def read_item() -> None:
    equal(user_part(read("item-07", "key-7").json), ITEMS[7])


@step
def read_missing_item_404() -> None:
    read("none", "key-7", expected=404)


@step
def read_if_none_match_304() -> None:
    read("item-07", "key-7", expected=304, if_none_match=read("item-07", "key-7").headers["etag"])


@step
def upsert_item() -> None:
    found = create(ITEMS[3] | {"upserted": 1}, expected=200, x_ms_documentdb_is_upsert="true")
    equal(found["upserted"], 1)


@step
def replace_item() -> None:
    equal(user_part(send("PUT", f"{DOCS}/item-03", ITEMS[3], **at("key-3")).json), ITEMS[3])


@step
def replace_with_stale_etag_412() -> None:
    etag = read("item-04", "key-4").headers["etag"]
    send("PUT", f"{DOCS}/item-04", ITEMS[4], **at("key-4"), if_match=etag)
    send("PUT", f"{DOCS}/item-04", ITEMS[4], expected=412, **at("key-4"), if_match=etag)


@step
def patch_item() -> None:
    changes = {"operations": [{"op": "incr", "path": "/number", "value": 5}]}
    equal(send("PATCH", f"{DOCS}/item-10", changes, **at("key-2")).json["number"], 15)
    send("PUT", f"{DOCS}/item-10", ITEMS[10], **at("key-2"))


@step
def delete_item() -> None:
    create({"id": "short-lived", "pk": "key-0"})
    delete("short-lived", "key-0")
    delete("short-lived", "key-0", expected=404)


BATCH: Headers = {"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}


@step
def batch() -> None:
    operations = [
        {"operationType": "Create", "resourceBody": {"id": "batch-1", "pk": "batch"}},
        {"operationType": "Delete", "id": "batch-1"},
    ]
    found = send("POST", DOCS, operations, **at("batch"), **BATCH).json
    equal([each["statusCode"] for each in found], [201, 204])


@step
def batch_rolls_back() -> None:
    operations = [
        {"operationType": "Create", "resourceBody": {"id": "batch-1", "pk": "batch"}},
        {"operationType": "Read", "id": "none"},
    ]
    found = send("POST", DOCS, operations, expected=207, **at("batch"), **BATCH).json
    equal([each["statusCode"] for each in found], [424, 404])
    read("batch-1", "batch", expected=404)


@step
def hierarchical_keys_create() -> None:
    definition = {"paths": ["/tenant", "/user"], "kind": "MultiHash", "version": 2}
    send("POST", f"{ROOT}/colls", {"id": "tenants", "partitionKey": definition}, expected=201)
    for number in range(8):
        tenant, user = "ab"[number % 2], str(number // 2)
        item = {"id": str(number), "tenant": tenant, "user": user}
        send("POST", f"{ROOT}/colls/tenants/docs", item, expected=201, **at([tenant, user]))
    equal(send("GET", f"{ROOT}/colls/tenants/docs/3", **at(["b", "1"])).json["user"], "1")


@step
def hierarchical_keys_query_prefix() -> None:
    text = {"query": "SELECT VALUE c.id FROM c WHERE c.tenant = 'a'"}
    found = send("POST", f"{ROOT}/colls/tenants/docs", text, **QUERY, **CROSS).json["Documents"]
    equal(sorted(found), ["0", "2", "4", "6"])
    send("DELETE", f"{ROOT}/colls/tenants", expected=204)


@step
def unicode_ids() -> None:
    create({"id": "naïve-ключ-鍵", "pk": "schlüssel"})
    equal(read("naïve-ключ-鍵", "schlüssel").json["id"], "naïve-ключ-鍵")
    delete("naïve-ключ-鍵", "schlüssel")


@step
def large_item_refused_413() -> None:
    create({"id": "large", "pk": "key-0", "text": "x" * 2_200_000}, expected=413)


@step
def list_items_pages() -> None:
    seen: list[str] = []
    continuation: Headers = {}
    while True:
        answer = send("GET", DOCS, **{"x-ms-max-item-count": 7}, **continuation)
        seen += [each["id"] for each in answer.json["Documents"]]
        if "x-ms-continuation" not in answer.headers:
            break
        continuation = {"x-ms-continuation": answer.headers["x-ms-continuation"]}
    equal(sorted(seen), [each["id"] for each in ITEMS])


@step
def query_one_partition() -> None:
    found = rows("SELECT VALUE c.number FROM c", headers={"x-ms-documentdb-partitionkey": '["key-2"]'}, page=2)
    equal(sorted(found), [2, 10, 18, 26, 34])


@step
def query_parameters() -> None:
    found, _ = query("SELECT * FROM c WHERE c.number = @n", [{"name": "@n", "value": 11}])
    equal([user_part(each) for each in found], [ITEMS[11]])


@step
def query_without_cross_partition_option_400() -> None:
    send("POST", DOCS, {"query": "SELECT * FROM c"}, expected=400, **QUERY)


@step
def query_bad_syntax_400() -> None:
    send("POST", DOCS, {"query": "SELEC * FROM c"}, expected=400, **QUERY, **CROSS)


@step
def query_order_by_pages() -> None:
    found, pages = query("SELECT VALUE c.number FROM c ORDER BY c.number DESC", page=6)
    equal((found, pages), (list(range(39, -1, -1)), 7))


@step
def query_top() -> None:
    equal(rows("SELECT TOP 5 VALUE c.number FROM c ORDER BY c.number", page=2), [0, 1, 2, 3, 4])


@step
def query_count() -> None:
    equal(rows("SELECT VALUE COUNT(1) FROM c"), [40])


@step
def query_sum() -> None:
    equal(rows("SELECT VALUE SUM(c.number) FROM c"), [780])


@step
def query_avg() -> None:
    equal(rows("SELECT VALUE AVG(c.number) FROM c"), [19.5])


@step
def query_min_max() -> None:
    equal(rows("SELECT MIN(c.number) AS low, MAX(c.number) AS high FROM c"), [{"low": 0, "high": 39}])


@step
def query_group_by() -> None:
    found = rows("SELECT c['group'], COUNT(1) AS n FROM c GROUP BY c['group']", page=1)
    equal(sorted((each["group"], each["n"]) for each in found), [("a", 14), ("b", 13), ("c", 13)])


@step
def query_distinct() -> None:
    equal(sorted(rows("SELECT DISTINCT VALUE c['group'] FROM c", page=1)), ["a", "b", "c"])


@step
def query_offset_limit() -> None:
    found = rows("SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 10 LIMIT 3", page=2)
    equal(found, [10, 11, 12])


@step
def change_feed_from_beginning() -> None:
    seen: list[str] = []
    for each in send("GET", f"{ITEMS_LINK}/pkranges").json["PartitionKeyRanges"]:
        found, positions[each["id"]] = changes(each["id"])
        seen += [change["id"] for change in found]
    equal(sorted(seen), [each["id"] for each in ITEMS])


positions: dict[str, str] = {}


def changes(range_id: str, position: str | None = None) -> tuple[list[Any], str]:
    found: list[Any] = []
    given: Headers = {"a-im": "Incremental feed", "x-ms-documentdb-partitionkeyrangeid": range_id}
    while True:
        given |= {"if-none-match": position} if position else {}
        answer = send("GET", DOCS, expected=(200, 304), **given)
        position = answer.headers["etag"]
        if answer.status == 304:
            return found, position
        found += answer.json["Documents"]


@step
def change_feed_resumed() -> None:
    send("PUT", f"{DOCS}/item-09", ITEMS[9] | {"changed": True}, **at("key-1"))
    found = [change for each, position in positions.items() for change in changes(each, position)[0]]
    equal([(each["id"], each["changed"]) for each in found], [("item-09", True)])
    send("PUT", f"{DOCS}/item-09", ITEMS[9], **at("key-1"))


@step
def split_underneath_reads() -> None:
    split("items")
    for each in ITEMS:
        equal(user_part(read(each["id"], each["pk"]).json), each)


@step
def split_underneath_query_pages() -> None:
    text = {"query": "SELECT VALUE c.number FROM c ORDER BY c.number"}
    found: list[Any] = []
    continuation: Headers = {}
    while True:
        answer = send("POST", DOCS, text, **QUERY, **CROSS, **{"x-ms-max-item-count": 15}, **continuation)
        found += answer.json["Documents"]
        if "x-ms-continuation" not in answer.headers:
            break
        continuation = {"x-ms-continuation": answer.headers["x-ms-continuation"]}
        if len(found) == 15:
            split("items")
    equal(found, list(range(40)))


@step
def throttled_429() -> None:
    rule = throttle("items", "read", 1)
    answer = read("item-02", "key-2", expected=429)
    equal((answer.headers["x-ms-retry-after-ms"], answer.headers["x-ms-substatus"]), ("5", "3200"))
    equal(user_part(read("item-02", "key-2").json), ITEMS[2])
    equal(hits(rule), 1)


@step
def session_read_own_write() -> None:
    answer = send("PUT", f"{DOCS}/item-06", ITEMS[6] | {"session": 1}, **at("key-6"))
    token = answer.headers["x-ms-session-token"]
    equal(read("item-06", "key-6", x_ms_session_token=token).json["session"], 1)
    send("PUT", f"{DOCS}/item-06", ITEMS[6], **at("key-6"))


PROCEDURE = """function create(item, fails) {
    var items = getContext().getCollection();
    items.createDocument(items.getSelfLink(), item, function (error, made) {
        if (error || fails) throw error || new Error("as it was told");
        getContext().getResponse().setBody(made.id);
    });
}"""
MADE = {"id": "by-script", "pk": "script"}


@step
def stored_procedure() -> None:
    send("POST", f"{ITEMS_LINK}/sprocs", {"id": "create", "body": PROCEDURE}, expected=201)
    equal(send("POST", f"{ITEMS_LINK}/sprocs/create", [MADE, False], **at("script")).json, "by-script")
    delete("by-script", "script")


@step
def stored_procedure_rolls_back() -> None:
    send("POST", f"{ITEMS_LINK}/sprocs/create", [MADE, True], expected=400, **at("script"))
    read("by-script", "script", expected=404)


@step
def user_defined_function() -> None:
    body = {"id": "twice", "body": "function twice(n) { return 2 * n; }"}
    send("POST", f"{ITEMS_LINK}/udfs", body, expected=201)
    equal(rows("SELECT VALUE udf.twice(c.number) FROM c WHERE c.number = 21"), [42])


@step
def ttl_expires() -> None:
    create({"id": "brief", "pk": "key-0", "ttl": 20})
    equal(read("brief", "key-0").json["ttl"], 20)
    advance_clock(30)
    read("brief", "key-0", expected=404)


@step
def throughput_read() -> None:
    (offer,) = send("GET", "offers").json["Offers"]
    equal(offer["content"]["offerThroughput"], FOUR_PARTITIONS_RU)


@step
def delete_container() -> None:
    send("DELETE", ITEMS_LINK, expected=204)
    send("GET", ITEMS_LINK, expected=404)


@step
def delete_database() -> None:
    send("DELETE", ROOT, expected=204)
    send("GET", ROOT, expected=404)


if __name__ == "__main__":
    step.run()
