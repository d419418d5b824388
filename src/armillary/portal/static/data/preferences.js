// What local storage holds: the colour scheme, switches, and texts of queries. Never results, never keys.

import { signal } from "../vendor/core.js";

const PREFIX = "armillary.";

/** @template T @param {string} name @param {T} otherwise @returns {T} */
export function remembered(name, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {any} value */
export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage may be full or forbidden: the choice is then good for this page.
  }
}

export const scheme = signal(/** @type {"auto" | "light" | "dark"} */ (remembered("scheme", "auto")));

/** @param {"auto" | "light" | "dark"} value */
export function setScheme(value) {
  scheme.value = value;
  remember("scheme", value);
  showScheme();
}

/** Whether pages that only show an overview may read items. */
export const quiet = signal(/** @type {boolean} */ (remembered("quiet", false)));

/** @param {boolean} value */
export function setQuiet(value) {
  quiet.value = value;
  remember("quiet", value);
}

export function showScheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = scheme.value === "auto" ? (isDark ? "dark" : "light") : scheme.value;
  document.documentElement.dataset.scheme = shown;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showScheme);
export const isMotionReduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
