// The views and their modules, which are loaded when a view is first shown.

import { signal } from "../vendor/core.js";
import { server } from "../data/resources.js";

/** @typedef {{id: string, path: string, label: string, load: () => Promise<any>, isShown?: () => boolean}} Entry */

const isNode = () => (server.value?.settings ?? []).some((/** @type {any} */ each) => each.name === "cluster" && each.from !== "default");

/** @type {Entry[]} */
export const VIEWS = [
  { id: "overview", path: "", label: "Overview", load: () => import("./overview.js") },
  { id: "compare", path: "compare", label: "Compare", load: () => import("./compare.js") },
  { id: "foresight", path: "foresight", label: "Foresight", load: () => import("./foresight/foresight.js") },
  { id: "testing", path: "testing", label: "Testing", load: () => import("./testing.js") },
  { id: "keeping", path: "keeping", label: "Keeping", load: () => import("./keeping.js") },
  { id: "settings", path: "settings", label: "Settings", load: () => import("./settings.js") },
  { id: "cluster", path: "cluster", label: "Cluster", load: () => import("./cluster.js"), isShown: isNode },
];

/** @type {Entry[]} */
export const CONTAINER_VIEWS = [
  { id: "partitions", path: "", label: "Partitions", load: () => import("./container/partitions.js") },
  { id: "items", path: "", label: "Items", load: () => import("./container/items.js") },
  { id: "query", path: "", label: "Query", load: () => import("./container/query.js") },
  { id: "heat", path: "", label: "Heat", load: () => import("./container/heat.js") },
  { id: "throughput", path: "", label: "Throughput", load: () => import("./container/throughput.js") },
  { id: "mongo", path: "", label: "MongoDB", load: () => import("./container/mongo.js") },
  { id: "gremlin", path: "", label: "Gremlin", load: () => import("./container/gremlin.js") },
  { id: "feed", path: "", label: "Feed", load: () => import("./container/feed.js") },
  { id: "scripts", path: "", label: "Scripts", load: () => import("./container/scripts.js") },
];

const modules = signal(/** @type {Record<string, any>} */ ({}));

/** The component of a view, once it has been loaded. @param {Entry} entry */
export function loaded(entry) {
  const found = modules.value[entry.label];
  if (found === undefined) {
    void entry.load().then((module) => (modules.value = { ...modules.value, [entry.label]: module.default }));
  }
  return found;
}
