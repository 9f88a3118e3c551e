import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends every kind of message; what the broker acknowledged goes to a file, one line a send.
 *
 * <p>The content of the messages follows from the seed alone. Of five messages one has no tag,
 * two have those given, one a tag in Chinese and one an emoji, in turn; of four one has the key
 * WORDn and one the keys WORDn and altn.
 */
final class Producers {
    private static final String SHARDING_KEY = "__SHARDINGKEY";  // No constant of it in 4.9.
    private final Session session;
    private final String topic;
    private final String[] tags;
    private final String keyWord;
    private final Random random;
    private final OutputStream acknowledged;

    Producers(Session session, String topic, String[] tags, String keyWord, long seed,
            OutputStream acknowledged) {
        this.session = session;
        this.topic = topic;
        this.tags = new String[] {null, tags[0], tags[1], "\u6807\u7b7eC", "\ud83d\ude00"};
        this.keyWord = keyWord;
        this.random = new Random(seed);
        this.acknowledged = acknowledged;
    }

    void send(String kind, int count) throws Exception {
        if (kind.equals("Tx")) {
            sendTransactions(count);
            return;
        }
        // Both versions read the property when a producer is made; their setters differ.
        System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE,
                kind.startsWith("Zip") ? kind.substring(3) : "ZLIB");
        DefaultMQProducer producer = session.producer("P_" + topic);
        producer.start();
        try {
            for (int i = 0; i < count; i++) {
                sendOne(producer, kind, i);
            }
        } finally {
            producer.shutdown();
        }
    }

    private void sendOne(DefaultMQProducer producer, String kind, int i) throws Exception {
        switch (kind) {
            case "Single":
                acknowledge(kind, producer.send(message(i)));
                break;
            case "Batch":
                acknowledge(kind, producer.send(batch(i)));
                break;
            case "Order":
                String key = "order" + i % 7;
                Message ordered = message(i);
                MessageAccessor.putProperty(ordered, SHARDING_KEY, key);
                acknowledge(kind, producer.send(ordered, new SelectMessageQueueByHash(), key));
                break;
            case "Delay":
                Message delayed = message(i);
                delayed.setDelayTimeLevel(new int[] {1, 2, 18}[i % 3]);
                acknowledge(kind, producer.send(delayed));
                break;
            case "Timer":
                Message timed = message(i);
                long later = i % 2 == 0 ? 2_000 : 3_600_000;
                MessageAccessor.putProperty(
                    timed, "TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + later));
                acknowledge(kind, producer.send(timed));
                break;
            case "Keyed":
                Message keyed = message(i);
                keyed.setKeys(keyWord + i % 5);
                acknowledge(kind, producer.send(keyed));
                break;
            case "OneWay":
                producer.sendOneway(message(i));
                break;
            case "ZipZLIB":
            case "ZipLZ4":
            case "ZipZSTD":
                Message big = message(i);
                big.setBody(text(4096 + random.nextInt(9000)));
                acknowledge(kind, producer.send(big));
                break;
            default:
                throw new IllegalArgumentException("kind " + kind);
        }
    }

    private List<Message> batch(int i) {
        List<Message> messages = new ArrayList<>();
        int size = 1 + random.nextInt(40);
        for (int k = 0; k < size; k++) {
            messages.add(message(i * 100 + k));
        }
        return messages;
    }

    private void sendTransactions(int count) throws Exception {
        TransactionMQProducer producer = session.transactionProducer("P_" + topic);
        producer.setTransactionListener(new Outcomes());
        producer.start();
        try {
            for (int i = 0; i < count; i++) {
                acknowledge("Tx", producer.sendMessageInTransaction(message(i), i));
            }
        } finally {
            producer.shutdown();
        }
    }

    /** Commits, rolls back, leaves unresolved: in turn. */
    private static final class Outcomes implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object index) {
            switch ((Integer) index % 3) {
                case 0:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 1:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private Message message(int i) {
        Message message = new Message(topic, text(1 + random.nextInt(500)));
        message.setTags(tags[i % tags.length]);
        if (i % 4 == 1) {
            message.setKeys(keyWord + i);
        } else if (i % 4 == 2) {
            message.setKeys(keyWord + i + " alt" + i);
        }
        if (i % 3 == 0) {
            message.putUserProperty("\u7528\u6237", "\u503c" + i);
        }
        if (i % 5 == 0) {
            message.putUserProperty("region", "r" + i % 2);
        }
        message.setFlag(random.nextInt());
        return message;
    }

    private byte[] text(int length) {
        StringBuilder out = new StringBuilder(length);
        while (out.length() < length) {
            out.append(Integer.toString(random.nextInt(5000), 36)).append(' ');
        }
        return out.substring(0, length).getBytes(StandardCharsets.US_ASCII);
    }

    private void acknowledge(String kind, SendResult result) throws Exception {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(kind + ": " + result);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topic", result.getMessageQueue().getTopic());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        acknowledged.write(Json.line(line));
        acknowledged.flush();
    }
}
