// The steps of `@azure/cosmos`, the current client for Node.js. tests/sdk/js has many more.
"use strict";

const fs = require("node:fs");
const https = require("node:https");
const { ChangeFeedStartFrom, CosmosClient } = require("@azure/cosmos");
const {
    DATABASE,
    ENDPOINT,
    ITEMS,
    KEY,
    advanceClock,
    equal,
    hits,
    missing,
    runSteps,
    split,
    step,
    throttle,
    userPart,
} = require("program_steps.cjs");

function connect(credentials = { key: KEY }) {
    const agent = ENDPOINT.startsWith("https")
        ? { agent: new https.Agent({ ca: fs.readFileSync(process.env.ARMILLARY_CERTIFICATE) }) }
        : {};
    return new CosmosClient({ endpoint: ENDPOINT, ...credentials, ...agent });
}

const client = connect();
const database = client.database(DATABASE);
const items = database.container("items");
const FOUR_PARTITIONS_RU = 24_000;
const item = (number) => items.item(ITEMS[number].id, ITEMS[number].pk);
const query = async (text, options) => (await items.items.query(text, options).fetchAll()).resources;
const numbers = (from, to) => Array.from({ length: to - from }, (_, index) => from + index);

async function refused(status, promise) {
    try {
        await promise;
    } catch (error) {
        equal(error.code, status);
        return error;
    }
    throw new Error(`expected ${status}, and the request succeeded`);
}

step("create-database", async () => equal((await client.databases.create({ id: DATABASE })).resource.id, DATABASE));
step("create-existing-database-409", () => refused(409, client.databases.create({ id: DATABASE })));
step("list-databases", async () => {
    equal((await client.databases.readAll().fetchAll()).resources.map((each) => each.id), [DATABASE]);
});
step("create-container-four-partitions", async () => {
    const definition = { id: "items", partitionKey: "/pk", throughput: FOUR_PARTITIONS_RU, defaultTtl: -1 };
    await database.containers.create(definition);
    equal((await items.getFeedRanges()).length, 4);
});
step("list-containers", async () => {
    equal((await database.containers.readAll().fetchAll()).resources.map((each) => each.id), ["items"]);
});
step("create-item", async () => {
    for (const each of ITEMS) {
        equal(userPart((await items.items.create(each)).resource), each);
    }
});
step("create-existing-item-409", () => refused(409, items.items.create(ITEMS[0])));
step("read-item", async () => equal(userPart((await item(7).read()).resource), ITEMS[7]));
step("read-missing-item-404", async () => equal((await items.item("none", "key-7").read()).statusCode, 404));
step("upsert-item", async () => {
    equal((await items.items.upsert({ ...ITEMS[3], upserted: 1 })).resource.upserted, 1);
});
step("replace-item", async () => equal(userPart((await item(3).replace(ITEMS[3])).resource), ITEMS[3]));
step("replace-with-stale-etag-412", async () => {
    const { etag } = await item(4).read();
    const options = { accessCondition: { type: "IfMatch", condition: etag } };
    await item(4).replace(ITEMS[4], options);
    await refused(412, item(4).replace(ITEMS[4], options));
});
step("patch-item", async () => {
    const found = await item(10).patch([
        { op: "add", path: "/patched", value: [1] },
        { op: "incr", path: "/number", value: 5 },
        { op: "remove", path: "/nested/even" },
    ]);
    const { patched, number, nested } = found.resource;
    equal({ patched, number, nested }, { patched: [1], number: 15, nested: { tags: ["tag-0", "all"] } });
    await item(10).replace(ITEMS[10]);
});
step("delete-item", async () => {
    await items.items.create({ id: "short-lived", pk: "key-0" });
    await items.item("short-lived", "key-0").delete();
    await refused(404, items.item("short-lived", "key-0").delete());
});
step("batch", async () => {
    const found = await items.items.batch(
        [
            { operationType: "Create", resourceBody: { id: "batch-1", pk: "batch" } },
            { operationType: "Upsert", resourceBody: { id: "batch-2", pk: "batch" } },
            { operationType: "Read", id: "batch-1" },
            { operationType: "Delete", id: "batch-1" },
            { operationType: "Delete", id: "batch-2" },
        ],
        "batch",
    );
    equal(found.result.map((each) => each.statusCode), [201, 201, 200, 204, 204]);
});
step("batch-rolls-back", async () => {
    const operations = [
        { operationType: "Create", resourceBody: { id: "batch-1", pk: "batch" } },
        { operationType: "Read", id: "none" },
    ];
    equal((await items.items.batch(operations, "batch")).result.map((each) => each.statusCode), [424, 404]);
    equal((await items.item("batch-1", "batch").read()).statusCode, 404);
});
step("bulk", async () => {
    const operations = numbers(0, 20).map((number) => ({
        operationType: "Create",
        partitionKey: `bulk-${number % 4}`,
        resourceBody: { id: `bulk-${number}`, pk: `bulk-${number % 4}` },
    }));
    const made = await items.items.executeBulkOperations(operations);
    equal(made.map((each) => each.response.statusCode), numbers(0, 20).map(() => 201));
    const removals = operations.map(({ partitionKey, resourceBody }) => ({
        operationType: "Delete",
        partitionKey,
        id: resourceBody.id,
    }));
    const removed = await items.items.executeBulkOperations(removals);
    equal(removed.map((each) => each.response.statusCode), numbers(0, 20).map(() => 204));
});
step("hierarchical-keys-create", async () => {
    const partitionKey = { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 };
    const { container } = await database.containers.create({ id: "tenants", partitionKey });
    for (const number of numbers(0, 8)) {
        const user = String(Math.floor(number / 2));
        await container.items.create({ id: String(number), tenant: "ab"[number % 2], user });
    }
    equal((await container.item("3", ["b", "1"]).read()).resource.user, "1");
});
step("hierarchical-keys-query-prefix", async () => {
    const tenants = database.container("tenants");
    const found = await tenants.items.query("SELECT VALUE c.id FROM c", { partitionKey: ["a"] }).fetchAll();
    equal(found.resources.sort(), ["0", "2", "4", "6"]);
    await tenants.delete();
});
step("unicode-ids", async () => {
    await items.items.create({ id: "naïve-ключ-鍵", pk: "schlüssel" });
    equal((await items.item("naïve-ключ-鍵", "schlüssel").read()).resource.id, "naïve-ключ-鍵");
    await items.item("naïve-ключ-鍵", "schlüssel").delete();
});
step("large-item-refused-413", () =>
    refused(413, items.items.create({ id: "large", pk: "key-0", text: "x".repeat(2_200_000) })));
