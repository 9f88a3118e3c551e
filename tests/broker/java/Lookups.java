import java.io.OutputStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Asks for messages by key, by UNIQ_KEY and by offsetMsgId. */
final class Lookups {
    private static final int MAX_FOUND = 64;
    private final DefaultMQAdminExt admin;
    private final MQAdminImpl client;

    private Lookups(Session session) {
        this.admin = session.admin;
        this.client = session.consumer.getDefaultMQPullConsumerImpl()
                .getRebalanceImpl().getmQClientFactory().getMQAdminImpl();
    }

    /** One line an answer: the request, and the messages found. A request is KIND, TOPIC, VALUE. */
    static int run(Session session, List<String> requests, OutputStream out) throws Exception {
        Lookups lookups = new Lookups(session);
        for (String request : requests) {
            String[] part = request.split("\t");
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("kind", part[0]);
            line.put("topic", part[1]);
            line.put("value", part[2]);
            List<Object> found = new ArrayList<>();
            for (MessageExt message : lookups.find(part[0], part[1], part[2])) {
                found.add(Dump.row(message));
            }
            line.put("found", found);
            out.write(Json.line(line));
        }
        return requests.size();
    }

    private List<MessageExt> find(String kind, String topic, String value) throws Exception {
        try {
            switch (kind) {
                case "key":
                    return list(client.queryMessage(topic, value, MAX_FOUND, 0, Long.MAX_VALUE));
                case "uniqKey":
                    return list(client.queryMessageByUniqKey(
                            topic, value, MAX_FOUND, 0, Long.MAX_VALUE));
                case "uniqKeyNear":  // The client's own guess of the time, made from the id.
                    MessageExt one = client.queryMessageByUniqKey(topic, value);
                    return one == null ? List.of() : List.of(one);
                case "offsetMsgId":
                    return List.of(admin.viewMessage(topic, value));
                case "tag":
                    return list(byTag(topic, value));
                default:
                    throw new IllegalArgumentException("lookup " + kind);
            }
        } catch (MQClientException | MQBrokerException e) {
            if (e.getMessage() != null && e.getMessage().contains("no message")) {
                return List.of();
            }
            throw e;
        }
    }

    /** A query that 5.5 clients have and 4.9 clients have not. */
    private QueryResult byTag(String topic, String tag) throws ReflectiveOperationException {
        return (QueryResult) MQAdminImpl.class
                .getMethod("queryMessage", String.class, String.class, String.class, int.class,
                        long.class, long.class, boolean.class, String.class, String.class)
                .invoke(client, null, topic, tag, MAX_FOUND, 0L, Long.MAX_VALUE, false, "T", null);
    }

    private static List<MessageExt> list(QueryResult result) {
        return result.getMessageList();
    }
}
