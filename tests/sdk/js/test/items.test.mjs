// Items, one by one and many at a time.
import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { CosmosClient } from "@azure/cosmos";
import { endpoint, key, refused, userPart, withContainer } from "./support.mjs";

const manyPartitions = { throughput: 20000 };

test("items: life", async () => {
  await withContainer(async (container) => {
    const created = await container.items.create({ id: "1", pk: "a", n: 1 });
    assert.equal(created.statusCode, 201);
    assert.equal(created.etag, created.resource._etag);
    assert.deepEqual(userPart(created.resource), { id: "1", pk: "a", n: 1 });
    await refused(409, () => container.items.create({ id: "1", pk: "a" }));
    const item = container.item("1", "a");
    const read = await item.read();
    assert.deepEqual(read.resource, created.resource);
    assert.equal(read.requestCharge, 1);
    const replaced = await item.replace({ id: "1", pk: "a", n: 2 });
    assert.equal(replaced.resource.n, 2);
    assert.equal((await container.items.upsert({ id: "1", pk: "a", n: 3 })).statusCode, 200);
    assert.equal((await container.items.upsert({ id: "2", pk: "a" })).statusCode, 201);
    assert.equal((await item.delete()).statusCode, 204);
    const missing = await item.read();
    assert.equal(missing.statusCode, 404);
    assert.equal(missing.resource, undefined);
    await refused(404, () => item.delete());
    const generated = await container.items.create({ pk: "a" });
    assert.match(generated.resource.id, /^[0-9a-f-]{36}$/);
  });
});

test("items: ids and values of any form", async () => {
  await withContainer(async (container) => {
    for (const id of ["a b", "!@$%^&*()-~`'_[]{}|;:,.<>", "Grüße", "数据", "😀", "%20", "x".repeat(1023), "tab\t", "end "]) {
      const document = { id, pk: id.slice(0, 100), list: [1, -0.5, 1e300, null, true, "\u0000é"], "": {} };
      await container.items.create(document);
      const { resource } = await container.item(id, document.pk).read();
      assert.deepEqual(userPart(resource), document);
      await container.item(id, document.pk).delete();
    }
  });
});

test("items: too large is refused", async () => {
  await withContainer(async (container) => {
    await refused(413, () => container.items.create({ id: "1", pk: "a", text: "x".repeat(2 * 1024 * 1024) }));
    assert.equal((await container.items.readAll().fetchAll()).resources.length, 0);
  });
});

test("partition keys: every type", async () => {
  await withContainer(async (container) => {
    for (const pk of ["text", "", "é😀", 0, 5, -1, 5.5, 1e300, Number.MAX_SAFE_INTEGER, true, false, null]) {
      await container.items.create({ id: "1", pk });
      const { resource } = await container.item("1", pk).read();
      assert.deepEqual(resource.pk, pk);
      const { resources } = await container.items.query("SELECT * FROM c", { partitionKey: pk }).fetchAll();
      assert.deepEqual(resources.map((each) => each.pk), [pk]);
    }
    await container.items.create({ id: "1", n: 1 });
    assert.equal((await container.item("1", undefined).read()).resource.n, 1);
    assert.equal((await container.items.readAll().fetchAll()).resources.length, 13);
  }, manyPartitions);
});

test("partition keys: paths of every form", async () => {
  const cases = [
    ["/properties/name", { properties: { name: "a" } }, "a"],
    ['/"department name"', { "department name": "a" }, "a"],
    ["/id", {}, "1"],
  ];
  for (const [path, document, pk] of cases) {
    await withContainer(
      async (container) => {
        await container.items.create({ id: "1", ...document });
        assert.equal((await container.item("1", pk).read()).resource.id, "1");
        await container.item("1", pk).replace({ id: "1", ...document, n: 1 });
        assert.equal((await container.item("1", pk).read()).resource.n, 1);
      },
      { partitionKey: { paths: [path], kind: "Hash", version: 2 } },
    );
  }
});

