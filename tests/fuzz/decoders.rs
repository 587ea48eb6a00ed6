//! The decoders: what each takes, and what must hold of whatever it accepts.

use bytes::Bytes;
use hulse_proto::batch::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, Compression, Record};
use hulse_proto::batch::{decode, split, verify_crc, verify_produced};
use hulse_proto::entry::{Entry, EntryHeader, Envelope, HEADER_BYTES, crc32c};
use hulse_proto::error::Fault;
use hulse_proto::id::TopicName;
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::limits::BATCH_BYTES_MAX;
use hulse_proto::wire::{Message, metadata, v1};

use crate::{calls, functions, groups, kafka, log, runner, seeds, segment, transactions};

/// One decoder under test.
pub struct Decoder {
    /// Its folder in the corpus.
    pub name: &'static str,
    /// Decodes; true when the input was accepted. Panics where an accepted value breaks a promise.
    pub accepts: fn(&[u8]) -> bool,
    /// Makes lengths and checksums right again.
    pub repair: fn(&mut [u8]),
    /// Valid values, with names.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
}

fn batch_header(input: &[u8]) -> bool {
    let Ok(view) = BatchHeader::view(input) else {
        return false;
    };
    let length = view.length as usize;
    assert!((BATCH_HEADER_BYTES..=input.len()).contains(&length));
    assert_eq!(BatchHeader::view(&input[..length]), Ok(view));
    assert!(view.end_offset() > view.base_offset);
    assert!(view.base_sequence < 0 || view.last_sequence() >= 0);
    let _ = view.compression();
    let whole = Bytes::copy_from_slice(input);
    let parts: Vec<_> = split(&whole).take_while(Result::is_ok).flatten().collect();
    assert!(parts.concat() == input[..parts.iter().map(Bytes::len).sum()]);
    true
}

fn batch_produced(input: &[u8]) -> bool {
    let Ok(view) = verify_produced(input, BATCH_BYTES_MAX) else {
        return false;
    };
    assert_eq!(verify_crc(input), Ok(view));
    assert_eq!(
        (view.length as usize, view.span()),
        (input.len(), view.count)
    );
    assert!(view.count > 0 && !view.is_control());
    assert!(view.producer_id.0 < 0 || view.base_sequence >= 0 && view.producer_epoch >= 0);
    true
}

fn batch_records(input: &[u8]) -> bool {
    let batch = Bytes::copy_from_slice(input);
    let Ok(records) = decode(&batch) else {
        return false;
    };
    let view = verify_crc(&batch).expect("what decodes has a right checksum");
    assert_eq!(records.len(), view.count as usize);
    assert!(records.is_sorted_by(|a, b| a.offset_delta < b.offset_delta));
    assert!(
        records
            .last()
            .is_none_or(|last| last.offset_delta < view.span())
    );
    if !records.is_empty() {
        rebuilt_batch_has_the_same_records(records);
    }
    true
}

fn rebuilt_batch_has_the_same_records(mut records: Vec<Record>) {
    let mut builder = BatchBuilder::new(Compression::None).expect("none is supported");
    for (delta, record) in (0..).zip(&mut records) {
        if builder.push(&record.view()).is_err() {
            return; // a batch may hold larger records than our builder makes
        }
        record.offset_delta = delta;
    }
    assert_eq!(decode(&builder.build(None)), Ok(records));
}

