// Queries: the editor with completions and mistakes underlined, results as a table or JSON, and beside them what the
// query cost, partition by partition.

import { html, useEffect, useLayoutEffect, useState } from "../../vendor/core.js";
import { choose, route, setFragment } from "../../data/address.js";
import { containerPath, control, reading } from "../../data/client.js";
import { RunningQuery } from "../../data/merged-query.js";
import { remember, remembered } from "../../data/preferences.js";
import { findContainer } from "../../data/resources.js";
import { charge, count, plural } from "../../text/numbers.js";
import { pathInQuery } from "../../text/paths.js";
import { Editor } from "../../widgets/editor.js";
import { Grid } from "../../widgets/grid.js";
import { JsonText, asCsv, cellText, columnNames, isObject, saveFile } from "../../widgets/json.js";
import { useLatest } from "../../widgets/asking.js";
import { Choice, Copy, Failure, speak, useData } from "../../widgets/parts.js";
import { parseKey } from "./items.js";
import { QueryAside } from "./query-aside.js";
import { Parameters, QueryTexts, parametersOf } from "./query-texts.js";

const PARSE_AFTER_MS = 300;
const ALL_ROWS_MAX = 10_000;
const ALL_RU_MAX = 1_000;
const PAGE = 1000;

/**
 * @typedef {import("../../data/merged-query.js").Page} Page
 * @typedef {{rows: any[], pages: Page[], chargeRu: number, running: RunningQuery}} Result
 */

/** @param {{database: string, container: string}} props */
export default function Query({ database, container }) {
  const { params, fragment } = route.value;
  const about = findContainer(database, container);
  const paths = about?.partitionKey ?? [];
  const [text, setText] = useState(() => fragment || "SELECT * FROM c");
  const [key, setKey] = useState(params.get("key") ?? "");
  const parameters = [...params].filter(([name]) => name.startsWith("@")).map(([name, value]) => ({ name, value }));
  const setParameters = (/** @type {{name: string, value: string}[]} */ now) => choose({ ...Object.fromEntries(parameters.map((each) => [each.name, null])), ...Object.fromEntries(now.map((each) => [each.name, each.value])) });
  const [result, setResult] = useState(/** @type {Result | null} */ (null));
  const { ask, cancel, error, isAsking: isRunning } = useLatest();
  const sample = useData((signal) => reading(`${containerPath(database, container)}/sample?count=1000`)(signal).catch(() => ({ paths: [] })), [database, container]);
  const parsed = useParse(database, container, text);
  useLayoutEffect(() => setFragment(text), [text]);

  const run = (/** @type {{isAll?: boolean, from?: Result | null}} */ { isAll = false, from = null } = {}) => {
    rememberText(text);
    const asked = { query: text, parameters: parametersOf(parameters), key: key ? parseKey(key) : null };
    let found = from ?? { rows: [], pages: [], chargeRu: 0, running: new RunningQuery(database, container, asked) };
    const before = { rows: found.rows.length, chargeRu: found.chargeRu };
    // A page of the server's may be the rows of one partition: the query goes on until a page of ours is full.
    const goesOn = () => !found.running.isDone && found.chargeRu - before.chargeRu < ALL_RU_MAX && found.rows.length < (isAll ? ALL_ROWS_MAX : before.rows + PAGE);
    void ask(async (signal, tell) => {
      do {
        const page = await found.running.page(PAGE, signal);
        found = { rows: [...found.rows, ...page.rows], pages: [...found.pages, page], chargeRu: found.chargeRu + page.chargeRu, running: found.running };
        tell(found);
      } while (goesOn());
      speak(`${plural(found.rows.length, "row")}, ${charge(found.chargeRu)} request units`, true);
    }, setResult);
  };
  const stop = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && isRunning) cancel();
  };
  const completions = (sample.data?.paths ?? []).map((/** @type {any} */ each) => each.path.replaceAll("/", "."));
  return html`<div class="split-view" onKeyDown=${stop}>
    <div>
      <${Editor} value=${text} language="sql" label="Query" paths=${completions} wrong=${parsed.place} onEdit=${setText} onRun=${() => run()} />
      ${parsed.message && html`<p class="bad" role="status" data-test="parse">${parsed.message}</p>`}
      <${Parameters} text=${text} parameters=${parameters} onChange=${setParameters} />
      <p class="tools">
        <button type="button" onClick=${() => run()} disabled=${isRunning}>Run</button>
        ${isRunning && html`<button type="button" class="quiet" onClick=${cancel}>Cancel</button>`}
        ${paths.length > 0 && html`<label>Only key <input name="key" value=${key} placeholder=${paths.join(", ")} onInput=${(/** @type {any} */ event) => { setKey(event.currentTarget.value); choose({ key: event.currentTarget.value }); }} /></label>`}
        <${QueryTexts} text=${text} paths=${sample.data?.paths ?? []} onChoose=${setText} />
        <${Copy} text=${() => location.href} label="Copy link" />
      </p>
      <${QueryFailure} error=${error} />
      ${result ? html`<${Results} result=${result} isRunning=${isRunning} onNext=${() => run({ from: result })} onAll=${() => run({ from: result, isAll: true })} />` : html`<${Examples} paths=${sample.data?.paths ?? []} onChoose=${setText} />`}
    </div>
    <div>${result && html`<${QueryAside} database=${database} container=${container} result=${result} text=${text} keyed=${key} paths=${paths} total=${about?.partitionCount ?? 0} onRerun=${() => run()} />`}</div>
  </div>`;
}

