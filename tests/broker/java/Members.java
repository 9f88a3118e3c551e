import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Consumers that stay in their groups, and take every message, until they leave. */
final class Members {
    private static final List<DefaultMQPushConsumer> ALL = new ArrayList<>();

    private Members() {
    }

    static void join(Session session, String group, String topic, String tags, boolean ordered)
            throws Exception {
        DefaultMQPushConsumer member = session.pushConsumer(group);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setConsumeThreadMin(1);
        member.setConsumeThreadMax(1);
        member.setPersistConsumerOffsetInterval(200);
        member.subscribe(topic, tags);
        if (ordered) {
            member.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    ConsumeOrderlyStatus.SUCCESS);
        } else {
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
        member.start();
        ALL.add(member);
    }

    static void leave() {
        ALL.forEach(DefaultMQPushConsumer::shutdown);
        ALL.clear();
    }
}
