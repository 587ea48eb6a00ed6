//! Tests of the recovery core.
