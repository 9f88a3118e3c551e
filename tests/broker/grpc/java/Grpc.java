import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The gRPC client of RocketMQ 5: a line of fields, separated by tabs, asks for something, and a line
 * of JSON answers. The first argument is the proxy's gRPC endpoint.
 */
final class Grpc {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration WAIT = Duration.ofSeconds(2);

    private Grpc() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientConfiguration at = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
                .enableSsl(false).setRequestTimeout(Duration.ofSeconds(60)).build();
        BufferedReader requests = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", run(at, line.split("\t", -1)));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.write(Json.line(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);  // Clients leave threads that are not daemons.
    }

    private static Object run(ClientConfiguration at, String[] a) throws Exception {
        switch (a[0]) {
            case "send":  // TOPIC KIND COUNT
                return send(at, a[1], a[2], Integer.parseInt(a[3]));
            case "receive":  // TOPIC GROUP COUNT INVISIBLE_MS ACK_EVERY CHANGE_EVERY CHANGED_MS
                return receive(at, a);
            default:
                throw new IllegalArgumentException("command " + a[0]);
        }
    }

    /** Returns what was sent; of transactions, every third is rolled back. */
    private static List<Object> send(ClientConfiguration at, String topic, String kind, int count)
            throws Exception {
        List<Object> sent = new ArrayList<>();
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(at)
                .setTopics(topic);
        if (kind.equals("TRANSACTION")) {
            builder.setTransactionChecker(message -> TransactionResolution.UNKNOWN);
        }
        try (Producer producer = builder.build()) {
            for (int i = 0; i < count; i++) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("body", topic + " " + i);
                row.put("keys", "k" + i);
                row.put("tags", "T" + i % 3);
                row.put("group", kind.equals("FIFO") ? "g" + i % 4 : null);
                row.put("rolledBack", kind.equals("TRANSACTION") && i % 3 == 0);
                row.put("id", sendOne(producer, message(topic, kind, i, row), row, kind));
                sent.add(row);
            }
        }
        return sent;
    }

    private static Message message(String topic, String kind, int i, Map<String, Object> row) {
        MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic)
                .setKeys((String) row.get("keys")).setTag((String) row.get("tags"))
                .addProperty("number", Integer.toString(i))
                .setBody(((String) row.get("body")).getBytes(StandardCharsets.UTF_8));
        if (kind.equals("FIFO")) {
            message.setMessageGroup((String) row.get("group"));
        } else if (kind.equals("DELAY")) {
            message.setDeliveryTimestamp(System.currentTimeMillis() + 2000);
        }
        return message.build();
    }

    private static String sendOne(Producer producer, Message message, Map<String, Object> row,
            String kind) throws Exception {
        if (!kind.equals("TRANSACTION")) {
            return producer.send(message).getMessageId().toString();
        }
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message, transaction);
        if ((Boolean) row.get("rolledBack")) {
            transaction.rollback();
        } else {
            transaction.commit();
        }
        return receipt.getMessageId().toString();
    }

    private static Object receive(ClientConfiguration at, String[] a) throws Exception {
        int count = Integer.parseInt(a[3]);
        int every = Integer.parseInt(a[5]);
        int other = Integer.parseInt(a[6]);
        Duration changed = Duration.ofMillis(Long.parseLong(a[7]));
        List<String> received = new ArrayList<>();
        List<String> acknowledged = new ArrayList<>();
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(at)
                .setConsumerGroup(a[2]).setAwaitDuration(WAIT)
                .setSubscriptionExpressions(Collections.singletonMap(a[1], FilterExpression.SUB_ALL))
                .build()) {
            while (received.size() < count) {
                int most = Math.min(8, count - received.size());
                for (MessageView one : consumer.receive(
                        most, Duration.ofMillis(Long.parseLong(a[4])))) {
                    int number = received.size();
                    received.add(one.getMessageId().toString());
                    if (number % every == 0) {
                        consumer.ack(one);
                        acknowledged.add(one.getMessageId().toString());
                    } else if (number % other == 0) {
                        consumer.changeInvisibleDuration(one, changed);
                    }
                }
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("received", received);
        result.put("acknowledged", acknowledged);
        return result;
    }
}
