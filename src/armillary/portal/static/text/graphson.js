// GraphSON 3 as plain values, and the vertices and edges among them.

/** @param {any} value @returns {any} */
export function untyped(value) {
  if (Array.isArray(value)) return value.map(untyped);
  if (value === null || typeof value !== "object") return value;
  const type = value["@type"];
  if (type === undefined) return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, untyped(each)]));
  const inner = value["@value"];
  if (type === "g:Map") return Object.fromEntries(pairs(inner).map(([name, each]) => [String(untyped(name)), untyped(each)]));
  if (type === "g:Vertex" || type === "g:Edge") return { ...untyped(inner), type: type.slice(2).toLowerCase() };
  if (type === "g:VertexProperty" || type === "g:Property") return untyped(inner).value;
  if (type === "g:Path") return { labels: untyped(inner.labels), objects: untyped(inner.objects) };
  return untyped(inner);
}

/** @param {any[]} list @returns {[any, any][]} */
const pairs = (list) => Array.from({ length: Math.floor((list ?? []).length / 2) }, (_, at) => [list[2 * at], list[2 * at + 1]]);

/**
 * @typedef {{id: any, label: string, properties?: any}} Vertex
 * @typedef {{id: any, label: string, outV: any, inV: any, outVLabel?: string, inVLabel?: string}} Edge
 * @param {any[]} values @returns {{vertices: Vertex[], edges: Edge[]}}
 */
export function graphOf(values) {
  /** @type {Map<string, Vertex>} */ const vertices = new Map();
  /** @type {Map<string, Edge>} */ const edges = new Map();
  const look = (/** @type {any} */ value) => {
    if (Array.isArray(value)) value.forEach(look);
    else if (value && typeof value === "object") {
      if (value.type === "vertex") vertices.set(String(value.id), value);
      else if (value.type === "edge") edges.set(String(value.id), value);
      else Object.values(value).forEach(look);
    }
  };
  look(values);
  const isWhole = vertices.size > 0;
  for (const edge of edges.values()) {
    for (const [id, label] of [[edge.outV, edge.outVLabel], [edge.inV, edge.inVLabel]]) {
      if (!isWhole && !vertices.has(String(id))) vertices.set(String(id), { id, label: label ?? "vertex" });
    }
  }
  const inside = [...edges.values()].filter((edge) => vertices.has(String(edge.outV)) && vertices.has(String(edge.inV)));
  return { vertices: [...vertices.values()], edges: inside };
}
