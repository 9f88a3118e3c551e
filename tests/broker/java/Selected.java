import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The messages that a broker selects by SQL92; each is written QUEUE@OFFSET. */
final class Selected {
    private static final int PULL_COUNT = 32;
    private static final int PUSH_SECONDS = 60;

    private Selected() {
    }

    /** Pulls a topic once for each expression, which are lines in Base64. */
    static List<Set<String>> pull(Session session, String topic, List<String> lines)
            throws Exception {
        // A client selects by SQL92 once a heartbeat told it the version of the broker.
        MQClientInstance client = session.consumer.getDefaultMQPullConsumerImpl()
                .getRebalanceImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        client.sendHeartbeatToAllBrokerWithLock();
        List<Set<String>> found = new ArrayList<>();
        for (String line : lines) {
            Set<String> places = new TreeSet<>();
            for (MessageQueue queue : session.consumer.fetchSubscribeMessageQueues(topic)) {
                pull(session, queue, MessageSelector.bySql(text(line)), places);
            }
            found.add(places);
        }
        return found;
    }

    private static void pull(
            Session session, MessageQueue queue, MessageSelector selector, Set<String> places)
            throws Exception {
        long next = session.admin.minOffset(queue);
        long high = session.admin.maxOffset(queue);
        while (next < high) {
            PullResult result = session.consumer.pull(queue, selector, next, PULL_COUNT);
            if (result.getMsgFoundList() != null) {
                result.getMsgFoundList().forEach(message -> places.add(place(message)));
            }
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException(queue + " at " + next + ": " + result);
            }
            next = result.getNextBeginOffset();
        }
    }

    /** What a push consumer gets until it has {@code count} messages. */
    static Set<String> push(Session session, String topic, String group, String line, int count)
            throws Exception {
        DefaultMQPushConsumer consumer = session.pushConsumer(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, MessageSelector.bySql(text(line)));
        Set<String> places = new ConcurrentSkipListSet<>();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> places.add(place(message)));
            if (places.size() >= count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.start();
        try {
            if (!done.await(PUSH_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException(group + " got " + places.size() + " of " + count);
            }
        } finally {
            consumer.shutdown();
        }
        return places;
    }

    private static String place(MessageExt message) {
        return message.getQueueId() + "@" + message.getQueueOffset();
    }

    private static String text(String line) {
        return new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
    }
}
