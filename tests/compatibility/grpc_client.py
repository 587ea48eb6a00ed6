"""A client of Hulse's own wire, generated from proto/protobuf: what anybody gets who has the protos and no SDK.

`Client` calls, `Produce` and `Consume` are the two kinds of sessions. A refusal is a `Fault` with its reason, wherever it comes: as the
status of a call, in an answer, or in a message of a stream.
"""

import importlib
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

import grpc
from google.rpc import error_details_pb2, status_pb2

import batches

PROTOS = pathlib.Path(__file__).resolve().parent.parent.parent / "proto" / "protobuf"
# Those that clients speak.
NAMES = ("common", "lookup", "produce", "log", "subscriptions", "consume", "txn", "admin")
PROTOCOL_VERSION = 1
PATIENCE = 20
MESSAGE_BYTES = 8 << 20


def generate():
    """The generated modules, by the names of their protos; the two of a service are one here."""
    folder = tempfile.mkdtemp(prefix="hulse-stubs-")
    files = [str(PROTOS / f"{name}.proto") for name in NAMES]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    subprocess.run(command, check=True, capture_output=True)
    sys.path.insert(0, folder)
    found = {}
    for name in NAMES:
        messages = importlib.import_module(f"{name}_pb2")
        services = importlib.import_module(f"{name}_pb2_grpc")
        both = {**vars(messages), **{key: value for key, value in vars(services).items() if key.endswith("Stub")}}
        found[name] = type(name, (), both)
    return found


P = generate()
common, lookup, produce, log, subscriptions, consume, txn, admin = (P[name] for name in NAMES)


class Fault(Exception):
    """A refusal: a reason of the closed set, whether anything was applied, words for a person, facts for a program."""

    def __init__(self, reason, fate, message, details):
        super().__init__(f"{reason}: {message}")
        self.reason, self.fate, self.message, self.details = reason, fate, message, details

    @classmethod
    def of(cls, fault):
        """Of a message on a stream or in an answer."""
        fate = common.Fate.Name(fault.fate).removeprefix("FATE_")
        return cls(fault.reason, fate, fault.message, dict(fault.details))

    @classmethod
    def of_call(cls, error):
        """Of a status; what is none of Hulse's is raised as it came."""
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in status_pb2.Status.FromString(value).details:
                    info = error_details_pb2.ErrorInfo()
                    if detail.Unpack(info):
                        facts = dict(info.metadata)
                        return cls(info.reason, facts.pop("fate", "UNKNOWN"), error.details(), {**facts, "code": error.code().name})
        return error


def raised(message):
    """Raises the fault that a message has."""
    if message.HasField("fault"):
        raise Fault.of(message.fault)


