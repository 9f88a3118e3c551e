import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Clients with tracing on, which write down what they measured themselves, one line a call.
 *
 * <p>Message n (key tn) is worked on for n % 4 * STEP ms by the group GROUP, which fails messages 5,
 * 6 and 7 once each, in the three ways there are: RECONSUME_LATER, an exception, null. GROUP_O
 * consumes in order; GROUP_B takes up to four messages in a call of BATCH ms.
 */
final class Traced {
    private static final int SINGLES = 8;
    private static final int MESSAGES = SINGLES + 6;
    private static final int STEP = 100;
    private static final int BATCH = 60;
    private final Session session;
    private final String topic;
    private final String traceTopic;
    private final OutputStream out;
    private final CountDownLatch left = new CountDownLatch(3 * MESSAGES + 3);

    private Traced(Session session, String topic, String traceTopic, OutputStream out) {
        this.session = session;
        this.topic = topic;
        this.traceTopic = traceTopic.isEmpty() ? null : traceTopic;
        this.out = out;
    }

    static void run(Session session, String topic, String group, String traceTopic,
            OutputStream out) throws Exception {
        new Traced(session, topic, traceTopic, out).run(group);
    }

    private void run(String group) throws Exception {
        session.admin.createAndUpdateTopicConfig(session.address, new TopicConfig(topic, 2, 2, 6));
        DefaultMQPushConsumer one = consumer(group, 1);
        one.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            int n = Integer.parseInt(message.getKeys().split(" ")[0].substring(1));
            long start = work(n % 4 * STEP);
            boolean first = message.getReconsumeTimes() == 0;
            String result = !first ? "SUCCESS" : n == 5 ? "FAILED" : n == 6 ? "EXCEPTION"
                    : n == 7 ? "RETURNNULL" : "SUCCESS";
            consumed(group, messages, start, result);
            if (result.equals("EXCEPTION")) {
                throw new IllegalStateException("on purpose");
            }
            return result.equals("RETURNNULL") ? null : result.equals("FAILED")
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer ordered = consumer(group + "_O", 1);
        ordered.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            consumed(group + "_O", messages, work(20), "SUCCESS");
            return ConsumeOrderlyStatus.SUCCESS;
        });
        DefaultMQPushConsumer many = consumer(group + "_B", 4);
        many.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed(group + "_B", messages, work(BATCH), "SUCCESS");
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        List<DefaultMQPushConsumer> consumers = List.of(one, ordered, many);
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.start();
        }
        try {
            send();
            if (!left.await(90, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " deliveries did not come");
            }
        } finally {
            for (DefaultMQPushConsumer consumer : consumers) {
                consumer.shutdown();
            }
        }
    }

    private DefaultMQPushConsumer consumer(String group, int atOnce) throws Exception {
        DefaultMQPushConsumer consumer =
                session.set(new DefaultMQPushConsumer(group, true, traceTopic));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(atOnce);
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private void send() throws Exception {
        DefaultMQProducer producer =
                session.set(new DefaultMQProducer("P_" + topic, true, traceTopic));
        TransactionMQProducer transactions = session.set(
                new TransactionMQProducer(null, "TX_" + topic, null, true, traceTopic));
        transactions.setTransactionListener(new ByKey());
        producer.start();
        transactions.start();
        try {
            for (int n = 0; n < SINGLES; n++) {
                long start = System.currentTimeMillis();
                SendResult sent = producer.send(message(n, n == 3 ? "t3 second" : "t" + n));
                sent("NORMAL", sent, start);
            }
            CountDownLatch done = new CountDownLatch(1);
            long before = System.currentTimeMillis();
            producer.send(message(8, "t8"), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    sent("ASYNC", sent, before);
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    done.countDown();
                }
            });
            done.await(10, TimeUnit.SECONDS);
            producer.sendOneway(message(4, "t4 oneway"));
            List<Message> batch = new ArrayList<>();
            batch.add(message(12, "t12"));
            batch.add(message(13, "t13"));
            long start = System.currentTimeMillis();
            sent("BATCH", producer.send(batch), start);
            Message delayed = message(16, "t16");
            delayed.setDelayTimeLevel(1);
            start = System.currentTimeMillis();
            sent("DELAY", producer.send(delayed), start);
            for (String key : new String[] {"t24", "t25"}) {
                start = System.currentTimeMillis();
                sent("TRANSACTION", transactions.sendMessageInTransaction(
                        message(24, key), key), start);
            }
        } finally {
            producer.shutdown();
            transactions.shutdown();
        }
    }

    /** Commits t24 and rolls t25 back. */
    private static final class ByKey implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object key) {
            return key.equals("t24") ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private Message message(int n, String keys) {
        return new Message(topic, "TagT", keys, ("body " + n).getBytes(StandardCharsets.UTF_8));
    }

    private static long work(long ms) {
        long start = System.currentTimeMillis();
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return start;
    }

    private synchronized void sent(String kind, SendResult result, long start) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", "sent");
        line.put("kind", kind);
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        line.put("start", start);
        line.put("end", System.currentTimeMillis());
        write(line);
    }

    private synchronized void consumed(String group, List<MessageExt> messages, long start,
            String result) {
        long end = System.currentTimeMillis();
        for (MessageExt message : messages) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("event", "consumed");
            line.put("group", group);
            line.put("msgId", message.getMsgId());
            line.put("keys", message.getKeys());
            line.put("reconsumeTimes", message.getReconsumeTimes());
            line.put("messages", messages.size());
            line.put("start", start);
            line.put("end", end);
            line.put("result", result);
            write(line);
            left.countDown();
        }
    }

    private void write(Map<String, Object> line) {
        try {
            out.write(Json.line(line));
        } catch (java.io.IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** What the official decoder makes of every message of a trace topic, one line a message. */
    static void decode(Session session, String traceTopic, OutputStream out) throws Exception {
        for (MessageQueue queue : session.consumer.fetchSubscribeMessageQueues(traceTopic)) {
            long high = session.admin.maxOffset(queue);
            for (long next = session.admin.minOffset(queue); next < high; ) {
                PullResult found = session.consumer.pull(queue, "*", next, 1);
                for (MessageExt message : found.getMsgFoundList()) {
                    List<Object> contexts = new ArrayList<>();
                    String text = new String(message.getBody(), StandardCharsets.UTF_8);
                    for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(text)) {
                        contexts.add(row(context));
                    }
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("queueId", queue.getQueueId());
                    line.put("queueOffset", message.getQueueOffset());
                    line.put("contexts", contexts);
                    out.write(Json.line(line));
                }
                next = found.getNextBeginOffset();
            }
        }
    }

    private static Map<String, Object> row(TraceContext context) {
        TraceBean bean = context.getTraceBeans().get(0);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("type", context.getTraceType());
        row.put("timeStamp", context.getTimeStamp());
        row.put("regionId", context.getRegionId());
        row.put("groupName", context.getGroupName());
        row.put("costTime", context.getCostTime());
        row.put("success", context.isSuccess());
        row.put("requestId", context.getRequestId());
        row.put("contextCode", context.getContextCode());
        row.put("topic", bean.getTopic());
        row.put("msgId", bean.getMsgId());
        row.put("offsetMsgId", bean.getOffsetMsgId());
        row.put("tags", bean.getTags());
        row.put("keys", bean.getKeys());
        row.put("storeHost", bean.getStoreHost());
        row.put("retryTimes", bean.getRetryTimes());
        row.put("bodyLength", bean.getBodyLength());
        row.put("msgType", bean.getMsgType());
        row.put("transactionState", bean.getTransactionState());
        row.put("transactionId", bean.getTransactionId());
        row.put("fromTransactionCheck", bean.isFromTransactionCheck());
        return row;
    }
}
