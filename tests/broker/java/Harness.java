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
 * <p>A request is one line of tab-separated fields: a command and its arguments; the first is
 * {@code connect}, and again when another broker runs. The answer is one line of JSON,
 * {@code {"result": …}} or {@code {"error": "…"}}. Everything that RocketMQ prints goes to stderr.
 */
public final class Harness {
    private static Session session;

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
        if (a[0].equals("connect")) {  // NAME_SERVER BROKER_NAME BROKER_ADDRESS
            if (session != null) {
                session.close();
            }
            session = null;
            session = new Session(a[1], a[2], a[3]);
            return null;
        }
        switch (a[0]) {
            case "loaded":  // FILE: a broker.conf
                return Loaded.of(a[1]);
            case "produce":  // TOPIC KIND COUNT SEED TAG,TAG KEY_WORD FILE
                try (OutputStream out = open(a[7])) {
                    new Producers(session, a[1], a[5].split(","), a[6], Long.parseLong(a[4]), out)
                            .send(a[2], Integer.parseInt(a[3]));
                }
                return null;
            case "push":  // TOPIC GROUP TAGS COUNT FAIL_EVERY
                return Consumers.push(session, a[1], a[2], a[3], Integer.parseInt(a[4]),
                        Integer.parseInt(a[5]));
            case "pushed":  // TOPIC GROUP COUNT FILE
                try (OutputStream out = open(a[4])) {
                    Consumers.pushed(session, a[1], a[2], Integer.parseInt(a[3]), out);
                }
                return null;
            case "select":  // TOPIC FILE
                return Selected.pull(session, a[1], Files.readAllLines(Path.of(a[2])));
            case "pushSelected":  // TOPIC GROUP EXPRESSION COUNT
                return Selected.push(session, a[1], a[2], a[3], Integer.parseInt(a[4]));
            case "commit":  // TOPIC GROUP QUEUE_OFFSET
                return Consumers.commit(session, a[1], a[2], Long.parseLong(a[3]));
            case "pullAll":  // TOPIC
                return Pulls.run(session, a[1]);
            case "sendAll":  // TOPIC COUNT BODY_BYTES BATCH
                return Sends.run(session, a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                        Integer.parseInt(a[4]));
            case "keyed":  // TOPIC PREFIX COUNT FILE
                try (OutputStream out = open(a[4])) {
                    Keyed.send(session, a[1], a[2], Integer.parseInt(a[3]), out);
                }
                return null;
            case "dump":  // TOPIC (empty: all) FILE
                try (OutputStream out = open(a[2])) {
                    return Dump.run(session, a[1], out);
                }
            case "sample":  // TOPIC COUNT FILE
                try (OutputStream out = open(a[3])) {
                    return Dump.sample(session, a[1], Integer.parseInt(a[2]), out);
                }
            case "lookup":  // REQUESTS FILE
                try (OutputStream out = open(a[2])) {
                    return Lookups.run(session, Files.readAllLines(Path.of(a[1])), out);
                }
            case "traced":  // TOPIC GROUP TRACE_TOPIC (empty: the default) FILE
                try (OutputStream out = open(a[4])) {
                    Traced.run(session, a[1], a[2], a[3], out);
                }
                return null;
            case "join":  // GROUP TOPIC TAGS HOW NUMBER: a member until "leave", see Members
                Members.join(session, a[1], a[2], a[3], a[4], Integer.parseInt(a[5]));
                return null;
            case "leave":  // GROUP: its members; all of them if it is empty
                Members.leave(a[1]);
                return null;
            case "pace":  // FILE COMMIT_MS: groups that drain by plans, see Paced
                return Paced.begin(session, a[1], Long.parseLong(a[2]));
            case "paced":  // Until nothing waits for them.
                return Paced.end();
            case "decodeTraces":  // TRACE_TOPIC FILE
                try (OutputStream out = open(a[2])) {
                    Traced.decode(session, a[1], out);
                }
                return null;
            case "topicStatus":  // TOPIC
                return Reports.topicStatus(session, a[1]);
            case "consumerProgress":  // GROUP
                return Reports.consumerProgress(session, a[1]);
            case "mqadmin":  // ARGUMENTS
                return Reports.mqadmin(session, Arrays.copyOfRange(a, 1, a.length));
            default:
                throw new IllegalArgumentException("command " + a[0]);
        }
    }

    private static OutputStream open(String file) throws Exception {
        return new BufferedOutputStream(Files.newOutputStream(
                Path.of(file), StandardOpenOption.CREATE, StandardOpenOption.APPEND));
    }
}