test("partition keys: hierarchical, whole and prefix", async () => {
  await withContainer(
    async (container) => {
      for (const a of ["x", "y"]) {
        for (const b of [1, 2, null]) {
          for (const c of [true, "z"]) await container.items.create({ id: `${a}${b}${c}`, a, b, c });
        }
      }
      await container.items.create({ id: "part", a: "x", b: 1 });
      assert.equal((await container.item("x1true", ["x", 1, true]).read()).resource.id, "x1true");
      assert.equal((await container.item("ynullz", ["y", null, "z"]).read()).resource.id, "ynullz");
      assert.equal((await container.item("part", ["x", 1, undefined]).read()).resource.id, "part");
      await refused(400, () => container.item("x1true", ["x", 1]).read(), 1001);
      const prefix = await container.items.query("SELECT * FROM c", { partitionKey: ["x"] }).fetchAll();
      assert.equal(prefix.resources.length, 7);
      const deeper = await container.items.query("SELECT * FROM c", { partitionKey: ["y", 2] }).fetchAll();
      assert.equal(deeper.resources.length, 2);
      await container.deleteAllItemsForPartitionKey(["x", 1, true]);
      assert.equal((await container.items.readAll().fetchAll()).resources.length, 12);
    },
    { partitionKey: { paths: ["/a", "/b", "/c"], kind: "MultiHash", version: 2 }, ...manyPartitions },
  );
});

test("patch: operations and conditions", async () => {
  await withContainer(async (container) => {
    await container.items.create({ id: "1", pk: "a", n: 1, list: [1, 2], gone: 1, from: "here" });
    const item = container.item("1", "a");
    const { resource } = await item.patch([
      { op: "add", path: "/list/-", value: 3 },
      { op: "set", path: "/fresh", value: { deep: true } },
      { op: "replace", path: "/list/0", value: 0 },
      { op: "remove", path: "/gone" },
      { op: "incr", path: "/n", value: 4 },
      { op: "move", from: "/from", path: "/to" },
    ]);
    assert.deepEqual(userPart(resource), { id: "1", pk: "a", n: 5, list: [0, 2, 3], fresh: { deep: true }, to: "here" });
    const operations = [{ op: "incr", path: "/n", value: 1 }];
    await item.patch({ condition: "from c where c.n = 5", operations });
    await refused(412, () => item.patch({ condition: "from c where c.n = 5", operations }));
    await refused(400, () => item.patch([{ op: "remove", path: "/missing" }]));
    await refused(400, () => item.patch([{ op: "set", path: "/pk", value: "b" }]));
    assert.equal((await item.read()).resource.n, 6);
  });
});

test("etags: If-Match and If-None-Match", async () => {
  await withContainer(async (container) => {
    const { resource } = await container.items.create({ id: "1", pk: "a" });
    const item = container.item("1", "a");
    const accessCondition = { type: "IfMatch", condition: resource._etag };
    await item.replace({ id: "1", pk: "a", n: 1 }, { accessCondition });
    await refused(412, () => item.replace({ id: "1", pk: "a", n: 2 }, { accessCondition }));
    await refused(412, () => item.delete({ accessCondition }));
    const etag = (await item.read()).etag;
    const unchanged = await item.read({ accessCondition: { type: "IfNoneMatch", condition: etag } });
    assert.equal(unchanged.statusCode, 304);
  });
});

test("batch: all or nothing", async () => {
  await withContainer(async (container) => {
    const { result } = await container.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "1", pk: "a", n: 1 } },
        { operationType: "Upsert", resourceBody: { id: "2", pk: "a" } },
        { operationType: "Read", id: "1" },
        { operationType: "Patch", id: "1", resourceBody: [{ op: "incr", path: "/n", value: 1 }] },
        { operationType: "Replace", id: "2", resourceBody: { id: "2", pk: "a", n: 2 } },
        { operationType: "Delete", id: "2" },
      ],
      "a",
    );
    assert.deepEqual(result.map((each) => each.statusCode), [201, 201, 200, 200, 200, 204]);
    assert.equal(result[3].resourceBody.n, 2);
    const failed = await container.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "3", pk: "a" } },
        { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
        { operationType: "Delete", id: "1" },
      ],
      "a",
    );
    assert.equal(failed.code, 207);
    assert.deepEqual(failed.result.map((each) => each.statusCode), [424, 409, 424]);
    assert.deepEqual((await container.items.readAll().fetchAll()).resources.map((each) => each.id), ["1"]);
    const hundred = Array.from({ length: 100 }, (_, n) => ({
      operationType: "Create",
      resourceBody: { id: `n${n}`, pk: "a" },
    }));
    assert.equal((await container.items.batch(hundred, "a")).result.length, 100);
  });
});

