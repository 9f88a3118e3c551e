import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's message store, without a broker around it: one command a line, tab separated, one
 * line of JSON back. Times are taken inside, so that the pipe costs nothing.
 *
 * <pre>
 * open   DIRECTORY COMMITLOG_FILE_BYTES
 * read   TOPIC QUEUES                       all messages of queues 0..QUEUES-1, decoded
 * close
 * write  DIRECTORY MESSAGES BODY_BYTES QUEUES   a new store, from the first put until dispatched
 * </pre>
 */
public class StorePeer {
  private static final int AT_ONCE = 1000;
  private static final int BATCH_BYTES = 1_000_000;
  private static final int PROPERTIES_ROOM = 100;
  private static final int BODIES = 256;
  private static final String TOPIC = "BENCH";
  private static final String[] TAGS = {"TagA", "TagB", "TagC"};

  private DefaultMessageStore store;

  public static void main(String[] arguments) throws Exception {
    StorePeer peer = new StorePeer();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(peer.answer(line.split("\t")));
    }
    System.exit(0);
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "open":
        store = start(words[1], Integer.parseInt(words[2]));
        return "{}";
      case "read":
        return read(words[1], Integer.parseInt(words[2]));
      case "close":
        store.shutdown();
        return "{}";
      case "write":
        return write(
            words[1],
            Integer.parseInt(words[2]),
            Integer.parseInt(words[3]),
            Integer.parseInt(words[4]));
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private static DefaultMessageStore start(String directory, int fileBytes) throws Exception {
    MessageStoreConfig config = new MessageStoreConfig();
    config.setStorePathRootDir(directory);
    config.setStorePathCommitLog(directory + File.separator + "commitlog");
    config.setMappedFileSizeCommitLog(fileBytes);
    config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
    config.setHaListenPort(0);
    config.setTimerWheelEnable(false);
    config.setDiskMaxUsedSpaceRatio(95);
    config.setFileReservedTime(1_000_000);
    config.setMaxTransferCountOnMessageInMemory(AT_ONCE);
    config.setMaxTransferBytesOnMessageInMemory(64 << 20);
    config.setMaxTransferCountOnMessageInDisk(AT_ONCE);
    config.setMaxTransferBytesOnMessageInDisk(64 << 20);
    DefaultMessageStore made =
        new DefaultMessageStore(
            config,
            new BrokerStatsManager("bench", false),
            (topic, queueId, logicOffset, tagsCode, time, bitMap, properties) -> {},
            new BrokerConfig(),
            new ConcurrentHashMap<>());
    if (!made.load()) {
      throw new IllegalStateException("the store does not load");
    }
    made.start();
    return made;
  }

  private String read(String topic, int queues) throws Exception {
    long begin = System.nanoTime();
    long rows = 0;
    long bodyBytes = 0;
    long offsets = 0;
    long properties = 0;
    for (int queueId = 0; queueId < queues; queueId++) {
      long next = 0;
      long end = store.getMaxOffsetInQueue(topic, queueId);
      while (next < end) {
        GetMessageResult found = store.getMessage("bench", topic, queueId, next, AT_ONCE, null);
        for (SelectMappedBufferResult one : found.getMessageMapedList()) {
          MessageExt message = MessageDecoder.decode(one.getByteBuffer());
          rows++;
          bodyBytes += message.getBody().length;
          offsets += message.getQueueOffset();
          properties += message.getProperties().size();
        }
        next = found.getNextBeginOffset();
        found.release();
      }
    }
    return String.format(
        "{\"seconds\": %.6f, \"rows\": %d, \"bodyBytes\": %d, \"offsets\": %d, \"properties\": %d}",
        (System.nanoTime() - begin) / 1e9, rows, bodyBytes, offsets, properties);
  }

  private String write(String directory, int count, int bodyBytes, int queues) throws Exception {
    DefaultMessageStore made = start(directory, 1 << 30);
    Random random = new Random(1);
    byte[][] bodies = new byte[BODIES][bodyBytes];
    for (byte[] body : bodies) {
      random.nextBytes(body);
    }
    int inBatch = Math.max(1, BATCH_BYTES / (bodyBytes + PROPERTIES_ROOM));
    long begin = System.nanoTime();
    for (int sent = 0, batch = 0; sent < count; sent += inBatch, batch++) {
      List<Message> messages = new ArrayList<>();
      for (int number = sent; number < Math.min(count, sent + inBatch); number++) {
        String tag = TAGS[number % TAGS.length];
        Message message = new Message(TOPIC, tag, "order-" + number, bodies[number % BODIES]);
        MessageClientIDSetter.setUniqID(message);
        messages.add(message);
      }
      PutMessageResult done = made.putMessages(encoded(messages, batch % queues));
      if (!done.isOk()) {
        throw new IllegalStateException(done.toString());
      }
    }
    while (made.dispatchBehindBytes() > 0) {
      Thread.sleep(1);
    }
    double seconds = (System.nanoTime() - begin) / 1e9;
    long rows = 0;
    for (int queueId = 0; queueId < queues; queueId++) {
      rows += made.getMaxOffsetInQueue(TOPIC, queueId);
    }
    made.shutdown();
    return String.format("{\"seconds\": %.6f, \"rows\": %d}", seconds, rows);
  }

  private static MessageExtBatch encoded(List<Message> messages, int queueId) {
    InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
    MessageExtBatch batch = new MessageExtBatch();
    batch.setTopic(TOPIC);
    batch.setQueueId(queueId);
    batch.setBody(MessageDecoder.encodeMessages(messages));
    batch.setBornTimestamp(System.currentTimeMillis());
    batch.setBornHost(host);
    batch.setStoreHost(host);
    batch.setPropertiesString("");
    return batch;
  }
}
