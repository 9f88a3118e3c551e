import java.io.BufferedInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What a broker makes of a broker.conf, by the steps of BrokerStartup. */
final class Loaded {
    private Loaded() {
    }

    static Map<String, Object> of(String file) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = new BufferedInputStream(new FileInputStream(file))) {
            properties.load(in);
        }
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(properties, config);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("properties", new TreeMap<>(properties));
        found.put("fileReservedTime", config.getFileReservedTime());
        found.put("deleteWhen", config.getDeleteWhen());
        found.put("diskMaxUsedSpaceRatio", config.getDiskMaxUsedSpaceRatio());
        found.put("cleanFileForciblyEnable", config.isCleanFileForciblyEnable());
        return found;
    }
}
