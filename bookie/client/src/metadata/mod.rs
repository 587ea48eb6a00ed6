//! Changes of ledger metadata.