test("bulk: executeBulkOperations over many partitions", async () => {
  await withContainer(async (container) => {
    const creates = Array.from({ length: 300 }, (_, n) => ({
      operationType: "Create",
      partitionKey: `key ${n % 40}`,
      resourceBody: { id: String(n), pk: `key ${n % 40}`, n },
    }));
    const created = await container.items.executeBulkOperations(creates);
    assert.equal(created.length, 300);
    assert.ok(created.every((each) => each.response?.statusCode === 201), JSON.stringify(created.find((e) => e.error)));
    created.forEach((each, n) => assert.equal(each.response.resourceBody.id, String(n)));
    const mixed = await container.items.executeBulkOperations([
      { operationType: "Read", partitionKey: "key 1", id: "1" },
      { operationType: "Upsert", partitionKey: "key 2", resourceBody: { id: "2", pk: "key 2", n: -2 } },
      { operationType: "Replace", partitionKey: "key 3", id: "3", resourceBody: { id: "3", pk: "key 3", n: -3 } },
      {
        operationType: "Patch",
        partitionKey: "key 4",
        id: "4",
        resourceBody: { operations: [{ op: "incr", path: "/n", value: 100 }] },
      },
      { operationType: "Delete", partitionKey: "key 5", id: "5" },
      { operationType: "Create", partitionKey: "key 6", resourceBody: { id: "6", pk: "key 6" } },
      { operationType: "Delete", partitionKey: "key 7", id: "missing" },
      { operationType: "Read", partitionKey: "nobody", id: "1" },
    ]);
    const statuses = mixed.map((each) => each.response?.statusCode ?? each.error?.code);
    assert.deepEqual(statuses, [200, 200, 200, 200, 204, 409, 404, 404]);
    assert.equal(mixed[3].response.resourceBody.n, 104);
    const { resources } = await container.items.readAll().fetchAll();
    assert.equal(resources.length, 299);
  }, manyPartitions);
});

test("bulk: null, missing and hierarchical keys", async () => {
  await withContainer(async (container) => {
    const results = await container.items.executeBulkOperations([
      { operationType: "Create", partitionKey: null, resourceBody: { id: "1", pk: null } },
      { operationType: "Create", partitionKey: {}, resourceBody: { id: "2" } },
      { operationType: "Create", partitionKey: 5, resourceBody: { id: "3", pk: 5 } },
      { operationType: "Create", partitionKey: true, resourceBody: { id: "4", pk: true } },
    ]);
    assert.deepEqual(results.map((each) => each.response?.statusCode), [201, 201, 201, 201]);
  }, manyPartitions);
  await withContainer(
    async (container) => {
      const operations = Array.from({ length: 20 }, (_, n) => ({
        operationType: "Create",
        partitionKey: [`a${n}`, n],
        resourceBody: { id: String(n), a: `a${n}`, b: n },
      }));
      const results = await container.items.executeBulkOperations(operations);
      assert.ok(results.every((each) => each.response?.statusCode === 201));
      assert.equal((await container.item("7", ["a7", 7]).read()).resource.id, "7");
    },
    { partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 2 }, ...manyPartitions },
  );
});

test("bulk: the older bulk()", async () => {
  await withContainer(async (container) => {
    const results = await container.items.bulk(
      [
        { operationType: "Create", partitionKey: "a", resourceBody: { id: "1", pk: "a" } },
        { operationType: "Create", partitionKey: "a", resourceBody: { id: "1", pk: "a" } },
        { operationType: "Upsert", partitionKey: "b", resourceBody: { id: "2", pk: "b" } },
        { operationType: "Read", partitionKey: "b", id: "2" },
      ],
      { continueOnError: true },
    );
    assert.deepEqual(results.map((each) => each.statusCode).sort(), [200, 201, 201, 409]);
  }, manyPartitions);
});

test("feeds: pages and continuation", async () => {
  await withContainer(async (container) => {
    for (let n = 0; n < 23; n++) await container.items.create({ id: String(n), pk: n });
    const ids = [];
    const iterator = container.items.readAll({ maxItemCount: 5 });
    while (iterator.hasMoreResults()) {
      const { resources } = await iterator.fetchNext();
      assert.ok((resources ?? []).length <= 5);
      ids.push(...(resources ?? []).map((each) => Number(each.id)));
    }
    assert.deepEqual(ids.sort((a, b) => a - b), Array.from({ length: 23 }, (_, n) => n));
    const first = await container.items.query("SELECT * FROM c WHERE c.pk >= 0", { maxItemCount: 7 }).fetchNext();
    assert.ok(first.continuationToken);
    const rest = await container.items
      .query("SELECT * FROM c WHERE c.pk >= 0", { continuationToken: first.continuationToken })
      .fetchAll();
    assert.equal(first.resources.length + rest.resources.length, 23);
  }, manyPartitions);
});

