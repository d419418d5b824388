// The JavaScript client behind lines of JSON: {"n", "client", "call", ...} in, {"n", ...} out. Started by javascript.py.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const { CosmosClient, ChangeFeedStartFrom } = createRequire(process.argv[2] + "/")("@azure/cosmos");
const [, , , endpoint, key, database, container] = process.argv;
const containers = new Map();
const cursors = new Map();
let lastCursor = 0;

function containerOf(client) {
  if (!containers.has(client)) {
    containers.set(client, new CosmosClient({ endpoint, key }).database(database).container(container));
  }
  return containers.get(client);
}

const condition = (etag) => (etag ? { accessCondition: { type: "IfMatch", condition: etag } } : {});
const one = ({ statusCode, resource, etag }) => ({ status: statusCode, body: resource ?? null, etag: etag ?? null });

function member({ verb, item_id, value }) {
  if (verb === "create") return { operationType: "Create", resourceBody: value };
  if (verb === "read") return { operationType: "Read", id: item_id };
  const operations = [{ op: "add", path: "/values/-", value }];
  return { operationType: "Patch", id: item_id, resourceBody: { operations } };
}

const calls = {
  read: async (c, { key, id }) => one(await c.item(id, key).read()),
  create: async (c, { document }) => one(await c.items.create(document)),
  upsert: async (c, { document }) => one(await c.items.upsert(document)),
  replace: async (c, { key, id, document, etag }) => one(await c.item(id, key).replace(document, condition(etag))),
  delete: async (c, { key, id, etag }) => one(await c.item(id, key).delete(condition(etag))),
  increment: async (c, { key, id }) => one(await c.item(id, key).patch([{ op: "incr", path: "/count", value: 1 }])),
  async batch(c, { key, steps }) {
    const { code, result } = await c.items.batch(steps.map(member), key);
    const failed = result.find(({ statusCode }) => statusCode >= 400 && statusCode !== 424);
    if (failed) return { status: failed.statusCode };
    return { status: code, body: result.map(({ resourceBody }) => resourceBody ?? null) };
  },
  async query(c, { text, pageItems, key }) {
    const options = { maxItemCount: pageItems, ...(key === null ? {} : { partitionKey: key }) };
    cursors.set(++lastCursor, text === null ? c.items.readAll(options) : c.items.query(text, options));
    return { cursor: lastCursor };
  },
  async next(_, { cursor }) {
    const iterator = cursors.get(cursor);
    const isDone = !iterator.hasMoreResults();
    const rows = isDone ? [] : ((await iterator.fetchNext()).resources ?? []);
    if (isDone) cursors.delete(cursor);
    return { rows, isDone };
  },
  async changes(c, { continuation }) {
    const start = continuation ? ChangeFeedStartFrom.Continuation(continuation) : ChangeFeedStartFrom.Beginning();
    const iterator = c.items.getChangeFeedIterator({ maxItemCount: 20, changeFeedStartFrom: start });
    const page = await iterator.readNext();
    return { rows: page.result ?? [], continuation: page.continuationToken, isEnd: page.statusCode === 304 };
  },
};

function told(error) {
  const status = Number(error.code);
  const text = String(error.message ?? error).slice(0, 600);
  return Number.isInteger(status) && status >= 100
    ? { status, subStatus: Number(error.substatus ?? 0), text }
    : { unanswered: `${error.code ?? error.name}: ${text}` };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { n, client, call, ...given } = JSON.parse(line);
  Promise.resolve()
    .then(() => calls[call](containerOf(client), given))
    .catch(told)
    .then((answer) => process.stdout.write(JSON.stringify({ n, ...answer }) + "\n"));
}
