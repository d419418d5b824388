// A few lines of code for each door, with the key left out, and the orders of the documentation's example.

/** @param {{name: string, endpoints: string[], connectionString?: string}} door */
export function codeOf(door) {
  const string = door.connectionString ?? "";
  const endpoint = door.endpoints[0] ?? "";
  switch (door.name) {
    case "sql":
      return [
        { name: "Python, azure-cosmos", text: `from azure.cosmos import CosmosClient\n\nclient = CosmosClient(${quoted(endpoint)}, credential="<key>")\ncontainer = client.get_database_client("shop").get_container_client("orders")\nfor item in container.query_items("SELECT TOP 10 * FROM c", enable_cross_partition_query=True):\n    print(item["id"])\n` },
        { name: "JavaScript, @azure/cosmos", text: `import { CosmosClient } from "@azure/cosmos";\n\nconst client = new CosmosClient({ endpoint: ${quoted(endpoint)}, key: "<key>" });\nconst { container } = client.database("shop").container("orders");\nconst { resources } = await container.items.query("SELECT TOP 10 * FROM c").fetchAll();\nconsole.log(resources);\n` },
      ];
    case "mongo":
      return [
        { name: "Python, pymongo", text: `from pymongo import MongoClient\n\nclient = MongoClient(${quoted(string)})\nfor document in client["shop"]["orders"].find().limit(10):\n    print(document)\n` },
        { name: "mongosh", text: `mongosh ${quoted(string)}\n` },
      ];
    case "table":
      return [{ name: "Python, azure-data-tables", text: `from azure.data.tables import TableServiceClient\n\nservice = TableServiceClient.from_connection_string(${quoted(string)})\nfor table in service.list_tables():\n    print(table.name)\n` }];
    case "gremlin":
      return [{ name: "Python, gremlinpython", text: `from gremlin_python.driver import client, serializer\n\ngremlin = client.Client(${quoted(endpoint)}, "g", username="/dbs/shop/colls/graph", password="<key>",\n                        message_serializer=serializer.GraphSONSerializersV2d0())\nprint(gremlin.submit("g.V().limit(10)").all().result())\n` }];
    default:
      return [];
  }
}

/** @param {string} text */
const quoted = (text) => JSON.stringify(text);

const COUNTRIES = ["de", "de", "de", "de", "de", "de", "de", "fr", "it", "pl"];

/** The orders of the example: many customers, few countries. @param {number} number */
export const sampleOrder = (number) => ({
  id: `order-${number}`,
  customerId: `customer-${(number * 7919) % 120}`,
  country: COUNTRIES[number % COUNTRIES.length],
  total: Math.round(((number * 37) % 20000) + 100) / 100,
  lines: Array.from({ length: 1 + (number % 3) }, (_, line) => ({ product: `product-${(number + line * 11) % 40}`, quantity: 1 + (line % 4) })),
});

export const SAMPLE_ORDERS = 600;
