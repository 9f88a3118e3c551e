import java.io.OutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls every queue of every topic of a broker with the official client, one line a message. */
final class Dump {
    private static final int PULL_COUNT = 32;
    private static final int MANY_QUEUES = 64;
    private final DefaultMQPullConsumer consumer;
    private final OutputStream out;
    private final List<String> problems = new ArrayList<>();
    private long messages;

    private Dump(Session session, OutputStream out) {
        this.consumer = session.consumer;
        this.out = out;
    }

    /** What was pulled: counts, the bounds of every queue, and whatever did not go as asked. */
    static Map<String, Object> run(Session session, String only, OutputStream out)
            throws Exception {
        Dump dump = new Dump(session, out);
        Map<String, Object> queues = new TreeMap<>();
        var topics = new TreeMap<>(
                session.admin.getAllTopicConfig(session.address, 10_000).getTopicConfigTable());
        for (var topic : topics.values()) {
            if (!only.isEmpty() && !only.equals(topic.getTopicName())) {
                continue;
            }
            for (int id : used(session, topic.getTopicName(), topic.getReadQueueNums())) {
                MessageQueue queue = new MessageQueue(topic.getTopicName(), session.broker, id);
                long high = session.admin.maxOffset(queue);
                if (high > 0) {
                    long low = session.admin.minOffset(queue);
                    queues.put(topic.getTopicName() + "/" + id, List.of(low, high));
                    dump.pull(queue, low, high);
                }
            }
        }
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("messages", dump.messages);
        reply.put("queues", queues);
        reply.put("problems", dump.problems);
        return reply;
    }

    /**
     * The ids of queues that may hold something. Of many queues those with messages, by one
     * request: each broker has a topic BenchmarkTest of 1024.
     */
    private static Iterable<Integer> used(Session session, String topic, int count)
            throws Exception {
        TreeSet<Integer> ids = new TreeSet<>();
        if (count <= MANY_QUEUES) {
            for (int id = 0; id < count; id++) {
                ids.add(id);
            }
            return ids;
        }
        session.admin.examineTopicStats(topic).getOffsetTable().forEach((queue, bounds) -> {
            if (queue.getBrokerName().equals(session.broker) && bounds.getMaxOffset() > 0) {
                ids.add(queue.getQueueId());
            }
        });
        return ids;
    }

    /** Pulls {@code count} stretches of each queue of one topic, spread evenly. */
    static Map<String, Object> sample(Session session, String topic, int count, OutputStream out)
            throws Exception {
        Dump dump = new Dump(session, out);
        for (MessageQueue queue : session.consumer.fetchSubscribeMessageQueues(topic)) {
            long low = session.admin.minOffset(queue);
            long high = session.admin.maxOffset(queue);
            for (int n = 0; n < count; n++) {
                long from = low + (high - low) * n / count;
                dump.pull(queue, from, Math.min(high, from + PULL_COUNT));
            }
        }
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("messages", dump.messages);
        reply.put("problems", dump.problems);
        return reply;
    }

    private void pull(MessageQueue queue, long low, long high) throws Exception {
        long next = low;
        while (next < high) {
            PullResult result = consumer.pull(queue, "*", next, PULL_COUNT);
            if (result.getMsgFoundList() == null || result.getMsgFoundList().isEmpty()) {
                problems.add(queue + " at " + next + ": " + result.getPullStatus());
                next = Math.max(next + 1, result.getNextBeginOffset());
                continue;
            }
            for (MessageExt message : result.getMsgFoundList()) {
                if (message.getQueueOffset() != next) {
                    problems.add(queue + " at " + next + ": got " + message.getQueueOffset());
                }
                if (message.getQueueOffset() < high) {
                    out.write(Json.line(row(message)));
                    messages++;
                }
                next = message.getQueueOffset() + 1;
            }
        }
    }

    static Map<String, Object> row(MessageExt message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("bodyCRC", message.getBodyCRC());
        row.put("born", message.getBornTimestamp());
        row.put("bornHost", message.getBornHost().toString());
        row.put("store", message.getStoreTimestamp());
        row.put("storeHost", message.getStoreHost().toString());
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTxn", message.getPreparedTransactionOffset());
        row.put("msgId", message.getMsgId());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        row.put("bodySha1", hex(MessageDigest.getInstance("SHA-1").digest(body)));
        row.put("bodyLen", body.length);
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        row.put("properties", properties);
        return row;
    }

    private static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }
}
