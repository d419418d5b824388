import com.mongodb.ConnectionString;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.AggregateIterable;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.ClientSession;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.gridfs.GridFSBucket;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.gridfs.model.GridFSUploadOptions;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CollationStrength;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndReplaceOptions;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateManyModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.bson.BsonDocument;
import org.bson.BsonMaximumSizeExceededException;
import org.bson.Document;
import org.bson.types.Binary;
import org.bson.types.Decimal128;
import org.bson.types.ObjectId;

/** The synchronous MongoDB driver for Java. */
public final class Program {
    private static final String DATABASE = Steps.variable("ARMILLARY_DATABASE");
    private static final int COUNT = 40;

    private static final AtomicInteger INSERTS = new AtomicInteger();
    private static MongoClient client;
    private static MongoDatabase database;
    private static MongoCollection<Document> items;

    public static void main(String[] arguments) {
        client = MongoClients.create(MongoClientSettings.builder()
            .applyConnectionString(new ConnectionString(Steps.variable("ARMILLARY_MONGO")))
            .addCommandListener(new CommandListener() {
                @Override
                public void commandStarted(CommandStartedEvent event) {
                    if (event.getCommandName().equals("insert")) {
                        INSERTS.incrementAndGet();
                    }
                }
            })
            .build());
        database = client.getDatabase(DATABASE);
        items = database.getCollection("items");
        collections();
        writes();
        finds();
        bulks();
        aggregations();
        indexes();
        sessions();
        changeStreams();
        files();
        ends();
        client.close();
        System.exit(0);
    }

    private static void collections() {
        Steps.step("build-info", () -> Steps.equal(1.0, number(database.runCommand(new Document("buildInfo", 1)).get("ok"))));
        Steps.step("create-collection-four-partitions", () -> {
            database.runCommand(new Document("customAction", "CreateCollection").append("collection", "items").append("shardKey", "pk")
                .append("offerThroughput", 20000));
            Document shown = database.runCommand(new Document("customAction", "GetCollection").append("collection", "items"));
            Steps.equal(20000.0, number(shown.get("provisionedThroughput")));
        });
        Steps.step("create-collection", () -> database.createCollection("plain"));
        Steps.step("create-collection-again-refused", () ->
            Steps.equal(48, refused(() -> database.createCollection("plain",
                new CreateCollectionOptions().collation(Collation.builder().locale("fr").build())))));
        Steps.step("list-collections", () ->
            Steps.equal(Set.of("items", "plain"), database.listCollectionNames().into(new TreeSet<>())));
        Steps.step("list-databases", () -> Steps.holds(client.listDatabaseNames().into(new ArrayList<>()).contains(DATABASE), "not listed"));
        Steps.step("unknown-command-refused", () -> Steps.equal(59, refused(() -> database.runCommand(new Document("unheardOf", 1)))));
    }