step("list-items-pages", async () => {
    const found = await items.items.readAll({ maxItemCount: 7 }).fetchAll();
    equal(found.resources.map((each) => each.id).sort(), ITEMS.map((each) => each.id));
});
step("query-one-partition", async () => {
    const found = await query("SELECT VALUE c.number FROM c", { partitionKey: "key-2" });
    equal(found.sort((a, b) => a - b), [2, 10, 18, 26, 34]);
});
step("query-parameters", async () => {
    const parameters = [{ name: "@n", value: 11 }];
    equal((await query({ query: "SELECT * FROM c WHERE c.number = @n", parameters })).map(userPart), [ITEMS[11]]);
});
step("query-bad-syntax-400", () => refused(400, query("SELEC * FROM c")));
step("query-order-by-pages", async () => {
    const found = await query("SELECT VALUE c.number FROM c ORDER BY c.number DESC", { maxItemCount: 6 });
    equal(found, numbers(0, 40).reverse());
});
step("query-top", async () => {
    equal(await query("SELECT TOP 5 VALUE c.number FROM c ORDER BY c.number"), [0, 1, 2, 3, 4]);
});
step("query-count", async () => equal(await query("SELECT VALUE COUNT(1) FROM c"), [40]));
step("query-sum", async () => equal(await query("SELECT VALUE SUM(c.number) FROM c"), [780]));
step("query-avg", async () => equal(await query("SELECT VALUE AVG(c.number) FROM c"), [19.5]));
step("query-min-max", async () => {
    equal(await query("SELECT VALUE MIN(c.number) FROM c"), [0]);
    equal(await query("SELECT VALUE MAX(c.number) FROM c"), [39]);
});
step("query-group-by", async () => {
    const found = await query("SELECT c['group'], COUNT(1) AS n FROM c GROUP BY c['group']");
    equal(found.map((each) => `${each.group}${each.n}`).sort(), ["a14", "b13", "c13"]);
});
step("query-distinct", async () => {
    equal((await query("SELECT DISTINCT VALUE c['group'] FROM c")).sort(), ["a", "b", "c"]);
});
step("query-offset-limit", async () => {
    equal(await query("SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 10 LIMIT 3"), [10, 11, 12]);
});
step("query-continuation-resumed", async () => {
    const text = "SELECT VALUE c.number FROM c";
    const options = { partitionKey: "key-1", maxItemCount: 2 };
    const first = await items.items.query(text, options).fetchNext();
    const rest = await query(text, { ...options, continuationToken: first.continuationToken });
    equal([...first.resources, ...rest].sort((a, b) => a - b), [1, 9, 17, 25, 33]);
});
let position;
async function changes(changeFeedStartFrom) {
    const found = [];
    const iterator = items.items.getChangeFeedIterator({ changeFeedStartFrom, maxItemCount: 50 });
    for (let quiet = 0; quiet < 4; ) {
        const page = await iterator.readNext();
        quiet = page.statusCode === 304 ? quiet + 1 : 0;
        found.push(...(page.statusCode === 304 ? [] : page.result));
        position = page.continuationToken;
    }
    return found;
}
step("change-feed-from-beginning", async () => {
    const found = await changes(ChangeFeedStartFrom.Beginning());
    equal([...new Set(found.map((each) => each.id))].sort(), ITEMS.map((each) => each.id));
});
step("change-feed-resumed", async () => {
    await item(9).replace({ ...ITEMS[9], changed: true });
    const found = await changes(ChangeFeedStartFrom.Continuation(position));
    equal(found.map((each) => [each.id, each.changed]), [["item-09", true]]);
    await item(9).replace(ITEMS[9]);
});
missing("the client has no change feed processor", "change-feed-processor");
step("split-underneath-reads", async () => {
    await split("items");
    for (const number of numbers(0, 40)) {
        equal(userPart((await item(number).read()).resource), ITEMS[number]);
    }
});
step("split-underneath-query-pages", async () => {
    const iterator = items.items.query("SELECT VALUE c.number FROM c ORDER BY c.number", { maxItemCount: 5 });
    const found = (await iterator.fetchNext()).resources;
    await split("items");
    while (iterator.hasMoreResults()) {
        found.push(...((await iterator.fetchNext()).resources || []));
    }
    equal(found, numbers(0, 40));
});
step("throttled-429-retried", async () => {
    const rule = await throttle("items", "read", 2);
    equal(userPart((await item(2).read()).resource), ITEMS[2]);
    equal(await hits(rule), 2);
});
step("session-read-own-write", async () => {
    const { headers } = await items.items.upsert({ ...ITEMS[6], session: 1 });
    const other = connect().database(DATABASE).container("items");
    const found = await other.item("item-06", "key-6").read({ sessionToken: headers["x-ms-session-token"] });
    equal(found.resource.session, 1);
    await items.items.upsert(ITEMS[6]);
});
const PROCEDURE = `function create(one, two, fails) {
    var items = getContext().getCollection();
    items.createDocument(items.getSelfLink(), one, function (error) {
        if (error) throw error;
        items.createDocument(items.getSelfLink(), two, function (error, made) {
            if (error || fails) throw error || new Error("as it was told");
            getContext().getResponse().setBody(made.id);
        });
    });
}`;
const TWO = [{ id: "by-script-1", pk: "script" }, { id: "by-script-2", pk: "script" }];
step("stored-procedure", async () => {
    await items.scripts.storedProcedures.create({ id: "create", body: PROCEDURE });
    const found = await items.scripts.storedProcedure("create").execute("script", [...TWO, false]);
    equal(found.resource, "by-script-2");
    for (const each of TWO) {
        await items.item(each.id, each.pk).delete();
    }
});
step("stored-procedure-rolls-back", async () => {
    await refused(400, items.scripts.storedProcedure("create").execute("script", [...TWO, true]));
    equal((await items.item("by-script-1", "script").read()).statusCode, 404);
});
step("user-defined-function", async () => {
    await items.scripts.userDefinedFunctions.create({ id: "twice", body: "function twice(n) { return 2 * n; }" });
    equal(await query("SELECT VALUE udf.twice(c.number) FROM c WHERE c.number = 21"), [42]);
});
step("trigger", async () => {
    const body = `function stamp() {
        var request = getContext().getRequest(), item = request.getBody();
        item.stamped = true;
        request.setBody(item);
    }`;
    await items.scripts.triggers.create({ id: "stamp", body, triggerType: "Pre", triggerOperation: "All" });
    const made = await items.items.create({ id: "stamped", pk: "key-0" }, { preTriggerInclude: ["stamp"] });
    equal(made.resource.stamped, true);
    await made.item.delete();
});
step("ttl-expires", async () => {
    await items.items.create({ id: "brief", pk: "key-0", ttl: 20 });
    equal((await items.item("brief", "key-0").read()).resource.ttl, 20);
    await advanceClock(30);
    equal((await items.item("brief", "key-0").read()).statusCode, 404);
});
step("throughput-read", async () => {
    equal((await items.readOffer()).resource.content.offerThroughput, FOUR_PARTITIONS_RU);
});
step("throughput-replace", async () => {
    const { offer, resource } = await items.readOffer();
    await offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 20_000 } });
    equal((await items.readOffer()).resource.content.offerThroughput, 20_000);
});
step("users-and-resource-tokens", async () => {
    const { user } = await database.users.create({ id: "reader" });
    const permission = { id: "read-items", permissionMode: "Read", resource: items.url };
    const made = await user.permissions.create(permission);
    const reader = connect({ resourceTokens: { [items.url]: made.resource._token } });
    const found = reader.database(DATABASE).container("items").item("item-08", "key-0");
    equal(userPart((await found.read()).resource), ITEMS[8]);
    await refused(403, found.delete());
});
step("delete-container", async () => {
    await items.delete();
    await refused(404, items.read());
});
step("delete-database", async () => {
    await database.delete();
    await refused(404, database.read());
});

runSteps().then(() => process.exit(0));
