//! Foreign batches (`golden/*.hex`: made by `MemoryRecordsBuilder` of kafka-python 3.0.12 with lz4 4.4.5 and zstandard 0.25.0 from the
//! records in `support`), refusals, hostile lengths and counts, properties.

mod golden;
mod hostile;
mod properties;
mod refusals;
mod support;
