// kafkajs's own calls about groups: node admin.js {"address": .., "do": .., "group": .., "topic": .., "offsets": [[partition, offset], ..]}
// prints one JSON value.

const { Kafka, logLevel } = require("kafkajs");

const line = JSON.parse(process.argv[2]);

async function answer(admin) {
  switch (line.do) {
    case "list":
      return (await admin.listGroups()).groups.map((group) => group.groupId);
    case "describe": {
      const [group] = (await admin.describeGroups([line.group])).groups;
      return { state: group.state, members: group.members.length };
    }
    case "offsets": {
      const [topic] = await admin.fetchOffsets({ groupId: line.group, topics: [line.topic] });
      return topic.partitions.map((row) => [row.partition, Number(row.offset)]);
    }
    case "set":
      await admin.setOffsets({
        groupId: line.group,
        topic: line.topic,
        partitions: line.offsets.map(([partition, offset]) => ({ partition, offset: String(offset) })),
      });
      return null;
    case "delete":
      return (await admin.deleteGroups([line.group])).map((row) => row.errorCode || 0);
    default:
      throw new Error(line.do);
  }
}

async function main() {
  const admin = new Kafka({ clientId: "kafkajs", brokers: [line.address], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    console.log(JSON.stringify(await answer(admin)));
  } finally {
    await admin.disconnect();
  }
}

main().catch((failure) => {
  console.error(failure.message);
  process.exit(1);
});
