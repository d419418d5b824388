// Requests to the server that served the page: the control API and the bridges to its doors. The log-in is a cookie
// that scripts cannot read; requests that change something carry the value that came with the log-in.

import { signal } from "../vendor/core.js";

export const BASE = "/_armillary/portal/";
const CONTROL = "/_armillary/";

/**
 * @typedef {{status: "unknown" | "out" | "in" | "none", csrf: string, readOnly: boolean}} Session
 */
export const session = signal(/** @type {Session} */ ({ status: "unknown", csrf: "", readOnly: false }));
/** Request units that this tab has spent. */
export const spentRu = signal(0);
/** The time from which on the server has not answered, or 0. */
export const lostSince = signal(0);

/** A refusal of the server's, in its own words. */
export class Refusal extends Error {
  /** @param {number} status @param {string} message @param {{code?: string, subStatus?: string, activityId?: string, retryAfterMs?: number, body?: any}} [more] */
  constructor(status, message, more = {}) {
    super(message);
    this.status = status;
    this.code = more.code ?? "";
    this.subStatus = more.subStatus ?? "";
    this.activityId = more.activityId ?? "";
    this.retryAfterMs = more.retryAfterMs ?? 0;
    this.body = more.body;
  }
}

/**
 * @param {string} method @param {string} target @param {any} [body]
 * @param {{headers?: Record<string, string>, signal?: AbortSignal, raw?: boolean}} [options]
 */
async function send(method, target, body, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", ...options.headers };
  if (method !== "GET") {
    headers["x-armillary-csrf"] = session.value.csrf;
    headers["content-type"] ??= "application/json";
  }
  const isText = typeof body === "string" || body instanceof Blob || body instanceof ArrayBuffer;
  let response;
  try {
    response = await fetch(target, {
      method,
      headers,
      body: method === "GET" ? undefined : isText ? body : JSON.stringify(body ?? {}),
      signal: options.signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (lostSince.value === 0) lostSince.value = Date.now();
    throw new Refusal(0, "The server does not answer.");
  }
  lostSince.value = 0;
  if (response.status === 401 && !target.endsWith("/session")) session.value = { ...session.value, status: "out" };
  return response;
}

/** @param {string} text */
function parsed(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * A request of the control API; `path` is relative to `/_armillary/`.
 * @param {string} method @param {string} path @param {any} [body] @param {{signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<any>}
 */
export async function control(method, path, body, options) {
  const response = await send(method, CONTROL + path, body, options);
  const text = await response.text();
  const content = parsed(text);
  if (!response.ok) {
    const message = content?.error?.message ?? `The server answered with status ${response.status}.`;
    throw new Refusal(response.status, message, { code: content?.error?.code, body: content });
  }
  return content;
}

/** How to read a path of the control API, for `useData`. @param {string} path @returns {(signal: AbortSignal) => Promise<any>} */
export const reading = (path) => (signal) => control("GET", path, undefined, { signal });

/** The bytes of a part of a file; null: there are no more. @param {string} path */
export async function download(path) {
  const response = await send("GET", CONTROL + path);
  if (response.status === 204) return null;
  if (!response.ok) throw new Refusal(response.status, `The server answered with status ${response.status}.`);
  return response.blob();
}

/**
 * A request of the SQL protocol, through the bridge.
 * @param {string} method @param {string} path @param {any} [body] @param {{headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<{status: number, headers: Headers, body: any, text: string, chargeRu: number, ms: number}>}
 */
export async function sql(method, path, body, options) {
  const begun = performance.now();
  const response = await send(method, `${BASE}sql/${path}`, body, options);
  const text = await response.text();
  const chargeRu = Number(response.headers.get("x-ms-request-charge") ?? 0);
  spentRu.value += chargeRu;
  const content = parsed(text);
  if (!response.ok && response.status !== 304) {
    const message = content?.message ?? content?.error?.message ?? `The server answered with status ${response.status}.`;
    throw new Refusal(response.status, message, {
      code: content?.code,
      subStatus: response.headers.get("x-ms-substatus") ?? "",
      activityId: response.headers.get("x-ms-activity-id") ?? "",
      retryAfterMs: Number(response.headers.get("x-ms-retry-after-ms") ?? 0),
      body: content,
    });
  }
  return { status: response.status, headers: response.headers, body: content, text, chargeRu, ms: performance.now() - begun };
}

/** A request to the bridge of another door. @param {"mongo" | "gremlin"} door @param {any} body @param {AbortSignal} [abort] */
export async function bridge(door, body, abort) {
  const answer = await control("POST", `portal/${door}`, body, { signal: abort });
  spentRu.value += answer.chargeRu ?? 0;
  return answer;
}

/** The path of a container in the control API. @param {string} database @param {string} container */
export const containerPath = (database, container) =>
  `databases/${encodeURIComponent(database)}/containers/${encodeURIComponent(container)}`;

/** The path of a container in the SQL protocol. @param {string} database @param {string} container */
export const collectionPath = (database, container) =>
  `dbs/${encodeURIComponent(database)}/colls/${encodeURIComponent(container)}`;
