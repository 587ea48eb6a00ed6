//! [`EtcdStore`]: the facts of a cluster in etcd 3.4 or newer (storage.md Z1, Z2), over gRPC.
//!
//! # Invariants
//! 1. Every key of a cell lies under the cell's own prefix: several cells may share one etcd, and no request reaches another's.
//! 2. Reads are linearizable: none is served from a member's own copy alone.
//! 3. A transaction is sent again only if it certainly changed nothing: it never reached a member, or conflicted with the fence alone.
//!    Every missing answer is `OutcomeUnknown`.
//! 4. A version is etcd's modification revision, so two versions of a key are never equal, also across its deletion.
//! 5. What is not bound to a version (it writes no key whose version it compares) is sent only when no earlier such transaction of this
//!    store can still commit, also in a member that was frozen and wakes: `fence` says how. A key `fence/…` under the prefix is written
//!    for that when the first answer is missing, and stays.
//!
//! What differs from the other stores, by etcd's nature: leases last whole seconds and end up to a second late, never early; history is
//! kept by time (etcd's `--auto-compaction-retention`, ten minutes) and not by number; at its quota every write is refused, with the
//! remedy in the reason: as `Unavailable` where a version shows that nothing was done, as `OutcomeUnknown` elsewhere, since etcd refuses the
//! write that reaches its quota after it has done it.
//!
//! Reading order: `store` (the trait), `request` (a transaction in etcd's words), `fence` (late transactions), `keyspace` (prefixes),
//! `links` (members, deadlines, what an error means), `changes` (watches), `versions` (which releases end leases wrongly).

mod changes;
mod fence;
mod keyspace;
mod links;
mod options;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod versions;

pub use options::EtcdOptions;
pub use store::EtcdStore;
pub use versions::EndpointVersion;