class Client:
    """Calls, and the channel of sessions. One broker, which is all that is needed of a cell of one."""

    def __init__(self, address):
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
        self.channel = grpc.insecure_channel(address, options)
        self.lookup, self.admin = lookup.LookupStub(self.channel), admin.AdminStub(self.channel)
        self.txn, self.log = txn.TxnStub(self.channel), log.LogStub(self.channel)
        self.subscriptions = subscriptions.SubscriptionsStub(self.channel)

    def call(self, method, request):
        try:
            return method(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Fault.of_call(error) from error

    def create_topic(self, name, partitions=1):
        return self.call(self.admin.CreateTopic, admin.CreateTopicRequest(name=name, partitions=partitions)).topic

    def partition(self, topic, index=0, create=False):
        """The partition of a topic, by identity."""
        answer = self.call(self.lookup.Resolve, lookup.ResolveRequest(topics=[topic], auto_create=create))
        found = answer.topics[0]
        raised(found)
        return common.Partition(topic_uuid=found.topic_uuid, index=index)

    def new_producer(self):
        """(id, epoch)"""
        answer = self.call(self.txn.InitProducer, txn.InitProducerRequest(client_id="python"))
        return answer.producer_id, answer.producer_epoch

    def offsets(self, partition, at_time=None):
        return self.call(self.log.Offsets, log.OffsetsRequest(partition=partition, at_time=at_time))

    def read(self, partition, start=0):
        """[(offset, timestamp, key, value, headers)] up to the end; checks that each offset is there or named as skipped."""
        rows, end = [], None
        try:
            for response in self.log.Read(log.ReadRequest(partition=partition, start=start, follow=False), timeout=PATIENCE):
                if response.HasField("end_of_log"):
                    return rows
                found = response.batches
                if end is not None and found.prev_end_offset != end:
                    raise AssertionError(f"the stream goes on at {found.prev_end_offset} where {end} had to come")
                for batch in found.batches:
                    rows += batches.records_of(batch)
                    end = rows[-1][0] + 1
                end = max([end or 0, *(skip.end for skip in found.skipped)])
        except grpc.RpcError as error:
            raise Fault.of_call(error) from error
        return rows


class Session:
    """A bidirectional stream: what is put goes up, what comes down is taken one by one."""

    def __init__(self, method, wrap):
        self.up, self.wrap, self.kept = queue.Queue(), wrap, []
        self.down, self.came = method(iter(self.up.get, None)), queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        try:
            for item in self.down:
                self.came.put(item)
            self.came.put(EOFError("the broker ended the session"))
        except grpc.RpcError as error:
            self.came.put(Fault.of_call(error))

    def put(self, **item):
        self.up.put(self.wrap(**item))

    def take(self, *names, passed=("heartbeat", "credit", "blocked"), kept=(), patience=PATIENCE):
        """(name, item) of the next message; others than those named are an error, but for what is passed over or kept for a later call."""
        for at, (name, item) in enumerate(self.kept):
            if name in names:
                return self.kept.pop(at)
        while True:
            item = self.came.get(timeout=patience)
            if isinstance(item, Exception):
                raise item
            name = item.WhichOneof("item")
            if name in names:
                return name, getattr(item, name)
            if name in kept:
                self.kept.append((name, getattr(item, name)))
            elif name not in passed:
                raise AssertionError(f"{name} came where {names} had to: {getattr(item, name)}")

    def nothing(self, seconds):
        """Nothing but what is passed over comes for so long."""
        try:
            name, item = self.take(patience=seconds)
            raise AssertionError(f"{name} came: {item}")
        except queue.Empty:
            pass

    def end(self):
        self.up.put(None)
        self.down.cancel()


class Produce(Session):
    """One lane of a produce session, of an idempotent producer where `producer` is given."""

    def __init__(self, client, partition, producer=(-1, -1)):
        super().__init__(produce.ProduceStub(client.channel).Session, produce.ProduceUp)
        self.producer, self.seq, self.sequence = producer, 0, 0
        self.put(hello=produce.ProduceHello(client_id="python", protocol_version=PROTOCOL_VERSION))
        self.take("welcome")
        self.put(open=produce.OpenLane(lane=7, partition=partition, acks=produce.ACKS_QUORUM, producer_id=producer[0], producer_epoch=producer[1]))
        name, opened = self.take("opened", "closed")
        if name == "closed":
            raise Fault.of(opened.fault)
        self.opened = opened

    def batch(self, rows, sequence=None, base_time=1_700_000_000_000):
        """The bytes of a batch of (key, value, headers)."""
        sequence = self.sequence if sequence is None else sequence
        records = b"".join(batches.record(value, key, headers, delta=at) for at, (key, value, headers) in enumerate(rows))
        idempotent = self.producer[0] >= 0
        self.sequence = sequence + len(rows)
        return batches.sealed(records, len(rows), base_time=base_time, max_time=base_time, producer=self.producer[0],
                              epoch=self.producer[1], sequence=sequence if idempotent else -1)

    def send(self, bytes_):
        """The acked batch, or its fault."""
        self.put(batch=produce.ProduceBatch(lane=7, seq=self.seq, batch=bytes_))
        self.seq += 1
        name, item = self.take("ack", "nack")
        if name == "nack":
            raise Fault.of(item.fault)
        return item.batches[0]

    def resume(self):
        """After a refusal: goes on with the next one."""
        self.put(resume=produce.ResumeLane(lane=7, from_seq=self.seq))


class Consume(Session):
    """One lane of a consume session."""

    def __init__(self, client, partition, subscription, kind, name="", **attach):
        super().__init__(consume.ConsumeStub(client.channel).Session, consume.ConsumeUp)
        self.shared = kind in (subscriptions.SUBSCRIPTION_TYPE_QUEUE, subscriptions.SUBSCRIPTION_TYPE_KEYED)
        self.acks = 0
        self.put(hello=consume.ConsumeHello(client_id="python", protocol_version=PROTOCOL_VERSION))
        self.welcome = self.take("welcome")[1]
        start = subscriptions.StartAt(earliest=True)
        self.put(attach=consume.Attach(lane=3, partition=partition, subscription=subscription, type=kind, consumer_name=name, start=start, **attach))
        found, attached = self.take("attached", "detached")
        if found == "detached":
            raise Fault.of(attached.fault)
        self.attached = attached

    def grant(self, records):
        lane = {"lane": 3} if self.shared else {}
        self.put(credit=consume.ConsumeCredit(credit_epoch=self.welcome.credit_epoch, records=records, bytes=MESSAGE_BYTES, **lane))

    def delivery(self, patience=PATIENCE):
        """([(offset, key, value, delivery count)], state epoch) of the next delivery."""
        item = self.take("delivery", patience=patience)[1]
        rows = {offset: (key, value) for offset, _, key, value, _ in batches.records_of(item.batch)} if item.batch else {}
        meant = [(offset, *rows[offset], one.delivery_count) for one in item.acquired for offset in range(one.first, one.end)]
        return meant, item.state_epoch

    def say(self, offsets, state_epoch, kind=None, **how):
        """Says something of records, and waits until that is durable; the statuses by name."""
        self.acks += 1
        ranges = [subscriptions.OffsetRange(first=offset, end=offset + 1) for offset in offsets]
        kind = consume.ACK_KIND_INDIVIDUAL if kind is None else kind
        self.put(ack=consume.AckRecords(ack_id=self.acks, lane=3, ranges=ranges, kind=kind, want_receipt=True, state_epoch=state_epoch, **how))
        receipt = self.take("receipt", kept=("delivery",))[1]
        return [consume.AckStatus.Name(status).removeprefix("ACK_STATUS_") for status in receipt.statuses]

    def detach(self):
        self.put(detach=consume.Detach(lane=3))
        self.take("detached", passed=("heartbeat", "blocked", "delivery"))
        self.end()
