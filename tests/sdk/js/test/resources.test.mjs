// Databases, containers, throughput, users, permissions, scripts.
import assert from "node:assert/strict";
import test from "node:test";
import { CosmosClient, SasTokenPermissionKind, createAuthorizationSasToken } from "@azure/cosmos";
import { client, endpoint, key, refused, withContainer, withDatabase } from "./support.mjs";

test("databases: life, list and query", async () => {
  await withDatabase(async (database) => {
    const { resource } = await database.read();
    assert.equal(resource.id, database.id);
    assert.equal(resource._self, `dbs/${resource._rid}/`);
    await refused(409, () => client.databases.create({ id: database.id }));
    const { resources } = await client.databases.readAll().fetchAll();
    assert.ok(resources.some((each) => each.id === database.id));
    const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: database.id }] };
    const found = await client.databases.query(query).fetchAll();
    assert.deepEqual(found.resources.map((each) => each.id), [database.id]);
    const again = await client.databases.createIfNotExists({ id: database.id });
    assert.equal(again.statusCode, 200);
  });
  const error = await refused(404, () => client.database("missing").read());
  assert.match(error.message, /./);
});

test("databases: names of any form", async () => {
  for (const id of ["a b", "!@$%^&*()-~`'_[]{}|;:,.<>", "Grüße", "数据库", "😀"]) {
    const { database } = await client.databases.create({ id });
    assert.equal((await database.read()).resource.id, id);
    const { container } = await database.containers.create({ id, partitionKey: "/pk" });
    await container.items.create({ id, pk: id });
    assert.equal((await container.item(id, id).read()).resource.id, id);
    await database.delete();
  }
});

test("containers: every policy comes back", async () => {
  await withDatabase(async (database) => {
    const definition = {
      id: "c",
      partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 },
      indexingPolicy: {
        indexingMode: "consistent",
        automatic: true,
        includedPaths: [{ path: "/*" }],
        excludedPaths: [{ path: "/secret/*" }, { path: '/"_etag"/?' }, { path: "/emb/*" }],
        compositeIndexes: [
          [
            { path: "/name", order: "ascending" },
            { path: "/age", order: "descending" },
          ],
        ],
        spatialIndexes: [{ path: "/place/*", types: ["Point", "Polygon"] }],
      },
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/a", "/b"] }] },
      conflictResolutionPolicy: {
        mode: "LastWriterWins",
        conflictResolutionPath: "/stamp",
        conflictResolutionProcedure: "",
      },
      defaultTtl: 100,
      geospatialConfig: { type: "Geography" },
      computedProperties: [{ name: "lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
      vectorEmbeddingPolicy: {
        vectorEmbeddings: [{ path: "/emb", dataType: "float32", dimensions: 8, distanceFunction: "cosine" }],
      },
      fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }] },
    };
    const { container } = await database.containers.create(definition);
    const { resource } = await container.read();
    for (const [name, value] of Object.entries(definition)) assert.deepEqual(resource[name], value, name);
  });
});

test("containers: life, replace, list and query", async () => {
  await withContainer(async (container, database) => {
    const { resource } = await container.read();
    assert.equal(resource.indexingPolicy.excludedPaths[0].path, '/"_etag"/?');
    await refused(409, () => database.containers.create({ id: "items", partitionKey: "/pk" }));
    const replaced = await container.replace({ ...resource, defaultTtl: -1 });
    assert.equal(replaced.resource.defaultTtl, -1);
    await refused(400, () => container.replace({ ...resource, partitionKey: { paths: ["/other"], kind: "Hash" } }));
    const listed = await database.containers.readAll().fetchAll();
    assert.deepEqual(listed.resources.map((each) => each.id), ["items"]);
    const found = await database.containers.query("SELECT * FROM c WHERE c.id = 'items'").fetchAll();
    assert.equal(found.resources.length, 1);
    await container.delete();
    await refused(404, () => container.read());
  });
});

test("offers: manual, replaced, autoscale, shared", async () => {
  await withDatabase(
    async (database) => {
      const { container } = await database.containers.create({ id: "own", partitionKey: "/pk", throughput: 1000 });
      const { resource: offer } = await container.readOffer();
      assert.equal(offer.content.offerThroughput, 1000);
      offer.content.offerThroughput = 1500;
      const { resource: replaced } = await client.offer(offer.id).replace(offer);
      assert.equal(replaced.content.offerThroughput, 1500);
      assert.equal((await client.offer(offer.id).read()).resource.content.offerThroughput, 1500);
      const { container: scaled } = await database.containers.create({
        id: "auto",
        partitionKey: "/pk",
        maxThroughput: 4000,
      });
      const { resource: autoscale } = await scaled.readOffer();
      assert.equal(autoscale.content.offerAutopilotSettings.maxThroughput, 4000);
      const { container: sharing } = await database.containers.create({ id: "sharing", partitionKey: "/pk" });
      assert.equal((await sharing.readOffer()).resource, undefined);
      assert.equal((await database.readOffer()).resource.content.offerThroughput, 600);
      const { resources } = await client.offers.readAll().fetchAll();
      assert.ok(resources.length >= 3);
      await refused(400, () => database.containers.create({ id: "x", partitionKey: "/pk", throughput: 410 }));
    },
    { offerThroughput: 600 },
  );
});

