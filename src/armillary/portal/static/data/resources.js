// Databases and containers for the tree and the overview: read again when the server tells of a change, and every few
// seconds for their sizes.

import { effect, signal } from "../vendor/core.js";
import { control, session } from "./client.js";
import { catalogVersion } from "./watch.js";

const REFRESH_MS = 5000;

/** @type {import("../vendor/core.js").Signal<import("./shapes.js").Database[] | null>} */
export const databases = signal(null);
/** @type {import("../vendor/core.js").Signal<import("./shapes.js").Container[]>} */
export const containers = signal([]);
export const server = signal(/** @type {any} */ (null));
/** What is on that changes how requests are answered. */
export const testing = signal({ faults: 0, frozen: false, movable: false, pauses: /** @type {string[]} */ ([]) });
export const resourcesFailure = signal("");

/** @param {string} database @param {string} name */
export const findContainer = (database, name) =>
  containers.value.find((each) => each.database === database && each.name === name);

/** Give the signal a value only if it differs, so that pages are not drawn again for nothing. */
function set(target, value) {
  if (JSON.stringify(target.peek()) !== JSON.stringify(value)) target.value = value;
}

/**
 * One reading at a time. Asked for while one runs, another follows it, since what that one tells may be older than the
 * change that is asked for; no more than one waits, however slow the server is.
 * @param {() => Promise<void>} read
 */
function inTurn(read) {
  /** @type {Promise<void> | null} */ let running = null;
  /** @type {Promise<void> | null} */ let next = null;
  const begin = () => {
    next = null;
    return (running = read().finally(() => (running = null)));
  };
  return () => (running ? (next ??= running.then(begin)) : begin());
}

export const readResources = inTurn(async () => {
  if (session.peek().status !== "in") return;
  try {
    const [found, all] = await Promise.all([control("GET", "databases"), control("GET", "containers")]);
    set(containers, all.containers);
    set(databases, found.databases);
    resourcesFailure.value = "";
  } catch (error) {
    resourcesFailure.value = error.message;
  }
});

let pausesUnderWay = 0; // changes that the server has not answered yet
let pausesVersion = 0; // another one when a change is asked for, and when it is answered

/**
 * Choose whether splits and merges stop at a point. The choice is shown at once, and the next one begins with it: what a
 * reading tells that began before the server has answered is older.
 * @param {string} point @param {boolean} isOn @returns {() => Promise<any>} what makes the change; to be called once
 */
export function choosePause(point, isOn) {
  const { pauses } = testing.peek();
  const points = isOn ? [...pauses, point] : pauses.filter((each) => each !== point);
  testing.value = { ...testing.peek(), pauses: points };
  pausesUnderWay += 1;
  pausesVersion += 1;
  return () =>
    control("PUT", "reshapes/pauses", { points }).finally(() => {
      pausesUnderWay -= 1;
      pausesVersion += 1;
      return readTesting();
    });
}

export const readTesting = inTurn(async () => {
  if (session.peek().status !== "in") return;
  const version = pausesVersion;
  try {
    const [faults, clock, reshapes] = await Promise.all([control("GET", "faults"), control("GET", "clock"), control("GET", "reshapes")]);
    const rules = faults.faults ?? faults.rules ?? [];
    const pauses = pausesUnderWay || version !== pausesVersion ? testing.peek().pauses : reshapes.pauses;
    set(testing, { faults: rules.length, frozen: Boolean(clock.frozen), movable: Boolean(clock.movable), pauses });
  } catch {
    // The banner tells of a server that is gone.
  }
});

export function beginReading() {
  effect(() => {
    void catalogVersion.value;
    if (session.value.status === "in") void readResources();
  });
  effect(() => {
    if (session.value.status !== "in") return;
    void readTesting();
    control("GET", "server").then((found) => (server.value = found), () => {});
  });
  setInterval(() => {
    if (document.hidden) return;
    void readResources();
    void readTesting();
  }, REFRESH_MS);
}
