// The steps of `documentdb`, the client for Node.js of 2015 to 2018.
"use strict";

const http = require("node:http");
const { DocumentClient } = require("documentdb");
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

// The client demands TLS 1.0, so it is used without TLS, and has an agent for that.
function connect(credentials = { masterKey: KEY }) {
    const made = new DocumentClient(ENDPOINT, credentials);
    made.requestAgent = new http.Agent({ keepAlive: true });
    return made;
}

const client = connect();
const DATABASE_LINK = `dbs/${DATABASE}`;
const ITEMS_LINK = `${DATABASE_LINK}/colls/items`;
const FOUR_PARTITIONS_RU = 24_000;
let headers = {}; // of the last answer

/** Calls a method of the client: `call("readDocument", link, options)`. */
function call(method, ...given) {
    return callOf(client, method, ...given);
}

function callOf(owner, method, ...given) {
    return new Promise((resolve, reject) => {
        owner[method](...given, (error, result, answered) => {
            headers = answered || {};
            if (error) {
                reject(Object.assign(new Error(`${error.code} ${error.body}`), { code: error.code }));
            } else {
                resolve(result);
            }
        });
    });
}

function listed(iterator) {
    return new Promise((resolve, reject) => {
        iterator.toArray((error, found) => {
            if (error) {
                reject(Object.assign(new Error(`${error.code} ${error.body}`), { code: error.code }));
            } else {
                resolve(found);
            }
        });
    });
}

const page = (iterator) => callOf(iterator, "executeNext");
const query = (text, options = {}) =>
    listed(client.queryDocuments(ITEMS_LINK, text, { enableCrossPartitionQuery: true, ...options }));
const link = (id) => `${ITEMS_LINK}/docs/${id}`;
const at = (key) => ({ partitionKey: [key] });
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

step("create-database", async () => equal((await call("createDatabase", { id: DATABASE })).id, DATABASE));
step("create-existing-database-409", () => refused(409, call("createDatabase", { id: DATABASE })));
step("read-database", async () => equal((await call("readDatabase", DATABASE_LINK)).id, DATABASE));
step("list-databases", async () => equal((await listed(client.readDatabases())).map((each) => each.id), [DATABASE]));
step("query-databases", async () => {
    const parameters = [{ name: "@id", value: DATABASE }];
    const found = await listed(client.queryDatabases({ query: "SELECT * FROM r WHERE r.id = @id", parameters }));
    equal(found.map((each) => each.id), [DATABASE]);
});
step("create-container-four-partitions", async () => {
    const definition = { id: "items", partitionKey: { paths: ["/pk"], kind: "Hash" }, defaultTtl: -1 };
    const made = await call("createCollection", DATABASE_LINK, definition, { offerThroughput: FOUR_PARTITIONS_RU });
    equal(made.partitionKey.paths, ["/pk"]);
    equal((await listed(client.readPartitionKeyRanges(ITEMS_LINK))).length, 4);
});
step("read-container", async () => equal((await call("readCollection", ITEMS_LINK)).defaultTtl, -1));
step("list-containers", async () => {
    equal((await listed(client.readCollections(DATABASE_LINK))).map((each) => each.id), ["items"]);
});
step("create-item", async () => {
    for (const each of ITEMS) {
        equal(userPart(await call("createDocument", ITEMS_LINK, each)), each);
    }
});
step("create-existing-item-409", () => refused(409, call("createDocument", ITEMS_LINK, ITEMS[0])));
step("read-item", async () => equal(userPart(await call("readDocument", link("item-07"), at("key-7"))), ITEMS[7]));
step("read-item-by-self-link", async () => {
    const item = await call("readDocument", link("item-07"), at("key-7"));
    equal(await call("readDocument", item._self, at("key-7")), item);
});
step("read-missing-item-404", () => refused(404, call("readDocument", link("none"), at("key-7"))));
step("upsert-item", async () => {
    equal((await call("upsertDocument", ITEMS_LINK, { ...ITEMS[3], upserted: 1 })).upserted, 1);
    equal((await call("upsertDocument", ITEMS_LINK, { id: "new", pk: "key-new" })).id, "new");
    await call("deleteDocument", link("new"), at("key-new"));
});
step("replace-item", async () => {
    const made = await call("replaceDocument", link("item-03"), { ...ITEMS[3], replaced: true }, at("key-3"));
    equal(userPart(made), { ...ITEMS[3], replaced: true });
    await call("replaceDocument", link("item-03"), ITEMS[3], at("key-3"));
});
step("replace-with-stale-etag-412", async () => {
    const before = await call("readDocument", link("item-04"), at("key-4"));
    const options = { accessCondition: { type: "IfMatch", condition: before._etag }, ...at("key-4") };
    await call("replaceDocument", link("item-04"), ITEMS[4], options);
    await refused(412, call("replaceDocument", link("item-04"), ITEMS[4], options));
});
step("read-if-none-match-304", async () => {
    const before = await call("readDocument", link("item-05"), at("key-5"));
    const accessCondition = { type: "IfNoneMatch", condition: before._etag };
    await call("readDocument", link("item-05"), { accessCondition, ...at("key-5") });
    equal(headers.etag, before._etag);
});
step("delete-item", async () => {
    await call("createDocument", ITEMS_LINK, { id: "short-lived", pk: "key-0" });
    await call("deleteDocument", link("short-lived"), at("key-0"));
    await refused(404, call("deleteDocument", link("short-lived"), at("key-0")));
});
missing("the client is older than the feature", "patch-item", "batch", "batch-rolls-back", "bulk");
missing("the client is older than the feature", "hierarchical-keys-create", "hierarchical-keys-query-prefix");
step("unicode-ids", async () => {
    const made = await call("createDocument", ITEMS_LINK, { id: "naïve-ключ-鍵", pk: "schlüssel" });
    equal((await call("readDocument", made._self, at("schlüssel"))).id, "naïve-ключ-鍵");
    equal((await call("readDocument", link("naïve-ключ-鍵"), at("schlüssel"))).id, "naïve-ключ-鍵");
    await call("deleteDocument", made._self, at("schlüssel"));
});
step("large-item-refused-413", async () => {
    const item = { id: "large", pk: "key-0", text: "x".repeat(2_200_000) };
    await refused(413, call("createDocument", ITEMS_LINK, item));
});
step("list-items-pages", async () => {
    const found = await listed(client.readDocuments(ITEMS_LINK, { maxItemCount: 7 }));
    equal(found.map((each) => each.id).sort(), ITEMS.map((each) => each.id));
});
step("query-one-partition", async () => {
    const found = await listed(client.queryDocuments(ITEMS_LINK, "SELECT VALUE c.number FROM c", at("key-2")));
    equal(found.sort((a, b) => a - b), [2, 10, 18, 26, 34]);
});
step("query-parameters", async () => {
    const found = await query({
        query: "SELECT * FROM c WHERE c.number = @n",
        parameters: [{ name: "@n", value: 11 }],
    });
    equal(found.map(userPart), [ITEMS[11]]);
});
step("query-without-cross-partition-option-400", () =>
    refused(400, listed(client.queryDocuments(ITEMS_LINK, "SELECT * FROM c"))));
