import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One store directory in the hands of DefaultMessageStore, as a broker has it.
 *
 * <p>What differs between 4.9 and 5 (constructors, the class of a message to put) goes by reflection.
 */
final class Opened {
    private static final long WAIT_MS = 20_000;
    private static final int PULL = 32;
    private final DefaultMessageStore store;
    private boolean started;

    /** Construct, which opens the file {@code lock} and nothing else. */
    Opened(String root, int commitLog, int consumeQueue, int slots, int units) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(commitLog);
        config.setMappedFileSizeConsumeQueue(consumeQueue);
        config.setMaxHashSlotNum(slots);
        config.setMaxIndexNum(units);
        config.setMaxMessageSize(commitLog / 2);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        // A slow machine must not make a put fail.
        config.setOsPageCacheBusyTimeOutMills(20_000);
        try {
            MessageStoreConfig.class.getMethod("setTimerWheelEnable", boolean.class)
                    .invoke(config, false);
        } catch (NoSuchMethodException e) {
            // 4.9 has no timer.
        }
        Object listener = Proxy.newProxyInstance(Opened.class.getClassLoader(),
                new Class<?>[] {MessageArrivingListener.class}, (proxy, method, given) -> null);
        List<Object> parts = new ArrayList<>(Arrays.asList(config,
                new BrokerStatsManager("judge", true), listener, new BrokerConfig()));
        Constructor<?> constructor = null;
        for (Constructor<?> found : DefaultMessageStore.class.getConstructors()) {
            constructor = found;
        }
        if (constructor.getParameterCount() == 5) {
            parts.add(new ConcurrentHashMap<>());  // Topic settings, since 5.
        }
        store = (DefaultMessageStore) constructor.newInstance(parts.toArray());
    }

    /** Tell whether the broker would go on; it exits otherwise. */
    boolean load() {
        return store.load();
    }

    /** Take the lock and go to work; throws when the lock is held. Returns when all is dispatched. */
    Object start() throws Exception {
        store.start();
        started = true;
        await();
        return null;
    }

    /** What consumers would get: queue by queue [low, high) and every message in it. */
    Map<String, Object> tell() throws Exception {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("maxPhysicalOffset", store.getMaxPhyOffset());
        List<Object> queues = new ArrayList<>();
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        for (String topic : new TreeMap<>(table).keySet()) {
            for (Integer queueId : new TreeMap<>(table.get(topic)).keySet()) {
                queues.add(queue(topic, queueId));
            }
        }
        told.put("queues", queues);
        return told;
    }

    private Map<String, Object> queue(String topic, int queueId) throws Exception {
        long low = store.getMinOffsetInQueue(topic, queueId);
        long high = store.getMaxOffsetInQueue(topic, queueId);
        List<Object> messages = new ArrayList<>();
        long next = low;
        while (next < high) {
            GetMessageResult found = store.getMessage("judge", topic, queueId, next, PULL, null);
            if (found == null) {
                break;
            }
            for (ByteBuffer buffer : found.getMessageBufferList()) {
                MessageExt m = MessageDecoder.decode(buffer.duplicate(), true, false);
                messages.add(m == null ? null : Arrays.asList(m.getQueueOffset(),
                        m.getCommitLogOffset(), m.getStoreSize(), m.getKeys(), digest(m.getBody())));
            }
            next = Math.max(next + 1, found.getNextBeginOffset());
            found.release();
        }
        Map<String, Object> queue = new LinkedHashMap<>();
        queue.put("topic", topic);
        queue.put("queueId", queueId);
        queue.put("low", low);
        queue.put("high", high);
        queue.put("messages", messages);
        return queue;
    }

    /** Append a message; returns [status, physical offset, bytes, queue offset] when dispatched. */
    List<Object> put(String topic, int queueId, String body, String key) throws Exception {
        MessageExt m = (MessageExt) innerClass().getConstructor().newInstance();
        m.setTopic(topic);
        m.setQueueId(queueId);
        m.setBody(body.getBytes(StandardCharsets.UTF_8));
        m.setKeys(key);
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        m.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        m.getClass().getMethod("setPropertiesString", String.class)
                .invoke(m, MessageDecoder.messageProperties2String(m.getProperties()));
        Method put = DefaultMessageStore.class.getMethod("putMessage", innerClass());
        PutMessageResult done = (PutMessageResult) put.invoke(store, m);
        AppendMessageResult where = done.getAppendMessageResult();
        if (!done.isOk()) {
            throw new IllegalStateException(done.getPutMessageStatus() + " " + where);
        }
        await();
        return Arrays.asList(done.getPutMessageStatus().toString(), where.getWroteOffset(),
                where.getWroteBytes(), where.getLogicsOffset());
    }

    /** The physical offsets that the index gives for a key. */
    List<Object> find(String topic, String key) {
        List<Object> found = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, PULL, 0, Long.MAX_VALUE);
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            found.add(MessageDecoder.decode(buffer.duplicate(), true, false).getCommitLogOffset());
        }
        result.release();
        return found;
    }

    /**
     * Forget the store as a killed broker does. Its files stay mapped and its threads wait for the
     * end of the JVM: shutdown() unmaps files, and a thread that still writes to where one was
     * would write into the file of the next store, which is mapped there by then. Only threads are
     * stopped that look for work every few milliseconds: for new messages, and for slaves.
     */
    void drop() throws Exception {
        if (started) {
            ((ServiceThread) field(store, "reputMessageService")).shutdown();
            Object slaves = field(store, "haService");
            ((ServiceThread) field(slaves, "groupTransferService")).shutdown();
        }
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** Shut down as a broker does. The JVM must end then: see drop. */
    void close() {
        store.shutdown();
    }

    private void await() throws InterruptedException {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(store.dispatchBehindBytes() + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    private static Class<?> innerClass() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.common.message.MessageExtBrokerInner");
        } catch (ClassNotFoundException e) {
            return Class.forName("org.apache.rocketmq.store.MessageExtBrokerInner");  // 4.9
        }
    }

    private static String digest(byte[] body) throws Exception {
        StringBuilder out = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-1").digest(body)) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }
}
