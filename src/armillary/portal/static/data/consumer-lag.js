// How far consumers of a change feed are behind, by the leases that they keep in a container: those of armillary.changefeed
// and of the processors of the SDKs. Positions are log sequence numbers, compared with those of the partitions; a number
// also counts transactions outside of the lease's range, so the lag is an upper bound.

import { containerPath, control } from "./client.js";
import { queryPage } from "./items.js";

const LEASES_MAX = 1000;
const LSN = /^[0-9]{1,18}$/;
const SIGNATURE_BYTES = 16;
const LSN_BYTES = 8;

/**
 * @typedef {{low: string, high: string, lsn: number | null}} Position
 * @typedef {{id: string, consumer: string, owner: string, low: string, high: string, behind: number | null}} Lag
 */

/** @param {any} range @returns {{low: string, high: string} | null} */
const boundsOf = (range) => (typeof range?.min === "string" ? { low: range.min, high: range.max } : null);

/**
 * The positions in a token of the server's: a number, or several as bytes in decimal digits, behind a signature
 * (account/changes/feed_positions.py). Those of another form are not known.
 * @param {unknown} given @param {{low: string, high: string}} range @returns {Position[]}
 */
function stretchesOf(given, range) {
  const token = String(given ?? "").replaceAll('"', "");
  if (LSN.test(token)) return [{ ...range, lsn: Number(token) }];
  const raw = (token.match(/[0-9]{3}/g) ?? []).map(Number);
  let at = SIGNATURE_BYTES;
  const bound = () => {
    const size = raw[at];
    at += 1 + size;
    return raw.slice(at - size, at).map((each) => each.toString(16).padStart(2, "0")).join("").toUpperCase();
  };
  const version = raw[at];
  at += 1;
  if (raw.length !== token.length / 3 || (version !== 1 && version !== 2)) return [{ ...range, lsn: null }];
  const end = version === 2 ? bound() : range.high;
  bound(); // where reading goes on
  /** @type {Position[]} */
  const found = [];
  while (at < raw.length) {
    const low = bound();
    at += LSN_BYTES;
    found.push({ low, high: end, lsn: raw.slice(at - LSN_BYTES, at).reduce((sum, each) => sum * 256 + each, 0) });
  }
  return found.map((each, index) => ({ ...each, high: found[index + 1]?.low ?? end }));
}

/** The positions in a continuation of azure-cosmos, one for each range that it covers. @param {string} text @returns {Position[]} */
function positionsOf(text) {
  try {
    const inner = JSON.parse(atob(text)).continuation;
    return inner.continuation.flatMap((/** @type {any} */ each) => stretchesOf(each.token, boundsOf(each.range) ?? { low: "", high: "FF" }));
  } catch {
    return [];
  }
}

/** @param {any} item @returns {{consumer: string, owner: string, positions: Position[]} | null} */
function leaseOf(item) {
  if (item.kind === "lease" && item.feedRange) {
    const range = boundsOf(item.feedRange.Range);
    const found = item.continuation ? positionsOf(item.continuation) : [];
    const positions = found.length > 0 ? found : range ? [{ ...range, lsn: null }] : [];
    return { consumer: String(item.consumer ?? ""), owner: String(item.owner ?? ""), positions };
  }
  if ("ContinuationToken" in item && ("LeaseToken" in item || "FeedRange" in item)) {
    const range = boundsOf(item.FeedRange?.Range) ?? { low: String(item.LeaseToken ?? ""), high: "" };
    return { consumer: String(item.id).split("..")[0], owner: String(item.Owner ?? ""), positions: stretchesOf(item.ContinuationToken, range) };
  }
  return null;
}

/** Bounds of ranges come as "" or hex up to "FF". @param {any} partition @param {Position} position */
function isIn(partition, { low, high }) {
  if (high === "") return String(partition.id) === low;
  return partition.low < high && (partition.high > low || low === "");
}

/** The lags of all consumers whose leases are in a container. @param {string} database @param {string} container @param {string} leases as DATABASE/CONTAINER @returns {Promise<Lag[]>} */
export async function readLags(database, container, leases) {
  const [ofDatabase, ofContainer = ""] = leases.split("/");
  const [{ partitions }, { partitions: ranges }] = await Promise.all([
    control("GET", `${containerPath(database, container)}/partitions?keys=none`),
    control("GET", `${containerPath(ofDatabase, ofContainer)}/partitions?keys=none`),
  ]);
  /** @type {any[]} */
  const items = [];
  for (const { id } of ranges) {
    const page = await queryPage(ofDatabase, ofContainer, { query: "SELECT * FROM c", rangeId: id, count: LEASES_MAX });
    items.push(...page.rows);
  }
  /** @type {Lag[]} */
  const found = [];
  for (const item of items) {
    for (const position of leaseOf(item)?.positions ?? []) {
      const { consumer, owner } = /** @type {any} */ (leaseOf(item));
      const { lsn } = position;
      const inside = partitions.filter((/** @type {any} */ each) => isIn(each, position));
      const behind = lsn === null ? null : inside.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + Math.max(0, each.lsn - lsn), 0);
      found.push({ id: `${item.id} ${position.low}`, consumer, owner, low: position.low, high: position.high, behind });
    }
  }
  return found;
}
