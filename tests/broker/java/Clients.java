import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes clients of one name server. Each is an instance of its own: RocketMQ shares connections
 * and routes between clients of one instance name, and a route must not outlive its broker.
 */
final class Clients {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private final String nameServer;

    Clients(String nameServer) {
        this.nameServer = nameServer;
    }

    DefaultMQProducer producer(String group) {
        DefaultMQProducer producer = set(new DefaultMQProducer(group));
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);  // A repeated send would make a second record.
        return producer;
    }

    TransactionMQProducer transactionProducer(String group) {
        TransactionMQProducer producer = set(new TransactionMQProducer(group));
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        return producer;
    }

    DefaultMQPushConsumer pushConsumer(String group) {
        return set(new DefaultMQPushConsumer(group));
    }

    DefaultMQPullConsumer pullConsumer(String group) {
        return set(new DefaultMQPullConsumer(group));
    }

    DefaultMQAdminExt admin() {
        DefaultMQAdminExt admin = set(new DefaultMQAdminExt(10_000));
        admin.setAdminExtGroup("harness_admin_" + COUNT.get());
        return admin;
    }

    private <C extends ClientConfig> C set(C client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("harness-" + COUNT.incrementAndGet());
        client.setVipChannelEnabled(false);
        return client;
    }
}
