// For the programs that are written in JavaScript: running named steps, and the control API. The Python twin is
// program_steps.py. Programs find this file by NODE_PATH.
"use strict";

const assert = require("node:assert/strict");

const DATABASE = process.env.ARMILLARY_DATABASE;

class Missing extends Error {}
class Differs extends Error {}

const steps = [];

/** Adds a step. */
function step(name, run) {
    steps.push([name, run]);
}

/** Adds steps for which the client has no feature. */
function missing(why, ...names) {
    for (const name of names) {
        step(name, async () => {
            throw new Missing(why);
        });
    }
}

async function runSteps() {
    for (const [name, run] of steps) {
        try {
            await run();
            console.log(`ok ${name}`);
        } catch (error) {
            const outcome = error instanceof Missing ? "missing" : error instanceof Differs ? "differs" : "failed";
            const said = String(error.message || error.body || JSON.stringify(error));
            console.log(`${outcome} ${name}: ${said.replace(/\s+/g, " ").slice(0, 280)}`);
        }
    }
}

async function control(method, path, content) {
    const answer = await fetch(`${process.env.ARMILLARY_CONTROL}/${path}`, {
        method,
        headers: {
            authorization: `Bearer ${process.env.ARMILLARY_CONTROL_KEY}`,
            "content-type": "application/json",
        },
        body: content === undefined ? undefined : JSON.stringify(content),
    });
    assert.ok(answer.ok, `the control API answered ${answer.status} to ${method} ${path}`);
    return answer.json();
}

/** Splits the largest partition, and waits until the children have taken over. */
async function split(container) {
    const place = `databases/${DATABASE}/containers/${container}`;
    await control("POST", `${place}/split`, {});
    while ((await control("GET", `${place}/reshapes`)).reshapes.length) {
        // asked again
    }
}

/** The next requests of this kind get 429. The number of the rule. */
async function throttle(container, operation, count) {
    const rule = { database: DATABASE, container, operations: [operation], count, status: 429, retryAfterMs: 5 };
    return (await control("POST", "faults", rule)).id;
}

async function hits(rule) {
    return (await control("GET", `faults/${rule}`)).hits;
}

async function advanceClock(seconds) {
    await control("POST", "clock", { advanceSeconds: seconds });
}

/** The items that all programs use: 40 of them, over 8 partition keys and 3 groups. */
function item(number) {
    return {
        id: `item-${String(number).padStart(2, "0")}`,
        pk: `key-${number % 8}`,
        number,
        group: "abc"[number % 3],
        nested: { tags: [`tag-${number % 5}`, "all"], even: number % 2 === 0 },
    };
}

const ITEMS = Array.from({ length: 40 }, (_, number) => item(number));

/** Without what the server adds. */
function userPart(document) {
    return Object.fromEntries(Object.entries(document).filter(([name]) => !name.startsWith("_")));
}

module.exports = {
    DATABASE,
    Differs,
    ENDPOINT: process.env.ARMILLARY_ENDPOINT,
    ITEMS,
    KEY: process.env.ARMILLARY_KEY,
    Missing,
    advanceClock,
    equal: assert.deepEqual,
    hits,
    missing,
    runSteps,
    split,
    step,
    throttle,
    userPart,
};
