import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Clients of one broker, while it runs: an admin and a pull consumer that stay, others on demand.
 *
 * <p>Each is an instance of its own: RocketMQ shares connections and routes between clients of one
 * instance name, and a route must not outlive its broker.
 */
final class Session implements AutoCloseable {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final int ROUTE_ATTEMPTS = 120;
    private static final long ROUTE_PAUSE_MS = 250;

    final String nameServer;
    final String broker;
    final String address;
    final DefaultMQAdminExt admin;
    final DefaultMQPullConsumer consumer;

    /** Starts the clients, and returns when the name server routes to the broker. */
    Session(String nameServer, String broker, String address) throws Exception {
        this.nameServer = nameServer;
        this.broker = broker;
        this.address = address;
        this.admin = set(new DefaultMQAdminExt(10_000));
        this.admin.setAdminExtGroup("harness_admin_" + COUNT.get());
        this.consumer = pullConsumer("harness");
        try {
            admin.start();
            consumer.start();
            waitForRoute();
        } catch (Exception e) {
            close();
            throw e;
        }
    }

    @Override
    public void close() {
        consumer.shutdown();
        admin.shutdown();
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

    <C extends ClientConfig> C set(C client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("harness-" + COUNT.incrementAndGet());
        client.setVipChannelEnabled(false);
        return client;
    }

    private void waitForRoute() throws Exception {
        Exception last = null;
        for (int attempt = 0; attempt < ROUTE_ATTEMPTS; attempt++) {
            try {
                // A broker registers a topic of its own name.
                if (admin.examineTopicRouteInfo(broker).getBrokerDatas().stream()
                        .anyMatch(data -> data.getBrokerAddrs().containsValue(address))) {
                    return;
                }
            } catch (MQClientException | RemotingException e) {
                last = e;
            }
            register();
            Thread.sleep(ROUTE_PAUSE_MS);
        }
        throw new IllegalStateException("no route to " + broker + " at " + address, last);
    }

    /**
     * A 5.5 broker that boots before its connection is up registers 10 s later; a change of its
     * permission makes it register at once.
     */
    private void register() throws Exception {
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        try {
            admin.updateBrokerConfig(address, permission);
        } catch (RemotingException e) {
            // Not connected yet: the next attempt tells.
        }
    }
}
