// Partitions that split while the client is at work.
import assert from "node:assert/strict";
import test from "node:test";
import { withContainer } from "./support.mjs";

const COUNT = 120;

async function fill(container) {
  const operations = Array.from({ length: COUNT }, (_, n) => ({
    operationType: "Create",
    resourceBody: { id: `${n}`, pk: n % 40, n },
  }));
  for (let at = 0; at < COUNT; at += 60) await container.items.bulk(operations.slice(at, at + 60));
}

/** Provisions more than one partition carries, and waits until there are more of them. */
async function split(container, throughput = 11000) {
  const response = await container.readOffer();
  const offer = response.resource;
  offer.content.offerThroughput = throughput;
  await response.offer.replace(offer);
  for (;;) {
    const { resource } = await response.offer.read();
    if (!resource.content.isOfferReplacePending) return;
  }
}

async function pagesOverSplit(container, text, expected) {
  await fill(container);
  const iterator = container.items.query(text, { maxItemCount: 7 });
  const found = [];
  let hasSplit = false;
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    found.push(...(resources ?? []));
    if (!hasSplit && found.length > 20) {
      hasSplit = true;
      await split(container);
    }
  }
  assert.ok(hasSplit);
  return assert.deepEqual(expected(found), Array.from({ length: COUNT }, (_, n) => n));
}

test("splits: pages in order go on", () =>
  withContainer((container) => pagesOverSplit(container, "SELECT VALUE c.n FROM c ORDER BY c.n", (found) => found)));

test("splits: pages go on", () =>
  withContainer((container) =>
    pagesOverSplit(container, "SELECT VALUE c.n FROM c", (found) => found.sort((a, b) => a - b)),
  ));

test("splits: bulk by an old map", () =>
  withContainer(async (container) => {
    await fill(container);
    await split(container);
    const operations = Array.from({ length: 50 }, (_, n) => ({
      operationType: "Upsert",
      partitionKey: n,
      resourceBody: { id: `new ${n}`, pk: n },
    }));
    const outcomes = await container.items.executeBulkOperations(operations);
    assert.deepEqual([...new Set(outcomes.map((each) => each.response?.statusCode))], [201]);
    assert.equal((await container.items.readAll().fetchAll()).resources.length, COUNT + 50);
  }));

test("splits: bulk while they go on", () =>
  withContainer(async (container) => {
    await fill(container);
    const splitting = split(container, 40000);
    for (let round = 0; round < 5; round++) {
      const operations = Array.from({ length: 60 }, (_, n) => ({
        operationType: "Upsert",
        partitionKey: n,
        resourceBody: { id: `${round}-${n}`, pk: n },
      }));
      const outcomes = await container.items.executeBulkOperations(operations);
      assert.deepEqual([...new Set(outcomes.map((each) => each.response?.statusCode))], [201]);
    }
    await splitting;
    assert.equal((await container.items.readAll().fetchAll()).resources.length, COUNT + 300);
    const ranges = await container.readPartitionKeyRanges().fetchAll();
    assert.equal(ranges.resources.length, 4);
    assert.ok(ranges.resources.every((each) => each.parents.includes("0")));
  }));
