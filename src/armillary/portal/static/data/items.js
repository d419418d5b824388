// Items of a container through the SQL bridge.

import { Refusal, bridge, collectionPath, sql } from "./client.js";
import { pathSteps } from "../text/paths.js";

export const PAGE = 100;
const FAILED_WITH_ANOTHER = 424; // of the same transaction

// Of queries that the portal merges as the SDKs do (merged-query.js), so that they cost here what they cost there.
export const FEATURES = "NonValueAggregate, Aggregate, Distinct, MultipleOrderBy, OffsetAndLimit, OrderBy, Top, CompositeAggregate, GroupBy, MultipleAggregates";

/** @param {any[]} key */
const keyHeader = (key) => ({ "x-ms-documentdb-partitionkey": JSON.stringify(key) });

/** The path of an item. @param {string} database @param {string} container @param {string} id */
const itemPath = (database, container, id) => `${collectionPath(database, container)}/docs/${encodeURIComponent(id)}`;

/** The partition key of an item: one value a path; a missing one is {}. @param {any} item @param {string[]} paths */
export function keyOf(item, paths) {
  return paths.map((path) => {
    let value = item;
    for (const name of pathSteps(path)) value = value?.[name];
    return value === undefined ? {} : value;
  });
}

/**
 * A page of a query. Without `key` all partitions are asked.
 * @param {string} database @param {string} container @param {{query: string, parameters?: any[], key?: any[] | null, rangeId?: number, continuation?: string | null, count?: number, signal?: AbortSignal}} options
 */
export async function queryPage(database, container, { query, parameters = [], key = null, rangeId, continuation = null, count = PAGE, signal }) {
  /** @type {Record<string, string>} */
  const headers = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "true",
    "x-ms-documentdb-query-enablecrosspartition": "true",
    "x-ms-cosmos-supported-query-features": FEATURES,
    "x-ms-documentdb-populatequerymetrics": "true",
    "x-ms-cosmos-populateindexmetrics-v2": "true",
    "x-ms-cosmos-populatequeryadvice": "true",
    "x-armillary-explain": "true",
    "x-ms-max-item-count": String(count),
    ...(key ? keyHeader(key) : {}),
    ...(rangeId !== undefined ? { "x-ms-documentdb-partitionkeyrangeid": String(rangeId) } : {}),
    ...(continuation ? { "x-ms-continuation": continuation } : {}),
  };
  const answer = await sql("POST", `${collectionPath(database, container)}/docs`, { query, parameters }, { headers, signal });
  const text = (/** @type {string} */ name) => answer.headers.get(name);
  const json = (/** @type {string} */ name, /** @type {boolean} */ isEncoded) => {
    const found = text(name);
    try {
      return found ? JSON.parse(isEncoded ? decodeURIComponent(found) : found) : null;
    } catch {
      return null;
    }
  };
  return {
    rows: /** @type {any[]} */ (answer.body?.Documents ?? []),
    continuation: text("x-ms-continuation"),
    chargeRu: answer.chargeRu,
    ms: answer.ms,
    parts: /** @type {{what: string, ru: number, count?: number, bytes?: number}[]} */ (json("x-armillary-charge", false) ?? []),
    partitions: /** @type {any[] | null} */ (json("x-armillary-partitions", false)),
    indexes: json("x-ms-cosmos-index-utilization", true),
    advice: /** @type {{Id: string}[]} */ (json("x-ms-cosmos-query-advice", true) ?? []),
    metrics: text("x-ms-documentdb-query-metrics") ?? "",
  };
}

/** @param {string} database @param {string} container @param {string} id @param {any[]} key */
export async function readItem(database, container, id, key) {
  return (await sql("GET", itemPath(database, container, id), undefined, { headers: keyHeader(key) })).body;
}

/** @param {string} database @param {string} container @param {any} item @param {any[]} key */
export async function createItem(database, container, item, key) {
  return (await sql("POST", `${collectionPath(database, container)}/docs`, item, { headers: keyHeader(key) })).body;
}

