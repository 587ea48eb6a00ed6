//! Kafka RecordBatch v2: the one encoding of records on every wire and every disk.
