import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What the tools say about topics and groups. */
final class Reports {
    private Reports() {
    }

    /** The text that {@code mqadmin ARGUMENTS} prints. */
    static String mqadmin(Session session, String[] arguments) {
        System.setProperty("rocketmq.namesrv.addr", session.nameServer);
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

    static List<Object> topicStatus(Session session, String topic) throws Exception {
        List<Object> rows = new ArrayList<>();
        session.admin.examineTopicStats(topic).getOffsetTable().forEach((queue, bounds) -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", queue.getTopic());
            row.put("queueId", queue.getQueueId());
            row.put("minOffset", bounds.getMinOffset());
            row.put("maxOffset", bounds.getMaxOffset());
            row.put("lastUpdate", bounds.getLastUpdateTimestamp());
            rows.add(row);
        });
        return rows;
    }

    static List<Object> consumerProgress(Session session, String group) throws Exception {
        List<Object> rows = new ArrayList<>();
        session.admin.examineConsumeStats(group).getOffsetTable().forEach((queue, at) -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", queue.getTopic());
            row.put("queueId", queue.getQueueId());
            row.put("brokerOffset", at.getBrokerOffset());
            row.put("consumerOffset", at.getConsumerOffset());
            row.put("lastTimestamp", at.getLastTimestamp());
            rows.add(row);
        });
        return rows;
    }
}
