// The address of a page holds all of its state: the path says which view of what, parameters say what is chosen in it.

import { computed, signal } from "../vendor/core.js";
import { BASE } from "./client.js";

const here = signal({ path: location.pathname, search: location.search, hash: location.hash });

function follow() {
  here.value = { path: location.pathname, search: location.search, hash: location.hash };
}

addEventListener("popstate", follow);

/**
 * @typedef {{view: string, database?: string, container?: string, params: URLSearchParams, fragment: string}} Route
 */
export const route = computed(() => {
  const { path, search, hash } = here.value;
  const words = path.slice(BASE.length).split("/").filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(search);
  const fragment = decodeURIComponent(hash.slice(1));
  if (words[0] === "c" && words.length >= 3) {
    const [, database, container, view = "partitions"] = words;
    return /** @type {Route} */ ({ view, database, container, params, fragment });
  }
  return /** @type {Route} */ ({ view: words[0] ?? "overview", params, fragment });
});

/** @param {string} path relative to the portal, such as "compare?a=shop/orders" */
export function go(path) {
  history.pushState(null, "", BASE + path);
  follow();
}

/** Change parameters of the present address. @param {Record<string, string | number | null | undefined>} changes @param {boolean} [isStep] */
export function choose(changes, isStep = false) {
  const params = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") params.delete(name);
    else params.set(name, String(value));
  }
  const search = params.size > 0 ? `?${params}` : "";
  if (search === location.search) return;
  history[isStep ? "pushState" : "replaceState"](null, "", location.pathname + search + location.hash);
  follow();
}

/** @param {string} text */
export function setFragment(text) {
  history.replaceState(null, "", location.pathname + location.search + (text ? `#${encodeURIComponent(text)}` : ""));
}

/** The address of a container's view. @param {string} database @param {string} container @param {string} view @param {string} [rest] */
export const viewPath = (database, container, view, rest = "") =>
  `c/${encodeURIComponent(database)}/${encodeURIComponent(container)}/${view}${rest}`;

// Links inside of the portal change the page without loading it again.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download")) return;
  const href = link.getAttribute("href") ?? "";
  if (!href.startsWith(BASE) || href.startsWith(`${BASE}static/`)) return;
  event.preventDefault();
  go(href.slice(BASE.length));
});
