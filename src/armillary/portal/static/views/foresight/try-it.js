// Trying a key: the commands that move a container to it, judge it again on all rows, and run the workload on the real
// engine in small. They are run in a terminal; the page changes nothing.

import { html } from "../../vendor/core.js";
import { route } from "../../data/address.js";
import { changeWorkload, plan, setKey } from "../../data/workload.js";
import { pathSteps } from "../../text/paths.js";
import { tomlText } from "../../text/toml.js";
import { saveFile } from "../../widgets/json.js";
import { Copy } from "../../widgets/parts.js";
import { isFile } from "./source.js";

/** A word of a command, quoted where a shell would change it. @param {string} text */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** @param {{text: string}} props */
const Command = ({ text }) => html`<p class="tools"><code data-test="command">${text}</code><${Copy} text=${text} what=${text} /></p>`;

export function TryIt() {
  const { params } = route.value;
  const key = params.get("key") ?? "";
  const kind = params.get("kind") ?? "single";
  const of = params.get("of") ?? "";
  const isPath = kind === "single" || kind === "hierarchical";
  const paths = isPath ? key.split(",").filter(Boolean) : [];
  const target = `${of}-by-${paths.map((each) => pathSteps(each).join("-").replace(/[^\w-]+/g, "-")).join("-")}`;
  const save = () => saveFile("workload.toml", tomlText(plan.value.workload), "application/toml");
  return html`${key ? html`<p>The key: <code>${key}</code></p>` : html`<p class="empty">Choose a key of the candidates first, or try the workload as it is.</p>`}
    ${key && !isPath && html`<p class="note">This key is made of several values: the application writes it into a property of its own, such as <code>/pk</code>, and that is the partition key.</p>`}
    ${paths.length > 0 && of && !isFile(params) && html`<h3>Move the container</h3>
      <p>Copies the items and follows changes while the application goes on, then switches over. <code>--no-switch</code> leaves both.</p>
      <${Command} text=${`armillary migrate ${word(of)} ${word(target)} --partition-key ${paths.map(word).join(" ")} --no-switch`} />`}
    <h3>Run the workload on the engine, in small</h3>
    <p>The scale model shrinks data, throughput and limits alike, plays the workload on a server in memory, and shows what was predicted beside what happened.</p>
    <p class="tools"><button type="button" class="quiet" onClick=${save}>Save workload.toml</button>
      ${paths.length > 0 && html`<button type="button" class="quiet" onClick=${() => changeWorkload((workload) => setKey(workload, paths))}>Put the key into the workload</button><span class="small">now by ${plan.value.workload.container?.partition_key?.join(", ")}</span>`}</p>
    <${Command} text="armillary scale-model --workload workload.toml" />
    <h3>Judge it again, on all rows</h3>
    <${Command} text=${`armillary advise ${of && !isFile(params) ? word(of) : "items.jsonl"} --workload workload.toml${key && isPath ? ` --candidate ${word(key)}` : ""}`} />`;
}
