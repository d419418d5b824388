// A query as code for clients of other languages.

/** @param {string} database @param {string} container @param {string} query @param {string} key */
export function requestCode(database, container, query, key) {
  const q = JSON.stringify;
  const pinned = key === "" ? "enable_cross_partition_query=True" : `partition_key=${python(key)}`;
  const options = key === "" ? "" : `, { partitionKey: ${key} }`;
  return [
    { name: "Python", text: `container = client.get_database_client(${q(database)}).get_container_client(${q(container)})\nfor row in container.query_items(\n    ${q(query)},\n    ${pinned},\n):\n    print(row)\n` },
    { name: "JavaScript", text: `const container = client.database(${q(database)}).container(${q(container)});\nconst { resources } = await container.items.query(${q(query)}${options}).fetchAll();\n` },
    { name: "curl, with the control key", text: `curl -X POST "$ENDPOINT/_armillary/portal/sql/dbs/${encodeURIComponent(database)}/colls/${encodeURIComponent(container)}/docs" \\\n  -H "authorization: Bearer $ARMILLARY_CONTROL_KEY" -H "content-type: application/query+json" \\\n  -H "x-ms-documentdb-isquery: true" -H "x-ms-documentdb-query-enablecrosspartition: true" \\\n  -d ${shell(q({ query, parameters: [] }))}\n` },
  ];
}

/** @param {string} key */
const python = (key) => ({ true: "True", false: "False", null: "None" })[key] ?? (/^[[{"\d-]/.test(key) ? key : JSON.stringify(key));

/** @param {string} text */
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
