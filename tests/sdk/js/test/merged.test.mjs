// Queries over five partitions that the client plans, sends to each and merges: the same rows as from one.
import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { client, refused } from "./support.mjs";

const words = ["river", "mountain", "swimming", "sailor", "lighthouse", "storm", "harbour"];
const items = Array.from({ length: 40 }, (_, n) => ({
  id: String(n).padStart(2, "0"),
  pk: `key ${n}`,
  n: (n * 7) % 40,
  team: `g${n % 3}`,
  even: n % 2 === 0,
  tags: [n % 4, "all"],
  ...(n % 10 === 0 ? {} : { deep: n / 8 }),
  vector: [Math.cos(n / 10), Math.sin(n / 10)],
  text: [...Array(1 + (n % 3)).fill(words[n % 7]), words[n % 5], ...Array(n).fill("calm")].join(" "),
}));
const policies = {
  partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 },
  indexingPolicy: {
    includedPaths: [{ path: "/*" }],
    excludedPaths: [{ path: "/vector/*" }],
    compositeIndexes: [
      [
        { path: "/team", order: "ascending" },
        { path: "/n", order: "descending" },
      ],
    ],
    vectorIndexes: [{ path: "/vector", type: "flat" }],
    fullTextIndexes: [{ path: "/text" }],
  },
  vectorEmbeddingPolicy: {
    vectorEmbeddings: [{ path: "/vector", dataType: "float32", distanceFunction: "cosine", dimensions: 2 }],
  },
  fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }] },
};

let database;
let five;
let one;

before(async () => {
  ({ database } = await client.databases.create({ id: `js-merged-${process.pid}` }));
  ({ container: five } = await database.containers.create({ id: "five", throughput: 30000, ...policies }));
  ({ container: one } = await database.containers.create({ id: "one", throughput: 400, ...policies }));
  for (const item of items) for (const container of [five, one]) await container.items.create(item);
});
after(() => database.delete());

const plain = (row) =>
  typeof row === "object" && row !== null && !Array.isArray(row)
    ? Object.fromEntries(Object.entries(row).filter(([name]) => !name.startsWith("_")))
    : row;

async function rows(container, query, options = {}) {
  const { resources } = await container.items.query(query, options).fetchAll();
  return resources.map(plain);
}

const sorted = (list) => list.map((row) => JSON.stringify(row, Object.keys(row ?? {}).sort())).sort();

const ordered = {
  "by a number": "SELECT * FROM c ORDER BY c.n",
  "by a number, descending": "SELECT c.id, c.n AS number FROM c WHERE c.even ORDER BY c.n DESC",
  "by two paths": "SELECT VALUE c.id FROM c ORDER BY c.team ASC, c.n DESC",
  "of some keys": "SELECT c.id FROM c WHERE c.pk IN ('key 1', 'key 2', 'key 3', 'key 17', 'nobody') ORDER BY c.n",
  "the first": "SELECT TOP 7 c.id FROM c ORDER BY c.n",
  "a part": "SELECT c.id FROM c ORDER BY c.n OFFSET 5 LIMIT 9",
  "different values in order": "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team",
  "the first different value": "SELECT DISTINCT TOP 2 VALUE c.team FROM c ORDER BY c.team DESC",
  count: "SELECT VALUE COUNT(1) FROM c WHERE c.n < 30",
  "count of nothing": "SELECT VALUE COUNT(1) FROM c WHERE c.n < 0",
  sum: "SELECT VALUE SUM(c.n) FROM c",
  "sum that is undefined": "SELECT VALUE SUM(c.team) FROM c",
  average: "SELECT VALUE AVG(c.deep) FROM c",
  "average of one item": "SELECT VALUE AVG(c.n) FROM c WHERE c.n = 7",
  "average that is undefined": "SELECT VALUE AVG(c.even) FROM c",
  least: "SELECT VALUE MIN(c.n) FROM c WHERE c.n > 30",
  greatest: "SELECT VALUE MAX(c.id) FROM c",
  "least of nothing": "SELECT VALUE MIN(c.n) FROM c WHERE c.n < 0",
  "several aggregates": "SELECT COUNT(1) AS count, MIN(c.n) AS least, AVG(c.n) AS average FROM c",
  "an unnamed aggregate": "SELECT SUM(c.n) FROM c",
  "those that are true": "SELECT VALUE COUNTIF(c.even) FROM c",
  "by vectors": "SELECT TOP 6 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 2])",
  "by distance":
    "SELECT TOP 5 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 3], true, {'distanceFunction': 'euclidean'})",
  "by words": "SELECT TOP 5 c.id FROM c WHERE c.n < 35 ORDER BY RANK FullTextScore(c.text, 'river')",
  "by vectors and words":
    "SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'swim'), VectorDistance(c.vector, [0.6, 0.8]))",
  "by weighted ranks":
    "SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'swim'), VectorDistance(c.vector, [3, 4]), [3, 1])",
};

