import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads all partitions of a topic from the earliest offset with Kafka's Java consumer, which assigns them itself.
 *
 * AssignConsumer ADDRESS TOPIC PARTITIONS SIZE RECORDS. Prints one JSON object. Time counts from the first record, when the Java machine and
 * the connections are up; what came with the first poll is not counted.
 */
public final class AssignConsumer {
    private AssignConsumer() {}

    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("enable.metrics.push", "false");
        settings.put("max.poll.records", "5000");
        long size = Long.parseLong(words[3]);
        long wanted = Long.parseLong(words[4]);
        List<TopicPartition> places = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(words[2]); partition++) {
            places.add(new TopicPartition(words[1], partition));
        }
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long all = 0;
            long first = 0;
            long began = 0;
            long until = System.nanoTime() + Duration.ofSeconds(120).toNanos();
            while (all < wanted && System.nanoTime() < until) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                all += records.count();
                if (began == 0 && !records.isEmpty()) {
                    began = System.nanoTime();
                    first = all;
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf("{\"seconds\": %.4f, \"records\": %d, \"mb_per_s\": %.3f}%n", seconds, all, (all - first) * size / 1e6 / seconds);
            System.exit(all >= wanted ? 0 : 1);
        }
    }
}
