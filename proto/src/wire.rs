//! Generated gRPC and metadata types. Not public API of the SDK.

/// Encodes and decodes every type here.
pub use prost::Message;

/// The wire: services and messages of `protobuf/*.proto`, package `hulse.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::too_many_lines,
    rust_2018_idioms,
    unused_results
)]
pub mod v1 {
    tonic::include_proto!("hulse.v1");
}

/// Values of the metadata store, package `hulse.metadata.v1`.
#[allow(missing_docs, clippy::all, clippy::too_many_lines, rust_2018_idioms)]
pub mod metadata {
    tonic::include_proto!("hulse.metadata.v1");
}

/// The part of etcd's API that the metadata store uses, package `etcdserverpb`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::too_many_lines,
    rust_2018_idioms,
    unused_results
)]
pub mod etcd {
    tonic::include_proto!("etcdserverpb");
}

/// Calls between our own nodes, package `hulse.bookie.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::too_many_lines,
    rust_2018_idioms,
    unused_results
)]
pub mod bookie {
    tonic::include_proto!("hulse.bookie.v1");
}

/// Descriptors of every service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
