// Logging in and out. The control key is sent once and not kept; a one-time ticket comes in the fragment of the
// address and is taken out of it before anything else is done.

import { control, session } from "./client.js";

/** @param {any} answer */
function entered(answer) {
  session.value = { status: "in", csrf: answer.csrf ?? "", readOnly: Boolean(answer.readOnly) };
}

/** Find out whether this browser is logged in. */
export async function findSession() {
  const ticket = /^#ticket=([^&]+)/.exec(location.hash)?.[1];
  if (ticket !== undefined) {
    history.replaceState(null, "", location.pathname + location.search);
    await enter({ ticket: decodeURIComponent(ticket) });
    return;
  }
  try {
    const answer = await control("GET", "session");
    if (answer.isLoggedIn) entered(answer);
    else if (answer.portal === "open") await enter({});
    else session.value = { ...session.value, status: answer.hasControlKey ? "out" : "none" };
  } catch {
    session.value = { ...session.value, status: "out" };
  }
}

/** @param {{key?: string, ticket?: string, readOnly?: boolean}} how */
export async function enter(how) {
  try {
    entered(await control("POST", "session", how));
  } catch (error) {
    session.value = { ...session.value, status: "out" };
    throw error;
  }
}

export async function leave() {
  await control("DELETE", "session");
  session.value = { status: "out", csrf: "", readOnly: false };
}