/** Ask the server for mistakes, a moment after the last key. @param {string} database @param {string} container @param {string} text */
function useParse(database, container, text) {
  const [found, setFound] = useState({ message: "", place: /** @type {{line: number, column: number} | null} */ (null) });
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const answer = await control("POST", `${containerPath(database, container)}/parse`, { query: text }, { signal: controller.signal });
        const wrong = answer.error;
        setFound({ message: wrong?.message ?? "", place: wrong ? { line: wrong.line ?? 1, column: wrong.column ?? 1 } : null });
      } catch (error) {
        if (error.name !== "AbortError") setFound({ message: "", place: null });
      }
    }, PARSE_AFTER_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text]);
  return found;
}

/** @param {string} text */
function rememberText(text) {
  const before = /** @type {string[]} */ (remembered("queries", []));
  remember("queries", [text, ...before.filter((each) => each !== text)].slice(0, 100));
}

/** @param {{error: any}} props */
function QueryFailure({ error }) {
  const [left, setLeft] = useState(0);
  useEffect(() => {
    setLeft(error?.retryAfterMs ?? 0);
  }, [error]);
  useEffect(() => {
    if (left <= 0) return;
    const timer = setTimeout(() => setLeft(Math.max(0, left - 100)), 100);
    return () => clearTimeout(timer);
  }, [left]);
  return html`<${Failure} error=${error} />${left > 0 && html`<p class="note">May be tried again in ${(left / 1000).toFixed(1)} s.</p>`}`;
}

/** @param {{paths: any[], onChoose: (text: string) => void}} props */
function Examples({ paths, onChoose }) {
  const own = paths.filter((each) => each.path !== "/id" && !each.path.startsWith("/_") && (each.types?.number || each.types?.string));
  const ordered = own.find((each) => each.types.number) ?? own[0];
  const few = own.filter((each) => !each.isPartitionKey).sort((a, b) => a.distinct - b.distinct)[0] ?? own[0];
  const name = (/** @type {any} */ found) => (found ? pathInQuery(found.path) : "c.id");
  const texts = [`SELECT VALUE COUNT(1) FROM c`, `SELECT TOP 10 * FROM c ORDER BY ${name(ordered)} DESC`, `SELECT ${name(few)}, COUNT(1) AS items FROM c GROUP BY ${name(few)}`];
  return html`<div class="empty"><p>To begin with:</p>${texts.map((each) => html`<p key=${each}><button type="button" class="quiet code" onClick=${() => onChoose(each)}>${each}</button></p>`)}</div>`;
}

/** @param {{result: Result, isRunning: boolean, onNext: () => void, onAll: () => void}} props */
function Results({ result, isRunning, onNext, onAll }) {
  const { params } = route.value;
  const form = params.get("as") ?? "table";
  const { rows } = result;
  const columns = columnNames(rows).map((name) => ({
    id: name, label: name, value: (/** @type {any} */ row) => (isObject(row) ? row[name] : row), text: (/** @type {any} */ row) => cellText(isObject(row) ? row[name] : row),
  }));
  const lines = () => rows.map((row) => JSON.stringify(row)).join("\n") + "\n";
  return html`<section aria-label="Results">
    <p class="tools"><span data-test="rows">${plural(rows.length, "row")}</span><span><span data-test="charge">${charge(result.chargeRu)}</span> RU</span>
      <${Choice} label="Form" value=${form} onChange=${(/** @type {string} */ as) => choose({ as: as === "table" ? null : as })} options=${[["table", "Table"], ["json", "JSON"]]} />
      <button type="button" class="quiet" onClick=${() => saveFile("result.csv", asCsv(rows), "text/csv")}>CSV</button>
      <button type="button" class="quiet" onClick=${() => saveFile("result.jsonl", lines(), "application/x-ndjson")}>JSONL</button></p>
    ${form === "json" ? html`<${JsonText} text=${JSON.stringify(rows, null, 2)} label="Result as JSON" />`
      : html`<${Grid} label="result" columns=${columns} rows=${rows} keyOf=${(/** @type {any} */ _, /** @type {number} */ index) => index} sort=${params.get("sort") ?? ""} onSort=${(/** @type {string} */ sort) => choose({ sort })} empty="No rows." />`}
    ${!result.running.isDone && html`<p class="tools"><button type="button" class="quiet" disabled=${isRunning} onClick=${onNext}>Next page</button>
      <button type="button" class="quiet" disabled=${isRunning} onClick=${onAll}>All</button><span class="small">All stops at ${count(ALL_ROWS_MAX)} rows, or after ${count(ALL_RU_MAX)} RU.</span></p>`}
  </section>`;
}
