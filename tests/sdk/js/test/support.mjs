// What the tests share: a client of the server under test, and databases that are removed afterwards.
import assert from "node:assert/strict";
import { CosmosClient } from "@azure/cosmos";

export const endpoint = process.env.TEST_ENDPOINT;
export const key = process.env.TEST_KEY;
export const client = new CosmosClient({ endpoint, key });

let count = 0;

/** Runs `body` with a database of its own. */
export async function withDatabase(body, options = {}) {
  const id = `js-${process.pid}-${++count}`;
  const { database } = await client.databases.create({ id }, options);
  try {
    return await body(database);
  } finally {
    await database.delete();
  }
}

/** Runs `body` with a container of its own: partitioned by /pk unless `definition` says otherwise. */
export async function withContainer(body, definition = {}, options = {}) {
  return withDatabase(async (database) => {
    const full = { id: "items", partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 }, ...definition };
    const { container } = await database.containers.create(full, options);
    return body(container, database);
  });
}

/** Expects a refusal with this status (and sub-status). */
export async function refused(status, operation, substatus) {
  try {
    await operation();
  } catch (error) {
    const code = error.code ?? error.statusCode;
    assert.equal(code, status, `${error.message}\n${error.stack}`);
    if (substatus !== undefined) assert.equal(error.substatus, substatus);
    return error;
  }
  return assert.fail(`nothing was refused; ${status} was expected`);
}

/** An item without what the server adds. */
export function userPart(resource) {
  return Object.fromEntries(Object.entries(resource).filter(([name]) => !name.startsWith("_")));
}
