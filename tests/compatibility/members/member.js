// One member of a consumer group over kafkajs, in a process of its own. Settings and lines are those of member.py.
//
//     node member.js SETTINGS
//
// kafkajs has no assignor `range`, so one is here: it shares a group with other clients by that name (case KA-06).

const { Kafka, logLevel, AssignerProtocol } = require("kafkajs");

const { MemberMetadata, MemberAssignment } = AssignerProtocol;
const settings = Object.assign(
  { protocol: "eager", instance: null, session_ms: 6000, batch: 50, work_ms: 0, reset: "earliest", refresh_ms: 5000, commits: true },
  JSON.parse(process.argv[2]),
);

function say(words) {
  const at = Number(process.hrtime.bigint()) / 1e9;
  process.stdout.write(JSON.stringify({ at, ...words }) + "\n");
}

// Runs of neighbouring partitions of each topic, for its members in order of their ids.
const range = ({ cluster }) => ({
  name: "range",
  version: 1,
  async assign({ members }) {
    const topics = new Map();
    for (const member of members) {
      for (const topic of MemberMetadata.decode(member.memberMetadata).topics) {
        topics.set(topic, [...(topics.get(topic) || []), member.memberId]);
      }
    }
    const given = Object.fromEntries(members.map((member) => [member.memberId, {}]));
    for (const [topic, subscribed] of topics) {
      await cluster.addMultipleTargetTopics([topic]);
      const partitions = cluster.findTopicPartitionMetadata(topic).map((row) => row.partitionId).sort((a, b) => a - b);
      subscribed.sort();
      let first = 0;
      subscribed.forEach((id, place) => {
        const size = Math.floor(partitions.length / subscribed.length) + (place < partitions.length % subscribed.length ? 1 : 0);
        given[id][topic] = partitions.slice(first, first + size);
        first += size;
      });
    }
    return Object.entries(given).map(([memberId, assignment]) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({ version: 1, assignment, userData: Buffer.alloc(0) }),
    }));
  },
  protocol({ topics }) {
    return { name: "range", metadata: MemberMetadata.encode({ version: 1, topics, userData: Buffer.alloc(0) }) };
  },
});

async function main() {
  const kafka = new Kafka({ clientId: "kafkajs", brokers: [settings.address], logLevel: logLevel.NOTHING, retry: { retries: 30, maxRetryTime: 1000 } });
  const consumer = kafka.consumer({
    groupId: settings.group,
    sessionTimeout: settings.session_ms,
    rebalanceTimeout: 20000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    metadataMaxAge: settings.refresh_ms,
    partitionAssigners: [range],
    retry: { retries: 30, maxRetryTime: 1000, restartOnFailure: async () => true },
  });
  const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events;
  consumer.on(GROUP_JOIN, ({ payload }) => say({ has: (payload.memberAssignment[settings.topic] || []).slice().sort((a, b) => a - b) }));
  consumer.on(REBALANCING, () => say({ has: [] }));
  consumer.on(CRASH, ({ payload }) => {
    say({ has: [] });
    say({ error: payload.error.name });
  });
  const leave = async () => {
    await consumer.disconnect();
    say({ left: true });
    process.exit(0);
  };
  process.stdin.once("data", leave);
  process.stdin.once("end", leave);
  await consumer.connect();
  await consumer.subscribe({ topics: [settings.topic], fromBeginning: settings.reset === "earliest" });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      const { partition } = batch;
      for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += settings.batch) {
        const part = batch.messages.slice(at, at + settings.batch);
        await new Promise((done) => setTimeout(done, settings.work_ms * part.length));
        say({ read: part.map((row) => [partition, Number(row.offset), row.value.toString()]) });
        const last = part[part.length - 1].offset;
        resolveOffset(last);
        if (settings.commits) {
          try {
            await consumer.commitOffsets([{ topic: settings.topic, partition, offset: String(Number(last) + 1) }]);
            say({ committed: true });
          } catch (failure) {
            say({ committed: failure.type || failure.name });
            throw failure;
          }
        }
        await heartbeat();
      }
    },
  });
}

main().catch((failure) => {
  say({ error: failure.name });
  process.exit(1);
});
