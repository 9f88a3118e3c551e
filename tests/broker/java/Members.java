import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Consumers that stay in their groups until they leave. By HOW they take every message, one after
 * the other ("takes") or in order ("orders"), NUMBER ms for each ("dawdles"); fail on every one,
 * which becomes a dead letter after NUMBER times ("fails"); or never return from a message of the
 * queue NUMBER, or of any if that is negative ("hangs").
 */
final class Members {
    private static final List<DefaultMQPushConsumer> ALL = new ArrayList<>();

    private Members() {
    }

    static void join(Session session, String group, String topic, String tags, String how,
            int number) throws Exception {
        DefaultMQPushConsumer member = session.pushConsumer(group);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        int threads = how.equals("hangs") || how.equals("dawdles") ? 16 : 1;
        member.setConsumeThreadMin(threads);
        member.setConsumeThreadMax(threads);
        member.setPersistConsumerOffsetInterval(200);
        member.subscribe(topic, tags);
        if (how.equals("hangs")) {
            member.setPullBatchSize(4);
            member.setPullThresholdForQueue(4);  // Or one queue would take all threads.
        }
        if (how.equals("fails")) {
            member.setMaxReconsumeTimes(number);
        }
        if (how.equals("orders")) {
            member.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    ConsumeOrderlyStatus.SUCCESS);
        } else {
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                int queue = context.getMessageQueue().getQueueId();
                if (how.equals("hangs") && (number < 0 || number == queue)) {
                    wait(new CountDownLatch(1), Long.MAX_VALUE);
                } else if (how.equals("dawdles")) {
                    wait(new CountDownLatch(1), number);
                }
                return how.equals("fails") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        member.start();
        ALL.add(member);
    }

    private static void wait(CountDownLatch never, long ms) {
        try {
            never.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static void leave() {
        ALL.forEach(DefaultMQPushConsumer::shutdown);
        ALL.clear();
    }
}