test("merged queries: rows in order, and aggregates", async () => {
  for (const [name, query] of Object.entries(ordered)) {
    const [merged, expected] = [await rows(five, query, { maxItemCount: 4 }), await rows(one, query)];
    assert.deepEqual(merged, expected, name);
  }
});

const unordered = {
  "different rows": "SELECT DISTINCT c.team, c.even FROM c",
  groups: "SELECT c.team, COUNT(1) AS count, SUM(c.n) AS sum, AVG(c.deep) AS average FROM c GROUP BY c.team",
  "groups by an expression": "SELECT c.n % 3 AS rest, MAX(c.id) AS last FROM c GROUP BY c.n % 3",
  "groups with a missing key": "SELECT c.missing, c.even, COUNT(1) AS count FROM c GROUP BY c.missing, c.even",
  "values of groups": "SELECT VALUE COUNT(1) FROM c GROUP BY c.team",
  "keys of groups": "SELECT VALUE c.team FROM c GROUP BY c.team",
  "groups of joined rows": "SELECT t, COUNT(1) AS count FROM c JOIN t IN c.tags GROUP BY t",
};

test("merged queries: groups and different rows", async () => {
  for (const [name, query] of Object.entries(unordered)) {
    const found = await rows(five, query);
    assert.ok(found.length > 0, name);
    assert.deepEqual(sorted(found), sorted(await rows(one, query)), name);
  }
});

test("merged queries: lists of values", async () => {
  const [list] = await rows(five, "SELECT VALUE MAKELIST(c.n) FROM c");
  assert.deepEqual(list.sort((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n));
  const [set] = await rows(five, "SELECT VALUE MAKESET(c.team) FROM c");
  assert.deepEqual(set.sort(), ["g0", "g1", "g2"]);
});

test("merged queries: parameters", async () => {
  const query = {
    query: "SELECT TOP @top c.id FROM c WHERE c.n >= @least AND c.team IN (@a, @b) ORDER BY c.n",
    parameters: [
      { name: "@top", value: 4 },
      { name: "@least", value: 8 },
      { name: "@a", value: "g0" },
      { name: "@b", value: "it's" },
    ],
  };
  const found = await rows(five, query);
  assert.equal(found.length, 4);
  assert.deepEqual(found, await rows(one, query));
});

test("merged queries: from a plan that is always asked for", async () => {
  const options = { forceQueryPlan: true, maxItemCount: 3 };
  assert.deepEqual(await rows(five, "SELECT VALUE c.n FROM c ORDER BY c.n", options), items.map((_, n) => n));
  assert.equal((await rows(five, "SELECT * FROM c", options)).length, 40);
});

test("merged queries: continuations of an ordered query", async () => {
  const found = [];
  let continuationToken;
  do {
    const options = { maxItemCount: 7, enableQueryControl: true, continuationToken };
    const page = await five.items.query("SELECT VALUE c.n FROM c ORDER BY c.n", options).fetchNext();
    found.push(...(page.resources ?? []));
    continuationToken = page.continuationToken;
  } while (continuationToken && found.length < 100);
  assert.deepEqual(found, items.map((_, n) => n));
});

test("merged queries: what is refused", async () => {
  await refused(400, () => rows(five, "SELECT VALUE FLOOR(AVG(c.n)) FROM c"));
  await refused(400, () => rows(five, "SELECT * FROM c ORDER BY c.n, c.team"));
});
