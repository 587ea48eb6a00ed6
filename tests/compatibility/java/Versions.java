import java.io.DataInputStream;
import java.io.EOFException;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * KA-01, step 2: for every version of every API that the server tells, a small valid request; the answer is read by Kafka's own message
 * classes, to its last byte, and carries no error but the expected one.
 *
 * Versions HOST PORT TOPIC. Prints one line per trouble and the count at the end; exit code 1 when there was any.
 */
public final class Versions {
    private final String host;
    private final int port;
    private final String topic;
    private Uuid id = Uuid.ZERO_UUID;
    private final List<String> wrong = new ArrayList<>();
    private int asked;

    private Versions(String host, int port, String topic) {
        this.host = host;
        this.port = port;
        this.topic = topic;
    }

    /** What is not asked: a controller's and other brokers' business, or it changes the node for good, or an empty request is not valid. */
    private static final Set<Short> LEFT_OUT = Set.of((short) 7, (short) 24, (short) 27, (short) 29, (short) 57, (short) 64, (short) 80, (short) 81);

    private ApiMessage ask(ApiKeys api, short version, ApiMessage body) throws Exception {
        RequestHeader header = new RequestHeader(api, version, "versions", 7);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.data().size(cache, header.headerVersion()) + body.size(cache, version);
        ByteBuffer frame = ByteBuffer.allocate(4 + size).putInt(size);
        ByteBufferAccessor writer = new ByteBufferAccessor(frame);
        header.data().write(writer, cache, header.headerVersion());
        body.write(writer, cache, version);
        try (Socket socket = new Socket(host, port)) {
            socket.setSoTimeout(5_000);
            OutputStream out = socket.getOutputStream();
            out.write(frame.array());
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            ByteBuffer bytes = ByteBuffer.wrap(answer);
            ResponseHeader head = ResponseHeader.parse(bytes, api.responseHeaderVersion(version));
            if (head.correlationId() != 7) {
                throw new IllegalStateException("correlation id " + head.correlationId());
            }
            ApiMessage message = api.messageType.newResponse();
            message.read(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                throw new IllegalStateException(bytes.remaining() + " bytes follow the answer");
            }
            return message;
        }
    }

