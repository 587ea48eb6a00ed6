import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of consumer groups, many in one process, as a JVM is slow to start. Settings and lines are those of members/member.py; a line
 * has the member's name besides.
 *
 * In: {"do": "start", "member": NAME, "settings": {..}} and {"do": "leave", "member": NAME}. To kill members, kill the process.
 */
public final class Members {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Thread> THREADS = new HashMap<>();
    private static final Map<String, Boolean> LEAVES = new ConcurrentHashMap<>();

    private static synchronized void say(String member, ObjectNode words) {
        words.put("member", member).put("at", System.nanoTime() / 1e9);
        System.out.println(words);
        System.out.flush();
    }

    /** What a member has; every change is told. */
    private static final class Held implements ConsumerRebalanceListener {
        private final String member;
        private final TreeSet<Integer> partitions = new TreeSet<>();

        Held(String member) {
            this.member = member;
        }

        private void tell() {
            ObjectNode words = JSON.createObjectNode();
            ArrayNode has = words.putArray("has");
            partitions.forEach(has::add);
            say(member, words);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            places.forEach(place -> partitions.add(place.partition()));
            tell();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            places.forEach(place -> partitions.remove(place.partition()));
            tell();
        }
    }

    private static Properties properties(JsonNode settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", settings.get("address").asText());
        all.put("group.id", settings.get("group").asText());
        all.put("auto.offset.reset", settings.path("reset").asText("earliest"));
        all.put("enable.auto.commit", "false");
        all.put("enable.metrics.push", "false");
        all.put("max.poll.records", settings.path("batch").asText("50"));
        all.put("metadata.max.age.ms", settings.path("refresh_ms").asText("5000"));
        all.put("fetch.max.wait.ms", "100");
        all.put("reconnect.backoff.max.ms", "500");
        // When no broker answers, as when the only one begins anew, the client forgets its metadata by default, and its leader joins
        // again as "cached metadata has changed": a rebalance that the server has no part in.
        all.put("metadata.recovery.strategy", "none");
        if (settings.hasNonNull("instance")) {
            all.put("group.instance.id", settings.get("instance").asText());
        }
        String protocol = settings.path("protocol").asText("eager");
        if (protocol.equals("consumer")) {
            all.put("group.protocol", "consumer");
            return all;
        }
        String assignor = protocol.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
        all.put("group.protocol", "classic");
        all.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        all.put("session.timeout.ms", settings.path("session_ms").asText("6000"));
        all.put("heartbeat.interval.ms", "500");
        return all;
    }

    private static void run(String member, JsonNode settings) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(settings), bytes, bytes)) {
            consumer.subscribe(List.of(settings.get("topic").asText()), new Held(member));
            while (!LEAVES.containsKey(member)) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(200));
                if (!found.isEmpty()) {
                    work(member, settings, consumer, found);
                }
            }
        } catch (Exception failure) {
            say(member, JSON.createObjectNode().put("error", failure.getClass().getSimpleName()));
            return;
        }
        say(member, JSON.createObjectNode().put("left", true));
    }

    private static void work(
            String member, JsonNode settings, KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> found)
            throws InterruptedException {
        ObjectNode words = JSON.createObjectNode();
        ArrayNode read = words.putArray("read");
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : found) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            read.addArray().add(record.partition()).add(record.offset()).add(value);
            places.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        Thread.sleep(settings.path("work_ms").asLong(0) * found.count());
        say(member, words);
        if (!settings.path("commits").asBoolean(true)) {
            return;
        }
        try {
            consumer.commitSync(places);
            say(member, JSON.createObjectNode().put("committed", true));
        } catch (FencedInstanceIdException failure) {
            say(member, JSON.createObjectNode().put("committed", failure.getClass().getSimpleName()));
            throw failure;
        } catch (RuntimeException failure) {
            say(member, JSON.createObjectNode().put("committed", failure.getClass().getSimpleName()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JsonNode line = JSON.readTree(text);
            String member = line.get("member").asText();
            if (line.get("do").asText().equals("leave")) {
                LEAVES.put(member, true);
                continue;
            }
            Thread thread = new Thread(() -> run(member, line.get("settings")), member);
            THREADS.put(member, thread);
            thread.start();
        }
        THREADS.keySet().forEach(member -> LEAVES.put(member, true));
        for (Thread thread : THREADS.values()) {
            thread.join(20_000);
        }
        Runtime.getRuntime().halt(0);
    }
}
