// Paths of properties, as partition keys and indexes write them: /a/b, /"department name", /'le/vel'/x.

/**
 * The names on the way, as `parse_path` of model/keys.py reads them: a backslash keeps a quote from ending a name.
 * @param {string} path @returns {string[]}
 */
export function pathSteps(path) {
  return [...path.matchAll(/\/(?:"((?:\\"|[^"])*)"|'((?:\\'|[^'])*)'|([^/]*))/g)].map(([, double, single, bare]) => double ?? single ?? bare.trim());
}

/** The property in a query: c["a"]["b"]. @param {string} path */
export function pathInQuery(path) {
  return `c${pathSteps(path).map((step) => `[${JSON.stringify(step)}]`).join("")}`;
}
