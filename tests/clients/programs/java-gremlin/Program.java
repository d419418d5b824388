import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.tinkerpop.gremlin.driver.Client;
import org.apache.tinkerpop.gremlin.driver.Cluster;
import org.apache.tinkerpop.gremlin.driver.Result;
import org.apache.tinkerpop.gremlin.driver.ResultSet;
import org.apache.tinkerpop.gremlin.driver.exception.ResponseException;
import org.apache.tinkerpop.gremlin.process.traversal.Path;
import org.apache.tinkerpop.gremlin.structure.Vertex;
import org.apache.tinkerpop.gremlin.util.ser.GraphSONMessageSerializerV2;

/** gremlin-driver for Java with scripts and GraphSON 2, as the service wants them. */
public final class Program {
    private static final String USER = Steps.variable("ARMILLARY_GREMLIN_USER");
    private static final String DATABASE = USER.split("/")[2];
    private static final String GRAPH = USER.split("/")[4];
    private static final String KEY = Steps.variable("ARMILLARY_KEY");

    private static Client client;

    public static void main(String[] arguments) {
        Steps.step("create-graph", () -> {
            Steps.control("POST", "/databases", "{\"name\": \"" + DATABASE + "\"}");
            Steps.control("POST", "/databases/" + DATABASE + "/containers",
                "{\"name\": \"" + GRAPH + "\", \"partitionKey\": \"/pk\", \"throughput\": 20000}");
        });
        Steps.step("connect", () -> {
            client = connect(KEY);
            Steps.equal(0L, one("g.V().count()").getLong());
        });
        vertices();
        traversals();
        changes();
        refusals();
        ends();
        System.exit(0);
    }

    private static Client connect(String key) {
        URI address = URI.create(Steps.variable("ARMILLARY_GREMLIN"));
        return Cluster.build(address.getHost()).port(address.getPort()).path("/gremlin").credentials(USER, key)
            .serializer(new GraphSONMessageSerializerV2()).enableSsl(false).create().connect();
    }

    private static void vertices() {
        Steps.step("script-add-vertices", () -> {
            for (int n = 0; n < 20; n++) {
                List<Result> made = all("g.addV('person').property('id', id).property('pk', pk).property('name', name).property('age', age)",
                    Map.of("id", id(n), "pk", "k" + n % 5, "name", "name " + n, "age", 20 + n));
                Steps.equal(1, made.size());
            }
            Steps.equal(20L, one("g.V().count()").getLong());
        });
        Steps.step("script-vertex", () -> {
            Vertex vertex = one("g.V('v03')").getVertex();
            Steps.equal("v03", vertex.id());
            Steps.equal("person", vertex.label());
            Steps.equal("name 3", vertex.value("name"));
        });
        Steps.step("script-add-vertex-again-409", () -> Steps.holds(
            refused("g.addV('person').property('id', 'v00').property('pk', 'k0')").contains("409"), "no 409"));
        Steps.step("script-add-edges", () -> {
            for (int n = 0; n < 19; n++) {
                all("g.V(from).addE('knows').to(g.V(to)).property('weight', weight)", Map.of("from", id(n), "to", id(n + 1), "weight", n / 10.0));
            }
            Steps.equal(19L, one("g.E().count()").getLong());
        });
    }

