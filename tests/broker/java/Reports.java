import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What the tools say about topics and groups. */
final class Reports {
    private static final int ROUTE_ATTEMPTS = 600;
    private static final long ROUTE_PAUSE_MS = 50;

    private Reports() {
    }

    /** Returns when the name server routes to that broker; it hears of it a little after boot. */
    static Object waitForRoute(Clients clients, String broker, String address) throws Exception {
        DefaultMQAdminExt admin = clients.admin();
        admin.start();
        try {
            for (int attempt = 0; attempt < ROUTE_ATTEMPTS; attempt++) {
                if (routesTo(admin, broker, address)) {
                    return null;
                }
                Thread.sleep(ROUTE_PAUSE_MS);
            }
            throw new IllegalStateException("no route to " + broker + " at " + address);
        } finally {
            admin.shutdown();
        }
    }

    private static boolean routesTo(DefaultMQAdminExt admin, String broker, String address)
            throws Exception {
        try {
            // A broker registers a topic of its own name.
            return admin.examineTopicRouteInfo(broker).getBrokerDatas().stream()
                    .anyMatch(data -> data.getBrokerAddrs().containsValue(address));
        } catch (MQClientException e) {
            return false;
        }
    }

    /** The text that {@code mqadmin ARGUMENTS} prints. */
    static String mqadmin(String nameServer, String[] arguments) {
        System.setProperty("rocketmq.namesrv.addr", nameServer);
        PrintStream before = System.out;
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        System.setOut(new PrintStream(text, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.out.flush();
            System.setOut(before);
        }
        return text.toString(StandardCharsets.UTF_8);
    }

    static List<Object> topicStatus(Clients clients, String topic) throws Exception {
        DefaultMQAdminExt admin = clients.admin();
        admin.start();
        try {
            List<Object> rows = new ArrayList<>();
            admin.examineTopicStats(topic).getOffsetTable().forEach((queue, bounds) -> {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("topic", queue.getTopic());
                row.put("queueId", queue.getQueueId());
                row.put("minOffset", bounds.getMinOffset());
                row.put("maxOffset", bounds.getMaxOffset());
                row.put("lastUpdate", bounds.getLastUpdateTimestamp());
                rows.add(row);
            });
            return rows;
        } finally {
            admin.shutdown();
        }
    }

    static List<Object> consumerProgress(Clients clients, String group) throws Exception {
        DefaultMQAdminExt admin = clients.admin();
        admin.start();
        try {
            List<Object> rows = new ArrayList<>();
            admin.examineConsumeStats(group).getOffsetTable().forEach((queue, at) -> {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("topic", queue.getTopic());
                row.put("queueId", queue.getQueueId());
                row.put("brokerOffset", at.getBrokerOffset());
                row.put("consumerOffset", at.getConsumerOffset());
                row.put("lastTimestamp", at.getLastTimestamp());
                rows.add(row);
            });
            return rows;
        } finally {
            admin.shutdown();
        }
    }
}
