// The change feed of a container as it comes, with what changed since the version before; and how far consumers are
// behind.

import { html, useEffect, useRef, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { containerPath, control, reading } from "../../data/client.js";
import { readLags } from "../../data/consumer-lag.js";
import { containers } from "../../data/resources.js";
import { shortBound } from "../../text/hashes.js";
import { count, cut, localTime, plural } from "../../text/numbers.js";
import { Grid } from "../../widgets/grid.js";
import { JsonText } from "../../widgets/json.js";
import { useLatest } from "../../widgets/asking.js";
import { Choice, Failure, Stale, Time, useData, useEvery } from "../../widgets/parts.js";
import { parseKey } from "./items.js";

const ROWS_KEPT = 1000;
const WAIT_MS = 2000;
const RETRY_MS = 1000;
const LAG_MS = 5000;
const EARLIER_S = 3600;

/** @param {{database: string, container: string}} props */
export default function Feed({ database, container }) {
  const { params } = route.value;
  const mode = params.get("mode") ?? "latest";
  const from = params.get("from") ?? "now";
  const key = params.get("key") ?? "";
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [isPaused, setPaused] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const position = useRef("");
  const number = useRef(0);
  const [since, setSince] = useState(() => Date.now());
  useEffect(() => {
    position.current = "";
    setRows([]);
    setSince(Date.now());
  }, [database, container, mode, from, key]);
  useEffect(() => {
    if (isPaused) return;
    const controller = new AbortController();
    const follow = async () => {
      while (!controller.signal.aborted) {
        try {
          const start = position.current ? `position=${encodeURIComponent(position.current)}` : `from=${encodeURIComponent(from)}`;
          const only = key ? `&key=${encodeURIComponent(JSON.stringify(parseKey(key)))}` : "";
          const wait = position.current ? `&wait=${WAIT_MS}` : ""; // the place to begin at is answered at once
          const answer = await control("GET", `${containerPath(database, container)}/changes?mode=${mode}&${start}${only}${wait}`, undefined, { signal: controller.signal });
          if (controller.signal.aborted) return;
          position.current = answer.position;
          setError(null);
          if (answer.changes.length > 0) {
            const fresh = answer.changes.map((/** @type {any} */ change) => ({ number: (number.current += 1), at: Date.now(), change }));
            setRows((before) => [...fresh.reverse(), ...before].slice(0, ROWS_KEPT));
          }
        } catch (failure) {
          if (failure.name === "AbortError") return;
          setError(failure);
          if (failure.status >= 400 && failure.status < 500) return;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
    };
    void follow();
    return () => controller.abort();
  }, [database, container, mode, from, key, isPaused]);
  const isTime = from !== "now" && from !== "beginning";
  const clock = useLatest();
  const start = (/** @type {string} */ value) => {
    clock.cancel();
    if (value !== "time") choose({ from: value === "now" ? null : value });
    else void clock.ask(reading("clock"), ({ nowSeconds }) => choose({ from: new Date((nowSeconds - EARLIER_S) * 1000).toISOString() }));
  };
  return html`<p class="tools">
      <${Choice} label="Versions" value=${mode} onChange=${(/** @type {string} */ value) => choose({ mode: value === "latest" ? null : value })} options=${[["latest", "Latest versions"], ["all-versions", "All versions"]]} />
      <${Choice} label="From" value=${isTime ? "time" : from} onChange=${start} options=${[["now", "From now"], ["beginning", "From the beginning"], ["time", "From a time"]]} />
      ${isTime && html`<label>Time <input type="datetime-local" step="1" value=${localTime(from)} onChange=${(/** @type {any} */ event) => event.currentTarget.value && choose({ from: new Date(event.currentTarget.value).toISOString() })} /></label>`}
      <label>Only key <input value=${key} onChange=${(/** @type {any} */ event) => choose({ key: event.currentTarget.value })} /></label>
      <button type="button" class="quiet" aria-pressed=${isPaused ? "true" : "false"} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
      <button type="button" class="quiet" onClick=${() => setRows([])}>Clear</button>
      <span class="small" data-test="feed-count">${plural(rows.length, "change")}</span></p>
    <${Failure} error=${error ?? clock.error} />
    ${rows.length === 0 && !error && html`<p class="empty">${isPaused ? "Paused." : html`Waiting for a change, since <${Time} value=${since} />.`}</p>`}
    <ol class="events" data-test="feed">${rows.slice(0, 200).map((row) => html`<${Change} key=${row.number} row=${row} before=${rows.find((each) => each.number < row.number && idOf(each.change) === idOf(row.change))} />`)}</ol>
    ${rows.length > 200 && html`<p class="small">The newest 200 of ${count(rows.length)}.</p>`}
    <${Consumers} database=${database} container=${container} />`;
}

/** @param {{database: string, container: string}} props */
function Consumers({ database, container }) {
  const leases = route.value.params.get("leases") ?? "";
  const all = containers.value.map((each) => `${each.database}/${each.name}`);
  return html`<h2>Consumers</h2>
    <p class="tools"><label>Leases in <select value=${leases} onChange=${(/** @type {any} */ event) => choose({ leases: event.currentTarget.value })}>
      <option value="">–</option>${all.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label></p>
    ${leases && html`<${Lags} key=${leases} database=${database} container=${container} leases=${leases} />`}`;
}

/** @param {{database: string, container: string, leases: string}} props */
function Lags({ database, container, leases }) {
  const state = useData(() => readLags(database, container, leases), [database, container, leases]);
  useEvery(state.refresh, LAG_MS);
  const rows = state.data ?? [];
  const behind = rows.reduce((sum, each) => sum + (each.behind ?? 0), 0);
  return html`<${Stale} state=${state} />
    ${state.data && html`<p data-test="lag">${rows.length === 0 ? `There are no leases in ${leases}.` : `Up to ${plural(behind, "transaction")} behind, over ${plural(rows.length, "range")}${rows.some((each) => each.behind === null) ? ", of which some have no position that can be read" : ""}.`}</p>`}
    ${rows.length > 0 && html`<${Grid} label="consumers" rows=${rows} columns=${[
      { id: "consumer", label: "Consumer", value: (/** @type {any} */ row) => row.consumer },
      { id: "owner", label: "Worker", value: (/** @type {any} */ row) => row.owner || "none" },
      { id: "low", label: "Hashes", value: (/** @type {any} */ row) => row.low, text: (/** @type {any} */ row) => (row.high ? `${shortBound(row.low)}–${shortBound(row.high)}` : `partition ${row.low}`) },
      { id: "behind", label: "Behind", value: (/** @type {any} */ row) => row.behind, text: (/** @type {any} */ row) => count(row.behind), number: true },
    ]} />`}`;
}

/** The item of a change, in either form. @param {any} change */
const itemOf = (change) => change.current ?? change.item ?? change;
/** @param {any} change */
const idOf = (change) => JSON.stringify([itemOf(change)?.id ?? change.metadata?.id, itemOf(change)?._rid]);

/** @param {{row: any, before: any}} props */
function Change({ row, before }) {
  const item = itemOf(row.change);
  const kind = row.change.metadata?.operationType ?? "";
  const names = before ? changedNames(itemOf(before.change), item) : [];
  return html`<li><details><summary><${Time} value=${row.at} /> ${kind} <strong>${cut(String(item?.id ?? row.change.metadata?.id ?? ""), 60)}</strong> ${names.length > 0 ? html`<span class="small">changed: ${cut(names.join(", "), 80)}</span>` : ""}</summary>
    <${JsonText} text=${JSON.stringify(row.change, null, 2)} label="Change" /></details></li>`;
}

/** @param {any} a @param {any} b */
const changedNames = (a, b) => [...new Set([...Object.keys(a ?? {}), ...Object.keys(b ?? {})])].filter((name) => !name.startsWith("_") && JSON.stringify(a?.[name]) !== JSON.stringify(b?.[name]));
