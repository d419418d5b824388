import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Objects;

/** The steps of a program, one line each, and the server's control API. */
final class Steps {
    interface Body {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** The step works, and an application notices a difference from the cloud. */
    static final class Differs extends RuntimeException {
        Differs(String why) {
            super(why);
        }
    }

    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final long DEADLINE_MS = 60_000;

    private Steps() {}

    static void step(String name, Body body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Differs difference) {
            System.out.println("differs " + name + ": " + difference.getMessage());
        } catch (Throwable failure) {
            System.out.println("failed " + name + ": " + oneLine(failure));
            if (System.getenv("CLIENT_STACKS") != null) {
                failure.printStackTrace();
            }
        }
    }

    static void missing(String name, String why) {
        System.out.println("missing " + name + ": " + why);
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void holds(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Looks again until the condition holds: splits and change feed processors work in the background. */
    static void until(String what, Condition condition) throws Exception {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("gave up waiting until " + what);
            }
            Thread.sleep(50);
        }
    }

    static String variable(String name) {
        return Objects.requireNonNull(System.getenv(name), () -> "The variable " + name + " is not set.");
    }

    /** A request to the control API; the body is JSON or null. */
    static String control(String method, String path, String body) throws Exception {
        HttpRequest.BodyPublisher publisher =
            body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
        HttpRequest request = HttpRequest.newBuilder(URI.create(variable("ARMILLARY_CONTROL") + path))
            .header("Authorization", "Bearer " + variable("ARMILLARY_CONTROL_KEY"))
            .header("Content-Type", "application/json")
            .method(method, publisher)
            .build();
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() >= 300) {
            throw new AssertionError(method + " " + path + " got " + response.statusCode() + ": " + response.body());
        }
        return response.body();
    }

    /** Splits the largest partition of a container, and waits for its children. */
    static void split(String database, String container) throws Exception {
        String path = "/databases/" + database + "/containers/" + container;
        control("POST", path + "/split", "{}");
        until("the split is done", () -> control("GET", path + "/reshapes", null).matches("(?s).*\\[\\s*\\].*"));
    }

    private static String oneLine(Throwable failure) {
        String text = failure.getClass().getSimpleName() + ": " + failure.getMessage();
        text = text.replaceAll("\\s+", " ");
        return text.length() > 400 ? text.substring(0, 400) : text;
    }
}