    private static void traversals() {
        Steps.step("script-count", () -> Steps.equal(10L, one("g.V().has('age', gte(30)).count()").getLong()));
        Steps.step("script-has", () -> Steps.equal(List.of("name 7"), texts("g.V().has('person', 'name', 'name 7').values('name')")));
        Steps.step("script-has-partition-key", () -> Steps.equal(List.of("v03", "v08", "v13", "v18"), sorted("g.V().has('pk', 'k3').id()")));
        Steps.step("script-bindings", () -> Steps.equal(List.of("v05"), strings(all("g.V().has('age', a).id()", Map.of("a", 25)))));
        Steps.step("script-out", () -> Steps.equal(List.of("v06"), texts("g.V('v05').out('knows').id()")));
        Steps.step("script-in", () -> Steps.equal(List.of("v04"), texts("g.V('v05').in('knows').id()")));
        Steps.step("script-both", () -> Steps.equal(List.of("v04", "v06"), sorted("g.V('v05').both().id()")));
        Steps.step("script-edges", () -> Steps.equal(0.5, one("g.V('v05').outE('knows').values('weight')").getDouble()));
        Steps.step("script-repeat", () -> Steps.equal(List.of("v08"), texts("g.V('v05').repeat(out('knows')).times(3).id()")));
        Steps.step("script-until", () -> Steps.equal(List.of("v19"), texts("g.V('v15').repeat(out('knows')).until(outE().count().is(0)).id()")));
        Steps.step("script-emit", () -> Steps.equal(List.of("v16", "v17", "v18", "v19"), sorted("g.V('v15').repeat(out()).emit().id()")));
        Steps.step("script-order-limit", () -> Steps.equal(List.of("v19", "v18", "v17"), texts("g.V().order().by('age', decr).limit(3).id()")));
        Steps.step("script-range-pages", () -> {
            List<String> found = new ArrayList<>();
            for (int at = 0; at < 20; at += 6) {
                found.addAll(texts("g.V().order().by('age').range(" + at + ", " + (at + 6) + ").id()"));
            }
            Steps.equal(20, found.size());
            Steps.equal("v19", found.get(19));
        });
        Steps.step("script-sum-mean", () -> {
            Steps.equal(590.0, one("g.V().values('age').sum()").getDouble());
            Steps.equal(29.5, one("g.V().values('age').mean()").getDouble());
            Steps.equal(20, one("g.V().values('age').min()").getInt());
            Steps.equal(39, one("g.V().values('age').max()").getInt());
        });
        Steps.step("script-group-count", () -> {
            Map<?, ?> groups = (Map<?, ?>) one("g.V().groupCount().by('pk')").getObject();
            Steps.equal(5, groups.size());
            Steps.equal(4L, ((Number) groups.get("k3")).longValue());
        });
        Steps.step("script-dedup", () -> Steps.equal(5L, one("g.V().values('pk').dedup().count()").getLong()));
        Steps.step("script-path", () -> {
            Path path = one("g.V('v01').out().out().path().by('name')").getPath();
            Steps.equal(List.of("name 1", "name 2", "name 3"), path.objects());
        });
        Steps.step("script-project", () -> {
            Map<?, ?> row = (Map<?, ?>) one("g.V('v02').project('who', 'friends').by('name').by(out().count())").getObject();
            Steps.equal("name 2", row.get("who"));
            Steps.equal(1L, ((Number) row.get("friends")).longValue());
        });
        Steps.step("script-value-map", () -> {
            Map<?, ?> row = (Map<?, ?>) one("g.V('v02').valueMap('name')").getObject();
            Steps.equal(List.of("name 2"), row.get("name"));
        });
        Steps.step("script-as-select", () -> {
            Map<?, ?> row = (Map<?, ?>) one("g.V('v02').as('a').out().as('b').select('a', 'b').by('name')").getObject();
            Steps.equal("name 3", row.get("b"));
        });
        Steps.step("script-choose", () -> Steps.equal(List.of("young"), texts("g.V('v02').choose(values('age').is(lt(30)), constant('young'), constant('old'))")));
        Steps.step("script-coalesce", () -> Steps.equal(List.of("none"), texts("g.V('v02').coalesce(values('missing'), constant('none'))")));
        Steps.step("script-union", () -> Steps.equal(List.of("v01", "v03"), sorted("g.V('v02').union(out(), __.in()).id()")));
        Steps.step("script-where", () -> Steps.equal(19L, one("g.V().where(out('knows')).count()").getLong()));
        Steps.step("script-fold", () -> Steps.equal(20, ((List<?>) one("g.V().id().fold()").getObject()).size()));
        Steps.step("script-charge-in-status", () -> {
            ResultSet results = client.submit("g.V('v01')");
            results.all().get();
            Map<String, Object> attributes = results.statusAttributes().get();
            Steps.equal(200, ((Number) attributes.get("x-ms-status-code")).intValue());
            Steps.holds(((Number) attributes.get("x-ms-total-request-charge")).doubleValue() > 0, "no charge");
        });
    }

