// The released driver of MongoDB on the MongoDB door.
import assert from "node:assert/strict";
import test from "node:test";
import { Decimal128, Long, MongoClient, ObjectId } from "mongodb";

const key = encodeURIComponent(process.env.TEST_KEY);
const address = `${process.env.TEST_MONGO_ENDPOINT.replace("://", `://localhost:${key}@`)}/?replicaSet=globaldb`;
let databases = 0;

async function withDatabase(body, options = {}) {
  const client = new MongoClient(address, options);
  const database = client.db(`javascript${process.pid}n${(databases += 1)}`);
  try {
    await body(database);
    await database.dropDatabase();
  } finally {
    await client.close();
  }
}

test("mongo: documents", () =>
  withDatabase(async (database) => {
    const people = database.collection("people");
    await people.insertMany(Array.from({ length: 250 }, (_, number) => ({ _id: number, n: number })));
    assert.equal((await people.find({}).toArray()).length, 250);
    assert.deepEqual((await people.find({ n: { $gt: 246 } }).sort({ n: -1 }).toArray()).map((each) => each._id), [249, 248, 247]);
    assert.equal((await people.updateMany({ n: { $lt: 10 } }, { $inc: { n: 1000 } })).modifiedCount, 10);
    assert.equal((await people.findOneAndDelete({ _id: 249 })).n, 249);
    assert.equal(await people.countDocuments({}), 249);
    await assert.rejects(people.insertOne({ _id: 1 }), { code: 11000 });
  }));

test("mongo: types come back as they went", () =>
  withDatabase(async (database) => {
    const document = { _id: new ObjectId(), long: Long.fromString("9007199254740993"), decimal: Decimal128.fromString("1.50"), when: new Date(7), nested: { z: [1, null], a: {} } };
    await database.collection("types").insertOne(document);
    const found = await database.collection("types").findOne({ _id: document._id }, { promoteLongs: false });
    assert.deepEqual({ ...found, nested: null }, { ...document, nested: null });
    assert.deepEqual(Object.keys(found.nested), ["z", "a"]);
  }));

test("mongo: aggregation, indexes, sharding", () =>
  withDatabase(async (database) => {
    await database.command({ shardCollection: `${database.databaseName}.c`, key: { r: "hashed" } });
    const people = database.collection("c");
    await people.insertMany(Array.from({ length: 40 }, (_, number) => ({ r: number, g: number % 4 })));
    const groups = await people.aggregate([{ $group: { _id: "$g", n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
    assert.deepEqual(groups, [0, 1, 2, 3].map((each) => ({ _id: each, n: 10 })));
    assert.equal(await people.createIndex({ g: 1 }), "g_1");
    assert.equal((await people.find({ g: 1 }).toArray()).length, 10);
    await assert.rejects(people.insertOne({ g: 1 }), { code: 61 });
  }));

test("mongo: compressed", () =>
  withDatabase(
    async (database) => {
      const text = "armillary ".repeat(5000);
      await database.collection("c").insertOne({ _id: 1, text });
      assert.equal((await database.collection("c").findOne({ _id: 1 })).text, text);
    },
    { compressors: ["zlib"] },
  ));

test("mongo: statements of all kinds together", () =>
  withDatabase(async (database) => {
    const people = database.collection("people");
    const done = await people.bulkWrite([
      { insertOne: { document: { _id: 1, n: 1 } } },
      { insertOne: { document: { _id: 2, n: 2 } } },
      { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 10 } } } },
      { replaceOne: { filter: { _id: 9 }, replacement: { n: 9 }, upsert: true } },
      { deleteOne: { filter: { _id: 2 } } },
    ]);
    assert.deepEqual([done.insertedCount, done.modifiedCount, done.upsertedIds[3], done.deletedCount], [2, 1, 9, 1]);
    const failed = people.bulkWrite([1, 3, 1, 4].map((each) => ({ insertOne: { document: { _id: each } } })), { ordered: false });
    await assert.rejects(failed, (error) => error.code === 11000 && error.writeErrors.length === 2 && error.result.insertedCount === 2);
  }));

test("mongo: transactions", () =>
  withDatabase(async (database) => {
    const people = database.collection("people");
    await people.insertOne({ _id: 1, n: 1 });
    await database.client.withSession(async (session) => {
      await session.withTransaction(async () => {
        await people.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
        await people.insertOne({ _id: 2, n: 0 }, { session });
        assert.equal(await database.collection("people").countDocuments({}), 1);
      });
      assert.deepEqual((await people.find({}).sort({ _id: 1 }).toArray()).map((each) => each.n), [2, 0]);
      session.startTransaction();
      await people.deleteMany({}, { session });
      await session.abortTransaction();
    });
    assert.equal(await people.countDocuments({}), 2);
    const [first, second] = [database.client.startSession(), database.client.startSession()];
    first.startTransaction();
    second.startTransaction();
    await people.updateOne({ _id: 1 }, { $set: { n: 5 } }, { session: first });
    const late = people.updateOne({ _id: 1 }, { $set: { n: 6 } }, { session: second });
    await assert.rejects(late, (error) => error.code === 112 && error.hasErrorLabel("TransientTransactionError"));
    await first.commitTransaction();
    assert.equal((await people.findOne({ _id: 1 })).n, 5);
    await Promise.all([first.endSession(), second.endSession()]);
  }));

test("mongo: change streams", () =>
  withDatabase(async (database) => {
    const people = database.collection("people");
    await people.insertOne({ _id: 0 });
    const stream = people.watch([{ $match: { operationType: { $ne: "delete" } } }], { fullDocument: "updateLookup" });
    await stream.tryNext();
    await people.insertOne({ _id: 1, n: 1 });
    await people.deleteOne({ _id: 0 });
    await people.updateOne({ _id: 1 }, { $set: { n: 2 } });
    const first = await stream.next();
    assert.deepEqual([first.operationType, first.fullDocument], ["insert", { _id: 1, n: 1 }]);
    await stream.close();
    const resumed = people.watch([], { resumeAfter: first._id });
    const kinds = [(await resumed.next()).operationType, (await resumed.next()).operationType];
    assert.deepEqual(kinds, ["delete", "update"]);
    await resumed.close();
  }));

test("mongo: capped collections and tailable cursors", () =>
  withDatabase(async (database) => {
    const log = await database.createCollection("log", { capped: true, size: 4096, max: 3 });
    await log.insertMany([1, 2, 3, 4].map((each) => ({ _id: each })));
    const tail = log.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 2000 });
    const seen = [(await tail.next())._id, (await tail.next())._id, (await tail.next())._id];
    const [next] = await Promise.all([tail.next(), log.insertOne({ _id: 5 })]);
    assert.deepEqual([...seen, next._id], [2, 3, 4, 5]);
    await tail.close();
    assert.equal(await log.isCapped(), true);
  }));

test("mongo: a snapshot of several collections", () =>
  withDatabase(async (database) => {
    await Promise.all(["a", "b"].map((each) => database.collection(each).insertOne({ _id: 1 })));
    await database.client.withSession({ snapshot: true }, async (session) => {
      assert.equal((await database.collection("a").find({}, { session }).toArray()).length, 1);
      await database.collection("b").insertOne({ _id: 2 });
      assert.equal((await database.collection("b").find({}, { session }).toArray()).length, 1);
    });
  }));
