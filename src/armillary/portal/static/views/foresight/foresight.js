// Foresight, before anything is decided: what a workload needs, what happens to it, and which partition key suits the
// data. Nothing is changed on any container.

import { html, useLayoutEffect, useMemo } from "../../vendor/core.js";
import { choose, route, setFragment } from "../../data/address.js";
import { isStart, plan, readPlan } from "../../data/workload.js";
import { Choice } from "../../widgets/parts.js";
import { Candidates } from "./candidates.js";
import { Estimate } from "./estimate.js";
import { Simulate } from "./simulate.js";
import { Requests, Source } from "./source.js";
import { TryIt } from "./try-it.js";
import { WorkloadForm } from "./workload-form.js";

const Future = () => html`<h3>Workload</h3><${WorkloadForm} />
  <h3>What it needs</h3><${Estimate} />
  <h3>What happens</h3><${Simulate} />`;

const STEPS = /** @type {Record<string, [string, any]>} */ ({
  source: ["Source", Source],
  requests: ["Requests", Requests],
  candidates: ["Candidates", Candidates],
  future: ["Future", Future],
  try: ["Try it", TryIt],
});

export default function Foresight() {
  const { params, fragment } = route.value;
  useMemo(() => readPlan(fragment), [fragment]);
  // With the rendering: a click before the next painting takes the plan from the address.
  useLayoutEffect(() => {
    if (!isStart()) setFragment(JSON.stringify(plan.value));
  }, [plan.value]);
  const step = params.get("step") ?? "source";
  const [label, Step] = STEPS[step] ?? STEPS.source;
  return html`<h1>Foresight</h1>
    <p>Which partition key, how much throughput, and what will happen. Nothing is changed on any container.</p>
    <p class="tools"><${Choice} label="Steps" value=${step} onChange=${(/** @type {string} */ value) => choose({ step: value }, true)} options=${Object.entries(STEPS).map(([id, [text]]) => [id, text])} /></p>
    <section key=${step}><h2>${label}</h2><${Step} /></section>`;
}
