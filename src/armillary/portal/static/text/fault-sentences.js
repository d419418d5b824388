// Fault rules in words, and those of the documentation as examples.

export const FAULT_EXAMPLES = [
  { name: "Every 7th write gets 429", rule: { operations: "write", every: 7, status: 429, retryAfterMs: 20 } },
  { name: "The next 3 requests get 410", rule: { count: 3, status: 410, subStatus: 1002 } },
  { name: "One in ten queries is slow", rule: { operations: "query", probability: 0.1, seed: 1, delayMs: 500 } },
  { name: "The answer of one create is lost", rule: { operations: "create", count: 1, drop: true, after: true } },
  { name: "All reads get 503", rule: { operations: "read", status: 503 } },
  { name: "Writes wait 200 ms", rule: { operations: "write", delayMs: 200 } },
];

/** @param {number} number */
const ordinal = (number) => `${number}${["th", "st", "nd", "rd"][number % 100 > 10 && number % 100 < 14 ? 0 : Math.min(number % 10, 4) % 4]}`;

/** What the server makes of "write". */
const WRITES = ["create", "upsert", "replace", "patch", "delete", "batch", "execute"];
const OTHERS = ["read", "query", "feed", "changes"];

/** @param {string[]} operations as given, or as the server lists them: every one by its name */
function kindsOf(operations) {
  const hasAll = (/** @type {string[]} */ names) => names.every((each) => operations.includes(each));
  if (operations.length === 0 || (hasAll(WRITES) && hasAll(OTHERS))) return "request";
  const named = hasAll(WRITES) ? ["write", ...operations.filter((each) => !WRITES.includes(each))] : operations;
  return named.join(" or ");
}

/** @param {Record<string, any>} rule */
export function ruleSentence(rule) {
  const given = Array.isArray(rule.operations) ? rule.operations : rule.operations ? [rule.operations] : [];
  const kinds = kindsOf(given);
  const which = rule.every > 1 ? `every ${ordinal(rule.every)} ${kinds}` : `each ${kinds}`;
  const where = [
    rule.key !== undefined && rule.key !== null ? ` to key ${JSON.stringify(Array.isArray(rule.key) && rule.key.length === 1 ? rule.key[0] : rule.key)}` : "",
    rule.range !== undefined && rule.range !== null ? ` to partition ${rule.range}` : "",
    rule.database ? ` of ${rule.database}${rule.container ? `/${rule.container}` : ""}` : "",
    rule.skip ? `, after the first ${rule.skip}` : "",
    rule.count ? `, at most ${rule.count}` : "",
    rule.probability && rule.probability < 1 ? `, one in ${Math.round(1 / rule.probability)} at random` : "",
  ].join("");
  const outcome = rule.drop ? "loses its connection" : rule.status ? `gets ${rule.status}${rule.subStatus ? `/${rule.subStatus}` : ""}` : "is answered";
  const when = [rule.delayMs ? ` after ${rule.delayMs} ms` : "", rule.after ? " once it was carried out" : "", rule.retryAfterMs ? `, to be tried again after ${rule.retryAfterMs} ms` : ""].join("");
  return `${which}${where} ${outcome}${when}`;
}
