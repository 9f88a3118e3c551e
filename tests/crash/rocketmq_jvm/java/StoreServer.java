import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * RocketMQ's own store classes behind a line protocol: one JVM for a whole test run, one store at a time.
 *
 * <p>A request is one line of tab-separated fields: a command and its arguments. The answer is one
 * line of JSON, {@code {"result": …}} or {@code {"error": "…"}}. What RocketMQ prints goes to stderr.
 * {@code drop} is the kill: the store is forgotten as it stands.
 */
public final class StoreServer {
    private static Opened store;

    private StoreServer() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", run(line.split("\t", -1)));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.write(Json.line(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);  // A store leaves threads that are not daemons.
    }

    private static Object run(String[] a) throws Exception {
        switch (a[0]) {
            case "open":  // DIRECTORY COMMIT_LOG_BYTES CONSUME_QUEUE_BYTES INDEX_SLOTS INDEX_UNITS
                store = null;
                store = new Opened(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                        Integer.parseInt(a[4]), Integer.parseInt(a[5]));
                return null;
            case "load":
                return store.load();
            case "start":
                return store.start();
            case "tell":
                return store.tell();
            case "put":  // TOPIC QUEUE_ID BODY KEY
                return store.put(a[1], Integer.parseInt(a[2]), a[3], a[4]);
            case "find":  // TOPIC KEY
                return store.find(a[1], a[2]);
            case "drop":
                store.drop();
                store = null;
                return null;
            case "close":
                store.close();
                store = null;
                return null;
            default:
                throw new IllegalArgumentException("command " + a[0]);
        }
    }
}
