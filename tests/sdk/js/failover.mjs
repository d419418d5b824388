// The released driver of MongoDB in a cluster whose primary changes. Writes and reads until standard input ends, then
// says what it was told. This driver retries only the first of several commands that a member cuts off at once: the
// others find the member marked as unknown and get no label. Such errors of the network are counted, and so are commands
// that members refused twice because the primary changed; others end it.
import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import { MongoClient, MongoNetworkError } from "mongodb";

const client = new MongoClient(process.env.TEST_MONGO_URI, { retryWrites: true, w: "majority" });
const documents = client.db("shop").collection("javascript");
const told = { inserted: 0, counted: 0, uncounted: 0, read: 0, causal: 0, cut: 0, refused: 0 };
let isOver = false;
process.stdin.on("end", () => (isOver = true)).resume();

async function repeat(step) {
  while (!isOver) {
    try {
      await step();
    } catch (error) {
      // EPIPE: a socket that the member has just ended. The driver passes Node's own error on, and does not retry.
      if (error instanceof MongoNetworkError || error.code === "EPIPE") told.cut += 1;
      else if (error.code === 10107) told.refused += 1;
      else throw error;
    }
    await setTimeout(20);
  }
}

async function insert() {
  try {
    await documents.insertOne({ _id: told.inserted });
  } catch (error) {
    if (error.code !== 11000) throw error; // stored by an attempt that was cut off
  }
  told.inserted += 1;
}

async function count() {
  told.uncounted += 1;
  await documents.updateOne({ _id: "count" }, { $inc: { count: 1 } }, { upsert: true });
  told.uncounted -= 1;
  told.counted += 1;
}

async function read() {
  await documents.findOne({ _id: "count" }, { readPreference: "secondary" });
  told.read += 1;
}

async function readOwnWrites() {
  await client.withSession({ causalConsistency: true }, async (session) => {
    const _id = `causal-${told.causal}-${told.cut}-${told.refused}`;
    await documents.insertOne({ _id }, { session });
    const found = await documents.findOne({ _id }, { session, readPreference: "secondary", readConcern: "majority" });
    assert.deepEqual(found, { _id });
    told.causal += 1;
  });
}

await Promise.all([insert, count, read, readOwnWrites].map(repeat));
console.log(JSON.stringify(told));
await client.close();
