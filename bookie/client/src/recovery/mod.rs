//! Recovery of a ledger (storage.md R1–R14).