    private static void changes() {
        Steps.step("script-update-property", () -> {
            all("g.V('v04').property('name', 'changed')", Map.of());
            Steps.equal(List.of("changed"), texts("g.V('v04').values('name')"));
        });
        Steps.step("script-list-property", () -> {
            all("g.V('v04').property(list, 'mail', 'a').property(list, 'mail', 'b')", Map.of());
            Steps.equal(List.of("a", "b"), sorted("g.V('v04').values('mail')"));
        });
        Steps.step("script-drop-property", () -> {
            all("g.V('v04').properties('mail').drop()", Map.of());
            Steps.equal(0L, one("g.V('v04').values('mail').count()").getLong());
        });
        Steps.step("script-upsert", () -> {
            for (int time = 0; time < 2; time++) {
                all("g.V('u').fold().coalesce(unfold(), addV('person').property('id', 'u').property('pk', 'u'))", Map.of());
            }
            Steps.equal(1L, one("g.V('u').count()").getLong());
            all("g.V('u').drop()", Map.of());
        });
        Steps.step("script-drop-edge", () -> {
            all("g.V('v00').outE('knows').drop()", Map.of());
            Steps.equal(18L, one("g.E().count()").getLong());
        });
        Steps.step("script-drop-vertex", () -> {
            all("g.V('v19').drop()", Map.of());
            Steps.equal(19L, one("g.V().count()").getLong());
            Steps.equal(17L, one("g.E().count()").getLong());
        });
        Steps.step("unicode-ids", () -> {
            all("g.addV('u').property('id', id).property('pk', 'u')", Map.of("id", "日本語 😀"));
            Steps.equal(List.of("日本語 😀"), texts("g.V().hasLabel('u').id()"));
            all("g.V().hasLabel('u').drop()", Map.of());
        });
        Steps.step("split-underneath-traversal", () -> {
            Steps.split(DATABASE, GRAPH);
            Steps.equal(19L, one("g.V().count()").getLong());
            Steps.equal(List.of("v08"), texts("g.V('v05').repeat(out('knows')).times(3).id()"));
        });
        Steps.step("many-requests-at-once", () -> {
            List<CompletableFuture<ResultSet>> sent = new ArrayList<>();
            for (int n = 0; n < 15; n++) {
                sent.add(client.submitAsync("g.V('" + id(n) + "').id()"));
            }
            TreeSet<String> found = new TreeSet<>();
            for (CompletableFuture<ResultSet> one : sent) {
                found.addAll(strings(one.get().all().get()));
            }
            Steps.equal(15, found.size());
        });
    }

    private static void refusals() {
        Steps.step("script-syntax-error", () -> Steps.holds(!refused("g.V(").isEmpty(), "no message"));
        Steps.step("script-unknown-step", () -> Steps.holds(refused("g.V().unheardOf()").contains("unheardOf"), "the step is not named"));
        Steps.step("throttled-429", () -> {
            Steps.control("POST", "/faults", "{\"database\": \"" + DATABASE + "\", \"container\": \"" + GRAPH
                + "\", \"operations\": \"query\", \"count\": 1, \"status\": 429, \"retryAfterMs\": 5}");
            String refusal = refused("g.V().count()");
            Steps.holds(refusal.contains("429"), refusal);
            Steps.equal(19L, one("g.V().count()").getLong());
        });
        Steps.step("wrong-key-refused", () -> {
            try {
                connect("d3Jvbmcga2V5IG9mIHRoZSByaWdodCBsZW5ndGggYnV0IG90aGVyd2lzZSB3cm9uZw==").submit("g.V()").all().get();
            } catch (Exception refusal) {
                return;
            }
            throw new AssertionError("not refused");
        });
    }

    private static void ends() {
        Steps.step("drop-all", () -> {
            all("g.V().drop()", Map.of());
            Steps.equal(0L, one("g.V().count()").getLong());
        });
        Steps.step("close", () -> client.close());
    }

    private static List<Result> all(String script, Map<String, Object> bindings) throws Exception {
        return client.submit(script, bindings).all().get();
    }

    private static Result one(String script) throws Exception {
        List<Result> found = all(script, Map.of());
        Steps.equal(1, found.size());
        return found.get(0);
    }

    private static List<String> strings(List<Result> results) {
        return results.stream().map(Result::getString).collect(Collectors.toList());
    }

    private static List<String> texts(String script) throws Exception {
        return strings(all(script, Map.of()));
    }

    private static List<String> sorted(String script) throws Exception {
        List<String> found = texts(script);
        Collections.sort(found);
        return found;
    }

    /** The message of the refusal, with the attributes of its status. */
    private static String refused(String script) throws Exception {
        try {
            client.submit(script).all().get();
        } catch (Exception failure) {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                if (cause instanceof ResponseException refusal) {
                    return refusal.getMessage() + " " + refusal.getStatusAttributes().orElse(Map.of());
                }
            }
            throw failure;
        }
        throw new AssertionError("not refused");
    }

    private static String id(int n) {
        return String.format("v%02d", n);
    }
}
