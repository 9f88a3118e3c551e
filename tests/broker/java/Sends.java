import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Batches sent by the official client, on one thread, as fast as it can. */
final class Sends {
    private static final String[] TAGS = {"TagA", "TagB", "TagC"};
    private static final int BODIES = 1024;  // So many different ones are sent in turn.

    private Sends() {
    }

    /** Sends {@code count} messages with a key and a tag; returns rows and seconds. */
    static Map<String, Object> run(Session session, String topic, int count, int bodyBytes, int batch)
            throws Exception {
        Random random = new Random(7);
        byte[][] bodies = new byte[BODIES][bodyBytes];
        for (byte[] body : bodies) {
            random.nextBytes(body);
        }
        DefaultMQProducer producer = session.producer("P_" + topic);
        producer.start();
        try {
            producer.fetchPublishMessageQueues(topic);
            long begin = System.nanoTime();
            for (int first = 0; first < count; first += batch) {
                List<Message> messages = new ArrayList<>(batch);
                for (int i = first; i < Math.min(first + batch, count); i++) {
                    messages.add(new Message(topic, TAGS[i % TAGS.length], "order-" + i,
                            bodies[i % BODIES]));
                }
                SendStatus status = producer.send(messages).getSendStatus();
                if (status != SendStatus.SEND_OK) {
                    throw new IllegalStateException(status.toString());
                }
            }
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("rows", count);
            result.put("seconds", (System.nanoTime() - begin) / 1e9);
            return result;
        } finally {
            producer.shutdown();
        }
    }
}
