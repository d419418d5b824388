// Computations of the server that take long (docs/control.md): a question is sent, its job is waited for, and can be
// cancelled. What a job found stays while the page is open, and its number is in the address.

import { signal } from "../vendor/core.js";
import { Refusal, control } from "./client.js";

const WAIT_MS = 500;

/**
 * @typedef {{state: "none" | "sending" | "waiting" | "running" | "done" | "failed", share: number, result: any, error: any, id: string, note: string}} JobState
 */
const NONE = /** @type {JobState} */ ({ state: "none", share: 0, result: null, error: null, id: "", note: "" });

export class JobRunner {
  /** @param {string} kind */
  constructor(kind) {
    this.kind = kind;
    this.now = signal(NONE);
    /** @type {AbortController | null} */
    this.abort = null;
  }

  get isBusy() {
    return ["sending", "waiting", "running"].includes(this.now.value.state);
  }

  /**
   * Ask for a job; the result before stays until there is another one. `prepare` gives the body, and may send more first.
   * @param {string} path @param {(signal: AbortSignal) => any} prepare
   */
  async begin(path, prepare) {
    await this.#run(async (signal) => {
      const { job } = await control("POST", path, await prepare(signal)); // its number is needed to cancel it
      return job;
    });
  }

  /** Wait for a job that was begun before; one that the server does not know any more is left aside. @param {string} id */
  async follow(id) {
    const found = await control("GET", `jobs/${encodeURIComponent(id)}`).catch(() => null);
    if (found?.kind === this.kind && this.now.value.state === "none") await this.#run(async () => id);
  }

  /** Say what is done before the job begins. @param {string} note */
  say(note) {
    this.now.value = { ...this.now.value, note };
  }

  /** @param {(signal: AbortSignal) => Promise<string>} begin */
  async #run(begin) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    this.now.value = { ...NONE, result: this.now.value.result, state: "sending" };
    try {
      const id = await begin(abort.signal);
      if (abort.signal.aborted) return await forget(id);
      this.now.value = { ...this.now.value, id, note: "", state: "waiting" };
      for (;;) {
        const found = await control("GET", `jobs/${id}?wait=${WAIT_MS}`, undefined, { signal: abort.signal });
        if (found.state === "failed") throw new Refusal(0, found.error ?? "It was cancelled.");
        this.now.value = { ...this.now.value, state: found.state, share: found.share, result: found.state === "done" ? found.result : this.now.value.result };
        if (found.state === "done") return;
      }
    } catch (error) {
      if (this.abort === abort && error.name !== "AbortError") this.now.value = { ...this.now.value, state: "failed", error };
    }
  }

  /** End the job, on the server too. */
  async cancel() {
    const { id } = this.now.value;
    this.abort?.abort();
    this.now.value = { ...NONE, result: this.now.value.result };
    if (id) await forget(id);
  }
}

/** @param {string} id */
async function forget(id) {
  await control("DELETE", `jobs/${encodeURIComponent(id)}`).catch(() => {}); // it has ended by itself
}

export const simulation = new JobRunner("simulation");
export const advice = new JobRunner("advice");
