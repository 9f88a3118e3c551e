import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Messages with a key each, sent side by side, and what the producer was told of each. */
final class Keyed {
    private static final int TIMEOUT_MS = 6_000;
    private static final int BODY_BYTES = 300;

    private Keyed() {
    }

    /** Sends {@code count} messages of keys {@code prefix-N}; writes a row for each answer. */
    static void send(Session session, String topic, String prefix, int count, OutputStream out)
            throws Exception {
        Map<Integer, Map<String, Object>> rows = new ConcurrentHashMap<>();
        CountDownLatch answered = new CountDownLatch(count);
        DefaultMQProducer producer = session.producer("P_" + prefix);
        producer.start();
        try {
            for (int n = 0; n < count; n++) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("key", prefix + "-" + n);
                rows.put(n, row);
                Message message = new Message(topic, "t" + n % 3, prefix + "-" + n,
                        new byte[BODY_BYTES]);
                try {
                    producer.send(message, told(row, answered), TIMEOUT_MS);
                } catch (Exception e) {
                    tell(row, e.getClass().getSimpleName());
                    answered.countDown();
                }
            }
            answered.await(2L * TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } finally {
            producer.shutdown();
        }
        for (int n = 0; n < count; n++) {
            Map<String, Object> row = rows.get(n);
            synchronized (row) {
                row.putIfAbsent("status", "NO_ANSWER");
                out.write(Json.line(row));
            }
        }
    }

    private static SendCallback told(Map<String, Object> row, CountDownLatch answered) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                synchronized (row) {
                    row.put("queueId", result.getMessageQueue().getQueueId());
                    row.put("queueOffset", result.getQueueOffset());
                    row.put("msgId", result.getMsgId());
                }
                tell(row, result.getSendStatus().toString());
                answered.countDown();
            }

            @Override
            public void onException(Throwable e) {
                tell(row, e.getClass().getSimpleName());
                answered.countDown();
            }
        };
    }

    private static void tell(Map<String, Object> row, String status) {
        synchronized (row) {
            row.put("status", status);
        }
    }
}
