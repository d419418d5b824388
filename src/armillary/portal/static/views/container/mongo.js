// MongoDB: find by fields, a pipeline with a preview after each stage, or any command, in extended JSON; explained as a
// tree, with the charge.

import { html, useLayoutEffect, useState } from "../../vendor/core.js";
import { choose, route, setFragment } from "../../data/address.js";
import { bridge, session } from "../../data/client.js";
import { charge, count, plural } from "../../text/numbers.js";
import { Editor } from "../../widgets/editor.js";
import { JsonText, isObject } from "../../widgets/json.js";
import { useLatest } from "../../widgets/asking.js";
import { Choice, Failure, Field } from "../../widgets/parts.js";

const PREVIEW = 20;

/** @param {{database: string, container: string}} props */
export default function Mongo({ database, container }) {
  const form = route.value.params.get("form") ?? "find";
  const forms = { find: Find, aggregate: Aggregate, command: Command };
  const Form = forms[/** @type {keyof typeof forms} */ (form)] ?? Find;
  return html`<p class="tools"><${Choice} label="Form" value=${form} onChange=${(/** @type {string} */ value) => choose({ form: value === "find" ? null : value })} options=${[["find", "Find"], ["aggregate", "Aggregate"], ...(session.value.readOnly ? [] : [["command", "Command"]])]} />
    <span class="small">Values are extended JSON: <code>{"$oid": "…"}</code>, <code>{"$numberLong": "1"}</code>, <code>{"$date": "…"}</code>.</span></p>
    <${Form} key=${form} database=${database} container=${container} />`;
}

/**
 * What was typed into a form is in the fragment of the address, as JSON, unless it is what the form begins with.
 * @template T @param {string} form @param {T} first @returns {[T, (now: T) => void]}
 */
function useTyped(form, first) {
  const [typed, setTyped] = useState(() => /** @type {T} */ (typedIn(route.value.fragment, form) ?? first));
  useLayoutEffect(() => setFragment(JSON.stringify(typed) === JSON.stringify(first) ? "" : JSON.stringify({ [form]: typed })), [typed]);
  return [typed, setTyped];
}

const isText = (/** @type {any} */ value) => typeof value === "string";
/** @type {Record<string, (value: any) => boolean>} */
const FITS = {
  find: (value) => isObject(value) && FIELDS.every(([name]) => isText(value[name])),
  aggregate: (value) => Array.isArray(value) && value.length > 0 && value.every(isText),
  command: isText,
};

/** What a fragment has for a form, unless it is none of this form's. @param {string} fragment @param {string} form */
function typedIn(fragment, form) {
  try {
    const found = JSON.parse(fragment)[form];
    return FITS[form](found) ? found : null;
  } catch {
    return null;
  }
}

/** Runs commands, and keeps the answer and the failure. @param {string} database */
function useCommand(database) {
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const { ask, error } = useLatest();
  const run = (/** @type {() => any} */ command) =>
    ask(async (_, tell) => {
      const found = await bridge("mongo", { database, command: command() });
      tell(found);
      if (found.reply?.ok?.$numberDouble === "0.0" || found.reply?.ok === 0) throw new Error(`${found.reply.errmsg} (${found.reply.codeName ?? found.reply.code?.$numberInt ?? found.reply.code})`);
    }, setAnswer);
  return { answer, error, run };
}

/** @param {{answer: any}} props */
function Answer({ answer }) {
  if (!answer) return null;
  const batch = answer.reply?.cursor?.firstBatch;
  return html`<p class="tools"><span data-test="mongo-count">${batch ? plural(batch.length, "document") : "answer"}</span><span>${charge(answer.chargeRu)} RU</span><span>${count(answer.ms, 1)} ms</span></p>
    <${JsonText} text=${JSON.stringify(batch ?? answer.reply, null, 2)} label="Answer" />`;
}

const FIELDS = [["filter", "Filter", "{}"], ["projection", "Projection", ""], ["sort", "Sort", ""], ["limit", "Limit", "20"]];
const FIRST_FIELDS = /** @type {Record<string, string>} */ (Object.fromEntries(FIELDS.map(([name, , first]) => [name, first])));
const FIRST_STAGES = ['{"$match": {}}', '{"$limit": 20}'];

