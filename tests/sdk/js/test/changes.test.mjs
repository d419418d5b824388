// The change feed, in both modes.
import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";
import { refused, withContainer } from "./support.mjs";

const manyPartitions = { throughput: 20000 };

/** Reads on until nothing is new: the ids, and the token to go on with. */
async function drain(container, changeFeedStartFrom, options = {}) {
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom, ...options });
  const ids = [];
  for (;;) {
    const response = await iterator.readNext();
    if (response.statusCode === 304) return { ids, token: response.continuationToken };
    assert.equal(response.statusCode, 200);
    assert.equal(response.count, response.result.length);
    assert.ok(response.sessionToken);
    assert.ok(response.requestCharge >= 1);
    for (const item of response.result) {
      assert.equal(typeof item._lsn, "number");
      ids.push(item.id);
    }
  }
}

async function fill(container, prefix = "") {
  for (let n = 0; n < 12; n++) await container.items.upsert({ id: `${prefix}${n}`, pk: n % 4, n });
}

const all = (prefix = "") => Array.from({ length: 12 }, (_, n) => `${prefix}${n}`).sort();

async function checkStarts(container) {
  await fill(container);
  const fromStart = await drain(container, ChangeFeedStartFrom.Beginning(), { maxItemCount: 5 });
  assert.deepEqual(fromStart.ids.sort(), all());
  const now = await drain(container, ChangeFeedStartFrom.Now());
  assert.deepEqual(now.ids, []);
  const hourAgo = await drain(container, ChangeFeedStartFrom.Time(new Date(Date.now() - 3600e3)));
  assert.deepEqual(hourAgo.ids.sort(), all());
  assert.deepEqual((await drain(container, ChangeFeedStartFrom.Time(new Date(Date.now() + 3600e3)))).ids, []);
  await fill(container, "more");
  for (const token of [fromStart.token, now.token]) {
    const rest = await drain(container, ChangeFeedStartFrom.Continuation(token), { maxItemCount: 2 });
    assert.deepEqual(rest.ids.sort(), all("more"));
  }
}

test("changes: every start, one partition", () => withContainer(checkStarts));

test("changes: every start, four partitions", () => withContainer(checkStarts, {}, manyPartitions));

test("changes: of a key and of feed ranges", async () => {
  const body = async (container) => {
    await fill(container);
    const ofKey = await drain(container, ChangeFeedStartFrom.Beginning(2), { maxItemCount: 1 });
    assert.deepEqual(ofKey.ids, ["2", "6", "10"]);
    const ids = [];
    for (const range of await container.getFeedRanges()) {
      ids.push(...(await drain(container, ChangeFeedStartFrom.Beginning(range))).ids);
    }
    assert.deepEqual(ids.sort(), all());
    await container.item("6", 2).delete();
    await container.items.upsert({ id: "2", pk: 2 });
    assert.deepEqual((await drain(container, ChangeFeedStartFrom.Continuation(ofKey.token))).ids, ["2"]);
  };
  await withContainer(body, {}, manyPartitions);
});

test("changes: of a prefix of a hierarchical key", async () => {
  const partitionKey = { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 };
  const body = async (container) => {
    for (let n = 0; n < 8; n++) await container.items.create({ id: `${n}`, tenant: `t${n % 2}`, user: `u${n}` });
    assert.deepEqual((await drain(container, ChangeFeedStartFrom.Beginning(["t1"]))).ids, ["1", "3", "5", "7"]);
    assert.deepEqual((await drain(container, ChangeFeedStartFrom.Beginning(["t1", "u3"]))).ids, ["3"]);
  };
  await withContainer(body, { partitionKey }, manyPartitions);
});

test("changes: positions go on over a split", async () => {
  await withContainer(async (container) => {
    await fill(container);
    const before = await drain(container, ChangeFeedStartFrom.Beginning());
    const iterator = container.items.getChangeFeedIterator({
      changeFeedStartFrom: ChangeFeedStartFrom.Beginning(),
      maxItemCount: 5,
    });
    const ids = (await iterator.readNext()).result.map(({ id }) => id);
    const { offer, resource } = await container.readOffer();
    await offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 11000 } });
    while ((await container.readOffer()).resource.content.isOfferReplacePending);
    await fill(container, "more");
    for (let quiet = 0; quiet < 2; ) {
      const response = await iterator.readNext();
      if (response.statusCode === 304) quiet++;
      else ids.push(...response.result.map(({ id }) => id));
    }
    assert.deepEqual(ids.sort(), [...all(), ...all("more")].sort());
    const after = await drain(container, ChangeFeedStartFrom.Continuation(before.token));
    assert.deepEqual(after.ids.sort(), all("more"));
  });
});

test("all versions and deletes", () => {
  const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10));
  return withContainer(async (container) => {
    const read = (changeFeedStartFrom) =>
      container.items
        .getChangeFeedIterator({ changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes, changeFeedStartFrom })
        .readNext();
    const { continuationToken } = await read(ChangeFeedStartFrom.Now());
    await container.items.create({ id: "1", pk: "a", n: 1 });
    await container.items.upsert({ id: "1", pk: "a", n: 2 });
    await container.item("1", "a").delete();
    const { result } = await read(ChangeFeedStartFrom.Continuation(continuationToken));
    const told = result.map(({ metadata, current, previous }) => [metadata.operationType, previous?.n, current.n]);
    assert.deepEqual(told, [
      ["create", undefined, 1],
      ["replace", 1, 2],
      ["delete", 2, undefined],
    ]);
    await refused(400, () => read(ChangeFeedStartFrom.Beginning()));
  }, { changeFeedPolicy });
});
