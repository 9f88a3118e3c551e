import java.io.OutputStream;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumes with a group, and commits. */
final class Consumers {
    private static final int NO_SUCH_GROUP = 26;  // ResponseCode, whose package differs.
    private static final int ATTEMPTS = 600;
    private static final long PAUSE_MS = 100;

    private Consumers() {
    }

    /**
     * A push consumer takes {@code count} messages and stops; one message in {@code failEvery}
     * fails, so it goes to the group's retry topic. Returns how many failed.
     */
    static int push(Session session, String topic, String group, String tags, int count,
            int failEvery) throws Exception {
        DefaultMQPushConsumer consumer = session.pushConsumer(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, tags);
        AtomicInteger taken = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int number = taken.incrementAndGet();
            if (number >= count) {
                done.countDown();
            }
            if (messages.get(0).getReconsumeTimes() > 0 || number % failEvery != 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            failed.incrementAndGet();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.start();
        try {
            if (!done.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(
                        group + " got " + taken.get() + " of " + count + " messages in 60 s");
            }
        } finally {
            consumer.shutdown();
        }
        return failed.get();
    }

    /** A push consumer takes {@code count} messages and stops; one line each, as they come. */
    static void pushed(Session session, String topic, String group, int count, OutputStream out)
            throws Exception {
        DefaultMQPushConsumer consumer = session.pushConsumer(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);  // Another thread could overtake it.
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        CountDownLatch left = new CountDownLatch(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    out.write(Json.line(Dump.row(message)));
                    left.countDown();
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.start();
        try {
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(
                        group + " lacks " + left.getCount() + " of " + count + " messages");
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** A pull consumer commits {@code queueOffset} on every queue of the topic. */
    static Map<String, Object> commit(Session session, String topic, String group,
            long queueOffset) throws Exception {
        DefaultMQPullConsumer consumer = session.pullConsumer(group);
        consumer.start();
        try {
            Map<String, Object> committed = new TreeMap<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                commit(consumer, queue, queueOffset);
                committed.put(String.valueOf(queue.getQueueId()),
                        consumer.fetchConsumeOffset(queue, true));
            }
            return committed;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * Commits for a group that may be new: it exists for the broker, and its retry topic, once it
     * had a heartbeat. None is sent while the client sends another one.
     */
    static void commit(DefaultMQPullConsumer consumer, MessageQueue queue, long queueOffset)
            throws Exception {
        MQClientInstance client = consumer.getDefaultMQPullConsumerImpl()
                .getRebalanceImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(queue.getTopic());
        for (int attempt = 1; ; attempt++) {
            client.sendHeartbeatToAllBrokerWithLock();
            try {
                consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                        .updateConsumeOffsetToBroker(queue, queueOffset, false);
                return;
            } catch (MQBrokerException e) {
                if (e.getResponseCode() != NO_SUCH_GROUP || attempt == ATTEMPTS) {
                    throw e;
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }
}
