// The workload of the foresight page: the content of a workload file (docs/foresight.md), which the form's fields, the
// sliders and the JSON all change. It is in the fragment of the address, with the horizon.

import { signal } from "../vendor/core.js";

/** Throughput kinds of a container, as a workload names them. */
export const PROVISIONS = ["throughput", "autoscale", "serverless"];

const START = {
  container: { partition_key: ["/customerId"], throughput: 20000 },
  data: { size: "10GB", item_bytes: 1024, terms: 10, keys: { zipf: 1, count: 100000 } },
  operations: [
    { kind: "read", rate: 500 },
    { kind: "create", rate: 100 },
    { kind: "query", rate: 20, filter: ["/customerId"], rows: 10 },
    { kind: "query", rate: 2, filter: ["/status"], rows: 10 },
  ],
  shape: { growth_per_month: 1 },
};
const START_MONTHS = 12;

/** @typedef {{workload: any, months: number}} Plan */
export const plan = signal(/** @type {Plan} */ ({ workload: START, months: START_MONTHS }));

/** Take the plan from the fragment of an address; one that cannot be read is left aside. @param {string} fragment */
export function readPlan(fragment) {
  if (!fragment.startsWith("{")) return;
  try {
    const { workload, months } = JSON.parse(fragment);
    if (typeof workload === "object" && workload !== null) plan.value = { workload, months: Number(months) || 0 };
  } catch {
    // The start of it, then: an address can be cut off on its way.
  }
}

/** Whether the plan is the one that the page begins with. */
export const isStart = () => plan.value.workload === START && plan.value.months === START_MONTHS;

/** Change a copy of the workload. @param {(workload: any) => void} change */
export function changeWorkload(change) {
  const workload = structuredClone(plan.value.workload);
  change(workload);
  plan.value = { ...plan.value, workload };
}

/** @param {number} months */
export const setMonths = (months) => (plan.value = { ...plan.value, months });

/** How its throughput is provisioned; "": not at all. @param {any} workload */
export const provisionOf = (workload) => PROVISIONS.find((each) => workload?.container?.[each]) ?? "";

/** @param {any} workload @param {string} kind @param {number} ru */
export function setProvision(workload, kind, ru) {
  for (const each of PROVISIONS) delete workload.container[each];
  if (kind) workload.container[kind] = kind === "serverless" ? true : ru;
}

/** The kinds of requests that have a field of their own. */
export const REQUESTS = /** @type {const} */ ({
  read: "Reads by id",
  create: "Creates",
  keyed: "Queries with the key",
  fanned: "Queries without the key",
});

/** @param {any} workload @param {string} which */
function operationOf(workload, which) {
  const key = workload?.container?.partition_key?.[0];
  const isKeyed = (/** @type {any} */ each) => (each.filter ?? []).includes(key);
  const all = Array.isArray(workload?.operations) ? workload.operations : [];
  if (which === "keyed" || which === "fanned") return all.find((/** @type {any} */ each) => each.kind === "query" && isKeyed(each) === (which === "keyed"));
  return all.find((/** @type {any} */ each) => each.kind === which);
}

/** Requests a second; of several of a kind the first. @param {any} workload @param {string} which @returns {number} */
export const rateOf = (workload, which) => operationOf(workload, which)?.rate ?? 0;

/** @param {any} workload @param {string} which @param {number} rate */
export function setRate(workload, which, rate) {
  const found = operationOf(workload, which);
  if (found) found.rate = rate;
  else if (which === "keyed") workload.operations.push({ kind: "query", rate, filter: [...workload.container.partition_key], rows: 10 });
  else if (which === "fanned") workload.operations.push({ kind: "query", rate, rows: 10 });
  else workload.operations.push({ kind: which, rate });
}

/** Another partition key; queries that pin the present one pin it instead. @param {any} workload @param {string[]} paths */
export function setKey(workload, paths) {
  const before = workload.container.partition_key ?? [];
  const pinning = (workload.operations ?? []).filter((/** @type {any} */ each) => each.kind === "query" && before.length > 0 && before.every((/** @type {string} */ path) => (each.filter ?? []).includes(path)));
  for (const each of pinning) each.filter = [...paths, ...each.filter.filter((/** @type {string} */ path) => !before.includes(path))];
  workload.container.partition_key = paths;
}
