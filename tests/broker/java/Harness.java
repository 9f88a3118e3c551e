import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Official clients behind a line protocol, so that one JVM serves a whole test run.
 *
 * <p>A request is one line of tab-separated fields: a command, the name server, the command's
 * arguments. The answer is one line of JSON, {@code {"result": …}} or {@code {"error": "…"}}.
 * Everything that RocketMQ prints goes to stderr.
 */
public final class Harness {
    private Harness() {
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
        Runtime.getRuntime().halt(0);  // Clients leave threads that are not daemons.
    }

    private static Object run(String[] a) throws Exception {
        Clients clients = new Clients(a[1]);
        switch (a[0]) {
            case "waitForRoute":  // BROKER_NAME BROKER_ADDRESS
                return Reports.waitForRoute(clients, a[2], a[3]);
            case "produce":  // TOPIC KIND COUNT SEED TAG,TAG KEY_WORD FILE
                try (OutputStream out = open(a[8])) {
                    new Producers(clients, a[2], a[6].split(","), a[7], Long.parseLong(a[5]), out)
                            .send(a[3], Integer.parseInt(a[4]));
                }
                return null;
            case "push":  // TOPIC GROUP TAGS COUNT FAIL_EVERY
                return Consumers.push(clients, a[2], a[3], a[4], Integer.parseInt(a[5]),
                        Integer.parseInt(a[6]));
            case "commit":  // TOPIC GROUP QUEUE_OFFSET
                return Consumers.commit(clients, a[2], a[3], Long.parseLong(a[4]));
            case "dump":  // BROKER_NAME BROKER_ADDRESS FILE
                try (OutputStream out = open(a[4])) {
                    return Dump.run(clients, a[2], a[3], out);
                }
            case "lookup":  // REQUESTS FILE
                try (OutputStream out = open(a[3])) {
                    return Lookups.run(clients, Files.readAllLines(Path.of(a[2])), out);
                }
            case "topicStatus":  // TOPIC
                return Reports.topicStatus(clients, a[2]);
            case "consumerProgress":  // GROUP
                return Reports.consumerProgress(clients, a[2]);
            case "mqadmin":  // ARGUMENTS
                return Reports.mqadmin(a[1], Arrays.copyOfRange(a, 2, a.length));
            default:
                throw new IllegalArgumentException("command " + a[0]);
        }
    }

    private static OutputStream open(String file) throws Exception {
        return new BufferedOutputStream(Files.newOutputStream(
                Path.of(file), StandardOpenOption.CREATE, StandardOpenOption.APPEND));
    }
}
