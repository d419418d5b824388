// The page: the frame with the tree, the view that the address names, the lines that are on every page, and the keys.
// Views are loaded when they are first shown.

import { html, render, signal, useEffect, useErrorBoundary } from "./vendor/core.js";
import { go, route, viewPath } from "./data/address.js";
import { BASE, lostSince, session, spentRu } from "./data/client.js";
import { scheme, setScheme, showScheme } from "./data/preferences.js";
import { beginReading, containers, databases, server, testing } from "./data/resources.js";
import { findSession, leave } from "./data/session.js";
import { beginWatching, watch, watchName } from "./data/watch.js";
import { charge, clock } from "./text/numbers.js";
import { Choice, Dialog, Speaker } from "./widgets/parts.js";
import { LogIn, NoControlKey } from "./views/log-in.js";
import { Tree } from "./views/tree.js";
import { CONTAINER_VIEWS, VIEWS, loaded } from "./views/menu.js";

const helpShown = signal(false);
const treeShown = signal(false); // on narrow screens, where it would take the first half of every page

function Frame() {
  const { view, database, container } = route.value;
  const { status, readOnly } = session.value;
  const isContainer = database !== undefined && container !== undefined;
  useEffect(() => {
    const named = VIEWS.find((each) => each.id === view) ?? CONTAINER_VIEWS.find((each) => each.id === view);
    document.title = [isContainer ? `${database}/${container}` : "", named?.label ?? "", "Armillary"].filter(Boolean).join(" · ");
    treeShown.value = false;
  }, [view, database, container]);
  return html`<div class="frame">
    <header>
      <a class="skip" href="#main" onClick=${focusMain}>To the content</a>
      <a class="brand" href=${BASE}>Armillary</a>
      <nav aria-label="Views">
        ${VIEWS.filter((each) => !each.isShown || each.isShown()).map(
          (each) => html`<a key=${each.id} href=${BASE + each.path} aria-current=${!isContainer && each.id === view ? "page" : undefined}>${each.label}</a>`,
        )}
      </nav>
      <div class="right">
        ${readOnly && html`<span class="small">read-only</span>`}
        <${Choice} label="Colours" value=${scheme.value} onChange=${setScheme} options=${[["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]]} />
        <button type="button" class="quiet" onClick=${() => (helpShown.value = true)} aria-label="Keys of the keyboard">?</button>
        <button type="button" class="quiet" onClick=${leave}>Log out</button>
      </div>
    </header>
    <div class="lines"><${Lines} /></div>
    <nav class="tree" aria-label="Databases and containers">
      <button type="button" class="quiet fold" aria-expanded=${treeShown.value ? "true" : "false"} onClick=${() => (treeShown.value = !treeShown.value)}>Containers</button>
      <div class=${treeShown.value ? "" : "folded"}><${Tree} /></div>
    </nav>
    <main id="main" tabindex="-1">${isContainer ? html`<${ContainerFrame} key=${`${database}/${container}`} />` : html`<${View} key=${view} id=${view} all=${VIEWS} />`}</main>
    <footer>
      <span>This tab has spent <span data-test="spent">${charge(spentRu.value)}</span> RU.</span>
      ${server.value && html`<span>Armillary ${server.value.version}</span>`}
    </footer>
    ${helpShown.value && html`<${Keys} />`}
    ${status === "out" && html`<${LogIn} isAgain=${true} />`}
  </div>`;
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

const Loading = () => html`<p data-test="loading">…</p>`;

/** What has to be seen on every page. */
function Lines() {
  const { faults, frozen, pauses } = testing.value;
  const on = [
    faults > 0 ? `${faults} fault ${faults === 1 ? "rule" : "rules"}` : "",
    frozen ? "the clock is frozen" : "",
    pauses.length > 0 ? `splits stop at ${pauses.join(", ")}` : "",
  ].filter(Boolean);
  return html`
    ${lostSince.value > 0 && html`<p class="banner" role="alert">The server does not answer, since ${clock(lostSince.value)}. What is shown is from before; trying again.</p>`}
    ${on.length > 0 && html`<p class="yellow" data-test="testing-line">Testing is on: ${on.join("; ")}. <a href=${`${BASE}testing`}>Testing</a></p>`}
  `;
}

function ContainerFrame() {
  const { view, database = "", container = "" } = route.value;
  const known = databases.value !== null;
  const found = containers.value.find((each) => each.database === database && each.name === container);
  if (known && !found) {
    return html`<h1>${database}/${container}</h1><p data-test="gone">There is no such container (any more). Choose another one in the tree.</p>`;
  }
  return html`<h1>${database}/${container}</h1>
    <nav class="views" aria-label="Views of the container">
      ${CONTAINER_VIEWS.filter((each) => !each.isShown || each.isShown()).map(
        (each) => html`<a key=${each.id} href=${BASE + viewPath(database, container, each.id)} aria-current=${each.id === view ? "page" : undefined}>${each.label}</a>`,
      )}
    </nav>
    ${found ? html`<${View} key=${view} id=${view} all=${CONTAINER_VIEWS} database=${database} container=${container} />` : html`<${Loading} />`}`;
}

/** @param {{id: string, all: import("./views/menu.js").Entry[], database?: string, container?: string}} props */
function View({ id, all, ...props }) {
  const [failure, again] = useErrorBoundary((error) => console.error(error));
  const entry = all.find((each) => each.id === id);
  if (!entry) return html`<h1>There is no such page</h1><p><a href=${BASE}>Overview</a></p>`;
  if (failure) return html`<p class="failure" role="alert">This view failed: ${String(failure.message)} <button type="button" onClick=${again}>Show it again</button></p>`;
  const Loaded = loaded(entry);
  return Loaded ? html`<${Loaded} ...${props} />` : html`<${Loading} />`;
}

const KEYS = [
  ["g o", "overview"], ["g p", "partitions"], ["g q", "query"], ["g h", "heat"], ["g t", "testing"],
  ["/", "filter of the tree"], ["Ctrl Enter", "run"], ["Esc", "leave the editor (then Tab), close, cancel"], ["?", "this list"],
];

const Keys = () => html`<${Dialog} title="Keys" onClose=${() => (helpShown.value = false)}>
  <dl class="facts">${KEYS.map(([key, what]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
<//>`;

let wasG = 0;

addEventListener("keydown", (event) => {
  const target = event.composedPath()[0];
  const isTyping = target instanceof HTMLElement && (target.matches("input:not([type=checkbox], [type=range], [type=file]), textarea, select") || target.isContentEditable);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || session.value.status !== "in") return;
  const { database, container } = route.value;
  const first = containers.value[0];
  const of = (/** @type {string} */ view) =>
    database !== undefined && container !== undefined ? viewPath(database, container, view) : first ? viewPath(first.database, first.name, view) : "";
  if (event.key === "?") helpShown.value = true;
  else if (event.key === "/") {
    treeShown.value = true;
    requestAnimationFrame(() => document.getElementById("tree-filter")?.focus());
  }
  else if (event.key === "g") {
    wasG = Date.now();
    return;
  } else if (Date.now() - wasG < 1500) {
    const targets = { o: "", p: of("partitions"), q: of("query"), h: of("heat"), t: "testing" };
    if (!(event.key in targets)) return;
    wasG = 0;
    go(targets[/** @type {keyof typeof targets} */ (event.key)]);
  } else return;
  event.preventDefault();
});

function Page() {
  const { status } = session.value;
  const { view, database, container, params } = route.value;
  useEffect(() => {
    if (database !== undefined && container !== undefined) watch([watchName(database, container)]);
    else if (view === "compare") {
      const names = ["a", "b", "c", "d"].map((each) => params.get(each)).filter((each) => each);
      watch(names.map((each) => { const [one, two] = String(each).split("/"); return watchName(one, two ?? ""); }));
    } else watch([]);
  }, [view, database, container, params.toString()]);
  if (status === "unknown") return html`<${Loading} />`;
  if (status === "none") return html`<${NoControlKey} />`;
  const wasIn = databases.value !== null;
  return html`${status === "in" || wasIn ? html`<${Frame} />` : html`<${LogIn} />`}<${Speaker} />`;
}

showScheme();
render(html`<${Page} />`, /** @type {HTMLElement} */ (document.getElementById("page")));
beginWatching();
beginReading();
void findSession().catch(() => {});
