// Merging the rows of partitions: the order of values, aggregates, and groups.

/** The rank of a value's type in the order of the query language. @param {any} value */
function rank(value) {
  if (value === undefined) return 0;
  if (value === null) return 1;
  const ranks = { boolean: 2, number: 3, string: 4 };
  return ranks[/** @type {keyof typeof ranks} */ (typeof value)] ?? (Array.isArray(value) ? 5 : 6);
}

/** @param {any} a @param {any} b */
export function compareValues(a, b) {
  const difference = rank(a) - rank(b);
  if (difference !== 0) return difference;
  if (typeof a === "object" && a !== null) return 0;
  return a < b ? -1 : a > b ? 1 : 0;
}

/** @param {{item?: any}[]} a @param {{item?: any}[]} b @param {string[]} orders */
export function compareKeys(a, b, orders) {
  for (let at = 0; at < orders.length; at += 1) {
    const difference = compareValues(a[at]?.item, b[at]?.item);
    if (difference !== 0) return orders[at] === "Descending" ? -difference : difference;
  }
  return 0;
}

/** The aggregate of what the partitions have aggregated; undefined: there is none. @param {string} kind @param {any[]} given */
export function aggregator(kind, given) {
  const values = given.filter((each) => each !== undefined);
  switch (kind) {
    case "Count":
    case "CountIf":
      return values.reduce((sum, each) => sum + each, 0);
    case "Sum":
      return values.length > 0 && values.every((each) => typeof each === "number") ? values.reduce((sum, each) => sum + each, 0) : undefined;
    case "Average": {
      const total = values.reduce((sum, each) => sum + (each.count ?? 0), 0);
      return total > 0 ? values.reduce((sum, each) => sum + (each.sum ?? 0), 0) / total : undefined;
    }
    case "Min":
    case "Max": {
      const plain = values.map((each) => (each !== null && typeof each === "object" && "count" in each ? (each.count > 0 ? each.min ?? each.max : undefined) : each)).filter((each) => each !== undefined);
      if (plain.length === 0) return undefined;
      return plain.reduce((a, b) => ((compareValues(b, a) < 0) === (kind === "Min") && compareValues(a, b) !== 0 ? b : a));
    }
    case "MakeList":
      return values.flat();
    case "MakeSet":
      return [...new Map(values.flat().map((each) => [JSON.stringify(each), each])).values()];
    default:
      throw new Error(`The portal does not merge the aggregate ${kind} over partitions. Give a partition key, or use an SDK.`);
  }
}

/** Groups of all partitions as one. @param {any[]} rows @param {any} info */
export function grouped(rows, info) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const row of rows) {
    const name = JSON.stringify(row.groupByItems ?? []);
    groups.set(name, [...(groups.get(name) ?? []), row.payload]);
  }
  return [...groups.values()].map((payloads) => {
    if (info.hasSelectValue) {
      const kind = info.aggregates[0] ?? Object.values(info.groupByAliasToAggregateType)[0];
      return kind ? aggregator(kind, payloads.map((each) => each?.item)) : payloads[0];
    }
    /** @type {Record<string, any>} */
    const merged = {};
    for (const alias of info.groupByAliases) {
      const kind = info.groupByAliasToAggregateType[alias];
      const value = kind ? aggregator(kind, payloads.map((each) => each?.[alias]?.item)) : payloads[0]?.[alias];
      if (value !== undefined) merged[alias] = value;
    }
    return merged;
  });
}
