// Where bounds of partitions lie in the space of hashes. Bounds are effective keys in hex; hashes of version 2 and of
// hierarchical keys begin below 40, those of version 1 are encoded numbers of which only the order is used.

const BITS = 128n;
const END = 0x40n << (BITS - 8n);

/** @param {string} hex */
function number(hex) {
  if (hex === "") return 0n;
  const padded = hex.slice(0, 32).padEnd(32, "0");
  const value = BigInt(`0x${padded}`);
  return value > END ? END : value;
}

/** The place of a bound, from 0 to 1. @param {string} hex */
export const place = (hex) => Number((number(hex) * 1000000n) / END) / 1000000;

/**
 * The stretch of each range from 0 to 1, in the order of their lower bounds. Ranges that are too narrow to be seen,
 * such as partitions of one tenant, get a least width.
 * @param {{low: string, high: string}[]} ranges
 * @returns {{from: number, to: number}[]}
 */
export function stretches(ranges) {
  if (ranges.length === 0) return [];
  const least = Math.min(0.01, 0.5 / ranges.length);
  const isOrderOnly = ranges.some((each) => each.low.startsWith("05C1"));
  const widths = ranges.map((each) => (isOrderOnly ? 1 : Math.max(least, place(each.high) - place(each.low))));
  const sum = widths.reduce((total, width) => total + width, 0);
  let from = 0;
  return widths.map((width) => {
    const to = from + width / sum;
    const stretch = { from, to };
    from = to;
    return stretch;
  });
}

/** Whether a place in a range can be named by its share of the hashes: not in hashes of version 1, nor inside of a tenant. @param {{low: string, high: string}} range */
export const isDivisible = ({ low, high }) => low.length <= 32 && high.length <= 32 && !low.startsWith("05C1") && !high.startsWith("05C1") && number(low) < number(high);

/** The bound that lies at a share of a range. @param {{low: string, high: string}} range @param {number} share from 0 to 1 */
export function boundAt({ low, high }, share) {
  const first = number(low);
  const at = first + ((number(high) - first) * BigInt(Math.round(share * 1_000_000))) / 1_000_000n;
  return at.toString(16).toUpperCase().padStart(32, "0");
}

/** Where a bound lies in a range, from 0 to 1; null: outside. @param {{low: string, high: string}} range @param {string} bound */
export function shareAt({ low, high }, bound) {
  if (!/^[0-9A-F]+$/i.test(bound)) return null;
  const first = number(low);
  const share = Number(((number(bound.toUpperCase()) - first) * 1_000_000n) / (number(high) - first)) / 1_000_000;
  return share > 0 && share < 1 ? share : null;
}

/** A bound in a table: long ones are cut. @param {string} hex */
export const shortBound = (hex) => (hex === "" ? "00" : hex.length > 6 ? `${hex.slice(0, 4)}…` : hex);
