import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Groups that drain a backlog while messages come, each by a plan: when which message is stored,
 * and when it has been consumed. Who is late makes up for it. A group and its producer end when
 * nothing waits any more.
 */
final class Paced {
    private static final int BATCH = 500;
    private static final int PULLED = 32;
    private static final int SECONDS = 280;
    private static final int PATIENCE_MS = 60_000;  // A loaded machine may stand still.
    private static final long LEAD_MS = 500;  // Until all threads run.

    private static ExecutorService threads;
    private static List<Paced> all = List.of();
    private static List<Future<?>> works = List.of();

    private final MessageQueue queue;
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer consumer;
    private final long[] stored;  // When each message behind the backlog is, in ms of the plan.
    private final long[] consumed;  // When each message is, the backlog's first.
    private final long firstCommitMs;
    private final AtomicInteger sent = new AtomicInteger();
    private volatile long zeroMs;

    private Paced(Session session, DefaultMQProducer producer, String instance, String[] plan)
            throws Exception {
        this.queue = new MessageQueue(plan[0], session.broker, Integer.parseInt(plan[1]));
        this.producer = producer;
        this.consumer = session.pullConsumer(plan[2]);
        this.consumer.setInstanceName(instance);  // One for all: else each has dozens of threads.
        this.firstCommitMs = Long.parseLong(plan[4]);
        this.stored = times(plan[5]);
        this.consumed = times(plan[6]);
        this.consumer.setConsumerPullTimeoutMillis(PATIENCE_MS);
        this.consumer.start();
        int backlog = Integer.parseInt(plan[3]);
        while (sent.get() < backlog) {
            List<Message> batch = new ArrayList<>();
            while (batch.size() < BATCH && sent.get() < backlog) {
                batch.add(message());
            }
            producer.send(batch, queue);
        }
        Consumers.commit(consumer, queue, 0);
    }

    /**
     * Begins the plans of a file: TOPIC QUEUE GROUP BACKLOG FIRST_COMMIT TIMES TIMES. Returns when
     * they began (epoch ms).
     */
    static long begin(Session session, String file, long commitMs) throws Exception {
        DefaultMQProducer producer = session.producer("P_Paced");
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        all = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(file))) {
            all.add(new Paced(session, producer, producer.getInstanceName() + "-c",
                    line.split("\t")));
        }
        threads = Executors.newCachedThreadPool();
        works = new ArrayList<>();
        long beginMs = System.currentTimeMillis() + LEAD_MS;
        for (Paced one : all) {
            works.add(threads.submit(() -> one.produce(beginMs)));
            works.add(threads.submit(() -> one.consume(beginMs, commitMs)));
        }
        waitUntil(beginMs);
        return beginMs;
    }

    /** Waits for the ends; returns when nothing waited for each group any more (epoch ms). */
    static Map<String, Object> end() throws Exception {
        Map<String, Object> zeros = new LinkedHashMap<>();
        try {
            for (Future<?> work : works) {
                work.get(SECONDS, TimeUnit.SECONDS);
            }
            for (Paced one : all) {
                zeros.put(one.consumer.getConsumerGroup(), one.zeroMs);
            }
        } finally {
            threads.shutdownNow();
            all.forEach(one -> one.consumer.shutdown());
            all.get(0).producer.shutdown();
        }
        return zeros;
    }

    private Void produce(long beginMs) throws Exception {
        for (long atMs : stored) {
            waitUntil(beginMs + atMs);
            if (zeroMs != 0) {
                break;
            }
            producer.send(message(), queue);
        }
        return null;
    }

    private Void consume(long beginMs, long commitMs) throws Exception {
        int done = 0;
        long commitsMs = beginMs + firstCommitMs;
        while (zeroMs == 0) {
            PullResult found = consumer.pull(queue, "*", done, PULLED);
            if (found.getPullStatus() != PullStatus.FOUND) {
                waitUntil(System.currentTimeMillis() + 1);  // It is being sent.
                continue;
            }
            for (int i = 0; i < found.getMsgFoundList().size() && zeroMs == 0; i++) {
                waitUntil(beginMs + consumed[done]);
                done++;
                if (done == sent.get()) {
                    zeroMs = System.currentTimeMillis();
                }
                if (zeroMs != 0 || System.currentTimeMillis() >= commitsMs) {
                    commit(done);
                    commitsMs = System.currentTimeMillis() + commitMs;
                }
            }
        }
        return null;
    }

    private Message message() {
        int number = sent.getAndIncrement();
        return new Message(queue.getTopic(), ("m" + number).getBytes(StandardCharsets.UTF_8));
    }

    private void commit(long offset) throws Exception {
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, offset, true);
    }

    private static void waitUntil(long ms) throws InterruptedException {
        Thread.sleep(Math.max(0, ms - System.currentTimeMillis()));
    }

    private static long[] times(String text) {
        return Arrays.stream(text.split(",")).mapToLong(Long::parseLong).toArray();
    }
}
