"""Stored procedures, triggers and functions: as resources, and as the programs that they are."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from azure.cosmos.partition_key import NonePartitionKeyValue
from sdk.clients import Blocking, everything, refused

IF_SAME = MatchConditions.IfNotModified
TRIGGER = {"triggerType": "Pre", "triggerOperation": "All"}


@pytest.mark.parametrize(
    ("kind", "plural", "more"),
    [
        ("stored_procedure", "stored_procedures", {}),
        ("trigger", "triggers", TRIGGER),
        ("user_defined_function", "user_defined_functions", {}),
    ],
)
async def test_life(container: Any, kind: str, plural: str, more: dict[str, Any]) -> None:
    def call(verb: str, *arguments: Any, many: bool = False) -> Any:
        return getattr(container.scripts, f"{verb}_{plural if many else kind}")(*arguments)

    created = await call("create", {"id": "one", "body": "function () {}", **more})
    assert created["body"] == "function () {}"
    assert {name: created[name] for name in more} == more
    with refused(409):
        await call("create", {"id": "one", "body": "function () {}", **more})
    assert await call("get", "one") == created
    replaced = await call("replace", "one", {"id": "one", "body": "function (a) {}", **more})
    assert (replaced["body"], replaced["_rid"]) == ("function (a) {}", created["_rid"])
    await call("create", {"id": "two words", "body": "function () {}", **more})
    assert [each["id"] for each in await everything(call("list", many=True))] == ["one", "two words"]
    found = await everything(call("query", "SELECT * FROM c WHERE c.id = 'one'", many=True))
    assert [each["id"] for each in found] == ["one"]
    await call("delete", "one")
    with refused(404):
        await call("get", "one")


@pytest.mark.parametrize("more", [{"triggerType": "During"}, {"triggerOperation": "Sometimes"}, {"id": ""}])
async def test_refused(container: Any, more: dict[str, Any]) -> None:
    with refused(400):
        await container.scripts.create_trigger({"id": "t", "body": "function () {}", **TRIGGER, **more})


async def run(container: Any, body: str, *arguments: Any, name: str = "p", **options: Any) -> Any:
    """Store a procedure and execute it in the logical partition a."""
    await container.scripts.create_stored_procedure({"id": name, "body": body})
    # The two clients differ in the name.
    word = "params" if isinstance(container, Blocking) else "parameters"
    options[word] = list(arguments)
    return await container.scripts.execute_stored_procedure(name, partition_key="a", **options)


BULK_IMPORT = """
function bulkImport(documents) {
    var collection = getContext().getCollection();
    var count = 0;
    create(documents[count]);
    function create(document) {
        if (!collection.createDocument(collection.getSelfLink(), document, created)) setBody();
    }
    function created(error) {
        if (error) throw error;
        count++;
        if (count >= documents.length) setBody();
        else create(documents[count]);
    }
    function setBody() { getContext().getResponse().setBody(count); }
}
"""


async def test_bulk_import(container: Any) -> None:
    documents = [{"id": str(number), "pk": "a"} for number in range(20)]
    assert await run(container, BULK_IMPORT, documents) == 20
    assert len(await everything(container.read_all_items())) == 20
    changes = await everything(container.query_items_change_feed(start_time="Beginning"))
    assert [each["id"] for each in changes] == [each["id"] for each in documents]


async def test_all_or_nothing(container: Any) -> None:
    await container.create_item({"id": "3", "pk": "a"})
    with pytest.raises(CosmosHttpResponseError) as caught:
        await run(container, BULK_IMPORT, [{"id": str(number), "pk": "a"} for number in range(5)])
    assert (caught.value.status_code, caught.value.sub_status) == (400, 409)
    assert [each["id"] for each in await everything(container.read_all_items())] == ["3"]


async def test_what_is_answered(container: Any) -> None:
    created = await run(
        container,
        """function (id) {
            __.createDocument(__.getSelfLink(), {id: id, pk: "a"}, function (error, made) {
                made.more = 1;
                __.replaceDocument(made._self, made, {etag: made._etag}, (error, made) => __.response.setBody(made));
            });
        }""",
        "1",
    )
    assert created == await container.read_item("1", "a")
    await container.replace_item("1", {**created, "more": 2}, etag=created["_etag"], match_condition=IF_SAME)
    assert await run(container, "function () {}", name="nothing") in (None, "")
    assert await run(container, "function (a, b) { __.response.setBody([a, b]); }", {"x": 1}, None, name="two") == [
        {"x": 1},
        None,
    ]


async def test_errors_say_where(container: Any) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await run(
            container, "function f() {\n  g();\n  function g() { throw new Error(499, 'no luck'); }\n}", name="p q"
        )
    assert (caught.value.status_code, caught.value.sub_status) == (400, 499)
    assert "no luck" in caught.value.message and "at g (p q.js:3:" in caught.value.message
    with refused(404):
        await container.scripts.execute_stored_procedure("missing", partition_key="a")


async def test_other_partitions_are_out_of_reach(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "b"})
    with refused(400, 400, text="partition keys other than"):
        await run(container, "function () { __.createDocument(__.getSelfLink(), {id: '2', pk: 'b'}); }")
    feed = "function () { __.readDocuments(__.getSelfLink(), (error, rows) => __.response.setBody(rows)); }"
    assert await run(container, feed, name="feed") == []


async def test_null_is_a_partition_key_of_its_own(container: Any) -> None:
    """A procedure under the key null sees and makes items with that key alone, none without a key."""
    await container.create_item({"id": "without"})
    await container.create_item({"id": "null", "pk": None})
    await container.create_item({"id": "false", "pk": False})
    body = "function () { __.filter(() => true, (e, docs) => __.response.setBody(docs.map(d => d.id))); }"
    await container.scripts.create_stored_procedure({"id": "see", "body": body})
    body = "function (doc) { __.createDocument(__.getSelfLink(), doc); }"
    await container.scripts.create_stored_procedure({"id": "make", "body": body})
    for key, ids, made in (([None], ["null"], {"pk": None}), (NonePartitionKeyValue, ["without"], {})):
        assert await container.scripts.execute_stored_procedure("see", partition_key=key) == ids
        word = "params" if isinstance(container, Blocking) else "parameters"
        for document in ({"id": "new"}, {"id": "new", "pk": None}):
            given: dict[str, Any] = {"partition_key": key, word: [document]}
            if document.keys() - {"id"} == made.keys():
                await container.scripts.execute_stored_procedure("make", **given)
            else:
                with refused(400, 400, text="partition keys other than"):
                    await container.scripts.execute_stored_procedure("make", **given)


async def test_log(container: Any) -> None:
    body = "function () { console.log('%s is %d', 'x', 1); console.log({a: 1}); }"
    await run(container, body, enable_script_logging=True)
    headers = container.client_connection.last_response_headers
    assert headers["x-ms-documentdb-script-log-results"] == "x%20is%201%0A%7B%22a%22%3A1%7D"
    assert float(headers["x-ms-request-charge"]) == 1
    await container.scripts.execute_stored_procedure("p", partition_key="a")
    assert "x-ms-documentdb-script-log-results" not in container.client_connection.last_response_headers


async def trigger(container: Any, name: str, body: str, kind: str = "Pre", operation: str = "All") -> None:
    definition = {"id": name, "body": body, "triggerType": kind, "triggerOperation": operation}
    await container.scripts.create_trigger(definition)


UPPER = """function () {
    var item = __.request.getBody();
    item.name = item.name.toUpperCase();
    __.request.setBody(item);
}"""
COUNT = """function () {
    var made = __.response.getBody();
    __.readDocument(__.getAltLink() + "/docs/count", function (error, count) {
        if (error && error.number !== 404) throw error;
        count = count || {id: "count", pk: made.pk, written: []};
        count.written.push(made.id);
        __.upsertDocument(__.getSelfLink(), count);
    });
}"""


QUOTAS = """function () {
    var made = __.response.getBody();
    made.quotas = [__.response.getResourceQuotaCurrentUsage(), __.response.getMaxResourceQuota()];
    __.response.setBody(made);
}"""


async def test_triggers_before_and_after(container: Any) -> None:
    await trigger(container, "upper", UPPER)
    await trigger(container, "count", COUNT, "Post", "Create")
    named = {"pre_trigger_include": "upper", "post_trigger_include": "count"}
    made = await container.create_item({"id": "1", "pk": "a", "name": "x"}, **named)
    assert made["name"] == "X"
    assert made == await container.read_item("1", "a")
    await container.create_item({"id": "2", "pk": "a", "name": "y"}, **named)
    assert (await container.read_item("count", "a"))["written"] == ["1", "2"]
    replaced = await container.replace_item("1", {**made, "name": "z"}, pre_trigger_include="upper")
    assert (replaced["name"], replaced["_rid"]) == ("Z", made["_rid"])
    await container.create_item({"id": "3", "pk": "a", "name": "none"})
    assert (await container.read_item("3", "a"))["name"] == "none"
    await trigger(container, "quotas", QUOTAS, "Post")
    made = await container.create_item({"id": "4", "pk": "a"}, post_trigger_include="quotas")
    usage, quota = [dict(part.split("=") for part in text.strip(";").split(";")) for text in made["quotas"]]
    assert usage.keys() == quota.keys()
    assert usage["triggers"] == "3"
    assert int(quota["collectionSize"]) > int(usage["collectionSize"])
    assert "quotas" not in await container.read_item("4", "a")


async def test_a_trigger_that_fails_takes_the_write_with_it(container: Any) -> None:
    await trigger(container, "after", "function () { throw new Error(499, 'no'); }", "Post")
    await container.create_item({"id": "1", "pk": "a"})
    with refused(400, 499):
        await container.create_item({"id": "2", "pk": "a"}, post_trigger_include="after")
    with refused(400, 499):
        await container.upsert_item({"id": "1", "pk": "a", "n": 1}, post_trigger_include="after")
    with refused(400, 499):
        await container.delete_item("1", "a", post_trigger_include="after")
    [kept] = await everything(container.read_all_items())
    assert "n" not in kept


async def test_triggers_that_do_not_fit(container: Any) -> None:
    await trigger(container, "delete", "function () {}", "Post", "Delete")
    await trigger(container, "moves", "function () { __.request.setBody({id: '1', pk: 'b'}); }")
    for named in (
        {"pre_trigger_include": "missing"},
        {"pre_trigger_include": "delete"},
        {"post_trigger_include": "delete"},
    ):
        with refused(400):
            await container.create_item({"id": "1", "pk": "a"}, **named)
    with refused(400, 1001):
        await container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="moves")
    assert await everything(container.read_all_items()) == []


async def test_triggers_of_a_patch(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a", "n": 1})
    await trigger(
        container,
        "more",
        """function () {
            var patch = __.request.getBody();
            if (__.request.getOperationType() !== "Patch") throw new Error("not a patch");
            patch.operations.push({op: "incr", path: "/n", value: 10});
            __.request.setBody(patch);
        }""",
        "Pre",
        "Update",
    )
    await trigger(container, "count", COUNT, "Post", "All")
    patch = [{"op": "set", "path": "/a~1b", "value": [1]}]
    made = await container.patch_item("1", "a", patch, pre_trigger_include="more", post_trigger_include="count")
    assert (made["n"], made["a/b"]) == (11, [1])
    assert made == await container.read_item("1", "a")
    assert (await container.read_item("count", "a"))["written"] == ["1"]
    await trigger(container, "fails", "function () { throw new Error(499, 'no'); }", "Post")
    with refused(400, 499):
        await container.patch_item("1", "a", patch, post_trigger_include="fails")
    await trigger(container, "creations", "function () {}", "Pre", "Create")
    with refused(400, text="this is patch"):
        await container.patch_item("1", "a", patch, pre_trigger_include="creations")
    assert (await container.read_item("1", "a"))["_etag"] == made["_etag"]


async def test_triggers_of_a_batch(container: Any) -> None:
    await trigger(container, "upper", UPPER, "Pre", "Create")
    await trigger(container, "count", COUNT, "Post", "All")
    named = {"pre_trigger_include": "upper", "post_trigger_include": "count"}
    batch: list[Any] = [
        ("create", ({"id": "1", "pk": "a", "name": "x"},)),
        ("upsert", ({"id": "2", "pk": "a", "name": "y"},)),
        ("patch", ("2", [{"op": "set", "path": "/n", "value": 1}])),
        ("read", ("1",)),
    ]
    answers = await container.execute_item_batch(batch, "a", **named)
    assert [each["statusCode"] for each in answers] == [201, 201, 200, 200]
    assert [answers[place]["resourceBody"]["name"] for place in range(4)] == ["X", "Y", "Y", "X"]
    assert answers[3]["resourceBody"] == await container.read_item("1", "a")
    assert answers[2]["eTag"] == (await container.read_item("2", "a"))["_etag"]
    assert (await container.read_item("count", "a"))["written"] == ["1", "2", "2"]
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch(
            [*batch[2:3], ("create", ({"id": "1", "pk": "a", "name": "x"},))], "a", **named
        )
    assert [each["statusCode"] for each in caught.value.operation_responses] == [424, 409]
    assert (await container.read_item("count", "a"))["written"] == ["1", "2", "2"]
    with refused(400, text="a batch without one"):
        await container.execute_item_batch(batch[2:], "a", pre_trigger_include="upper")


async def test_functions_in_a_condition(container: Any) -> None:
    await function(container, "few", "function (n) { return n < 2; }")
    await container.create_item({"id": "1", "pk": "a", "n": 0})
    patch = [{"op": "incr", "path": "/n", "value": 1}]
    for expected in (1, 2):
        made = await container.patch_item("1", "a", patch, filter_predicate="FROM c WHERE udf.few(c.n)")
        assert made["n"] == expected
    with refused(412):
        await container.patch_item("1", "a", patch, filter_predicate="FROM c WHERE udf.few(c.n)")
    with refused(400, text="has not"):
        await container.patch_item("1", "a", patch, filter_predicate="FROM c WHERE udf.none(c.n)")
    assert (await container.read_item("1", "a"))["n"] == 2


async def function(container: Any, name: str, body: str) -> None:
    await container.scripts.create_user_defined_function({"id": name, "body": body})


def query(container: Any, text: str, **options: Any) -> Any:
    return everything(container.query_items(text, **options))


async def test_functions_in_queries(container: Any) -> None:
    await function(container, "double", "function double(n) { return n * 2; }")
    await function(container, "part", "function (value, name) { return value[name]; }")
    for number in range(5):
        await container.create_item({"id": str(number), "pk": "ab"[number % 2], "n": number})
    text = "SELECT VALUE udf.double(c.n) FROM c WHERE udf.double(c.n) >= 4 ORDER BY c.n"
    assert await query(container, text) == [4, 6, 8]
    assert await query(container, text, partition_key="a") == [4, 8]
    assert await query(container, "SELECT VALUE udf.part(c, 'pk') FROM c WHERE c.n = 1") == ["b"]
    assert await query(container, "SELECT VALUE udf.part(c, 'none') FROM c") == []
    assert await query(container, "SELECT VALUE udf.double(c.none) FROM c") == []
    assert await query(container, "SELECT VALUE SUM(udf.double(c.n)) FROM c", partition_key="a") == [12]
    charge_ru = float(container.client_connection.last_response_headers["x-ms-request-charge"])
    await query(container, "SELECT VALUE SUM(c.n) FROM c", partition_key="a")
    assert charge_ru > float(container.client_connection.last_response_headers["x-ms-request-charge"])


async def test_functions_that_fail(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    await function(container, "throws", "function (x) {\n  throw new Error('bad luck');\n}")
    await function(container, "numbered", "function (x) { throw new Error(4444, 'number ' + x); }")
    await function(container, "parses", "function (x) { return JSON.parse('{'); }")
    await function(container, "spins", "function (x) { while (true) {} }")
    await function(container, "keeps", "function (x) { return globalThis.kept = (globalThis.kept || 0) + 1; }")
    with refused(400, text="has not"):
        await query(container, "SELECT VALUE udf.missing(c) FROM c", partition_key="a")
    with refused(400, 400, text="(throws.js:2:"):
        await query(container, "SELECT VALUE udf.throws(c) FROM c", partition_key="a")
    with refused(400, 4444, text="Exception = Error: number 5"):
        await query(container, "SELECT VALUE udf.numbered(5) FROM c", partition_key="a")
    with refused(400, 400, text="while executing Javascript. Exception = SyntaxError"):
        await query(container, "SELECT VALUE udf.parses(5) FROM c", partition_key="a")
    with refused(400, 408, text="longer than"):
        await query(container, "SELECT VALUE udf.spins(c) FROM c", partition_key="a")
    for _ in range(2):
        assert await query(container, "SELECT VALUE udf.keeps(c) FROM c", partition_key="a") == [1]


async def test_functions_in_a_procedure(container: Any) -> None:
    await function(container, "double", "function (n) { return n * 2; }")
    text = "SELECT VALUE udf.double(21)"
    body = f"function () {{ __.queryDocuments(__.getSelfLink(), '{text}', (e, rows) => __.response.setBody(rows)); }}"
    assert await run(container, body) == [42]
