//! Foreign batches (golden/, made by kafka-python), refusals, hostile lengths and counts, properties.

mod golden;
mod hostile;
mod properties;
mod refusals;
mod support;
