//! The user's own records, as many of them as are needed for a judgement.

use std::path::Path;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};

use crate::commands::input::Records;
use crate::failure::{Code, Failure};
use crate::format::Scanner;

/// Bytes of the file that are looked at.
const SAMPLE_BYTES_MAX: usize = 64 << 20;
/// A batch before compression: as the SDK fills it when much is under way.
const BATCH_BYTES: usize = 256 << 10;

/// One record.
#[derive(Debug, Clone)]
pub(super) struct Sampled {
    key: Option<Bytes>,
    value: Option<Bytes>,
}

/// Records in batches that are not built yet.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) batches: Vec<Vec<Sampled>>,
    pub(super) records: u64,
    /// Keys and values.
    pub(super) bytes: u64,
}

impl Sample {
    /// Reads records of a file by a format.
    ///
    /// # Errors
    /// The file cannot be read, is not as the format says, or holds nothing.
    pub(super) async fn read(path: &Path, format: &str) -> Result<Self, Failure> {
        let scanner = Scanner::new(format)?;
        let name = path.display().to_string();
        let file = tokio::fs::File::open(path).await.map_err(|error| {
            Failure::new(Code::File, "cannot read the records")
                .why(error)
                .object(&name)
                .next("name a file with records, one a line, or say with -f how they stand")
        })?;
        let mut records = Records::new(file, &name, scanner.end());
        let mut sample = Self {
            batches: Vec::new(),
            records: 0,
            bytes: 0,
        };
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        while let Some(text) = records.next().await? {
            let scanned = scanner
                .record(&text)
                .map_err(|why| records.wrong(&why, "look at the file, or change -f"))?;
            let record = Sampled {
                key: scanned.key,
                value: scanned.value,
            };
            let bytes = record.bytes();
            if batch_bytes + bytes > BATCH_BYTES && !batch.is_empty() {
                sample.batches.push(std::mem::take(&mut batch));
                batch_bytes = 0;
            }
            batch.push(record);
            batch_bytes += bytes;
            sample.records += 1;
            sample.bytes += bytes as u64;
            if sample.bytes >= SAMPLE_BYTES_MAX as u64 {
                break;
            }
        }
        sample.batches.extend((!batch.is_empty()).then_some(batch));
        if sample.bytes == 0 {
            return Err(
                Failure::new(Code::Input, "there are no records to measure with")
                    .why("the file holds nothing, or empty lines only")
                    .object(&name)
                    .next("name a file with records, one a line"),
            );
        }
        Ok(sample)
    }
}

impl Sampled {
    fn bytes(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        length(&self.key) + length(&self.value)
    }
}

/// Builds a batch, without a producer's stamp. Answers its bytes and those of its records' keys and values.
///
/// # Errors
/// A record is larger than any may be.
pub(super) fn build(
    records: &[Sampled],
    codec: Compression,
    now_ms: i64,
) -> Result<(Bytes, usize), Failure> {
    let mut builder = BatchBuilder::of_any_codec(codec);
    let mut bytes = 0;
    for record in records {
        let pushed = builder.push(&RecordRef {
            timestamp: now_ms,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &[],
        });
        pushed.map_err(|error| {
            Failure::new(Code::Input, "a record cannot be sent")
                .why(error)
                .object("the file")
                .next("a record holds at most 1 MiB")
        })?;
        bytes += record.bytes();
    }
    Ok((builder.build(None), bytes))
}
