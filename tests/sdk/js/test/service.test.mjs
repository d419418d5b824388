// Ways of the service that the JavaScript client's own tests show.
import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";
import test from "node:test";
import { CosmosClient } from "@azure/cosmos";
import { client, endpoint, key, refused, userPart, withContainer, withDatabase } from "./support.mjs";

test("service: the account is not read again for every operation", async () => {
  await withContainer(async (container, database) => {
    const own = new CosmosClient({ endpoint, key });
    const items = own.database(database.id).container(container.id).items;
    await items.create({ id: "0", pk: "a" });
    const paths = [];
    const note = ({ request }) => paths.push(request.path);
    channel("http.client.request.start").subscribe(note);
    for (const id of ["1", "2", "3"]) await items.create({ id, pk: "a" });
    channel("http.client.request.start").unsubscribe(note);
    assert.deepEqual(paths.filter((path) => !path.includes("/docs")), []);
    own.dispose();
  });
});

test("service: a bulk request that does not continue stops at its first failure", async () => {
  await withContainer(async (container) => {
    const operations = [
      { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
      { operationType: "Create", resourceBody: { id: "2", pk: "a", ttl: -10 } },
      { operationType: "Create", partitionKey: "a", resourceBody: { id: "3", pk: "a" } },
      { operationType: "Read", partitionKey: "a", id: "1" },
    ];
    const statuses = (answers) => answers.map(({ statusCode }) => statusCode);
    assert.deepEqual(statuses(await container.items.bulk(operations, { continueOnError: false })), [201, 400, 424, 424]);
    const { resources } = await container.items.readAll().fetchAll();
    assert.deepEqual(resources.map(userPart), [{ id: "1", pk: "a" }]);
    assert.deepEqual(statuses(await container.items.bulk(operations.slice(1))), [400, 201, 200]);
  });
});

test("service: a container without partition key has the empty one to newer clients", async () => {
  await withDatabase(async (database) => {
    const plugin = (context, _node, next) => {
      if (context.method === "POST") context.body = JSON.stringify({ id: "fixed" });
      context.headers["x-ms-version"] = "2018-06-18";
      return next(context);
    };
    const older = new CosmosClient({ endpoint, key, plugins: [{ on: "request", plugin }] });
    const made = await older.database(database.id).containers.create({ id: "fixed" });
    assert.equal(made.resource.partitionKey, undefined);
    const container = database.container("fixed");
    const { resource: definition } = await container.read();
    assert.deepEqual(definition.partitionKey, { paths: ["/_partitionKey"], kind: "Hash", systemKey: true });
    const { resources: listed } = await database.containers.readAll().fetchAll();
    assert.deepEqual(listed[0].partitionKey, definition.partitionKey);
    await container.items.create({ id: "1", n: 1 });
    const answers = await container.items.bulk([
      { operationType: "Upsert", resourceBody: { id: "2", n: 2 } },
      { operationType: "Patch", id: "1", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
      { operationType: "Delete", id: "2" },
    ]);
    assert.deepEqual(answers.map(({ statusCode }) => statusCode), [201, 200, 204]);
    assert.equal((await container.item("1").read()).resource.n, 2);
    const replaced = await container.replace({ ...definition, defaultTtl: 1000 });
    assert.equal(replaced.resource.defaultTtl, 1000);
    assert.deepEqual(replaced.resource.partitionKey, definition.partitionKey);
    older.dispose();
  });
});

test("service: refusals in words that clients look for", async () => {
  await withContainer(async (container, database) => {
    const large = { operationType: "Create", partitionKey: "a", resourceBody: { id: "1", pk: "a", text: "x".repeat(2.2e6) } };
    const [{ error: inBulk }] = await container.items.executeBulkOperations([large]);
    const alone = await refused(413, () => container.items.create(large.resourceBody));
    for (const { code, message } of [inBulk, alone]) {
      assert.equal(code, 413);
      assert.ok(message.includes('Message: {"Errors":["Request size is too large"]}\r\n'), message);
    }
    const feed = container.items.readAll({ maxItemCount: 1, continuationToken: "junk" });
    assert.match((await refused(400, () => feed.fetchNext())).message, /Invalid Continuation Token/);
    const blank = { id: "other", partitionKey: { paths: ["/id ds"] } };
    assert.match((await refused(400, () => database.containers.create(blank))).message, /only valid characters/);
    const { headers } = await container.read({ populateQuotaInfo: true });
    assert.match(headers["x-ms-resource-quota"], /collectionSize=10485760;/);
    const { resources: offers } = await client.offers.readAll().fetchAll();
    await refused(400, () => client.offer(offers[0]._self).replace(offers[0]));
  });
});

test("service: continuations of queries are JSON", async () => {
  await withContainer(async (container) => {
    for (const id of ["1", "2", "3"]) await container.items.create({ id, pk: "a" });
    const { continuationToken } = await container.items.query("SELECT * FROM c", { maxItemCount: 2 }).fetchNext();
    assert.equal(JSON.parse(continuationToken).rangeMappings, undefined);
    const rest = await container.items.query("SELECT * FROM c", { maxItemCount: 2, continuationToken }).fetchAll();
    assert.deepEqual(rest.resources.map(userPart), [{ id: "3", pk: "a" }]);
  });
});

test("service: a read says where the item is", async () => {
  await withContainer(async (container, database) => {
    await container.items.create({ id: "a b", pk: "a" });
    const { headers } = await container.item("a b", "a").read();
    const place = new URL(headers["content-location"]);
    assert.equal(place.pathname, `/dbs/${database.id}/colls/${container.id}/docs/a%20b`);
    assert.equal(place.origin, new URL(endpoint).origin);
  });
});