    private static void writes() {
        Steps.step("insert-one", () -> {
            Steps.holds(items.insertOne(item(0)).wasAcknowledged(), "not acknowledged");
            Document made = new Document("pk", "made");
            items.insertOne(made);
            Steps.holds(made.get("_id") instanceof ObjectId, "no id was made");
            items.deleteOne(Filters.and(Filters.eq("_id", made.get("_id")), Filters.eq("pk", "made")));
        });
        Steps.step("insert-many", () -> Steps.equal(COUNT - 1,
            items.insertMany(IntStream.range(1, COUNT).mapToObj(Program::item).collect(Collectors.toList())).getInsertedIds().size()));
        Steps.step("insert-duplicate-11000", () -> {
            try {
                items.insertOne(item(0));
            } catch (MongoWriteException refusal) {
                Steps.equal(11000, refusal.getError().getCode());
                return;
            }
            throw new AssertionError("not refused");
        });
        Steps.step("update-one", () -> {
            Steps.equal(1L, items.updateOne(byId("i01"), Updates.combine(Updates.set("word", "new"), Updates.inc("n", 100), Updates.push("list", 9))).getModifiedCount());
            Document found = items.find(byId("i01")).first();
            Steps.equal(101, found.getInteger("n"));
            Steps.equal(List.of(1, 2, 9), found.getList("list", Integer.class));
            items.replaceOne(byId("i01"), item(1));
        });
        Steps.step("update-many", () -> {
            Steps.equal(14L, items.updateMany(Filters.eq("category", "red"), Updates.set("seen", true)).getModifiedCount());
            Steps.equal(14L, items.updateMany(Filters.exists("seen"), Updates.unset("seen")).getModifiedCount());
        });
        Steps.step("update-upsert", () -> {
            Steps.equal("made", items.updateOne(byId("made"), Updates.setOnInsert("n", 1),
                new UpdateOptions().upsert(true)).getUpsertedId().asString().getValue());
            Steps.equal(1L, items.deleteOne(byId("made")).getDeletedCount());
        });
        Steps.step("update-array-filters", () -> {
            items.updateOne(byId("i05"), Updates.set("list.$[each]", 0), new UpdateOptions().arrayFilters(List.of(Filters.gte("each", 6))));
            Steps.equal(List.of(5, 0), items.find(byId("i05")).first().getList("list", Integer.class));
            items.replaceOne(byId("i05"), item(5));
        });
        Steps.step("update-with-pipeline", () -> {
            items.updateOne(byId("i05"), List.of(Aggregates.set(new com.mongodb.client.model.Field<>("twice", new Document("$multiply", List.of("$n", 2))))));
            Steps.equal(10, items.find(byId("i05")).first().getInteger("twice"));
            items.replaceOne(byId("i05"), item(5));
        });
        Steps.step("replace-one", () -> Steps.equal(1L, items.replaceOne(byId("i06"), item(6).append("more", 1)).getModifiedCount()));
        Steps.step("find-one-and-update", () -> Steps.equal(7, items.findOneAndUpdate(byId("i06"), Updates.set("more", 7),
            new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)).getInteger("more")));
        Steps.step("find-one-and-replace", () -> Steps.equal(7, items.findOneAndReplace(byId("i06"), item(6),
            new FindOneAndReplaceOptions().returnDocument(ReturnDocument.BEFORE)).getInteger("more")));
        Steps.step("find-one-and-delete", () -> {
            Steps.equal("i07", items.findOneAndDelete(byId("i07")).getString("_id"));
            items.insertOne(item(7));
        });
        Steps.step("delete-many", () -> {
            items.insertMany(List.of(new Document("_id", "d1").append("pk", "d"), new Document("_id", "d2").append("pk", "d")));
            Steps.equal(2L, items.deleteMany(Filters.eq("pk", "d")).getDeletedCount());
        });
        Steps.step("all-types-round-trip", () -> {
            Document sent = new Document("_id", "types").append("pk", "types").append("int", 1).append("long", 1L << 40).append("double", 1.5)
                .append("decimal", new Decimal128(new BigDecimal("1.10"))).append("date", Date.from(Instant.ofEpochSecond(1)))
                .append("binary", new Binary(new byte[] {1, 2})).append("object", new ObjectId("0123456789abcdef01234567"))
                .append("null", null).append("bool", true).append("list", List.of(1, "a", List.of(2))).append("inner", new Document("a", new Document("b", 1)));
            items.insertOne(sent);
            Steps.equal(sent, items.find(byId("types")).first());
            items.deleteOne(byId("types"));
        });
        Steps.step("unicode-ids", () -> {
            for (String id : List.of("žluťoučký", "日本語", "😀")) {
                items.insertOne(new Document("_id", id).append("pk", id));
                Steps.equal(id, items.find(byId(id)).first().getString("_id"));
                items.deleteOne(byId(id));
            }
        });
        Steps.step("large-document-refused", () -> {
            try {
                items.insertOne(new Document("_id", "large").append("pk", "large").append("text", "x".repeat(17_000_000)));
            } catch (BsonMaximumSizeExceededException refusal) {
                return; // by the driver, which asks the server for its limit
            }
            throw new AssertionError("not refused");
        });
    }

    private static void finds() {
        Steps.step("find-one-partition", () -> Steps.equal(List.of("i03", "i13", "i23", "i33"), ids(items.find(Filters.eq("pk", "p3")).sort(Sorts.ascending("n")))));
        Steps.step("find-missing", () -> Steps.equal(null, items.find(byId("none")).first()));
        Steps.step("find-sorted-batches", () -> Steps.equal(IntStream.range(0, COUNT).mapToObj(n -> id(COUNT - 1 - n)).collect(Collectors.toList()),
            ids(items.find().sort(Sorts.descending("n")).batchSize(7))));
        Steps.step("find-operators", () -> {
            Steps.equal(10, ids(items.find(Filters.and(Filters.gte("n", 10), Filters.lt("n", 20)))).size());
            Steps.equal(List.of("i05", "i09"), ids(items.find(Filters.in("n", 5, 9)).sort(Sorts.ascending("n"))));
            Steps.equal(11, ids(items.find(Filters.regex("word", "^word 1"))).size());
            Steps.equal(2, ids(items.find(Filters.elemMatch("list", new Document("$eq", 20)))).size());
            Steps.equal(2, ids(items.find(Filters.or(Filters.eq("n", 1), Filters.eq("n", 2)))).size());
        });
        Steps.step("find-projection", () -> Steps.equal(new Document("_id", "i04").append("n", 4),
            items.find(byId("i04")).projection(Projections.include("n")).first()));
        Steps.step("find-skip-limit", () -> Steps.equal(List.of("i10", "i11", "i12"), ids(items.find().sort(Sorts.ascending("n")).skip(10).limit(3))));
        Steps.step("find-collation", () -> {
            Collation collation = Collation.builder().locale("en").collationStrength(CollationStrength.SECONDARY).build();
            Steps.equal(14, ids(items.find(Filters.eq("category", "RED")).collation(collation)).size());
        });
        Steps.step("count-documents", () -> Steps.equal(20L, items.countDocuments(Filters.gte("n", 20))));
        Steps.step("estimated-count", () -> Steps.equal((long) COUNT, items.estimatedDocumentCount()));
        Steps.step("distinct", () -> Steps.equal(Set.of("red", "green", "blue"), items.distinct("category", String.class).into(new TreeSet<>())));
        Steps.step("cursor-closed-early", () -> {
            try (MongoCursor<Document> cursor = items.find().batchSize(5).iterator()) {
                cursor.next();
            }
            Steps.equal(40L, items.countDocuments());
        });
        Steps.step("split-underneath-cursor", () -> {
            List<String> found = new ArrayList<>();
            try (MongoCursor<Document> cursor = items.find().sort(Sorts.ascending("n")).batchSize(6).iterator()) {
                found.add(cursor.next().getString("_id"));
                Steps.split(DATABASE, "items");
                cursor.forEachRemaining(one -> found.add(one.getString("_id")));
            }
            Steps.equal(IntStream.range(0, COUNT).mapToObj(Program::id).collect(Collectors.toList()), found);
        });
    }

    private static void bulks() {
        Steps.step("bulk", () -> {
            var result = items.bulkWrite(List.of(
                new InsertOneModel<>(new Document("_id", "b1").append("pk", "b")),
                new InsertOneModel<>(new Document("_id", "b2").append("pk", "b")),
                new UpdateOneModel<>(byId("b1"), Updates.set("n", 1)),
                new UpdateManyModel<>(Filters.eq("pk", "b"), Updates.set("m", 2)),
                new ReplaceOneModel<>(byId("b2"), new Document("_id", "b2").append("pk", "b").append("r", 1)),
                new DeleteOneModel<>(byId("b1"))));
            Steps.equal(List.of(2, 4, 1), List.of(result.getInsertedCount(), result.getModifiedCount(), result.getDeletedCount()));
            items.deleteOne(byId("b2"));
        });
        Steps.step("bulk-unordered-continues", () -> {
            try {
                items.bulkWrite(List.of(new InsertOneModel<>(new Document("_id", "c1").append("pk", "c")),
                    new InsertOneModel<>(new Document("_id", "c1").append("pk", "c")),
                    new InsertOneModel<>(new Document("_id", "c2").append("pk", "c"))), new BulkWriteOptions().ordered(false));
                throw new AssertionError("not refused");
            } catch (MongoBulkWriteException refusal) {
                Steps.equal(1, refusal.getWriteErrors().size());
                Steps.equal(1, refusal.getWriteErrors().get(0).getIndex());
                Steps.equal(2, refusal.getWriteResult().getInsertedCount());
            }
            items.deleteMany(Filters.eq("pk", "c"));
        });
    }

    private static void aggregations() {
        Steps.step("aggregate-group", () -> Steps.equal(List.of("blue/13/260", "green/13/247", "red/14/273"), items.aggregate(List.of(
            Aggregates.group("$category", Accumulators.sum("many", 1), Accumulators.sum("total", "$n")), Aggregates.sort(Sorts.ascending("_id"))))
            .map(one -> one.getString("_id") + "/" + one.getInteger("many") + "/" + one.getInteger("total")).into(new ArrayList<>())));
        Steps.step("aggregate-unwind", () -> Steps.equal(COUNT * 2, count(items.aggregate(List.of(Aggregates.unwind("$list"))).batchSize(9))));
        Steps.step("aggregate-lookup", () -> {
            MongoCollection<Document> names = database.getCollection("names");
            names.insertMany(List.of(new Document("_id", "red").append("name", "rot"), new Document("_id", "blue").append("name", "blau")));
            Steps.equal("rot", items.aggregate(List.of(Aggregates.match(byId("i00")), Aggregates.lookup("names", "category", "_id", "found")))
                .first().getList("found", Document.class).get(0).getString("name"));
        });
        Steps.step("aggregate-facet", () -> {
            Document found = items.aggregate(List.of(Aggregates.facet(
                new com.mongodb.client.model.Facet("low", Aggregates.match(Filters.lt("n", 10)), Aggregates.count("c")),
                new com.mongodb.client.model.Facet("high", Aggregates.match(Filters.gte("n", 30)), Aggregates.count("c"))))).first();
            Steps.equal(10, found.getList("low", Document.class).get(0).getInteger("c"));
            Steps.equal(10, found.getList("high", Document.class).get(0).getInteger("c"));
        });
        Steps.step("aggregate-bucket", () -> Steps.equal(4, count(items.aggregate(List.of(Aggregates.bucket("$n", List.of(0, 10, 20, 30, 40)))))));
        Steps.step("aggregate-out", () -> {
            items.aggregate(List.of(Aggregates.match(Filters.lt("n", 5)), Aggregates.out("copied"))).toCollection();
            Steps.equal(5L, database.getCollection("copied").countDocuments());
        });
    }

    private static void indexes() {
        MongoCollection<Document> plain = database.getCollection("plain");
        Steps.step("index-create", () -> Steps.equal("word_1_n_-1", items.createIndex(Indexes.compoundIndex(Indexes.ascending("word"), Indexes.descending("n")))));
        Steps.step("index-list", () -> Steps.equal(Set.of("_id_", "word_1_n_-1"),
            items.listIndexes().map(one -> one.getString("name")).into(new TreeSet<>())));
        Steps.step("index-hint", () -> Steps.equal(1, ids(items.find(Filters.eq("word", "word 7")).hint(new Document("word", 1).append("n", -1))).size()));
        Steps.step("index-drop", () -> {
            items.dropIndex("word_1_n_-1");
            Steps.equal(1, items.listIndexes().into(new ArrayList<>()).size());
        });
        Steps.step("index-unique", () -> {
            plain.createIndex(Indexes.ascending("mail"), new IndexOptions().unique(true));
            plain.insertOne(new Document("_id", 1).append("mail", "a"));
            Steps.equal(11000, refused(() -> plain.insertOne(new Document("_id", 2).append("mail", "a"))));
        });
        Steps.step("ttl-expires", () -> {
            MongoCollection<Document> brief = database.getCollection("brief");
            brief.createIndex(Indexes.ascending("_ts"), new IndexOptions().expireAfter(60L, TimeUnit.SECONDS));
            Steps.control("POST", "/clock", "{\"frozen\": true}");
            brief.insertOne(new Document("_id", 1));
            Steps.equal(1L, brief.countDocuments());
            Steps.control("POST", "/clock", "{\"advanceSeconds\": 62}");
            Steps.equal(0L, brief.countDocuments());
            Steps.control("POST", "/clock", "{\"frozen\": false}");
        });
    }

    private static void sessions() {
        MongoCollection<Document> plain = database.getCollection("plain");
        Steps.step("session-read-own-write", () -> {
            try (ClientSession session = client.startSession()) {
                items.updateOne(session, byId("i08"), Updates.set("seen", 1));
                Steps.equal(1, items.find(session, byId("i08")).first().getInteger("seen"));
                items.replaceOne(session, byId("i08"), item(8));
                Steps.holds(session.getOperationTime() != null, "no operation time");
            }
        });
        Steps.step("transaction-commits", () -> {
            try (ClientSession session = client.startSession()) {
                session.startTransaction();
                plain.insertOne(session, new Document("_id", "t1").append("mail", "t1"));
                plain.insertOne(session, new Document("_id", "t2").append("mail", "t2"));
                Steps.equal(null, plain.find(Filters.eq("_id", "t1")).first());
                session.commitTransaction();
            }
            Steps.equal(2L, plain.countDocuments(Filters.in("_id", "t1", "t2")));
        });
        Steps.step("transaction-aborts", () -> {
            try (ClientSession session = client.startSession()) {
                session.startTransaction();
                plain.deleteMany(session, Filters.in("_id", "t1", "t2"));
                session.abortTransaction();
            }
            Steps.equal(2L, plain.countDocuments(Filters.in("_id", "t1", "t2")));
        });
        Steps.step("transaction-with-callback", () -> {
            try (ClientSession session = client.startSession()) {
                Steps.equal("done", session.withTransaction(() -> {
                    plain.updateOne(session, Filters.eq("_id", "t1"), Updates.set("n", 5));
                    return "done";
                }));
            }
            Steps.equal(5, plain.find(Filters.eq("_id", "t1")).first().getInteger("n"));
        });
        Steps.step("transaction-write-conflict", () -> {
            try (ClientSession one = client.startSession(); ClientSession two = client.startSession()) {
                one.startTransaction();
                two.startTransaction();
                plain.updateOne(one, Filters.eq("_id", "t1"), Updates.set("n", 6));
                Steps.equal(112, refused(() -> plain.updateOne(two, Filters.eq("_id", "t1"), Updates.set("n", 7))));
                one.commitTransaction();
            }
            Steps.equal(6, plain.find(Filters.eq("_id", "t1")).first().getInteger("n"));
        });
        Steps.step("retryable-write-applied-once", () -> {
            // The write is carried out and its answer lost: the driver sends it again, with the same number.
            fault("\"operations\": \"create\", \"count\": 1, \"drop\": true, \"after\": true");
            int before = INSERTS.get();
            items.insertOne(new Document("_id", "again").append("pk", "again"));
            Steps.equal(2, INSERTS.get() - before);
            Steps.equal(1L, items.countDocuments(byId("again")));
            items.deleteOne(byId("again"));
        });
        Steps.step("throttled-16500-retried", () -> {
            fault("\"operations\": \"read\", \"count\": 1, \"status\": 429, \"retryAfterMs\": 5");
            int code = 0;
            try {
                items.find(Filters.and(byId("i03"), Filters.eq("pk", "p3"))).first();
            } catch (MongoCommandException refusal) {
                code = refusal.getErrorCode();
            }
            Steps.holds(code == 0 || code == 16500, "refused with " + code);
            Steps.equal(3, items.find(Filters.and(byId("i03"), Filters.eq("pk", "p3"))).first().getInteger("n"));
        });
    }

    private static void fault(String rule) throws Exception {
        Steps.control("POST", "/faults", "{\"database\": \"" + DATABASE + "\", \"container\": \"items\", " + rule + "}");
    }

    private static void changeStreams() {
        BsonDocument[] token = {null};
        Steps.step("change-stream", () -> {
            try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = watch(null)) {
                items.insertOne(new Document("_id", "w1").append("pk", "w"));
                items.updateOne(byId("w1"), Updates.set("n", 1));
                ChangeStreamDocument<Document> first = cursor.next();
                Steps.equal("w1", first.getFullDocument().getString("_id"));
                token[0] = first.getResumeToken();
            }
        });
        Steps.step("change-stream-resumed", () -> {
            items.insertOne(new Document("_id", "w2").append("pk", "w"));
            Set<String> seen = new TreeSet<>();
            try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = watch(token[0])) {
                while (!seen.contains("w2")) {
                    seen.add(cursor.next().getFullDocument().getString("_id"));
                }
            }
            items.deleteMany(Filters.eq("pk", "w"));
        });
        Steps.step("change-stream-nothing-new", () -> {
            try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = watch(null)) {
                Steps.equal(null, cursor.tryNext());
            }
        });
    }

    private static MongoChangeStreamCursor<ChangeStreamDocument<Document>> watch(BsonDocument token) {
        ChangeStreamIterable<Document> stream = items.watch(List.of(Aggregates.match(Filters.in("operationType", "insert", "update", "replace"))))
            .fullDocument(FullDocument.UPDATE_LOOKUP).maxAwaitTime(200, TimeUnit.MILLISECONDS);
        return (token == null ? stream : stream.resumeAfter(token)).cursor();
    }

    private static void files() {
        GridFSBucket bucket = GridFSBuckets.create(database, "files");
        byte[] content = "0123456789".repeat(30_000).getBytes(StandardCharsets.US_ASCII);
        ObjectId[] id = {null};
        Steps.step("gridfs-upload", () -> id[0] = bucket.uploadFromStream("numbers.txt", new ByteArrayInputStream(content),
            new GridFSUploadOptions().chunkSizeBytes(100_000).metadata(new Document("kind", "numbers"))));
        Steps.step("gridfs-download", () -> {
            ByteArrayOutputStream read = new ByteArrayOutputStream();
            bucket.downloadToStream(id[0], read);
            Steps.holds(Arrays.equals(content, read.toByteArray()), "the content differs");
        });
        Steps.step("gridfs-find-rename-delete", () -> {
            bucket.rename(id[0], "other.txt");
            Steps.equal("other.txt", bucket.find(Filters.eq("metadata.kind", "numbers")).first().getFilename());
            bucket.delete(id[0]);
            Steps.equal(0L, database.getCollection("files.chunks").countDocuments());
        });
    }

    private static void ends() {
        Steps.step("drop-collection", () -> {
            database.getCollection("plain").drop();
            Steps.holds(!database.listCollectionNames().into(new ArrayList<>()).contains("plain"), "still listed");
        });
        Steps.step("drop-database", () -> {
            database.drop();
            Steps.holds(!client.listDatabaseNames().into(new ArrayList<>()).contains(DATABASE), "still listed");
        });
    }

    /** The code of a refusal. */
    private static int refused(Steps.Body body) throws Exception {
        try {
            body.run();
        } catch (MongoCommandException refusal) {
            return refusal.getErrorCode();
        } catch (MongoWriteException refusal) {
            return refusal.getError().getCode();
        }
        throw new AssertionError("not refused");
    }

    private static org.bson.conversions.Bson byId(String id) {
        return Filters.and(Filters.eq("_id", id), Filters.eq("pk", key(id)));
    }

    /** Writes to one document of a sharded collection that may be repeated need the shard key. */
    private static String key(String id) {
        if (id.matches("i\\d\\d")) {
            return "p" + id.charAt(2);
        }
        return id.matches("[bcw]\\d") ? id.substring(0, 1) : id;
    }

    private static List<String> ids(FindIterable<Document> found) {
        return found.map(one -> one.getString("_id")).into(new ArrayList<>());
    }

    private static int count(AggregateIterable<Document> found) {
        return found.into(new ArrayList<>()).size();
    }

    private static double number(Object value) {
        return ((Number) value).doubleValue();
    }

    private static String id(int n) {
        return String.format("i%02d", n);
    }

    private static Document item(int n) {
        return new Document("_id", id(n)).append("pk", "p" + n % 10).append("n", n).append("word", "word " + n)
            .append("category", List.of("red", "green", "blue").get(n % 3)).append("list", List.of(n, n + 1));
    }
}
