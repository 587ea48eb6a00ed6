//! Tests of the writer core.