/** Write items of one key in one transaction. @param {string} database @param {string} container @param {any[]} items @param {any[]} key */
export async function upsertItems(database, container, items, key) {
  const headers = { ...keyHeader(key), "x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true" };
  const operations = items.map((resourceBody) => ({ operationType: "Upsert", resourceBody }));
  const { body } = await sql("POST", `${collectionPath(database, container)}/docs`, operations, { headers });
  const refused = body.find((/** @type {any} */ each) => each.statusCode >= 300 && each.statusCode !== FAILED_WITH_ANOTHER);
  if (refused) throw new Refusal(refused.statusCode, refused.resourceBody?.message ?? `An item was refused with status ${refused.statusCode}.`);
}

/** @param {string} database @param {string} container @param {any} item @param {any[]} key @param {string} id @param {string} etag */
export async function replaceItem(database, container, item, key, id, etag) {
  const headers = { ...keyHeader(key), ...(etag ? { "if-match": etag } : {}) };
  return (await sql("PUT", itemPath(database, container, id), item, { headers })).body;
}

/** @param {string} database @param {string} container @param {string} id @param {any[]} key @param {string} [etag] */
export async function deleteItem(database, container, id, key, etag = "") {
  await sql("DELETE", itemPath(database, container, id), "", { headers: { ...keyHeader(key), ...(etag ? { "if-match": etag } : {}) } });
}

/** Delete all items of a partition key. @param {string} database @param {string} container @param {any[]} key */
export async function deleteByKey(database, container, key) {
  await sql("POST", `${collectionPath(database, container)}/operations/partitionkeydelete`, "", { headers: keyHeader(key) });
}

/** The definition of a container. @param {string} database @param {string} container */
export async function readDefinition(database, container) {
  return (await sql("GET", collectionPath(database, container))).body;
}

/** @param {string} database @param {string} container @param {any} definition */
export async function replaceDefinition(database, container, definition) {
  return (await sql("PUT", collectionPath(database, container), definition)).body;
}

/** Whether an item was stored through MongoDB: its values are shown in extended JSON. @param {any} item */
export const isOfMongo = (item) => item !== null && typeof item === "object" && "_id" in item;

/** What an item is to the API that stored it, if that is not SQL. @param {any} item */
export function kindOf(item) {
  if (item === null || typeof item !== "object") return "";
  if (isOfMongo(item)) return "A document of MongoDB, in extended JSON: it is stored through MongoDB, which keeps its types.";
  if (item._isEdge === true) return "An edge of a graph, as Gremlin stores it.";
  const isProperty = (/** @type {any} */ value) => Array.isArray(value) && value.length > 0 && value.every((each) => each !== null && typeof each === "object" && "_value" in each);
  if (typeof item.label === "string" && Object.values(item).some(isProperty)) return "A vertex of a graph, as Gremlin stores it: properties are lists of values.";
  return "$pk" in item ? "An entity of a table, as the Table API stores it." : "";
}

/** @param {string} database @param {any} command */
async function mongo(database, command) {
  const { reply } = await bridge("mongo", { database, command });
  const failure = reply.writeErrors?.[0] ?? (reply.errmsg ? reply : null);
  if (failure) throw new Refusal(400, failure.errmsg);
}

/** A document without what the server adds to it. @param {any} item */
function ownMembers({ id, _rid, _self, _etag, _attachments, _ts, ...own }) {
  return own;
}

/** @param {string} database @param {string} container @param {any} item */
export async function insertDocument(database, container, item) {
  await mongo(database, { insert: container, documents: [ownMembers(item)] });
}

/**
 * Replace a document of MongoDB's through its own door, which keeps the types of values, unless it was changed since.
 * @param {string} database @param {string} container @param {any} item @param {any[]} key @param {any} original @param {string} etag
 */
export async function replaceDocument(database, container, item, key, original, etag) {
  const present = await readItem(database, container, original.id, key);
  if (present._etag !== etag) throw new Refusal(412, "Another client has changed the document since it was read.");
  await mongo(database, { update: container, updates: [{ q: { _id: original._id }, u: ownMembers(item) }] });
  return readItem(database, container, original.id, key);
}
