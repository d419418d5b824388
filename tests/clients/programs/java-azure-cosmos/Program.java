import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.GatewayConnectionConfig;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.ComputedProperty;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosFullTextIndex;
import com.azure.cosmos.models.CosmosFullTextPath;
import com.azure.cosmos.models.CosmosFullTextPolicy;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosStoredProcedureRequestOptions;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.CosmosVectorDataType;
import com.azure.cosmos.models.CosmosVectorDistanceFunction;
import com.azure.cosmos.models.CosmosVectorEmbedding;
import com.azure.cosmos.models.CosmosVectorEmbeddingPolicy;
import com.azure.cosmos.models.CosmosVectorIndexSpec;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** azure-cosmos 4 for Java in gateway mode. */
public final class Program {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String DATABASE = Steps.variable("ARMILLARY_DATABASE");
    private static final int ITEMS = 40;
    private static final int KEYS = 10;

    private static CosmosClient client;
    private static CosmosAsyncClient asyncClient;
    private static CosmosDatabase database;
    private static CosmosContainer items;

    public static void main(String[] arguments) throws Exception {
        // Read once, when the class of gateway requests is loaded: without it the client changes http into https.
        if (Steps.variable("ARMILLARY_ENDPOINT").startsWith("http:")) {
            System.setProperty("COSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED", "true");
        } else {
            System.setProperty("javax.net.ssl.trustStore", Steps.variable("ARMILLARY_TRUSTSTORE"));
            System.setProperty("javax.net.ssl.trustStorePassword", "armillary");
            System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
        }
        client = builder().buildClient();
        asyncClient = builder().buildAsyncClient();
        resources();
        points();
        batches();
        queries();
        hierarchicalKeys();
        policies();
        changes();
        splits();
        faults();
        scripts();
        users();
        timeToLive();
        ends();
        client.close();
        asyncClient.close();
        System.exit(0);
    }

    private static CosmosClientBuilder builder() {
        return builder(null).key(Steps.variable("ARMILLARY_KEY"));
    }