step("query-bad-syntax-400", () => refused(400, query("SELEC * FROM c")));
step("query-order-by-pages", async () => {
    const found = await query("SELECT VALUE c.number FROM c ORDER BY c.number DESC", { maxItemCount: 6 });
    equal(found, numbers(0, 40).reverse());
});
step("query-order-by-strings", async () => {
    const found = await query("SELECT c.id FROM c ORDER BY c.id", { maxItemCount: 5 });
    equal(found.map((each) => each.id), ITEMS.map((each) => each.id));
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
step("query-join", async () => {
    const found = await query("SELECT VALUE t FROM c JOIN t IN c.nested.tags WHERE c.number < 3");
    equal(found.sort(), ["all", "all", "all", "tag-0", "tag-1", "tag-2"]);
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
    const options = { ...at("key-1"), maxItemCount: 2 };
    const found = await page(client.queryDocuments(ITEMS_LINK, text, options));
    const continuation = headers["x-ms-continuation"];
    const rest = await listed(client.queryDocuments(ITEMS_LINK, text, { ...options, continuation }));
    equal([...found, ...rest].sort((a, b) => a - b), [1, 9, 17, 25, 33]);
});
let position;
step("change-feed-from-beginning", async () => {
    const seen = [];
    for (const key of numbers(0, 8)) {
        const options = { a_im: "Incremental feed", ...at(`key-${key}`) };
        seen.push(...(await page(client.readDocuments(ITEMS_LINK, options))).map((each) => each.id));
        position = key === 1 ? headers.etag : position;
    }
    equal(seen.sort(), ITEMS.map((each) => each.id));
});
step("change-feed-resumed", async () => {
    await call("replaceDocument", link("item-09"), { ...ITEMS[9], changed: true }, at("key-1"));
    const accessCondition = { type: "IfNoneMatch", condition: position };
    const options = { a_im: "Incremental feed", accessCondition, ...at("key-1") };
    const found = await page(client.readDocuments(ITEMS_LINK, options));
    equal(found.map((each) => [each.id, each.changed]), [["item-09", true]]);
    await call("replaceDocument", link("item-09"), ITEMS[9], at("key-1"));
});
missing("the client has no change feed processor", "change-feed-processor");
step("split-underneath-reads", async () => {
    await split("items");
    for (const each of ITEMS) {
        equal(userPart(await call("readDocument", link(each.id), at(each.pk))), each);
    }
});
step("split-underneath-query-pages", async () => {
    const options = { enableCrossPartitionQuery: true, maxItemCount: 5 };
    const iterator = client.queryDocuments(ITEMS_LINK, "SELECT VALUE c.number FROM c ORDER BY c.number", options);
    const found = [await callOf(iterator, "nextItem")];
    await split("items");
    for (let next = await callOf(iterator, "nextItem"); next !== undefined; next = await callOf(iterator, "nextItem")) {
        found.push(next);
    }
    equal(found, numbers(0, 40));
});
step("throttled-429-retried", async () => {
    const rule = await throttle("items", "read", 2);
    equal(userPart(await call("readDocument", link("item-02"), at("key-2"))), ITEMS[2]);
    equal(await hits(rule), 2);
});
step("session-read-own-write", async () => {
    await call("upsertDocument", ITEMS_LINK, { ...ITEMS[6], session: 1 });
    const sessionToken = headers["x-ms-session-token"];
    const read = await callOf(connect(), "readDocument", link("item-06"), { ...at("key-6"), sessionToken });
    equal(read.session, 1);
    await call("upsertDocument", ITEMS_LINK, ITEMS[6]);
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
    await call("createStoredProcedure", ITEMS_LINK, { id: "create", body: PROCEDURE });
    const given = [`${ITEMS_LINK}/sprocs/create`, [...TWO, false], at("script")];
    equal(await call("executeStoredProcedure", ...given), "by-script-2");
    for (const each of TWO) {
        await call("deleteDocument", link(each.id), at("script"));
    }
});
step("stored-procedure-rolls-back", async () => {
    const given = [`${ITEMS_LINK}/sprocs/create`, [...TWO, true], at("script")];
    const error = await refused(400, call("executeStoredProcedure", ...given));
    equal(error.message.includes("as it was told"), true);
    await refused(404, call("readDocument", link("by-script-1"), at("script")));
});
step("user-defined-function", async () => {
    const body = "function twice(n) { return 2 * n; }";
    await call("createUserDefinedFunction", ITEMS_LINK, { id: "twice", body });
    equal(await query("SELECT VALUE udf.twice(c.number) FROM c WHERE c.number = 21"), [42]);
});
step("trigger", async () => {
    const body = `function stamp() {
        var request = getContext().getRequest(), item = request.getBody();
        item.stamped = true;
        request.setBody(item);
    }`;
    const definition = { id: "stamp", body, triggerType: "Pre", triggerOperation: "All" };
    await call("createTrigger", ITEMS_LINK, definition);
    const given = [{ id: "stamped", pk: "key-0" }, { preTriggerInclude: "stamp" }];
    const made = await call("createDocument", ITEMS_LINK, ...given);
    equal(made.stamped, true);
    await call("deleteDocument", made._self, at("key-0"));
});
step("ttl-expires", async () => {
    await call("createDocument", ITEMS_LINK, { id: "brief", pk: "key-0", ttl: 20 });
    equal((await call("readDocument", link("brief"), at("key-0"))).ttl, 20);
    await advanceClock(30);
    await refused(404, call("readDocument", link("brief"), at("key-0")));
});
async function offer() {
    const container = await call("readCollection", ITEMS_LINK);
    return (await listed(client.readOffers())).find((each) => each.resource === container._self);
}
step("throughput-read", async () => equal((await offer()).content.offerThroughput, FOUR_PARTITIONS_RU));
step("throughput-replace", async () => {
    const found = await offer();
    found.content.offerThroughput = 20_000;
    equal((await call("replaceOffer", found._self, found)).content.offerThroughput, 20_000);
    equal((await offer()).content.offerThroughput, 20_000);
});
step("users-and-resource-tokens", async () => {
    const user = await call("createUser", DATABASE_LINK, { id: "reader" });
    const container = await call("readCollection", ITEMS_LINK);
    const permission = { id: "read-items", permissionMode: "Read", resource: container._self };
    const made = await call("createPermission", user._self, permission);
    const reader = connect({ permissionFeed: [made] });
    const item = await call("readDocument", link("item-08"), at("key-0"));
    equal(userPart(await callOf(reader, "readDocument", item._self, at("key-0"))), ITEMS[8]);
    await refused(403, callOf(reader, "deleteDocument", item._self, at("key-0")));
});
step("delete-container", async () => {
    await call("deleteCollection", ITEMS_LINK);
    await refused(404, call("readCollection", ITEMS_LINK));
});
step("delete-database", async () => {
    await call("deleteDatabase", DATABASE_LINK);
    await refused(404, call("readDatabase", DATABASE_LINK));
});

runSteps().then(() => process.exit(0));
