import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumers that stay in their groups until they leave. By HOW they take every message, one after
 * the other ("takes") or in order ("orders"), NUMBER ms for each ("dawdles"); fail on every one,
 * which becomes a dead letter after NUMBER times ("fails"); never return from a message of the
 * queue NUMBER, or of any if that is negative ("hangs"); work off a pull of one queue after that of
 * another, NUMBER ms for each ("rotates"); take NUMBER ms for each with room for eight messages of a
 * queue ("throttles"); commit every NUMBER ms ("commits"); begin at the end ("last"); are suspended
 * from the start ("suspends"); take the first NUMBER queues only ("fixed"); have one client id in
 * all processes ("twins"); or let the broker share queues out, in the mode it is set to, and never
 * return from a message whose id ends in a multiple of NUMBER ("pops").
 */
final class Members {
    private static final List<DefaultMQPushConsumer> ALL = new ArrayList<>();

    private Members() {
    }

    static void join(Session session, String group, String topic, String tags, String how,
            int number) throws Exception {
        DefaultMQPushConsumer member = session.pushConsumer(group);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        int threads = how.equals("hangs") || how.equals("dawdles") || how.equals("pops") ? 16 : 1;
        member.setConsumeThreadMin(threads);
        member.setConsumeThreadMax(threads);
        member.setPersistConsumerOffsetInterval(200);
        member.subscribe(topic, tags);
        if (how.equals("rotates")) {
            member.setPullBatchSize(32);
        }
        if (how.equals("hangs")) {
            member.setPullBatchSize(4);
            member.setPullThresholdForQueue(4);  // Or one queue would take all threads.
        }
        if (how.equals("pops")) {  // New in 5.0.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class)
                    .invoke(member, false);
            DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class)
                    .invoke(member, 300_000L);  // As long as a client may.
        }
        if (how.equals("fails")) {
            member.setMaxReconsumeTimes(number);
        }
        adjust(session, member, topic, how, number);
        if (how.equals("orders")) {
            member.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    ConsumeOrderlyStatus.SUCCESS);
        } else {
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                int queue = context.getMessageQueue().getQueueId();
                String id = messages.get(0).getMsgId();
                boolean isLeft = how.equals("hangs") ? number < 0 || number == queue
                        : how.equals("pops") && at(id) % number == 0;
                if (isLeft) {
                    wait(new CountDownLatch(1), Long.MAX_VALUE);
                } else if (how.equals("dawdles") || how.equals("rotates")
                        || how.equals("throttles")) {
                    wait(new CountDownLatch(1), number);
                }
                return how.equals("fails") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        member.start();
        if (how.equals("suspends")) {
            member.suspend();
        }
        ALL.add(member);
    }

    private static void adjust(Session session, DefaultMQPushConsumer member, String topic,
            String how, int number) {
        switch (how) {
            case "throttles":
                member.setPullThresholdForQueue(8);
                break;
            case "commits":
                member.setPersistConsumerOffsetInterval(number);
                break;
            case "last":
                member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
                break;
            case "twins":
                member.setInstanceName("twins");
                break;
            case "fixed":
                AllocateMessageQueueByConfig fixed = new AllocateMessageQueueByConfig();
                List<MessageQueue> queues = new ArrayList<>();
                for (int queue = 0; queue < number; queue++) {
                    queues.add(new MessageQueue(topic, session.broker, queue));
                }
                fixed.setMessageQueueList(queues);
                member.setAllocateMessageQueueStrategy(fixed);
                break;
            default:
        }
    }

    private static int at(String id) {
        return Integer.parseInt(id.substring(id.lastIndexOf('-') + 1));
    }

    private static void wait(CountDownLatch never, long ms) {
        try {
            never.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** Lets the members of a group leave, or all of them if it is empty. */
    static void leave(String group) {
        for (DefaultMQPushConsumer member : List.copyOf(ALL)) {
            if (group.isEmpty() || member.getConsumerGroup().equals(group)) {
                member.shutdown();
                ALL.remove(member);
            }
        }
    }
}
