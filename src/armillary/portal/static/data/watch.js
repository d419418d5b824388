// Live data: one request at a time for the whole tab, which the server answers when something has changed. It asks for
// the containers that the page shows, and not at all while the tab is hidden.

import { effect, signal } from "../vendor/core.js";
import { Refusal, control, session } from "./client.js";

const WAIT_MS = 1000;
const RETRY_MS = 1000;
const SPARK_POINTS = 60;

/**
 * @typedef {{map: number, partitions: Map<number, import("./shapes.js").Partition>, reshapes: import("./shapes.js").Reshape[], asOf: number | string, isGone: boolean}} Live
 */

/** The newest events first. */
export const events = signal(/** @type {import("./shapes.js").Event[]} */ ([]));
/** Containers by "database/container". */
export const live = signal(/** @type {Record<string, Live>} */ ({}));
/** Grows when databases or containers were made, changed or deleted. */
export const catalogVersion = signal(0);

const CATALOG_KINDS = new Set(["created", "deleted", "scaled", "split-switched", "merged", "migrated", "restored"]);
const wanted = signal(/** @type {string[]} */ ([]));
let number = 0;
let controller = new AbortController();

/** @param {string} database @param {string} container */
export const watchName = (database, container) => `${encodeURIComponent(database)}/${encodeURIComponent(container)}`;

/** The partitions that there are, as a value to compare. Not the number of the map: that is another one when a split begins, and the same when its children take over. @param {Live | undefined} found */
export const rangesOf = (found) => [...(found?.partitions.keys() ?? [])].sort((a, b) => a - b).join();

/** Watch these containers instead of those before. @param {string[]} names */
export function watch(names) {
  if (names.join() === wanted.peek().join()) return;
  wanted.value = names;
  number = 0;
  controller.abort();
}

/** Rows as partitions. Bounds are told once, and a high one only if the next row does not begin there. @param {any} answer */
function rowsOf(answer) {
  const found = (answer.partitions ?? []).map((/** @type {any[]} */ row) => Object.fromEntries(row.map((value, at) => [answer.columns[at], value])));
  found.forEach((/** @type {any} */ each, /** @type {number} */ at) => {
    if ("low" in each && !("high" in each)) each.high = found[at + 1].low;
  });
  return found;
}

/** @param {Live | undefined} before @param {any} answer @param {number | string} time @returns {Live} */
function merged(before, answer, time) {
  const partitions = new Map(before?.partitions ?? []);
  for (const id of answer.gone ?? []) partitions.delete(id);
  for (const each of rowsOf(answer)) {
    const known = partitions.get(each.id);
    partitions.set(each.id, { ...known, ...each, spark: [...(known?.spark ?? []), each.spentRu].slice(-SPARK_POINTS) });
  }
  return { map: answer.map ?? before?.map ?? 0, partitions, reshapes: answer.reshapes ?? [], asOf: time, isGone: false };
}

/** @param {any} answer @param {boolean} isWhole */
function take(answer, isWhole) {
  const time = answer.time ?? Date.now();
  const now = { ...live.peek() };
  const asked = wanted.peek();
  for (const name of asked) {
    const found = answer.containers[name];
    if (found) now[name] = merged(isWhole ? undefined : now[name], found, time);
    else now[name] = { ...(now[name] ?? { map: 0, partitions: new Map(), reshapes: [] }), asOf: time, isGone: true };
  }
  live.value = now;
  const known = events.peek()[0]?.number ?? 0;
  const fresh = (answer.events ?? []).filter((/** @type {any} */ each) => each.number > known);
  if (fresh.length > 0) {
    events.value = [...fresh.sort((a, b) => b.number - a.number), ...events.peek()].slice(0, 200);
    if (fresh.some((/** @type {any} */ each) => CATALOG_KINDS.has(each.kind))) catalogVersion.value += 1;
  }
}

/** @param {number} ms @param {AbortSignal} abort */
const pause = (ms, abort) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    abort.addEventListener("abort", () => (clearTimeout(timer), resolve(null)), { once: true });
  });

async function follow() {
  for (;;) {
    controller = new AbortController();
    const abort = controller.signal;
    if (document.hidden || session.peek().status !== "in") {
      await pause(3600_000, abort);
      continue;
    }
    const since = number;
    const names = wanted.peek();
    try {
      const containers = `&containers=${names.map(encodeURIComponent).join(",")}`;
      const answer = await control("GET", `watch?since=${since}&wait=${WAIT_MS}${containers}`, undefined, { signal: abort });
      if (names !== wanted.peek()) continue;
      number = answer.number;
      take(answer, since === 0);
    } catch (error) {
      if (error.name === "AbortError") continue;
      if (error instanceof Refusal && error.status === 0) number = 0;
      await pause(RETRY_MS, abort);
    }
  }
}

/** Begin, once for the page. */
export function beginWatching() {
  document.addEventListener("visibilitychange", () => controller.abort());
  let before = session.peek().status;
  effect(() => {
    if (session.value.status !== before) {
      before = session.value.status;
      number = 0;
      controller.abort();
    }
  });
  void follow();
}
