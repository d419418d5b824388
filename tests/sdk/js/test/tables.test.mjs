// The released client of tables on the Table door.
import assert from "node:assert/strict";
import test from "node:test";
import { AzureNamedKeyCredential, TableClient, TableServiceClient, TableTransaction, odata } from "@azure/data-tables";

const endpoint = process.env.TEST_TABLE_ENDPOINT;
const credential = new AzureNamedKeyCredential("localhost", process.env.TEST_KEY);
const options = { allowInsecureConnection: true };
let tables = 0;

async function withTable(body) {
  const name = `javascript${(tables += 1)}`;
  const table = new TableClient(endpoint, name, credential, options);
  await table.createTable();
  try {
    await body(table, name);
  } finally {
    await table.deleteTable();
  }
}

async function listed(entities) {
  const found = [];
  for await (const entity of entities) found.push(entity);
  return found;
}

test("tables: made, listed, deleted", () =>
  withTable(async (_, name) => {
    const service = new TableServiceClient(endpoint, credential, options);
    const names = (await listed(service.listTables({ queryOptions: { filter: odata`TableName eq ${name}` } }))).map((each) => each.name);
    assert.deepEqual(names, [name]);
  }));

test("tables: every type comes back as it went", () =>
  withTable(async (table) => {
    const entity = {
      partitionKey: "O'Brien & ü",
      rowKey: "a b%2F",
      text: "日本語",
      whole: 42,
      long: 9007199254740993n,
      ratio: 1.5,
      even: { type: "Double", value: "3" },
      truth: false,
      bytes: new Uint8Array([0, 255]),
      time: new Date("2024-01-05T10:11:12.123Z"),
      guid: { type: "Guid", value: "c9da6455-213d-42c9-9a79-3e9149a57833" },
    };
    const made = await table.createEntity(entity);
    const got = await table.getEntity(entity.partitionKey, entity.rowKey);
    assert.equal(got.etag, made.etag);
    for (const name of ["partitionKey", "rowKey", "text", "whole", "long", "ratio", "truth"]) assert.equal(got[name], entity[name]);
    assert.equal(got.even, 3);
    assert.deepEqual([...got.bytes], [0, 255]);
    assert.equal(got.time.getTime(), entity.time.getTime());
    assert.equal(got.guid.value ?? got.guid, entity.guid.value);
    const typed = await table.getEntity(entity.partitionKey, entity.rowKey, { disableTypeConversion: true });
    assert.equal(typed.even.type, "Double");
  }));

test("tables: updates and etags", () =>
  withTable(async (table) => {
    const { etag } = await table.createEntity({ partitionKey: "p", rowKey: "r", a: 1, b: 2 });
    await table.updateEntity({ partitionKey: "p", rowKey: "r", b: 3 }, "Merge");
    const merged = await table.getEntity("p", "r");
    assert.deepEqual([merged.a, merged.b], [1, 3]);
    await assert.rejects(table.updateEntity({ partitionKey: "p", rowKey: "r", b: 4 }, "Replace", { etag }), { statusCode: 412 });
    await table.updateEntity({ partitionKey: "p", rowKey: "r", b: 4 }, "Replace", { etag: merged.etag });
    assert.equal((await table.getEntity("p", "r")).a, undefined);
    await table.upsertEntity({ partitionKey: "p", rowKey: "s", c: 1 }, "Merge");
    await table.deleteEntity("p", "r");
    await assert.rejects(table.getEntity("p", "r"), { statusCode: 404 });
  }));

test("tables: queries in pages", () =>
  withTable(async (table) => {
    for (let n = 0; n < 20; n++) await table.createEntity({ partitionKey: `p${n % 2}`, rowKey: `${n}`, n });
    const filter = odata`n ge ${5} and partitionKey ne 'nobody'`.replace("partitionKey", "PartitionKey");
    const pages = [];
    for await (const page of table.listEntities({ queryOptions: { filter, select: ["n"] } }).byPage({ maxPageSize: 4 })) pages.push(page);
    assert.ok(pages.every((page) => page.length <= 4));
    assert.deepEqual(pages.flat().map((each) => each.n).sort((a, b) => a - b), Array.from({ length: 15 }, (_, n) => n + 5));
  }));

test("tables: transactions", () =>
  withTable(async (table) => {
    const good = new TableTransaction();
    good.createEntity({ partitionKey: "p", rowKey: "1", n: 1 });
    good.upsertEntity({ partitionKey: "p", rowKey: "2", n: 2 }, "Replace");
    const { status, subResponses } = await table.submitTransaction(good.actions);
    assert.equal(status, 202);
    assert.ok(subResponses.every((each) => each.status === 204 || each.status === 201));
    const bad = new TableTransaction();
    bad.deleteEntity("p", "1");
    bad.createEntity({ partitionKey: "p", rowKey: "2" });
    await assert.rejects(table.submitTransaction(bad.actions), { statusCode: 409 });
    assert.equal((await listed(table.listEntities())).length, 2);
  }));
