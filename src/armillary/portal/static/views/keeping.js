// Snapshots in memory: taken, brought back, deleted, saved as files and restored from them; and the commands of backups.

import { html, useState } from "../vendor/core.js";
import { control, download, reading, session } from "../data/client.js";
import { databases, readResources } from "../data/resources.js";
import { bytes, count, plural } from "../text/numbers.js";
import { saveFile } from "../widgets/json.js";
import { useInTurn } from "../widgets/asking.js";
import { Copy, Failure, Field, Stale, useData } from "../widgets/parts.js";

const PART_BYTES = 4 * 1024 * 1024;
const COMMANDS = ["armillary backup create /backups", "armillary backup list /backups", "armillary backup verify /backups", "armillary backup restore /backups"];

export default function Keeping() {
  const state = useData(reading("snapshots"), []);
  const changes = useInTurn();
  const [said, setSaid] = useState("");
  const { readOnly } = session.value;
  const act = (/** @type {() => Promise<string>} */ action) =>
    changes.act(async () => {
      try {
        setSaid(await action());
      } finally {
        state.again();
        await readResources();
      }
    });
  return html`<h1>Keeping</h1>
    <p>A snapshot holds databases and containers as they are now, in memory. Bringing it back undoes everything since: for tests, and before experiments.</p>
    <${Stale} state=${state} /><${Failure} error=${changes.error} />${said && html`<p class="good" role="status" data-test="said">${said}</p>`}
    ${!readOnly && html`<${Take} act=${act} />`}
    ${state.data && html`<${List} snapshots=${state.data.snapshots} act=${act} />`}
    ${!readOnly && html`<h2>Restore from a file</h2><${Restore} act=${act} />`}
    <h2>Backups</h2><p>Backups of the data directory are made by commands:</p>
    ${COMMANDS.map((each) => html`<p key=${each} class="tools"><code>${each}</code><${Copy} text=${each} what=${each} /></p>`)}`;
}

/** @param {{act: (action: () => Promise<string>) => void}} props */
function Take({ act }) {
  const [name, setName] = useState("before");
  const [database, setDatabase] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    act(async () => {
      await control("POST", `snapshots/${encodeURIComponent(name)}`, database ? { database } : {});
      return `The snapshot ${name} was taken.`;
    });
  };
  return html`<form class="tools" onSubmit=${submit}><label>Name <input name="name" required value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /></label>
    <label>of <select value=${database} onChange=${(/** @type {any} */ event) => setDatabase(event.currentTarget.value)}><option value="">all databases</option>${(databases.value ?? []).map((each) => html`<option key=${each.name}>${each.name}</option>`)}</select></label>
    <button type="submit">Take one</button></form>`;
}

/** @param {{snapshots: any[], act: (action: () => Promise<string>) => void}} props */
function List({ snapshots, act }) {
  const { readOnly } = session.value;
  const [wanted, setWanted] = useState("");
  if (snapshots.length === 0) return html`<p class="empty">No snapshots.</p>`;
  const bring = (/** @type {string} */ name) => act(async () => {
    const outcome = await control("POST", `snapshots/${encodeURIComponent(name)}/restore`);
    setWanted("");
    return `${name} was brought back: ${plural(outcome.containersUndone, "container")} undone, ${count(outcome.containersCopied)} copied.`;
  });
  const save = (/** @type {string} */ name) => act(async () => {
    const parts = [];
    for (let number = 0; ; number += 1) {
      const part = await download(`snapshots/${encodeURIComponent(name)}/parts/${number}`);
      if (!part) break;
      parts.push(part);
    }
    saveFile(`${name}.armillary`, new Blob(parts), "application/octet-stream");
    return `${name} was saved.`;
  });
  return html`<div class="grid-box"><table class="wrap" data-test="snapshots"><thead><tr><th scope="col">Snapshot</th><th scope="col">Holds</th><th scope="col"><span class="visually-hidden">Actions</span></th></tr></thead>
    <tbody>${snapshots.map((each) => html`<tr key=${each.name}><td>${each.name}</td><td>${each.scope ?? each.database ?? "all databases"}: ${plural(each.containers, "container")}, ${plural(each.items, "item")}, ${bytes(each.bytes)}</td>
      <td><div class="tools">${!readOnly && (wanted === each.name
        ? html`<span>All changes since are undone in ${plural(each.containers, "container")}.</span><button type="button" class="danger" onClick=${() => bring(each.name)}>Bring back now</button><button type="button" class="quiet" onClick=${() => setWanted("")}>Not now</button>`
        : html`<button type="button" class="quiet" onClick=${() => setWanted(each.name)}>Bring back</button>`)}
        <button type="button" class="quiet" onClick=${() => save(each.name)}>Save as a file</button>
        ${!readOnly && html`<button type="button" class="quiet" onClick=${() => act(async () => (await control("DELETE", `snapshots/${encodeURIComponent(each.name)}`), `${each.name} was deleted.`))}>Delete</button>`}</div></td></tr>`)}</tbody></table></div>`;
}

/** @param {{act: (action: () => Promise<string>) => void}} props */
function Restore({ act }) {
  const [progress, setProgress] = useState(-1);
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const file = /** @type {File} */ (form.get("file"));
    act(async () => {
      const { id } = await control("POST", "restores", { ...(form.get("database") ? { database: form.get("database") } : {}), ...(form.get("replace") ? { replace: true } : {}) });
      try {
        for (let number = 0; number * PART_BYTES < file.size; number += 1) {
          setProgress(number * PART_BYTES);
          const part = file.slice(number * PART_BYTES, (number + 1) * PART_BYTES);
          await control("PUT", `restores/${id}/parts/${number}`, part, { headers: { "content-type": "application/octet-stream" } });
        }
        const outcome = await control("POST", `restores/${id}/finish`);
        return `Restored ${outcome.restored.join(", ")}: ${plural(outcome.items, "item")}.`;
      } catch (failure) {
        await control("DELETE", `restores/${id}`).catch(() => {});
        throw failure;
      } finally {
        setProgress(-1);
      }
    });
  };
  return html`<form onSubmit=${submit}><${Field} label="Snapshot file"><input type="file" name="file" required /><//>
    <${Field} label="Under another name" hint="Of the database; empty: its own."><input name="database" /><//>
    <p class="tools"><label class="check"><input type="checkbox" name="replace" /> Replace what has the name</label><button type="submit">Restore</button>
      ${progress >= 0 && html`<span role="status">${bytes(progress)} sent</span>`}</p></form>`;
}