    private ApiMessage request(ApiKeys api, short version) {
        switch (api) {
            case PRODUCE: {
                MemoryRecords records = MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(1L, "v".getBytes()));
                var partition = new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records);
                var data = new ProduceRequestData.TopicProduceData().setPartitionData(List.of(partition));
                data = version >= 13 ? data.setTopicId(id) : data.setName(topic);
                var topics = new ProduceRequestData.TopicProduceDataCollection();
                topics.add(data);
                return new ProduceRequestData().setAcks((short) -1).setTimeoutMs(5_000).setTopicData(topics);
            }
            case FETCH: {
                var partition = new FetchRequestData.FetchPartition().setPartition(0).setFetchOffset(0).setPartitionMaxBytes(1 << 20);
                var data = new FetchRequestData.FetchTopic().setPartitions(List.of(partition));
                data = version >= 13 ? data.setTopicId(id) : data.setTopic(topic);
                return new FetchRequestData().setMaxWaitMs(100).setMinBytes(1).setMaxBytes(1 << 20).setTopics(List.of(data));
            }
            case LIST_OFFSETS: {
                var partition = new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(0).setTimestamp(-1);
                var data = new ListOffsetsRequestData.ListOffsetsTopic().setName(topic).setPartitions(List.of(partition));
                return new ListOffsetsRequestData().setReplicaId(-1).setTopics(List.of(data));
            }
            case METADATA: {
                var data = new MetadataRequestData.MetadataRequestTopic().setName(topic);
                return new MetadataRequestData().setTopics(List.of(data)).setAllowAutoTopicCreation(version < 4);
            }
            case OFFSET_FOR_LEADER_EPOCH: {
                var partition = new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition().setPartition(0).setLeaderEpoch(0);
                var data = new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic().setTopic(topic).setPartitions(List.of(partition));
                var topics = new OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection();
                topics.add(data);
                return new OffsetForLeaderEpochRequestData().setReplicaId(-1).setTopics(topics);
            }
            case CREATE_TOPICS: {
                var data = new CreateTopicsRequestData.CreatableTopic().setName(topic + "-v" + version).setNumPartitions(1).setReplicationFactor((short) 1);
                var topics = new CreateTopicsRequestData.CreatableTopicCollection();
                topics.add(data);
                return new CreateTopicsRequestData().setTopics(topics).setTimeoutMs(5_000).setValidateOnly(true);
            }
            case OFFSET_FETCH: {
                if (version >= 8) {
                    var data = new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(topic).setPartitionIndexes(List.of(0));
                    var group = new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("g").setTopics(List.of(data));
                    return new OffsetFetchRequestData().setGroups(List.of(group));
                }
                var data = new OffsetFetchRequestData.OffsetFetchRequestTopic().setName(topic).setPartitionIndexes(List.of(0));
                return new OffsetFetchRequestData().setGroupId("g").setTopics(List.of(data));
            }
            case DELETE_RECORDS: {
                var partition = new DeleteRecordsRequestData.DeleteRecordsPartition().setPartitionIndex(0).setOffset(0);
                var data = new DeleteRecordsRequestData.DeleteRecordsTopic().setName(topic).setPartitions(List.of(partition));
                return new DeleteRecordsRequestData().setTopics(List.of(data)).setTimeoutMs(5_000);
            }
            case DESCRIBE_CONFIGS: {
                var data = new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 2).setResourceName(topic);
                return new DescribeConfigsRequestData().setResources(List.of(data.setConfigurationKeys(null))).setIncludeSynonyms(true);
            }
            case CREATE_PARTITIONS: {
                var data = new CreatePartitionsRequestData.CreatePartitionsTopic().setName(topic).setCount(2).setAssignments(null);
                var topics = new CreatePartitionsRequestData.CreatePartitionsTopicCollection();
                topics.add(data);
                return new CreatePartitionsRequestData().setTopics(topics).setTimeoutMs(5_000).setValidateOnly(true);
            }
            case INIT_PRODUCER_ID:
                return new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(60_000);
            case API_VERSIONS:
                return new ApiVersionsRequestData().setClientSoftwareName("compat").setClientSoftwareVersion("1");
            default:
                return api.messageType.newRequest();
        }
    }

    /** The error codes that stand in an answer, where we know its shape. */
    private static List<Short> codes(ApiMessage answer) {
        List<Short> codes = new ArrayList<>();
        if (answer instanceof ProduceResponseData data) {
            data.responses().forEach(topic -> topic.partitionResponses().forEach(each -> codes.add(each.errorCode())));
        } else if (answer instanceof FetchResponseData data) {
            codes.add(data.errorCode());
            data.responses().forEach(topic -> topic.partitions().forEach(each -> codes.add(each.errorCode())));
        } else if (answer instanceof ListOffsetsResponseData data) {
            data.topics().forEach(topic -> topic.partitions().forEach(each -> codes.add(each.errorCode())));
        } else if (answer instanceof MetadataResponseData data) {
            data.topics().forEach(topic -> codes.add(topic.errorCode()));
        } else if (answer instanceof OffsetForLeaderEpochResponseData data) {
            data.topics().forEach(topic -> topic.partitions().forEach(each -> codes.add(each.errorCode())));
        } else if (answer instanceof CreateTopicsResponseData data) {
            data.topics().forEach(topic -> codes.add(topic.errorCode()));
        } else if (answer instanceof DeleteRecordsResponseData data) {
            data.topics().forEach(topic -> topic.partitions().forEach(each -> codes.add(each.errorCode())));
        } else if (answer instanceof DescribeConfigsResponseData data) {
            data.results().forEach(each -> codes.add(each.errorCode()));
        } else if (answer instanceof CreatePartitionsResponseData data) {
            data.results().forEach(each -> codes.add(each.errorCode()));
        } else if (answer instanceof InitProducerIdResponseData data) {
            codes.add(data.errorCode());
        } else if (answer instanceof DescribeClusterResponseData data) {
            codes.add(data.errorCode());
        } else if (answer instanceof ApiVersionsResponseData data) {
            codes.add(data.errorCode());
        }
        return codes;
    }

    private void one(ApiKeys api, short version) {
        asked++;
        String what = api.name + " v" + version;
        try {
            for (short code : codes(ask(api, version, request(api, version)))) {
                if (code != 0) {
                    wrong.add(what + ": " + Errors.forCode(code));
                }
            }
        } catch (SocketTimeoutException none) {
            wrong.add(what + ": no answer");
        } catch (EOFException closed) {
            wrong.add(what + ": closed");
        } catch (Exception failure) {
            wrong.add(what + ": " + failure);
        }
    }

    private void all() throws Exception {
        var table = (ApiVersionsResponseData) ask(ApiKeys.API_VERSIONS, (short) 3, request(ApiKeys.API_VERSIONS, (short) 3));
        short newest = (short) Math.min(12, table.apiKeys().find(ApiKeys.METADATA.id).maxVersion());
        var found = (MetadataResponseData) ask(ApiKeys.METADATA, newest, request(ApiKeys.METADATA, newest));
        id = found.topics().iterator().next().topicId();
        for (ApiVersionsResponseData.ApiVersion range : table.apiKeys()) {
            if (!ApiKeys.hasId(range.apiKey())) {
                wrong.add("an API that is unknown to Kafka: " + range.apiKey());
                continue;
            }
            ApiKeys api = ApiKeys.forId(range.apiKey());
            if (LEFT_OUT.contains(api.id)) {
                continue;
            }
            int low = Math.max(range.minVersion(), api.messageType.lowestSupportedVersion());
            int high = Math.min(range.maxVersion(), api.messageType.highestSupportedVersion(true));
            for (int version = low; version <= high; version++) {
                one(api, (short) version);
            }
        }
        wrong.forEach(System.out::println);
        System.out.println(asked + " versions asked, " + wrong.size() + " wrong");
        System.exit(wrong.isEmpty() ? 0 : 1);
    }

    public static void main(String[] arguments) throws Exception {
        new Versions(arguments[0], Integer.parseInt(arguments[1]), arguments[2]).all();
    }
}