test("queries: filters and parameters", async () => {
  await withContainer(async (container) => {
    for (let n = 0; n < 12; n++) await container.items.create({ id: String(n), pk: `k${n % 3}`, n, deep: { n } });
    const run = async (query, parameters, options) =>
      (await container.items.query({ query, parameters }, options).fetchAll()).resources;
    assert.equal((await run("SELECT * FROM c")).length, 12);
    assert.equal((await run("SELECT * FROM c WHERE c.id = @id", [{ name: "@id", value: "7" }]))[0].n, 7);
    assert.equal((await run("SELECT * FROM c WHERE c.deep.n > 9")).length, 2);
    assert.equal((await run("SELECT * FROM c WHERE c.n >= 3 AND c.n <= 5")).length, 3);
    assert.deepEqual(await run("SELECT VALUE c.n FROM c WHERE c.n = 4"), [4]);
    assert.equal((await run("SELECT * FROM c", [], { partitionKey: "k1" })).length, 4);
    await refused(400, () => run("SELECT * FROM c WHERE"));
  }, manyPartitions);
});

test("ranges: 11,000 make two, 30,000 make five", async () => {
  for (const [throughput, count] of [
    [400, 1],
    [11000, 2],
    [30000, 5],
  ]) {
    await withContainer(
      async (container) => {
        const { resources } = await container.readPartitionKeyRanges().fetchAll();
        assert.equal(resources.length, count);
        assert.equal(resources[0].minInclusive, "");
        assert.equal(resources.at(-1).maxExclusive, "FF");
        assert.deepEqual(resources.map((each) => each.id), Array.from({ length: count }, (_, n) => String(n)));
        assert.equal((await container.getFeedRanges()).length, count);
      },
      { throughput },
    );
  }
});

test("ttl and unique keys", async () => {
  await withContainer(
    async (container) => {
      await container.items.create({ id: "1", pk: "a", u: 1 });
      await container.items.create({ id: "2", pk: "a", u: 2, ttl: -1 });
      await refused(409, () => container.items.create({ id: "3", pk: "a", u: 2 }));
      await refused(400, () => container.items.create({ id: "3", pk: "a", u: 3, ttl: 0 }));
      await sleep(2100);
      assert.deepEqual((await container.items.readAll().fetchAll()).resources.map((each) => each.id), ["2"]);
      await container.items.create({ id: "3", pk: "a", u: 1 });
    },
    { defaultTtl: 2, uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/u"] }] } },
  );
});

test("sessions: a reader with the token sees the writes", async () => {
  await withContainer(async (container, database) => {
    const { headers } = await container.items.create({ id: "1", pk: "a" });
    const sessionToken = headers["x-ms-session-token"];
    assert.match(sessionToken, /^\d+:1#\d+$/);
    const other = new CosmosClient({ endpoint, key, consistencyLevel: "Session" });
    const item = other.database(database.id).container("items").item("1", "a");
    assert.equal((await item.read({ sessionToken })).resource.id, "1");
    // A token that is ahead: the client drops it after the first 404 and asks again.
    const ahead = await item.read({ sessionToken: sessionToken.replace(/#\d+/, "#99999999") });
    assert.equal(ahead.statusCode, 200);
  });
});

test("consistency: weaker is served, stronger refused", async () => {
  await withContainer(async (container, database) => {
    await container.items.create({ id: "1", pk: "a" });
    const item = (level) =>
      new CosmosClient({ endpoint, key, consistencyLevel: level }).database(database.id).container("items").item("1", "a");
    assert.equal((await item("Eventual").read()).resource.id, "1");
    await refused(400, () => item("Strong").read());
  });
});

test("conflicts: there are none", async () => {
  await withContainer(async (container) => {
    assert.deepEqual((await container.conflicts.readAll().fetchAll()).resources, []);
  });
});

test("delete all items of a partition key", async () => {
  await withContainer(async (container) => {
    for (let n = 0; n < 10; n++) await container.items.create({ id: String(n), pk: n % 2 ? "odd" : "even" });
    await container.deleteAllItemsForPartitionKey("odd");
    const { resources } = await container.items.readAll().fetchAll();
    assert.deepEqual(resources.map((each) => each.id), ["0", "2", "4", "6", "8"]);
  });
});

test("responses without content when none is wanted", async () => {
  await withContainer(async (container) => {
    const options = { contentResponseOnWriteEnabled: false };
    const operation = { operationType: "Create", partitionKey: "a", resourceBody: { id: "1", pk: "a" } };
    const { result } = await container.items.batch([operation], "a", options);
    assert.equal(result[0].statusCode, 201);
    assert.equal(result[0].resourceBody, undefined);
    assert.ok(result[0].eTag);
  });
});
