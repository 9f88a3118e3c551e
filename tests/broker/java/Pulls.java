import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** All messages of a topic, pulled and decoded by the official client as fast as it can. */
final class Pulls {
    private static final int MESSAGES = 1000;  // Asked for; a broker gives what it is set to.

    private Pulls() {
    }

    /** Pulls each queue in a thread of its own; returns rows, bytes of bodies, and seconds. */
    static Map<String, Object> run(Session session, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(session.consumer.fetchSubscribeMessageQueues(topic));
        List<Callable<long[]>> works = new ArrayList<>();
        for (MessageQueue queue : queues) {
            works.add(() -> all(session, queue));
        }
        ExecutorService threads = Executors.newFixedThreadPool(queues.size());
        try {
            long begin = System.nanoTime();
            long rows = 0;
            long bytes = 0;
            for (Future<long[]> found : threads.invokeAll(works)) {
                rows += found.get()[0];
                bytes += found.get()[1];
            }
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("rows", rows);
            result.put("bytes", bytes);
            result.put("seconds", (System.nanoTime() - begin) / 1e9);
            return result;
        } finally {
            threads.shutdown();
        }
    }

    private static long[] all(Session session, MessageQueue queue) throws Exception {
        long offset = session.consumer.minOffset(queue);
        long end = session.consumer.maxOffset(queue);
        long rows = 0;
        long bytes = 0;
        while (offset < end) {
            PullResult result = session.consumer.pull(queue, "*", offset, MESSAGES);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result);
            }
            for (MessageExt message : result.getMsgFoundList()) {
                rows++;
                bytes += message.getBody().length;
            }
            offset = result.getNextBeginOffset();
        }
        return new long[] {rows, bytes};
    }
}