test("users and permissions: life, and what a token may do", async () => {
  await withContainer(async (container, database) => {
    await container.items.create({ id: "1", pk: "a" });
    await container.items.create({ id: "1", pk: "b" });
    const { user } = await database.users.create({ id: "ann" });
    await refused(409, () => database.users.create({ id: "ann" }));
    await database.users.upsert({ id: "ben" });
    const { resources: users } = await database.users.readAll().fetchAll();
    assert.deepEqual(users.map((each) => each.id), ["ann", "ben"]);
    const { resource: read } = await user.permissions.create({
      id: "read",
      permissionMode: "Read",
      resource: container.url,
    });
    const { resource: all } = await user.permissions.create({
      id: "all",
      permissionMode: "All",
      resource: container.url,
      resourcePartitionKey: ["a"],
    });
    const { resources: permissions } = await user.permissions.readAll().fetchAll();
    assert.deepEqual(permissions.map((each) => each.id), ["read", "all"]);

    const reader = new CosmosClient({ endpoint, resourceTokens: { [container.url]: read._token } });
    const reading = reader.database(database.id).container("items");
    assert.equal((await reading.item("1", "a").read()).resource.pk, "a");
    assert.equal((await reading.items.query("SELECT * FROM c").fetchAll()).resources.length, 2);
    await refused(403, () => reading.items.create({ id: "2", pk: "a" }));
    await refused(403, () => reading.item("1", "a").delete());
    await refused(403, () => reading.delete());

    const holder = new CosmosClient({ endpoint, permissionFeed: [all] });
    const writing = holder.database(database.id).container("items");
    await writing.items.create({ id: "2", pk: "a" });
    await refused(403, () => writing.items.create({ id: "2", pk: "b" }));
    await refused(403, () => writing.item("1", "b").read());
    await user.permission("read").delete();
    await refused(404, () => user.permission("read").read());
  });
});

test("a wrong key is refused", async () => {
  const stranger = new CosmosClient({ endpoint, key: Buffer.from("not the key of this server").toString("base64") });
  await refused(401, () => stranger.databases.readAll().fetchAll());
  // So is a token that the client makes of the right one; the refusal says what to use.
  const now = Date.now();
  const token = await createAuthorizationSasToken(key, {
    user: "u", userTag: "", databaseName: "d", containerName: "c", resourceName: "", resourcePath: "",
    partitionKeyValueRanges: [], startTime: new Date(now - 60_000), expiryTime: new Date(now + 3_600_000), keyType: 1,
    controlPlaneReaderScope: SasTokenPermissionKind.ContainerFullAccess, controlPlaneWriterScope: 0,
    dataPlaneReaderScope: SasTokenPermissionKind.ContainerFullAccess, dataPlaneWriterScope: 0,
  });
  const holder = new CosmosClient({ endpoint, key: token });
  const error = await refused(401, () => holder.database("d").container("c").items.readAll().fetchAll());
  assert.match(error.message, /SAS tokens of the account \(type=sas\).* use a key, or a resource token/);
});

test("scripts are stored, listed and run", async () => {
  await withContainer(async (container) => {
    const { scripts } = container;
    await scripts.storedProcedures.create({ id: "s", body: "function (a) { console.log(a); __.response.setBody({ a }); }" });
    const upper = "function () { const item = __.request.getBody(); item.n = 2 * item.n; __.request.setBody(item); }";
    await scripts.triggers.create({ id: "t", body: upper, triggerType: "Pre", triggerOperation: "All" });
    await scripts.userDefinedFunctions.create({ id: "u", body: "function (a) { return a + 1; }" });
    for (const kind of ["storedProcedures", "triggers", "userDefinedFunctions"]) {
      const { resources } = await scripts[kind].readAll().fetchAll();
      assert.equal(resources.length, 1);
      assert.match(resources[0].body, /^function/);
    }
    const { resource, headers } = await scripts.storedProcedure("s").execute("a", ["x"], { enableScriptLogging: true });
    assert.deepEqual(resource, { a: "x" });
    assert.equal(headers["x-ms-documentdb-script-log-results"], "x");
    const { resource: made } = await container.items.create({ id: "1", pk: "a", n: 4 }, { preTriggerInclude: "t" });
    assert.equal(made.n, 8);
    const { resources } = await container.items.query("SELECT VALUE udf.u(c.n) FROM c").fetchAll();
    assert.deepEqual(resources, [9]);
    await scripts.storedProcedures.create({ id: "e", body: "function () { throw new Error(409, 'no'); }" });
    const error = await refused(400, () => scripts.storedProcedure("e").execute("a", []));
    assert.equal(error.substatus, 409);
    await scripts.storedProcedure("s").delete();
    // The key null is one of its own: an item without a key is not in it, and cannot be made in it.
    for (const item of [{ id: "without" }, { id: "null", pk: null }]) await container.items.create(item);
    const see = "function () { __.filter(() => true, (e, rows) => __.response.setBody(rows.map((row) => row.id))); }";
    await scripts.storedProcedures.create({ id: "see", body: see });
    await scripts.storedProcedures.create({ id: "make", body: "function (d) { __.createDocument(__.getSelfLink(), d); }" });
    for (const [key, ids, good, bad] of [
      [null, ["null"], { id: "new", pk: null }, { id: "new" }],
      [undefined, ["without"], { id: "new" }, { id: "new", pk: null }],
    ]) {
      assert.deepEqual((await scripts.storedProcedure("see").execute(key, [])).resource, ids);
      const { message } = await refused(400, () => scripts.storedProcedure("make").execute(key, [bad]));
      assert.match(message, /partition keys other than the one/);
      await scripts.storedProcedure("make").execute(key, [good]);
    }
  });
});

test("the account document", async () => {
  const { resource } = await client.getDatabaseAccount();
  assert.equal(resource.consistencyPolicy, "Session");
  assert.equal((await client.getWriteEndpoint()).replace(/\/$/, ""), endpoint.replace(/\/$/, ""));
});

test("https on the same port", async () => {
  const secure = new CosmosClient({ endpoint: endpoint.replace("http://127.0.0.1", "https://localhost"), key });
  const { resources } = await secure.databases.readAll().fetchAll();
  assert.ok(Array.isArray(resources));
});
