// How far a computation of the server is, with its end: cancelled, or refused in the server's words.

import { html } from "../../vendor/core.js";
import { percent } from "../../text/numbers.js";
import { Bar, Copy, Failure } from "../../widgets/parts.js";

const INSTALL = "pip install 'armillary[foresight]'";

/** @param {{runner: import("../../data/jobs.js").JobRunner, what: string}} props */
export function JobLine({ runner, what }) {
  const { state, share, error, note } = runner.now.value;
  if (runner.isBusy) {
    const words = note || (state === "running" ? `${what} runs: ${percent(share)}` : state === "waiting" ? `${what} waits for another one` : `${what} is sent`);
    return html`<p class="tools" role="status" data-test="job" data-state=${state}><${Bar} share=${share} text=${words} /><button type="button" class="quiet" onClick=${() => runner.cancel()}>Cancel</button></p>`;
  }
  const isMissing = state === "failed" && String(error?.message).includes("armillary[foresight]");
  return html`<${Failure} error=${error} />${isMissing && html`<p class="tools">Where the server runs: <code>${INSTALL}</code><${Copy} text=${INSTALL} what="the command" /></p>`}`;
}