    private static CosmosClientBuilder builder(String resourceToken) {
        CosmosClientBuilder builder = new CosmosClientBuilder();
        if (resourceToken != null) {
            builder.resourceToken(resourceToken);
        }
        return builder.endpoint(Steps.variable("ARMILLARY_ENDPOINT"))
            .gatewayMode(new GatewayConnectionConfig())
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true);
    }

    private static void resources() {
        Steps.step("create-database", () -> Steps.equal(201, client.createDatabase(DATABASE).getStatusCode()));
        database = client.getDatabase(DATABASE);
        Steps.step("read-database", () -> Steps.equal(DATABASE, database.read().getProperties().getId()));
        Steps.step("create-database-conflict-409", () -> refused(409, () -> client.createDatabase(DATABASE)));
        Steps.step("list-databases", () -> {
            List<String> names = new ArrayList<>();
            client.readAllDatabases().forEach(one -> names.add(one.getId()));
            Steps.holds(names.contains(DATABASE), "the database is not in " + names);
        });
        Steps.step("create-container-four-partitions", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("items", "/pk");
            properties.setDefaultTimeToLiveInSeconds(-1);
            database.createContainer(properties, ThroughputProperties.createManualThroughput(20000));
            items = database.getContainer("items");
            Steps.equal(4, items.getFeedRanges().size());
        });
        items = database.getContainer("items");
        Steps.step("read-container", () -> {
            CosmosContainerProperties properties = items.read().getProperties();
            Steps.equal(List.of("/pk"), properties.getPartitionKeyDefinition().getPaths());
            Steps.equal(-1, properties.getDefaultTimeToLiveInSeconds());
        });
        Steps.step("list-containers", () -> {
            List<String> names = new ArrayList<>();
            database.readAllContainers().forEach(one -> names.add(one.getId()));
            Steps.equal(List.of("items"), names);
        });
        Steps.step("query-containers", () -> {
            List<String> names = new ArrayList<>();
            database.queryContainers("SELECT * FROM root r WHERE r.id = 'items'").forEach(one -> names.add(one.getId()));
            Steps.equal(List.of("items"), names);
        });
        Steps.step("replace-container", () -> {
            CosmosContainerProperties properties = items.read().getProperties();
            IndexingPolicy policy = properties.getIndexingPolicy();
            policy.setCompositeIndexes(List.of(List.of(
                composite("/category", CompositePathSortOrder.ASCENDING),
                composite("/n", CompositePathSortOrder.DESCENDING))));
            properties.setIndexingPolicy(policy);
            Steps.equal(1, items.replace(properties).getProperties().getIndexingPolicy().getCompositeIndexes().size());
        });
        Steps.step("throughput-read", () ->
            Steps.equal(20000, items.readThroughput().getProperties().getManualThroughput()));
        Steps.step("throughput-replace", () -> {
            items.replaceThroughput(ThroughputProperties.createManualThroughput(24000));
            Steps.equal(24000, items.readThroughput().getProperties().getManualThroughput());
        });
        Steps.step("throughput-autoscale", () -> {
            database.createContainer(
                new CosmosContainerProperties("autoscale", "/pk"), ThroughputProperties.createAutoscaledThroughput(4000));
            CosmosContainer container = database.getContainer("autoscale");
            Steps.equal(4000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
            container.replaceThroughput(ThroughputProperties.createAutoscaledThroughput(6000));
            Steps.equal(6000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
            container.delete();
        });
        Steps.step("throughput-of-database", () -> {
            client.createDatabase(DATABASE + "-shared", ThroughputProperties.createManualThroughput(500));
            CosmosDatabase shared = client.getDatabase(DATABASE + "-shared");
            Steps.equal(500, shared.readThroughput().getProperties().getManualThroughput());
            shared.createContainer("one", "/pk");
            refused(400, () -> shared.getContainer("one").readThroughput());
            shared.delete();
        });
    }

    private static void points() {
        Steps.step("create-item", () -> {
            CosmosItemResponse<ObjectNode> answer = items.createItem(item(0));
            Steps.equal(201, answer.getStatusCode());
            Steps.equal("i00", answer.getItem().get("id").asText());
            Steps.holds(answer.getRequestCharge() > 0, "no charge");
        });
        Steps.step("create-item-conflict-409", () -> refused(409, () -> items.createItem(item(0))));
        Steps.step("read-item", () -> {
            ObjectNode found = read("i00", "p0");
            Steps.equal(0, found.get("n").asInt());
            Steps.holds(found.hasNonNull("_etag") && found.hasNonNull("_ts") && found.hasNonNull("_rid"), "no system members");
        });
        Steps.step("read-missing-item-404", () -> refused(404, () -> read("none", "p0")));
        Steps.step("read-item-by-etag-304", () -> {
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setIfNoneMatchETag(read("i00", "p0").get("_etag").asText());
            Steps.equal(304, items.readItem("i00", new PartitionKey("p0"), options, ObjectNode.class).getStatusCode());
        });
        Steps.step("upsert-item", () -> {
            Steps.equal(201, items.upsertItem(item(1)).getStatusCode());
            Steps.equal(200, items.upsertItem(item(1).put("word", "again")).getStatusCode());
            Steps.equal("again", read("i01", "p1").get("word").asText());
        });
        Steps.step("replace-item", () -> {
            ObjectNode changed = read("i01", "p1").put("word", "replaced");
            Steps.equal("replaced", items.replaceItem(changed, "i01", new PartitionKey("p1"), null).getItem().get("word").asText());
        });
        Steps.step("replace-with-stale-etag-412", () -> {
            ObjectNode before = read("i01", "p1");
            items.upsertItem(item(1));
            refused(412, () -> items.replaceItem(before, "i01", new PartitionKey("p1"),
                new CosmosItemRequestOptions().setIfMatchETag(before.get("_etag").asText())));
        });
        Steps.step("patch-item", () -> {
            CosmosPatchOperations operations = CosmosPatchOperations.create()
                .add("/tags", List.of("a", "b")).set("/word", "patched").increment("/n", 100).add("/tags/0", "first")
                .replace("/price", 9.5).remove("/category").move("/word", "/moved");
            ObjectNode found = items.patchItem("i01", new PartitionKey("p1"), operations, ObjectNode.class).getItem();
            Steps.equal(101, found.get("n").asInt());
            Steps.equal("[\"first\",\"a\",\"b\"]", found.get("tags").toString());
            Steps.equal("patched", found.get("moved").asText());
            Steps.holds(!found.has("category") && !found.has("word"), "removed members are still there");
        });
        Steps.step("patch-with-condition-412", () -> refused(412, () -> items.patchItem("i01", new PartitionKey("p1"),
            CosmosPatchOperations.create().set("/word", "no"),
            new CosmosPatchItemRequestOptions().setFilterPredicate("FROM c WHERE c.n = 1"), ObjectNode.class)));
        Steps.step("delete-item", () -> {
            Steps.equal(204, items.deleteItem("i01", new PartitionKey("p1"), null).getStatusCode());
            refused(404, () -> read("i01", "p1"));
        });
        Steps.step("write-without-content", () -> {
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
            CosmosItemResponse<ObjectNode> answer = items.createItem(item(1), options);
            Steps.equal(201, answer.getStatusCode());
            Steps.equal(null, answer.getItem());
        });
        Steps.step("unicode-ids", () -> {
            for (String id : List.of("žluťoučký kůň", "日本語", "emoji 😀", "a b+c&d=e", "per%cent")) {
                items.createItem(JSON.createObjectNode().put("id", id).put("pk", "unicode-" + id));
                Steps.equal(id, read(id, "unicode-" + id).get("id").asText());
                items.deleteItem(id, new PartitionKey("unicode-" + id), null);
            }
        });
        Steps.step("keys-of-all-types", () -> {
            Map<String, PartitionKey> keys = new TreeMap<>();
            keys.put("number", new PartitionKey(1.5));
            keys.put("boolean", new PartitionKey(true));
            keys.put("null", new PartitionKeyBuilder().addNullValue().build());
            keys.put("none", PartitionKey.NONE);
            for (Map.Entry<String, PartitionKey> entry : keys.entrySet()) {
                ObjectNode one = JSON.createObjectNode().put("id", entry.getKey());
                switch (entry.getKey()) {
                    case "number" -> one.put("pk", 1.5);
                    case "boolean" -> one.put("pk", true);
                    case "null" -> one.putNull("pk");
                    default -> { }
                }
                items.createItem(one, entry.getValue(), null);
                Steps.equal(entry.getKey(), items.readItem(entry.getKey(), entry.getValue(), ObjectNode.class).getItem().get("id").asText());
                items.deleteItem(entry.getKey(), entry.getValue(), null);
            }
        });
        Steps.step("large-item-refused-413", () -> refused(413, () ->
            items.createItem(JSON.createObjectNode().put("id", "large").put("pk", "p0").put("text", "x".repeat(2_200_000)))));
        Steps.step("wrong-partition-key-400", () -> refused(400, () -> items.createItem(item(2), new PartitionKey("other"), null)));
        Steps.step("session-read-own-write", () -> {
            String token = items.upsertItem(item(2)).getSessionToken();
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setSessionToken(token);
            Steps.equal(2, items.readItem("i02", new PartitionKey("p2"), options, ObjectNode.class).getItem().get("n").asInt());
        });
        Steps.step("consistency-eventual", () -> {
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setConsistencyLevel(ConsistencyLevel.EVENTUAL);
            Steps.equal(2, items.readItem("i02", new PartitionKey("p2"), options, ObjectNode.class).getItem().get("n").asInt());
        });
    }

    private static void batches() {
        Steps.step("batch", () -> {
            CosmosBatch batch = CosmosBatch.createCosmosBatch(new PartitionKey("batch"));
            batch.createItemOperation(named("b1", "batch"));
            batch.upsertItemOperation(named("b2", "batch"));
            batch.readItemOperation("b1");
            batch.replaceItemOperation("b2", named("b2", "batch").put("n", 7));
            batch.patchItemOperation("b1", CosmosPatchOperations.create().set("/n", 5));
            batch.deleteItemOperation("b2");
            CosmosBatchResponse answer = items.executeCosmosBatch(batch);
            Steps.holds(answer.isSuccessStatusCode(), "status " + answer.getStatusCode());
            Steps.equal(List.of(201, 201, 200, 200, 200, 204),
                answer.getResults().stream().map(one -> one.getStatusCode()).collect(Collectors.toList()));
            Steps.equal("b1", answer.getResults().get(2).getItem(ObjectNode.class).get("id").asText());
            Steps.equal(5, read("b1", "batch").get("n").asInt());
        });
        Steps.step("batch-rolls-back", () -> {
            CosmosBatch batch = CosmosBatch.createCosmosBatch(new PartitionKey("batch"));
            batch.createItemOperation(named("b3", "batch"));
            batch.createItemOperation(named("b1", "batch"));
            CosmosBatchResponse answer = items.executeCosmosBatch(batch);
            Steps.equal(409, answer.getStatusCode());
            Steps.equal(List.of(424, 409), answer.getResults().stream().map(one -> one.getStatusCode()).collect(Collectors.toList()));
            refused(404, () -> read("b3", "batch"));
            items.deleteItem("b1", new PartitionKey("batch"), null);
        });
        Steps.step("bulk", () -> {
            List<CosmosItemOperation> operations = IntStream.range(0, ITEMS)
                .mapToObj(n -> CosmosBulkOperations.getUpsertItemOperation(item(n), new PartitionKey(key(n))))
                .collect(Collectors.toList());
            Set<Integer> statuses = new TreeSet<>();
            int[] answered = {0};
            items.executeBulkOperations(operations).forEach(answer -> {
                answered[0]++;
                statuses.add(answer.getResponse() == null ? -1 : answer.getResponse().getStatusCode());
            });
            Steps.equal(ITEMS, answered[0]);
            Steps.equal(Set.of(200, 201), statuses);
        });
        Steps.step("bulk-mixed", () -> {
            List<CosmosItemOperation> operations = List.of(
                CosmosBulkOperations.getCreateItemOperation(named("m1", "m"), new PartitionKey("m")),
                CosmosBulkOperations.getCreateItemOperation(item(3), new PartitionKey(key(3))),
                CosmosBulkOperations.getReadItemOperation("i04", new PartitionKey(key(4))),
                CosmosBulkOperations.getPatchItemOperation("i05", new PartitionKey(key(5)), CosmosPatchOperations.create().set("/bulk", true)),
                CosmosBulkOperations.getDeleteItemOperation("none", new PartitionKey("m")));
            List<String> answers = new ArrayList<>();
            items.executeBulkOperations(operations).forEach(answer ->
                answers.add(answer.getOperation().getOperationType() + " " + answer.getResponse().getStatusCode()));
            Collections.sort(answers);
            Steps.equal(List.of("CREATE 201", "CREATE 409", "DELETE 404", "PATCH 200", "READ 200"), answers);
            items.deleteItem("m1", new PartitionKey("m"), null);
            items.upsertItem(item(5));
        });
        Steps.step("read-many", () -> {
            List<CosmosItemIdentity> wanted = IntStream.range(0, ITEMS).filter(n -> n % 3 == 0)
                .mapToObj(n -> new CosmosItemIdentity(new PartitionKey(key(n)), id(n))).collect(Collectors.toList());
            wanted.add(new CosmosItemIdentity(new PartitionKey("p0"), "none"));
            FeedResponse<ObjectNode> answer = items.readMany(wanted, ObjectNode.class);
            Steps.equal(14, answer.getResults().size());
        });
        Steps.step("read-many-by-partition-keys", () -> {
            List<String> found = new ArrayList<>();
            items.readManyByPartitionKeys(List.of(new PartitionKey("p1"), new PartitionKey("p2")), ObjectNode.class)
                .forEach(one -> found.add(one.get("id").asText()));
            Collections.sort(found);
            Steps.equal(List.of("i01", "i02", "i11", "i12", "i21", "i22", "i31", "i32"), found);
        });
        Steps.step("read-all-items-of-partition-key", () -> {
            int[] count = {0};
            items.readAllItems(new PartitionKey("p3"), ObjectNode.class).forEach(one -> count[0]++);
            Steps.equal(4, count[0]);
        });
        Steps.step("delete-all-items-of-partition-key", () -> {
            for (int n = 0; n < 5; n++) {
                items.createItem(named("gone" + n, "gone"));
            }
            items.deleteAllItemsByPartitionKey(new PartitionKey("gone"), null);
            Steps.until("the items are deleted", () -> query("SELECT * FROM c WHERE c.pk = 'gone'").isEmpty());
        });
    }

    private static void queries() {
        Steps.step("query-one-partition", () -> Steps.equal(List.of("i03", "i13", "i23", "i33"), ids(items.queryItems(
            "SELECT * FROM c ORDER BY c.n", new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("p3")), ObjectNode.class))));
        Steps.step("query-parameters", () -> Steps.equal(List.of("i07"), ids(items.queryItems(
            new SqlQuerySpec("SELECT * FROM c WHERE c.n = @n AND c.pk = @pk", new SqlParameter("@n", 7), new SqlParameter("@pk", "p7")),
            new CosmosQueryRequestOptions(), ObjectNode.class))));
        Steps.step("query-all-partitions", () -> Steps.equal(ITEMS, query("SELECT * FROM c").size()));
        Steps.step("query-order-by-pages", () -> {
            List<String> found = new ArrayList<>();
            int pages = 0;
            for (FeedResponse<ObjectNode> page : items.queryItems("SELECT * FROM c ORDER BY c.n DESC", new CosmosQueryRequestOptions(),
                ObjectNode.class).iterableByPage(7)) {
                Steps.holds(page.getResults().size() <= 7, "a page has " + page.getResults().size() + " rows");
                page.getResults().forEach(one -> found.add(one.get("id").asText()));
                pages++;
            }
            Steps.equal(IntStream.range(0, ITEMS).mapToObj(n -> id(ITEMS - 1 - n)).collect(Collectors.toList()), found);
            Steps.holds(pages >= 6, "only " + pages + " pages");
        });
        Steps.step("query-order-by-two", () -> {
            List<ObjectNode> found = query("SELECT c.category, c.n FROM c ORDER BY c.category ASC, c.n DESC");
            Steps.equal(ITEMS, found.size());
            Steps.equal("{\"category\":\"blue\",\"n\":38}", found.get(0).toString());
            Steps.equal("{\"category\":\"red\",\"n\":0}", found.get(ITEMS - 1).toString());
        });
        List<String> ascending = IntStream.range(0, ITEMS).mapToObj(Program::id).collect(Collectors.toList());
        Steps.step("query-continuation-resumed", () -> Steps.equal(ascending, resumed("SELECT * FROM c ORDER BY c.n")));
        // The client's filter for the pages behind a number names the functions of all types that sort before it.
        Steps.step("query-continuation-resumed-descending", () -> {
            List<String> descending = new ArrayList<>(ascending);
            Collections.reverse(descending);
            Steps.equal(descending, resumed("SELECT * FROM c ORDER BY c.n DESC"));
        });
        Steps.step("query-top", () -> Steps.equal(List.of("i39", "i38", "i37"), ids(query("SELECT TOP 3 * FROM c ORDER BY c.n DESC"))));
        Steps.step("query-offset-limit", () ->
            Steps.equal(List.of("i10", "i11", "i12"), ids(query("SELECT * FROM c ORDER BY c.n OFFSET 10 LIMIT 3"))));
        Steps.step("query-count", () -> Steps.equal(20, value("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 20").asInt()));
        Steps.step("query-sum", () -> Steps.equal(780, value("SELECT VALUE SUM(c.n) FROM c").asInt()));
        Steps.step("query-avg", () -> Steps.equal(19.5, value("SELECT VALUE AVG(c.n) FROM c").asDouble()));
        Steps.step("query-min-max", () -> {
            Steps.equal(0, value("SELECT VALUE MIN(c.n) FROM c").asInt());
            Steps.equal(39, value("SELECT VALUE MAX(c.n) FROM c").asInt());
        });
        Steps.step("query-group-by", () -> {
            Map<String, String> groups = new TreeMap<>();
            query("SELECT c.category, COUNT(1) AS many, SUM(c.n) AS total FROM c GROUP BY c.category")
                .forEach(one -> groups.put(one.get("category").asText(), one.get("many").asInt() + "/" + one.get("total").asInt()));
            Steps.equal(Map.of("blue", "13/260", "green", "13/247", "red", "14/273"), groups);
        });
        Steps.step("query-distinct", () -> {
            Set<String> found = new TreeSet<>();
            List<JsonNode> rows = values("SELECT DISTINCT VALUE c.category FROM c");
            rows.forEach(one -> found.add(one.asText()));
            Steps.equal(3, rows.size());
            Steps.equal(Set.of("blue", "green", "red"), found);
        });
        Steps.step("query-distinct-ordered", () -> Steps.equal("[\"red\", \"green\", \"blue\"]",
            values("SELECT DISTINCT VALUE c.category FROM c ORDER BY c.category DESC").stream().map(JsonNode::toString).collect(Collectors.toList()).toString()));
        Steps.step("query-join", () -> Steps.equal(ITEMS * 2, values("SELECT VALUE t FROM c JOIN t IN c.list").size()));
        Steps.step("query-subquery", () ->
            Steps.equal(ITEMS, values("SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.list WHERE t = c.n)").size()));
        Steps.step("query-functions", () ->
            Steps.equal("[\"WORD 7\"]", values("SELECT VALUE UPPER(c.word) FROM c WHERE STARTSWITH(c.word, 'word 7')").toString()));
        Steps.step("query-of-feed-range", () -> {
            List<String> found = new ArrayList<>();
            for (FeedRange range : items.getFeedRanges()) {
                found.addAll(ids(items.queryItems("SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(range), ObjectNode.class)));
            }
            Collections.sort(found);
            Steps.equal(IntStream.range(0, ITEMS).mapToObj(Program::id).collect(Collectors.toList()), found);
        });
        Steps.step("query-metrics", () -> {
            FeedResponse<ObjectNode> page = items.queryItems("SELECT * FROM c WHERE c.n = 5",
                new CosmosQueryRequestOptions().setQueryMetricsEnabled(true).setIndexMetricsEnabled(true), ObjectNode.class).iterableByPage().iterator().next();
            Steps.equal(1, page.getResults().size());
            Steps.holds(page.getCosmosDiagnostics().toString().contains("retrievedDocumentCount"), "no metrics of the query");
        });
        Steps.step("query-syntax-error-400", () -> refused(400, () -> query("SELECT * FORM c")));
    }

    private static void hierarchicalKeys() {
        Steps.step("hierarchical-keys-create", () -> {
            PartitionKeyDefinition definition = new PartitionKeyDefinition()
                .setPaths(List.of("/tenant", "/user", "/session")).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
            database.createContainer(new CosmosContainerProperties("hierarchy", definition), ThroughputProperties.createManualThroughput(20000));
            CosmosContainer container = database.getContainer("hierarchy");
            Steps.equal(PartitionKind.MULTI_HASH, container.read().getProperties().getPartitionKeyDefinition().getKind());
            for (int n = 0; n < 12; n++) {
                container.createItem(JSON.createObjectNode().put("id", "h" + n).put("tenant", "t" + n % 2).put("user", "u" + n % 3).put("session", "s" + n));
            }
        });
        CosmosContainer container = database.getContainer("hierarchy");
        Steps.step("hierarchical-keys-read", () -> Steps.equal("h5", container.readItem("h5",
            new PartitionKeyBuilder().add("t1").add("u2").add("s5").build(), ObjectNode.class).getItem().get("id").asText()));
        Steps.step("hierarchical-keys-query-prefix", () -> {
            List<String> tenant = ids(container.queryItems("SELECT * FROM c ORDER BY c.id",
                new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("t1").build()), ObjectNode.class));
            Steps.equal(List.of("h1", "h11", "h3", "h5", "h7", "h9"), tenant);
            List<String> user = ids(container.queryItems("SELECT * FROM c ORDER BY c.id",
                new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("t1").add("u0").build()), ObjectNode.class));
            Steps.equal(List.of("h3", "h9"), user);
        });
        Steps.step("hierarchical-keys-query-filter", () -> Steps.equal(List.of("h4"), ids(container.queryItems(
            "SELECT * FROM c WHERE c.tenant = 't0' AND c.user = 'u1' AND c.session = 's4'", new CosmosQueryRequestOptions(), ObjectNode.class))));
        Steps.step("hierarchical-keys-batch", () -> {
            CosmosBatch batch = CosmosBatch.createCosmosBatch(new PartitionKeyBuilder().add("t1").add("u2").add("s5").build());
            batch.patchItemOperation("h5", CosmosPatchOperations.create().set("/seen", true));
            Steps.equal(200, container.executeCosmosBatch(batch).getStatusCode());
        });
        Steps.step("hierarchical-keys-delete", () -> Steps.equal(204, container.deleteItem("h5",
            new PartitionKeyBuilder().add("t1").add("u2").add("s5").build(), null).getStatusCode()));
    }

    private static void policies() {
        Steps.step("unique-keys-409", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("unique", "/pk");
            properties.setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/mail")))));
            database.createContainer(properties);
            CosmosContainer container = database.getContainer("unique");
            container.createItem(named("1", "a").put("mail", "x@example.org"));
            refused(409, () -> container.createItem(named("2", "a").put("mail", "x@example.org")));
            container.createItem(named("2", "b").put("mail", "x@example.org"));
        });
        Steps.step("computed-properties", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("computed", "/pk");
            properties.setComputedProperties(List.of(new ComputedProperty("lower", "SELECT VALUE LOWER(c.name) FROM c")));
            database.createContainer(properties);
            CosmosContainer container = database.getContainer("computed");
            container.createItem(named("1", "a").put("name", "ADA"));
            Steps.equal(List.of("1"), ids(container.queryItems("SELECT * FROM c WHERE c.lower = 'ada'", new CosmosQueryRequestOptions(), ObjectNode.class)));
        });
        Steps.step("vector-search", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("vectors", "/pk");
            CosmosVectorEmbeddingPolicy policy = new CosmosVectorEmbeddingPolicy();
            policy.setCosmosVectorEmbeddings(List.of(new CosmosVectorEmbedding().setPath("/vector").setDataType(CosmosVectorDataType.FLOAT32)
                .setEmbeddingDimensions(3).setDistanceFunction(CosmosVectorDistanceFunction.COSINE)));
            properties.setVectorEmbeddingPolicy(policy);
            IndexingPolicy indexing = new IndexingPolicy();
            indexing.setIncludedPaths(List.of(new IncludedPath("/*")));
            indexing.setExcludedPaths(List.of(new ExcludedPath("/vector/*")));
            indexing.setVectorIndexes(List.of(new CosmosVectorIndexSpec().setPath("/vector").setType("flat")));
            properties.setIndexingPolicy(indexing);
            database.createContainer(properties);
            CosmosContainer container = database.getContainer("vectors");
            double[][] vectors = {{1, 0, 0}, {0, 1, 0}, {0.9, 0.1, 0}};
            for (int n = 0; n < vectors.length; n++) {
                ObjectNode one = named("v" + n, "a");
                for (double number : vectors[n]) {
                    one.withArray("vector").add(number);
                }
                container.createItem(one);
            }
            Steps.equal(List.of("v0", "v2"), ids(container.queryItems(
                "SELECT TOP 2 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0])", new CosmosQueryRequestOptions(), ObjectNode.class)));
        });
        Steps.step("full-text-search", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("texts", "/pk");
            properties.setFullTextPolicy(new CosmosFullTextPolicy().setDefaultLanguage("en-US")
                .setPaths(List.of(new CosmosFullTextPath().setPath("/text").setLanguage("en-US"))));
            IndexingPolicy indexing = new IndexingPolicy();
            indexing.setIncludedPaths(List.of(new IncludedPath("/*")));
            indexing.setCosmosFullTextIndexes(List.of(new CosmosFullTextIndex().setPath("/text")));
            properties.setIndexingPolicy(indexing);
            database.createContainer(properties, ThroughputProperties.createManualThroughput(20000));
            CosmosContainer container = database.getContainer("texts");
            container.createItem(named("t1", "a").put("text", "A mountain bike for the mountain"));
            container.createItem(named("t2", "b").put("text", "A road bike"));
            container.createItem(named("t3", "c").put("text", "A helmet for the mountain, and nothing else for any other place"));
            Steps.equal(2, ids(container.queryItems("SELECT * FROM c WHERE FullTextContains(c.text, 'bike')", new CosmosQueryRequestOptions(), ObjectNode.class)).size());
            Steps.equal(List.of("t1", "t3"), ids(container.queryItems(
                "SELECT TOP 2 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'mountain')", new CosmosQueryRequestOptions(), ObjectNode.class)));
        });
    }

    private static void changes() {
        List<String> continuation = new ArrayList<>();
        Steps.step("change-feed-from-beginning", () -> {
            CosmosChangeFeedRequestOptions options = CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange());
            List<String> found = drain(options.setMaxItemCount(11), continuation);
            Collections.sort(found);
            Steps.equal(IntStream.range(0, ITEMS).mapToObj(Program::id).collect(Collectors.toList()), found);
        });
        Steps.step("change-feed-resumed", () -> {
            items.upsertItem(item(8).put("word", "changed"));
            items.upsertItem(item(17).put("word", "changed"));
            List<String> found = drain(CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(continuation.get(0)), continuation);
            Collections.sort(found);
            Steps.equal(List.of("i08", "i17"), found);
        });
        Steps.step("change-feed-of-partition-key", () -> {
            List<String> found = drain(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(
                FeedRange.forLogicalPartition(new PartitionKey("p8"))), new ArrayList<>());
            Steps.equal(List.of("i18", "i28", "i38", "i08"), found);
        });
        Steps.step("change-feed-from-now", () -> {
            List<String> position = new ArrayList<>();
            drain(CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()), position);
            items.upsertItem(item(9).put("word", "now"));
            Steps.equal(List.of("i09"), drain(CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(position.get(0)), position));
        });
        Steps.step("change-feed-all-versions", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("versions", "/pk");
            properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10)));
            database.createContainer(properties);
            CosmosContainer container = database.getContainer("versions");
            String position = null;
            for (FeedResponse<JsonNode> page : container.queryChangeFeed(CosmosChangeFeedRequestOptions
                .createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes(), JsonNode.class).iterableByPage()) {
                position = page.getContinuationToken();
                break;
            }
            container.createItem(named("v", "a").put("n", 1));
            container.upsertItem(named("v", "a").put("n", 2));
            container.deleteItem("v", new PartitionKey("a"), null);
            List<String> found = new ArrayList<>();
            for (FeedResponse<JsonNode> page : container.queryChangeFeed(CosmosChangeFeedRequestOptions
                .createForProcessingFromContinuation(position).allVersionsAndDeletes(), JsonNode.class).iterableByPage()) {
                page.getResults().forEach(one -> found.add(one.get("metadata").get("operationType").asText()));
                if (page.getResults().isEmpty()) {
                    break;
                }
            }
            Steps.equal(List.of("create", "replace", "delete"), found);
        });
        processors();
    }

    /** In containers of their own: how many requests a processor sends depends on timing. */
    private static void processors() {
        CosmosContainer source = database.getContainer("processor-items");
        Steps.step("change-feed-processor", () -> {
            database.createContainer(
                new CosmosContainerProperties("processor-items", "/pk"), ThroughputProperties.createManualThroughput(20000));
            database.createContainer("processor-leases", "/id");
            for (int n = 0; n < ITEMS; n++) {
                source.createItem(item(n));
            }
            Map<String, Integer> seen = new ConcurrentSkipListMap<>();
            ChangeFeedProcessor processor = processor("first", seen);
            processor.start().block();
            try {
                Steps.until("all items were delivered", () -> seen.size() == ITEMS);
                source.upsertItem(item(30).put("n", 3000));
                Steps.until("the change was delivered", () -> seen.get("i30") == 3000);
                Steps.until("there is a lease for each range", () -> processor.getCurrentState().block().size() == 4);
                Steps.until("no range lags", () -> processor.getCurrentState().block().stream().allMatch(one -> one.getEstimatedLag() == 0));
            } finally {
                stop(processor);
            }
        });
        Steps.step("change-feed-processor-resumed", () -> {
            source.upsertItem(item(30));
            Map<String, Integer> seen = new ConcurrentSkipListMap<>();
            ChangeFeedProcessor processor = processor("second", seen);
            processor.start().block();
            try {
                Steps.until("the missed change was delivered", () -> seen.getOrDefault("i30", -1) == 30);
                Steps.equal(Set.of("i30"), seen.keySet());
            } finally {
                stop(processor);
            }
        });
        Steps.step("split-underneath-change-feed-processor", () -> {
            Map<String, Integer> seen = new ConcurrentSkipListMap<>();
            ChangeFeedProcessor processor = processor("third", seen);
            processor.start().block();
            try {
                source.upsertItem(item(12).put("n", 1));
                Steps.until("a change was delivered", () -> seen.getOrDefault("i12", -1) == 1);
                Steps.split(DATABASE, "processor-items");
                for (int n = 0; n < ITEMS; n++) {
                    source.upsertItem(item(n).put("n", n + 500));
                }
                Steps.until("changes after the split were delivered", () -> seen.values().stream().filter(n -> n >= 500).count() == ITEMS);
                Steps.until("the children have leases", () -> processor.getCurrentState().block().size() == 5);
            } finally {
                processor.stop().block();
            }
        });
        Steps.step("change-feed-processor-of-plain-items", () -> {
            database.createContainer("processor-plain-leases", "/id");
            Set<String> seen = new ConcurrentSkipListSet<>();
            ChangeFeedProcessor processor = new ChangeFeedProcessorBuilder().hostName("plain")
                .feedContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-items"))
                .leaseContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-plain-leases"))
                .options(processorOptions())
                .handleChanges(changes -> changes.forEach(change -> seen.add(change.get("id").asText())))
                .buildChangeFeedProcessor();
            processor.start().block();
            try {
                Steps.until("all items were delivered", () -> seen.size() == ITEMS);
            } finally {
                processor.stop().block();
            }
        });
        Steps.step("change-feed-processor-of-all-versions", () -> {
            CosmosContainerProperties properties = new CosmosContainerProperties("processor-versions", "/pk");
            properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10)));
            database.createContainer(properties);
            database.createContainer("processor-version-leases", "/id");
            CosmosContainer versions = database.getContainer("processor-versions");
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            ChangeFeedProcessor processor = new ChangeFeedProcessorBuilder().hostName("versions")
                .feedContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-versions"))
                .leaseContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-version-leases"))
                .options(processorOptions().setStartFromBeginning(false))
                .handleAllVersionsAndDeletesChanges((List<ChangeFeedProcessorItem> changes) ->
                    changes.forEach(change -> seen.add(change.getChangeFeedMetaData().getOperationType().name())))
                .buildChangeFeedProcessor();
            processor.start().block();
            try {
                // The processor begins where the feed is when it first asks, which its state tells.
                Steps.until("the range has a lease with an owner", () -> processor.getCurrentState().block().stream()
                    .anyMatch(one -> "versions".equals(one.getHostName())));
                int[] tries = {0};
                Steps.until("a change is delivered", () -> {
                    if (seen.isEmpty()) {
                        versions.upsertItem(named("try" + tries[0]++, "a"));
                    }
                    Thread.sleep(200);
                    return !seen.isEmpty();
                });
                seen.clear();
                versions.createItem(named("v", "b"));
                versions.deleteItem("v", new PartitionKey("b"), null);
                Steps.until("the delete was delivered", () -> seen.contains("DELETE"));
                Steps.equal("DELETE", seen.get(seen.size() - 1));
            } finally {
                processor.stop().block();
            }
        });
    }

    private static ChangeFeedProcessorOptions processorOptions() {
        return new ChangeFeedProcessorOptions()
            .setStartFromBeginning(true)
            .setFeedPollDelay(Duration.ofMillis(100))
            .setLeaseAcquireInterval(Duration.ofMillis(300))
            .setLeaseRenewInterval(Duration.ofSeconds(2))
            .setLeaseExpirationInterval(Duration.ofSeconds(6));
    }

    /** The client's stop does not wait for requests under way, and their changes would not reach the next processor. */
    private static void stop(ChangeFeedProcessor processor) throws Exception {
        processor.stop().block();
        Steps.until("the leases were released",
            () -> processor.getCurrentState().block().stream().allMatch(one -> one.getHostName() == null));
    }

    private static ChangeFeedProcessor processor(String host, Map<String, Integer> seen) {
        return new ChangeFeedProcessorBuilder()
            .hostName(host)
            .feedContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-items"))
            .leaseContainer(asyncClient.getDatabase(DATABASE).getContainer("processor-leases"))
            .options(processorOptions())
            .handleLatestVersionChanges((List<ChangeFeedProcessorItem> changes) ->
                changes.forEach(change -> seen.put(change.getCurrent().get("id").asText(), change.getCurrent().get("n").asInt())))
            .buildChangeFeedProcessor();
    }

    private static void splits() {
        Steps.step("split-underneath-query-pages", () -> {
            List<String> found = new ArrayList<>();
            boolean isSplit = false;
            for (FeedResponse<ObjectNode> page : items.queryItems("SELECT * FROM c ORDER BY c.n", new CosmosQueryRequestOptions(),
                ObjectNode.class).iterableByPage(6)) {
                page.getResults().forEach(one -> found.add(one.get("id").asText()));
                if (!isSplit) {
                    Steps.split(DATABASE, "items");
                    isSplit = true;
                }
            }
            Steps.equal(IntStream.range(0, ITEMS).mapToObj(Program::id).collect(Collectors.toList()), found);
        });
        Steps.step("split-underneath-continuation", () -> {
            List<String> found = new ArrayList<>();
            String token = null;
            do {
                var iterable = items.queryItems("SELECT * FROM c", new CosmosQueryRequestOptions(), ObjectNode.class);
                FeedResponse<ObjectNode> page = (token == null ? iterable.iterableByPage(8) : iterable.iterableByPage(token, 8)).iterator().next();
                page.getResults().forEach(one -> found.add(one.get("id").asText()));
                if (token == null) {
                    Steps.split(DATABASE, "items");
                }
                token = page.getContinuationToken();
            } while (token != null);
            Collections.sort(found);
            Steps.equal(IntStream.range(0, ITEMS).mapToObj(Program::id).collect(Collectors.toList()), found);
        });
        Steps.step("split-underneath-reads", () -> {
            Steps.split(DATABASE, "items");
            for (int n = 0; n < ITEMS; n++) {
                Steps.equal(n, read(id(n), key(n)).get("n").asInt());
            }
        });
        Steps.step("split-underneath-bulk", () -> {
            Steps.split(DATABASE, "items");
            Set<Integer> statuses = new TreeSet<>();
            items.executeBulkOperations(IntStream.range(0, ITEMS).mapToObj(n ->
                CosmosBulkOperations.getUpsertItemOperation(item(n), new PartitionKey(key(n)))).collect(Collectors.toList()))
                .forEach(answer -> statuses.add(answer.getResponse() == null ? -1 : answer.getResponse().getStatusCode()));
            Steps.equal(Set.of(200), statuses);
        });
        Steps.step("split-underneath-change-feed", () -> {
            List<String> position = new ArrayList<>();
            drain(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()), position);
            Steps.split(DATABASE, "items");
            items.upsertItem(item(12));
            Steps.equal(List.of("i12"), drain(CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(position.get(0)), position));
        });
    }

    private static void faults() {
        Steps.step("throttled-429-retried", () -> {
            fault("\"operations\": \"write\", \"count\": 3, \"status\": 429, \"retryAfterMs\": 10");
            CosmosItemResponse<ObjectNode> answer = items.upsertItem(item(4));
            Steps.equal(200, answer.getStatusCode());
            Steps.holds(answer.getDiagnostics().toString().contains("429"), "the client was not throttled");
        });
        Steps.step("throttled-query-retried", () -> {
            fault("\"operations\": \"query\", \"count\": 2, \"status\": 429, \"retryAfterMs\": 10");
            Steps.equal(ITEMS, query("SELECT * FROM c").size());
        });
        Steps.step("retry-with-449-retried", () -> {
            fault("\"operations\": \"write\", \"count\": 1, \"status\": 449");
            Steps.equal(200, items.upsertItem(item(4)).getStatusCode());
        });
        Steps.step("session-not-available-retried", () -> {
            fault("\"operations\": \"read\", \"count\": 1, \"status\": 404, \"subStatus\": 1002");
            Steps.equal(4, read("i04", "p4").get("n").asInt());
        });
        Steps.step("throttled-bulk-retried", () -> {
            fault("\"operations\": \"write\", \"count\": 5, \"status\": 429, \"retryAfterMs\": 10");
            Set<Integer> statuses = new TreeSet<>();
            items.executeBulkOperations(IntStream.range(0, ITEMS).mapToObj(n ->
                CosmosBulkOperations.getUpsertItemOperation(item(n), new PartitionKey(key(n)))).collect(Collectors.toList()))
                .forEach(answer -> statuses.add(answer.getResponse() == null ? -1 : answer.getResponse().getStatusCode()));
            Steps.equal(Set.of(200), statuses);
        });
    }

    private static void fault(String rule) throws Exception {
        Steps.control("POST", "/faults", "{\"database\": \"" + DATABASE + "\", \"container\": \"items\", " + rule + "}");
    }

    private static void scripts() {
        CosmosStoredProcedureRequestOptions inKey = new CosmosStoredProcedureRequestOptions();
        inKey.setPartitionKey(new PartitionKey("scripts"));
        Steps.step("stored-procedure", () -> {
            items.getScripts().createStoredProcedure(new CosmosStoredProcedureProperties("make",
                "function (id, n) { var c = getContext(); c.getCollection().createDocument(c.getCollection().getSelfLink(),"
                + " {id: id, pk: 'scripts', n: n}, function (e, d) { if (e) throw e; console.log('made'); c.getResponse().setBody({made: d.id, n: d.n}); }); }"));
            inKey.setScriptLoggingEnabled(true);
            var answer = items.getScripts().getStoredProcedure("make").execute(List.of("s1", 5), inKey);
            Steps.equal("{\"made\":\"s1\",\"n\":5}", JSON.readTree(answer.getResponseAsString()).toString());
            Steps.equal("made", answer.getScriptLog());
            Steps.equal(5, read("s1", "scripts").get("n").asInt());
        });
        Steps.step("stored-procedure-rolls-back", () -> {
            items.getScripts().createStoredProcedure(new CosmosStoredProcedureProperties("fail",
                "function () { var c = getContext().getCollection(); c.createDocument(c.getSelfLink(), {id: 's2', pk: 'scripts'},"
                + " function (e) { throw new Error('stopped on purpose'); }); }"));
            CosmosException refusal = refused(400, () -> items.getScripts().getStoredProcedure("fail").execute(null, inKey));
            Steps.holds(refusal.getMessage().contains("stopped on purpose"), "the error of the script is not in " + refusal.getMessage());
            refused(404, () -> read("s2", "scripts"));
        });
        Steps.step("replace-stored-procedure", () -> {
            var procedure = items.getScripts().getStoredProcedure("fail");
            procedure.replace(procedure.read().getProperties().setBody("function () { getContext().getResponse().setBody('fine'); }"));
            Steps.equal("\"fine\"", procedure.execute(null, inKey).getResponseAsString());
            procedure.delete();
            List<String> names = new ArrayList<>();
            items.getScripts().readAllStoredProcedures().forEach(one -> names.add(one.getId()));
            Steps.equal(List.of("make"), names);
        });
        Steps.step("user-defined-function", () -> {
            items.getScripts().createUserDefinedFunction(new CosmosUserDefinedFunctionProperties("twice", "function twice(n) { return n * 2; }"));
            Steps.equal("[14]", values("SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = 'i07'").toString());
        });
        Steps.step("trigger", () -> {
            items.getScripts().createTrigger(new CosmosTriggerProperties("stamp",
                "function () { var r = getContext().getRequest(); var b = r.getBody(); b.stamped = true; r.setBody(b); }")
                .setTriggerType(TriggerType.PRE).setTriggerOperation(TriggerOperation.CREATE));
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setPreTriggerInclude(List.of("stamp"));
            items.createItem(named("s3", "scripts"), new PartitionKey("scripts"), options);
            Steps.equal(true, read("s3", "scripts").get("stamped").asBoolean());
        });
        Steps.step("trigger-post", () -> {
            items.getScripts().createTrigger(new CosmosTriggerProperties("refuse", "function () { throw new Error('refused by the trigger'); }")
                .setTriggerType(TriggerType.POST).setTriggerOperation(TriggerOperation.ALL));
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setPostTriggerInclude(List.of("refuse"));
            refused(400, () -> items.createItem(named("s4", "scripts"), new PartitionKey("scripts"), options));
            refused(404, () -> read("s4", "scripts"));
        });
    }

    private static void users() {
        Steps.step("users", () -> {
            database.createUser(new CosmosUserProperties().setId("ada"));
            database.upsertUser(new CosmosUserProperties().setId("ada"));
            List<String> names = new ArrayList<>();
            database.readAllUsers().forEach(one -> names.add(one.getId()));
            Steps.equal(List.of("ada"), names);
            database.getUser("ada").delete();
        });
        Steps.step("permission-read-only", () -> {
            var user = asyncClient.getDatabase(DATABASE);
            user.createUser(new CosmosUserProperties().setId("reader")).block();
            String token = user.getUser("reader").createPermission(new com.azure.cosmos.models.CosmosPermissionProperties()
                .setId("p").setContainerName("items").setPermissionMode(com.azure.cosmos.models.PermissionMode.READ), null)
                .block().getProperties().getToken();
            try (CosmosClient reader = builder(token).buildClient()) {
                CosmosContainer container = reader.getDatabase(DATABASE).getContainer("items");
                Steps.equal(7, container.readItem("i07", new PartitionKey("p7"), ObjectNode.class).getItem().get("n").asInt());
                refused(403, () -> container.upsertItem(item(7)));
            }
        });
    }

    private static void timeToLive() {
        Steps.step("ttl-expires", () -> {
            Steps.control("POST", "/clock", "{\"frozen\": true}");
            items.createItem(named("short", "ttl").put("ttl", 60));
            items.createItem(named("long", "ttl").put("ttl", 6000));
            Steps.equal("short", read("short", "ttl").get("id").asText());
            Steps.control("POST", "/clock", "{\"advanceSeconds\": 61}");
            refused(404, () -> read("short", "ttl"));
            Steps.equal(List.of("long"), ids(query("SELECT * FROM c WHERE c.pk = 'ttl'")));
            Steps.control("POST", "/clock", "{\"frozen\": false}");
        });
    }

    private static void ends() {
        Steps.step("direct-mode-refused", () -> {
            try (CosmosClient direct = builder().directMode().buildClient()) {
                CosmosException refusal = refused(0, () -> direct.getDatabase(DATABASE).getContainer("items")
                    .readItem("i07", new PartitionKey("p7"), ObjectNode.class));
                Steps.holds(refusal.getMessage().contains("Direct mode is not offered"), "the refusal does not name direct mode: " + refusal.getMessage());
            }
        });
        Steps.step("wrong-key-401", () -> {
            String key = "d3Jvbmcga2V5IG9mIHRoZSByaWdodCBsZW5ndGggYnV0IG90aGVyd2lzZSB3cm9uZw==";
            try (CosmosClient other = builder().key(key).buildClient()) {
                throw new AssertionError("a client with another key was made");
            } catch (RuntimeException refusal) {
                // The client wraps the refusal of its first request.
                Steps.holds(refusal.getMessage().contains("\"statusCode\":401"), refusal.getMessage());
            }
        });
        Steps.step("delete-container", () -> {
            items.delete();
            refused(404, () -> items.read());
        });
        Steps.step("delete-database", () -> {
            database.delete();
            refused(404, () -> database.read());
        });
    }

    /** The refusal with this status; 0 stands for any. */
    private static CosmosException refused(int status, Steps.Body body) throws Exception {
        try {
            body.run();
        } catch (CosmosException refusal) {
            if (status != 0 && refusal.getStatusCode() != status) {
                throw refusal;
            }
            return refusal;
        }
        throw new AssertionError("not refused, " + status + " was expected");
    }

    private static List<String> drain(CosmosChangeFeedRequestOptions options, List<String> continuation) {
        List<String> found = new ArrayList<>();
        for (FeedResponse<ObjectNode> page : items.queryChangeFeed(options, ObjectNode.class).iterableByPage()) {
            page.getResults().forEach(one -> found.add(one.get("id").asText()));
            continuation.clear();
            continuation.add(page.getContinuationToken());
        }
        return found;
    }

    private static CompositePath composite(String path, CompositePathSortOrder order) {
        return new CompositePath().setPath(path).setOrder(order);
    }

    private static ObjectNode read(String id, String key) {
        return items.readItem(id, new PartitionKey(key), ObjectNode.class).getItem();
    }

    private static List<ObjectNode> query(String text) {
        return items.queryItems(text, new CosmosQueryRequestOptions(), ObjectNode.class).stream().collect(Collectors.toList());
    }

    private static List<JsonNode> values(String text) {
        return items.queryItems(text, new CosmosQueryRequestOptions(), JsonNode.class).stream().collect(Collectors.toList());
    }

    private static JsonNode value(String text) {
        List<JsonNode> rows = values(text);
        Steps.equal(1, rows.size());
        return rows.get(0);
    }

    /** The ids of all rows, each page asked for with the continuation of the one before. */
    private static List<String> resumed(String query) {
        List<String> found = new ArrayList<>();
        String token = null;
        do {
            var iterable = items.queryItems(query, new CosmosQueryRequestOptions(), ObjectNode.class);
            FeedResponse<ObjectNode> page = (token == null ? iterable.iterableByPage(9) : iterable.iterableByPage(token, 9)).iterator().next();
            page.getResults().forEach(one -> found.add(one.get("id").asText()));
            token = page.getContinuationToken();
        } while (token != null);
        return found;
    }

    private static List<String> ids(Iterable<ObjectNode> rows) {
        List<String> found = new ArrayList<>();
        rows.forEach(one -> found.add(one.get("id").asText()));
        return found;
    }

    private static String id(int n) {
        return String.format("i%02d", n);
    }

    private static String key(int n) {
        return "p" + n % KEYS;
    }

    private static ObjectNode named(String id, String key) {
        return JSON.createObjectNode().put("id", id).put("pk", key);
    }

    private static ObjectNode item(int n) {
        ObjectNode one = named(id(n), key(n)).put("n", n).put("price", n * 1.5).put("word", "word " + n)
            .put("category", List.of("red", "green", "blue").get(n % 3));
        one.putArray("list").add(n).add(n + 1);
        return one;
    }
}