fn repair_batch(input: &mut [u8]) {
    if input.len() >= BATCH_HEADER_BYTES {
        let length = input.len() as u32 - 12;
        input[8..12].copy_from_slice(&length.to_be_bytes());
        input[16] = 2;
        let crc = crc32c(&input[21..]);
        input[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

fn entry_header(input: &[u8]) -> bool {
    let Ok(header) = EntryHeader::decode(input) else {
        return false;
    };
    // Flags and the reserved field are read and not kept.
    if input[2..4] == [0; 2] && input[36..44] == [0; 8] {
        assert_eq!(header.encode(), input[..HEADER_BYTES]);
    }
    true
}

fn entry(input: &[u8]) -> bool {
    let Ok(entry) = Entry::decode(Bytes::copy_from_slice(input)) else {
        return false;
    };
    assert_eq!(entry.verify(), Ok(()));
    let parts = [entry.envelope(), entry.body()].concat();
    assert_eq!(parts, input[HEADER_BYTES..]);
    true
}

/// Makes the header's checksum right again.
pub fn repair_entry_header(input: &mut [u8]) {
    if input.len() >= HEADER_BYTES {
        let crc = crc32c(&input[..HEADER_BYTES - 4]);
        input[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
}

fn repair_entry(input: &mut [u8]) {
    if input.len() >= HEADER_BYTES {
        let payload_len = (input.len() - HEADER_BYTES) as u32;
        let payload_crc = crc32c(&input[HEADER_BYTES..]);
        input[64..68].copy_from_slice(&payload_len.to_le_bytes());
        input[68..72].copy_from_slice(&payload_crc.to_le_bytes());
        repair_entry_header(input);
    }
}

fn envelope(input: &[u8]) -> bool {
    let Ok(envelope) = Envelope::decode(input) else {
        return false;
    };
    assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
    true
}

fn repair_envelope(input: &mut [u8]) {
    if let Some(end) = input.len().checked_sub(4) {
        let crc = crc32c(&input[..end]);
        input[end..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn ledger_metadata(input: &[u8]) -> bool {
    let Ok(ledger) = LedgerMetadata::decode(input) else {
        return false;
    };
    let _ = (
        ledger.last_fragment(),
        ledger.fragment_of(hulse_proto::id::EntryId(u64::MAX)),
    );
    let encoded = ledger.encode();
    assert_eq!(LedgerMetadata::decode(&encoded).ok(), Some(ledger));
    true
}

fn message<M: Message + Default + PartialEq>(input: &[u8]) -> bool {
    let Ok(value) = M::decode(input) else {
        return false;
    };
    assert!(M::decode(&value.encode_to_vec()[..]).as_ref() == Ok(&value));
    true
}

fn fault(input: &[u8]) -> bool {
    let Ok(wire) = v1::Fault::decode(input) else {
        return false;
    };
    let fault = Fault::from_wire(wire);
    assert_eq!(Fault::from_wire(fault.to_wire()), fault);
    let _ = (fault.to_string(), fault.kind());
    true
}

fn topic_name(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else {
        return false;
    };
    let Ok(name) = text.parse::<TopicName>() else {
        return false;
    };
    let parts = [name.tenant(), name.namespace(), name.topic()];
    assert_eq!(parts.join("/"), name.as_str());
    assert_eq!(name.as_str().parse(), Ok(name));
    true
}

fn kafka_request(input: &[u8]) -> bool {
    serving_kafka::testing::decodes(input)
}

fn leave(_: &mut [u8]) {}

macro_rules! decoders {
    ($($test:ident: $name:literal, $accepts:expr, $repair:expr, $seeds:expr;)*) => {
        $(#[test]
        fn $test() {
            runner::run(&Decoder { name: $name, accepts: $accepts, repair: $repair, seeds: $seeds });
        })*
    };
}

decoders! {
    batch_header_survives: "batch_header", batch_header, repair_batch, seeds::batches;
    batch_produced_survives: "batch_produced", batch_produced, repair_batch, seeds::produced_batches;
    batch_records_survive: "batch_records", batch_records, repair_batch, seeds::batches;
    entry_header_survives: "entry_header", entry_header, repair_entry_header, seeds::entries;
    entry_survives: "entry", entry, repair_entry, seeds::entries;
    envelope_survives: "envelope", envelope, repair_envelope, seeds::envelopes;
    ledger_metadata_survives: "ledger_metadata", ledger_metadata, leave, seeds::ledgers;
    metadata_topic_survives: "metadata_topic", message::<metadata::Topic>, leave, seeds::topics;
    metadata_partition_survives: "metadata_partition", message::<metadata::Partition>, leave, seeds::partitions;
    metadata_chain_survives: "metadata_chain", message::<metadata::ChainChunk>, leave, seeds::chains;
    metadata_cell_survives: "metadata_cell", message::<metadata::Cell>, leave, seeds::cells;
    metadata_counter_survives: "metadata_counter", message::<metadata::Counter>, leave, seeds::counters;
    fault_survives: "fault", fault, leave, seeds::faults;
    log_file_header_survives: "log_file_header", log::file_header, log::repair_file_header, log::file_headers;
    log_group_survives: "log_group", log::group, log::repair_group, log::groups;
    log_footer_survives: "log_footer", log::footer, log::repair_footer, log::footers;
    log_page_survives: "log_page", log::page, log::repair_page, log::pages;
    segment_block_survives: "segment_block", segment::block, segment::repair_block, segment::blocks;
    segment_index_survives: "segment_index", segment::index, segment::repair_sealed, segment::indexes;
    segment_directory_survives: "segment_directory", segment::directory, segment::repair_sealed, segment::directories;
    segment_trailer_survives: "segment_trailer", segment::trailer, segment::repair_trailer, segment::trailers;
    bookie_request_survives: "bookie_request", calls::request, leave, calls::requests;
    bookie_answer_survives: "bookie_answer", calls::answer, leave, calls::answers;
    groups_delta_survives: "groups_delta", groups::delta, leave, groups::deltas;
    groups_snapshot_survives: "groups_snapshot", groups::snapshot, leave, groups::snapshots;
    txn_coordinator_delta_survives: "txn_coordinator_delta", transactions::coordinator_delta, leave, transactions::kept;
    txn_coordinator_shard_survives: "txn_coordinator_shard", transactions::coordinator_shard, leave, transactions::kept;
    txn_partition_log_survives: "txn_partition_log", transactions::partition_log, leave, transactions::kept;
    txn_partition_state_survives: "txn_partition_state", transactions::partition_state, leave, transactions::kept;
    txn_partition_change_survives: "txn_partition_change", transactions::partition_change, leave, transactions::kept;
    txn_group_stages_survives: "txn_group_stages", transactions::group_stages, leave, transactions::kept;
    txn_group_change_survives: "txn_group_change", transactions::group_change, leave, transactions::kept;
    txn_staging_delta_survives: "txn_staging_delta", transactions::staging_delta, leave, transactions::kept;
    txn_staging_state_survives: "txn_staging_state", transactions::staging_state, leave, transactions::kept;
    kafka_request_survives: "kafka_request", kafka_request, leave, kafka::requests;
    function_changelog_survives: "function_changelog", functions::changelog, functions::repair, functions::changelogs;
    function_snapshot_survives: "function_snapshot", functions::snapshot, functions::repair, functions::snapshots;
    topic_name_survives: "topic_name", topic_name, leave, seeds::topic_names;
}
