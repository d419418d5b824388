// Gremlin: a script, and its result as a list, a table or a graph that is drawn.

import { html, useLayoutEffect, useState } from "../../vendor/core.js";
import { choose, route, setFragment } from "../../data/address.js";
import { bridge } from "../../data/client.js";
import { bytes, charge, count, percent, plural } from "../../text/numbers.js";
import { Editor } from "../../widgets/editor.js";
import { GraphCanvas } from "../../widgets/graph.js";
import { Grid } from "../../widgets/grid.js";
import { JsonText, cellText, columnNames, isObject } from "../../widgets/json.js";
import { useLatest } from "../../widgets/asking.js";
import { Choice, Failure } from "../../widgets/parts.js";
import { graphOf, untyped } from "../../text/graphson.js";

const VERTICES_MAX = 500;
const EDGES_MAX = 1000;
const FIRST = "g.V().limit(50)";

/** @param {{database: string, container: string}} props */
export default function Gremlin({ database, container }) {
  const form = route.value.params.get("as") ?? "graph";
  const [script, setScript] = useState(() => route.value.fragment || FIRST);
  useLayoutEffect(() => setFragment(script === FIRST ? "" : script), [script]);
  const [result, setResult] = useState(/** @type {any} */ (null));
  const { ask, error, isAsking } = useLatest();
  const [edgesOf, setEdgesOf] = useState(/** @type {any[]} */ ([]));
  const answerTo = async (/** @type {string} */ text) => {
    const answer = await bridge("gremlin", { database, graph: container, script: text, bindings: {} });
    if (answer.status.code >= 300) throw new Error(`${answer.status.message} (${answer.status.code})`);
    return { ...answer, values: untyped(answer.data) };
  };
  const run = () => {
    setEdgesOf([]);
    void ask(() => answerTo(script), setResult);
  };
  const values = result ? [...result.values, ...edgesOf] : [];
  const graph = graphOf(values);
  const isTooLarge = graph.vertices.length > VERTICES_MAX || graph.edges.length > EDGES_MAX;
  const hasGraph = graph.vertices.length > 0;
  const among = () => {
    const ids = graph.vertices.map((each) => JSON.stringify(each.id)).join(", ");
    void ask(async () => (await answerTo(`g.V(${ids}).outE()`)).values, setEdgesOf);
  };
  const shown = hasGraph && !isTooLarge ? form : form === "graph" ? "table" : form;
  return html`<${Editor} value=${script} label="Script" onEdit=${setScript} onRun=${run} />
    <p class="tools"><button type="button" onClick=${run}>Run</button>
      <${Choice} label="Form" value=${shown} onChange=${(/** @type {string} */ as) => choose({ as: as === "graph" ? null : as })} options=${[...(hasGraph && !isTooLarge ? [["graph", "Graph"]] : []), ["table", "Table"], ["json", "JSON"]]} />
      ${result && html`<span data-test="gremlin-count">${plural(result.values.length, "result")}</span><span>${charge(result.chargeRu)} RU</span><span>${count(result.ms, 1)} ms</span>`}
      ${hasGraph && !isTooLarge && graph.edges.length === 0 && !isAsking && html`<button type="button" class="quiet" onClick=${among}>Edges among these</button><span class="small">a second query; about ${charge(graph.vertices.length * 1)} RU</span>`}</p>
    <${Failure} error=${error} />
    ${result && isTooLarge && html`<p class="note" data-test="too-large">${graph.vertices.length > VERTICES_MAX ? plural(graph.vertices.length, "vertex", "vertices") : plural(graph.edges.length, "edge")}: shown as a table.</p>`}
    ${result && (shown === "graph" ? html`<${GraphCanvas} graph=${graph} />` : shown === "table" ? html`<${Table} values=${result.values} />` : html`<${JsonText} text=${JSON.stringify(result.values, null, 2)} label="Result" />`)}
    ${result?.profile && html`<${Profile} profile=${untyped(result.profile)} chargeRu=${result.chargeRu} />`}`;
}

/** What executionProfile() answers, a row a step. @param {{profile: any, chargeRu: number}} props */
function Profile({ profile, chargeRu }) {
  const sum = (/** @type {any} */ step, /** @type {string} */ name) => (step.storeOps ?? []).reduce((/** @type {number} */ total, /** @type {any} */ each) => total + each[name], 0);
  const number = (/** @type {string} */ id, /** @type {string} */ label, /** @type {(step: any) => number} */ value, /** @type {(value: number) => string} */ text = count) => ({ id, label, value, text: (/** @type {any} */ step) => text(value(step)), number: true });
  return html`<h3>Profile</h3>
    <p>${charge(chargeRu)} RU and ${count(profile.totalTime)} ms in all. Request units are charged for what is read: by elements and bytes.</p>
    <${Grid} label="profile" rows=${profile.metrics ?? []} keyOf=${(/** @type {any} */ _, /** @type {number} */ at) => at} columns=${[
      { id: "name", label: "Step", value: (/** @type {any} */ step) => step.name },
      number("time", "ms", (step) => step.time),
      number("share", "Of the time", (step) => (step.annotations?.percentTime ?? 0) / 100, percent),
      number("results", "Results", (step) => step.counts?.resultCount ?? 0),
      number("fanout", "Partitions asked", (step) => Math.max(0, ...(step.storeOps ?? []).map((/** @type {any} */ each) => each.fanoutFactor))),
      number("read", "Elements read", (step) => sum(step, "count")),
      number("size", "Bytes read", (step) => sum(step, "size"), bytes),
    ]} />`;
}

/** @param {{values: any[]}} props */
function Table({ values }) {
  const columns = columnNames(values).map((name) => ({ id: name, label: name, value: (/** @type {any} */ row) => (isObject(row) ? row[name] : row), text: (/** @type {any} */ row) => cellText(isObject(row) ? row[name] : row) }));
  return html`<${Grid} label="result" rows=${values} columns=${columns} keyOf=${(/** @type {any} */ _, /** @type {number} */ at) => at} empty="No results." />`;
}