/** @param {{database: string, container: string}} props */
function Find({ database, container }) {
  const [fields, setFields] = useTyped("find", FIRST_FIELDS);
  const command = useCommand(database);
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const planning = useLatest();
  const built = () => ({ find: container, ...Object.fromEntries(FIELDS.filter(([name]) => fields[name]).map(([name]) => [name, JSON.parse(fields[name])])) });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    planning.cancel();
    setPlan(null);
    void command.run(built);
  };
  const explain = () => planning.ask(async () => (await bridge("mongo", { database, command: { explain: built(), verbosity: "executionStats" } })).reply, setPlan);
  return html`<form onSubmit=${submit}><div class="columns">${FIELDS.map(([name, label]) => html`<${Field} key=${name} label=${label}><input name=${name} class="code" value=${fields[name]} onInput=${(/** @type {any} */ event) => setFields({ ...fields, [name]: event.currentTarget.value })} /><//>`)}</div>
    <p class="tools"><button type="submit">Find</button><button type="button" class="quiet" onClick=${explain}>Explain</button></p></form>
    <${Failure} error=${command.error ?? planning.error} /><${Answer} answer=${command.answer} />
    ${plan && html`<h3>Plan</h3>${plan.errmsg ? html`<p class="bad">${plan.errmsg}</p>` : html`<${PlanTree} plan=${plan} />`}`}`;
}

/** @param {any} value */
const plain = (value) => (value && typeof value === "object" ? Number(Object.values(value)[0]) : value);

/** @param {{plan: any}} props */
function PlanTree({ plan }) {
  const stats = plan.executionStats;
  const stage = (/** @type {any} */ node) => node && html`<li><strong>${node.stage}</strong>${node.indexName ? ` by ${node.indexName}` : ""}${node.nReturned !== undefined ? `, returned ${count(plain(node.nReturned))}` : ""}${node.docsExamined !== undefined ? `, examined ${count(plain(node.docsExamined))}` : ""}
    ${(node.inputStage || node.inputStages) && html`<ul>${[node.inputStage, ...(node.inputStages ?? [])].filter(Boolean).map(stage)}</ul>`}</li>`;
  const root = stats?.executionStages ?? plan.queryPlanner?.winningPlan;
  return html`${stats && html`<p>${count(plain(stats.totalKeysExamined))} keys and ${count(plain(stats.totalDocsExamined))} documents examined, ${count(plain(stats.nReturned))} returned.</p>`}
    ${root && html`<ul>${stage(root)}</ul>`}<details><summary>Whole plan</summary><${JsonText} text=${JSON.stringify(plan, null, 2)} label="Plan" /></details>`;
}

/** @param {{database: string, container: string}} props */
function Aggregate({ database, container }) {
  const [stages, setStages] = useTyped("aggregate", FIRST_STAGES);
  const [previews, setPreviews] = useState(/** @type {any[]} */ ([]));
  const command = useCommand(database);
  const previewing = useLatest();
  const upTo = (/** @type {number} */ at) => ({ aggregate: container, pipeline: [...stages.slice(0, at + 1).map((each) => JSON.parse(each)), { $limit: PREVIEW }], cursor: {} });
  const preview = () =>
    previewing.ask(async (signal, tell) => {
      const found = [];
      for (let at = 0; at < stages.length && !signal.aborted; at += 1) {
        try {
          const answer = await bridge("mongo", { database, command: upTo(at) });
          found.push(answer.reply.cursor ? { rows: answer.reply.cursor.firstBatch, chargeRu: answer.chargeRu } : { failure: answer.reply.errmsg });
        } catch (failure) {
          found.push({ failure: failure.message });
        }
        tell([...found]);
        if (found[at].failure) break;
      }
    }, setPreviews);
  const set = (/** @type {number} */ at, /** @type {string} */ text) => setStages(stages.map((each, index) => (index === at ? text : each)));
  return html`<ol class="events">${stages.map((text, at) => html`<li key=${at}><${Editor} value=${text} language="json" label=${`Stage ${at + 1}`} onEdit=${(/** @type {string} */ now) => set(at, now)} onRun=${preview} />
      ${previews[at] && html`<details open=${Boolean(previews[at].failure)} data-test=${`preview-${at}`}><summary>${previews[at].failure ? html`<span class="bad">${previews[at].failure}</span>` : `after stage ${at + 1}: ${plural(previews[at].rows.length, "document")}, ${charge(previews[at].chargeRu)} RU`}</summary>
        ${previews[at].rows && html`<${JsonText} text=${JSON.stringify(previews[at].rows, null, 2)} label=${`After stage ${at + 1}`} />`}</details>`}</li>`)}</ol>
    <p class="tools"><button type="button" class="quiet" onClick=${() => setStages([...stages, '{"$limit": 20}'])}>Add a stage</button>
      ${stages.length > 1 && html`<button type="button" class="quiet" onClick=${() => setStages(stages.slice(0, -1))}>Remove the last</button>`}
      <button type="button" class="quiet" onClick=${preview}>Preview each stage</button><span class="small">${PREVIEW} documents each, charged each time</span>
      <button type="button" onClick=${() => command.run(() => ({ aggregate: container, pipeline: stages.map((each) => JSON.parse(each)), cursor: {} }))}>Run</button></p>
    <${Failure} error=${command.error} /><${Answer} answer=${command.answer} />`;
}

/** @param {{database: string, container: string}} props */
function Command({ database, container }) {
  const [text, setText] = useTyped("command", JSON.stringify({ collStats: container }, null, 2));
  const command = useCommand(database);
  const run = () => command.run(() => JSON.parse(text));
  return html`<${Editor} value=${text} language="json" label="Command" onEdit=${setText} onRun=${run} />
    <p><button type="button" onClick=${run}>Run</button></p><${Failure} error=${command.error} /><${Answer} answer=${command.answer} />`;
}
