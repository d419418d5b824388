// Writes more than a container's throughput allows, with the client's own retries: what tests/sdk/test_throttling.py runs.
import { CosmosClient } from "@azure/cosmos";

const client = new CosmosClient({ endpoint: process.env.TEST_ENDPOINT, key: process.env.TEST_KEY });
const { database } = await client.databases.create({ id: "javascript" });
const { container } = await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] }, throughput: 400 });
let retries = 0;
const write = async (number) => {
  const { headers, statusCode } = await container.items.create({ id: `${number}`, pk: "hot", large: "x".repeat(20_000) });
  retries += headers["x-ms-throttle-retry-count"] ?? 0;
  return statusCode;
};
const statuses = await Promise.all(Array.from({ length: 40 }, (_, number) => write(number)));
const { resources } = await container.items.query("SELECT VALUE COUNT(1) FROM c", { partitionKey: "hot" }).fetchAll();
const operations = Array.from({ length: 20 }, (_, number) => ({
  operationType: "Create",
  partitionKey: "hot",
  resourceBody: { id: `bulk${number}`, pk: "hot" },
}));
const bulk = await container.items.executeBulkOperations(operations);
const failed = bulk.filter((each) => each.error || (each.response?.statusCode ?? 0) >= 400).length;
console.log(JSON.stringify({ created: statuses.filter((each) => each === 201).length, retries, count: resources[0], failed }));
client.dispose();
