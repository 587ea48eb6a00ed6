//! Tests of one partition.
