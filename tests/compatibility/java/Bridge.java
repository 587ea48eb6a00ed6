import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * Lets the checks, which are written once, use Kafka's Java clients: one JSON object per line in, one out (none for "send").
 *
 * Bytes travel as base64, null as null. An error is told by the simple name of its exception.
 */
public final class Bridge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, Sender> SENDERS = new HashMap<>();
    private static final Map<Integer, Consumer<byte[], byte[]>> CONSUMERS = new HashMap<>();
    private static final Map<String, Admin> ADMINS = new HashMap<>();

    /** A producer and what became of its records since the last flush. */
    private static final class Sender {
        final Producer<byte[], byte[]> producer;
        List<Object> outcomes = new ArrayList<>();

        Sender(Properties settings) {
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }

        void send(JsonNode line) {
            List<Header> headers = new ArrayList<>();
            line.get("headers").forEach(pair -> headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1)))));
            Long time = line.get("time").isNull() ? null : line.get("time").asLong();
            List<Object> mine = outcomes;
            int place = mine.size();
            mine.add(null);
            try {
                producer.send(
                    new ProducerRecord<>(
                        line.get("topic").asText(), line.get("partition").asInt(), time, bytes(line.get("key")), bytes(line.get("value")), headers),
                    (stored, failure) -> mine.set(place, failure == null ? (Object) stored.offset() : name(failure)));
            } catch (RuntimeException failure) {
                mine.set(place, name(failure));
            }
        }

        List<Object> flush() {
            producer.flush();
            List<Object> found = outcomes;
            outcomes = new ArrayList<>();
            return found;
        }
    }

    private static String name(Throwable failure) {
        Throwable cause = failure instanceof ExecutionException && failure.getCause() != null ? failure.getCause() : failure;
        return cause.getClass().getSimpleName();
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static Properties properties(JsonNode settings) {
        Properties properties = new Properties();
        settings.properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    private static Consumer<byte[], byte[]> consumer(JsonNode settings) {
        return new KafkaConsumer<>(properties(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Admin admin(String address) {
        return ADMINS.computeIfAbsent(address, each -> Admin.create(Map.of("bootstrap.servers", each)));
    }

    /** Assigns partitions and places the consumer. */
    private static void assign(Consumer<byte[], byte[]> consumer, String topic, JsonNode starts) {
        List<TopicPartition> places = new ArrayList<>();
        starts.forEach(pair -> places.add(new TopicPartition(topic, pair.get(0).asInt())));
        consumer.assign(places);
        for (JsonNode pair : starts) {
            TopicPartition place = new TopicPartition(topic, pair.get(0).asInt());
            if (pair.get(1).isNumber()) {
                consumer.seek(place, pair.get(1).asLong());
            } else if (pair.get(1).asText().equals("latest")) {
                consumer.seekToEnd(List.of(place));
            } else {
                consumer.seekToBeginning(List.of(place));
            }
        }
    }

    private static ArrayNode records(Iterable<ConsumerRecord<byte[], byte[]>> found) {
        ArrayNode rows = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : found) {
            ObjectNode row = rows.addObject().put("partition", record.partition()).put("offset", record.offset()).put("time", record.timestamp());
            row.put("key", text(record.key())).put("value", text(record.value()));
            ArrayNode headers = row.putArray("headers");
            record.headers().forEach(header -> headers.addArray().add(header.key()).add(text(header.value())));
        }
        return rows;
    }

    private static Object answer(JsonNode line) throws Exception {
        int id = line.path("id").asInt();
        switch (line.get("do").asText()) {
            case "version":
                return AppInfoParser.getVersion();
            case "producer":
                SENDERS.put(id, new Sender(properties(line.get("settings"))));
                return null;
            case "flush":
                return SENDERS.get(id).flush();
            case "end producer":
                SENDERS.remove(id).producer.close(Duration.ofSeconds(5));
                return null;
            case "consumer":
                CONSUMERS.put(id, consumer(line.get("settings")));
                assign(CONSUMERS.get(id), line.get("topic").asText(), line.get("starts"));
                return null;
            case "take":
                return records(CONSUMERS.get(id).poll(Duration.ofMillis(line.get("ms").asLong())));
            case "position":
                return CONSUMERS.get(id).position(new TopicPartition(line.get("topic").asText(), line.get("partition").asInt()));
            case "end consumer":
                CONSUMERS.remove(id).close();
                return null;
            case "join":
                try (Consumer<byte[], byte[]> consumer = consumer(line.get("settings"))) {
                    consumer.subscribe(java.util.List.of(line.get("topic").asText()));
                    return records(consumer.poll(Duration.ofSeconds(10)));
                }
            case "offset_for":
            case "ends":
                try (Consumer<byte[], byte[]> consumer = consumer(line.get("settings"))) {
                    return offsets(consumer, line);
                }
            default:
                return administer(admin(line.get("address").asText()), line);
        }
    }

    private static Object offsets(Consumer<byte[], byte[]> consumer, JsonNode line) {
        TopicPartition place = new TopicPartition(line.get("topic").asText(), line.path("partition").asInt());
        if (line.get("do").asText().equals("ends")) {
            List<TopicPartition> one = List.of(place);
            return List.of(consumer.beginningOffsets(one).get(place), consumer.endOffsets(one).get(place));
        }
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, line.get("time").asLong())).get(place);
        return found == null ? null : found.offset();
    }

    private static Object administer(Admin admin, JsonNode line) throws Exception {
        String topic = line.path("topic").asText();
        switch (line.get("do").asText()) {
            case "create":
                Map<String, String> configs = new HashMap<>();
                line.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
                admin.createTopics(List.of(new NewTopic(topic, line.get("partitions").asInt(), (short) 1).configs(configs))).all().get();
                return null;
            case "delete":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "describe":
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            case "configs":
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                Map<String, String> told = new HashMap<>();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(each -> told.put(each.name(), each.value()));
                return told;
            case "grow":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(line.get("partitions").asInt()))).all().get();
                return null;
            case "cluster":
                Collection<Node> nodes = admin.describeCluster().nodes().get();
                List<String> brokers = nodes.stream().map(node -> node.host() + ":" + node.port()).toList();
                Node controller = admin.describeCluster().controller().get();
                return JSON.createArrayNode().add(JSON.valueToTree(brokers)).add(controller == null ? null : controller.id())
                    .add(admin.describeCluster().clusterId().get());
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(line.get("offset").asLong());
                admin.deleteRecords(Map.of(new TopicPartition(topic, 0), before)).all().get();
                return null;
            default:
                throw new IllegalArgumentException(line.get("do").asText());
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, true);
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JsonNode line = JSON.readTree(text);
            if (line.get("do").asText().equals("send")) {
                SENDERS.get(line.get("id").asInt()).send(line);
                continue;
            }
            ObjectNode said = JSON.createObjectNode();
            try {
                said.set("found", JSON.valueToTree(answer(line)));
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException && failure.getCause() != null ? failure.getCause() : failure;
                said.put("error", name(failure)).put("words", String.valueOf(cause.getMessage()));
            }
            out.println(JSON.writeValueAsString(said));
        }
        Runtime.getRuntime().halt(0);
    }
}
