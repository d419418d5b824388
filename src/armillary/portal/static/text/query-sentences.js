// What the query page says about a charge and how to lower it.

import { charge, count } from "./numbers.js";

const BEGUN_RU = 2.25;

/** Advice of the server's, by its number. @type {Record<string, string>} */
export const ADVICE = {
  QA1000: "ARRAY_CONTAINS with partial matches (its third argument is true) cannot use the index. Match whole elements, or use a JOIN with a filter.",
  QA1001: "DISTINCT after a JOIN reads all combinations first. EXISTS with a subquery stops at the first match.",
  QA1002: "CONTAINS reads all values of the index. STARTSWITH, or a full-text index with FullTextContains, reads fewer.",
  QA1003: "A comparison without case reads more of the index. Store a lower-case form and compare that.",
  QA1004: "ENDSWITH without case reads all values of the index. Store the reversed text and use STARTSWITH.",
  QA1005: "GROUP BY an expression is evaluated for each item. Group by a path, or by a computed property.",
  QA1006: "UPPER or LOWER around a path hides it from the index. Store the text in one case, or use StringEquals without case.",
  QA1007: "GetCurrentDateTime is evaluated for each item. GetCurrentDateTimeStatic is evaluated once.",
  QA1008: "GetCurrentTicks is evaluated for each item. GetCurrentTicksStatic is evaluated once.",
  QA1009: "GetCurrentTimestamp is evaluated for each item. GetCurrentTimestampStatic is evaluated once.",
};

/** @param {{visited: number, total: number, visits: any[], chargeRu: number, keyed: string, paths: string[]}} about */
export function visitSentence({ visited, total, chargeRu, keyed, paths }) {
  if (total <= 1) return "The container has one partition.";
  if (visited < total) return keyed || visited === 1 ? "The partition key pins the query, so the others were not asked." : "The other partitions were not asked on these pages.";
  return `All ${count(total)} partitions were asked because no filter pins ${paths.join(", ")}: ${charge(Math.min(chargeRu, visited * BEGUN_RU))} of ${charge(chargeRu)} RU for beginning them.`;
}
