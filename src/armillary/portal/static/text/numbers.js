// Numbers, sizes and times as the pages show them. A value that is not known is "–", never 0.

export const UNKNOWN = "–";
const THIN = "\u2009";

/** @param {unknown} value @returns {value is number} */
export const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

/** @param {string} digits */
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);

/** A count, in groups of three digits. @param {number | null | undefined} value @param {number} [decimals] */
export function count(value, decimals = 0) {
  if (!isKnown(value)) return UNKNOWN;
  const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
  return (value < 0 ? "−" : "") + grouped(whole) + (rest ? `.${rest}` : "");
}

/** A charge in request units, with two decimals. @param {number | null | undefined} value */
export const charge = (value) => count(value, 2);

/** Request units a second. @param {number | null | undefined} value */
export function rate(value) {
  if (!isKnown(value)) return UNKNOWN;
  return count(value, value !== 0 && Math.abs(value) < 100 ? 1 : 0);
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let scaled = value;
  let unit = 0;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${count(scaled, unit === 0 || scaled >= 100 ? 0 : 1)} ${units[unit]}`;
}

/** A share of 1 in percent. @param {number | null | undefined} share */
export function percent(share) {
  if (!isKnown(share)) return UNKNOWN;
  return share > 0 && share < 0.005 ? "< 1 %" : `${count(share * 100)} %`;
}

/** Marks of an axis, with as many decimals as tell two of them apart. @param {number[]} marks @param {(value: number) => string} text */
export function markTexts(marks, text) {
  const texts = marks.map(text);
  if (new Set(texts).size === texts.length) return texts;
  const isShare = texts.some((each) => each.endsWith(" %"));
  const apart = Math.abs(marks[1] - marks[0]) * (isShare ? 100 : 1);
  const decimals = Math.min(6, Math.max(0, Math.ceil(-Math.log10(apart))));
  return marks.map((each) => (isShare ? `${count(each * 100, decimals)} %` : count(each, decimals)));
}

/** `part` of `whole`, or not known. @param {number | null | undefined} part @param {number | null | undefined} whole */
export function ratio(part, whole) {
  return isKnown(part) && isKnown(whole) && whole > 0 ? part / whole : null;
}

/** The server's times: seconds or milliseconds since 1970, or text. @param {number | string | null | undefined} value */
export function moment(value) {
  if (typeof value === "string") return new Date(value);
  if (!isKnown(value)) return null;
  return new Date(value > 1e11 ? value : value * 1000);
}

/** The time of day, local. @param {number | string | null | undefined} value */
export function clock(value) {
  const date = moment(value);
  return date ? date.toLocaleTimeString(undefined, { hour12: false }) : UNKNOWN;
}

/** A time at an axis whose marks are so many seconds apart: with the date where days begin. @param {number} value @param {number} apart */
export function axisTime(value, apart) {
  const date = /** @type {Date} */ (moment(value));
  if (apart >= 86_400 || (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0)) return date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  return date.toLocaleTimeString(undefined, { hour12: false, hour: "2-digit", minute: "2-digit", second: apart < 60 ? "2-digit" : undefined });
}

/** A time with its date, if it is one of a stretch of more than a day. @param {number} value @param {number} span */
export function dated(value, span) {
  const date = /** @type {Date} */ (moment(value));
  return span > 86_400 ? `${date.toLocaleDateString(undefined, { day: "numeric", month: "short" })}, ${clock(value)}` : clock(value);
}

/** UTC, for hovering over a local time. @param {number | string | null | undefined} value */
export function utc(value) {
  const date = moment(value);
  return date ? date.toISOString() : "";
}

/** A time for a field that takes local ones. @param {number | string} value */
export function localTime(value) {
  const time = moment(value);
  return !time || Number.isNaN(time.getTime()) ? "" : new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 60) return `${count(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** "1 partition", "2 partitions". @param {number | null | undefined} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A long text cut in the middle. @param {string} text @param {number} [most] */
export function cut(text, most = 40) {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - half)}…${text.slice(text.length - half)}`;
}
