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
