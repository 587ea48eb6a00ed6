//! Generates the wire types from `protobuf/*.proto` without a `protoc` binary.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "protobuf/common.proto",
        "protobuf/lookup.proto",
        "protobuf/produce.proto",
        "protobuf/log.proto",
        "protobuf/subscriptions.proto",
        "protobuf/consume.proto",
        "protobuf/groups.proto",
        "protobuf/txn.proto",
        "protobuf/admin.proto",
        "protobuf/peers.proto",
        "protobuf/metadata.proto",
    ];
    println!("cargo:rerun-if-changed=protobuf");
    let descriptors = protox::compile(files, ["protobuf"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(out, protox::prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_server(true)
        .build_client(true)
        .compile_fds(descriptors)?;
    // Another's API: called, never served, and not shown by our reflection.
    tonic_prost_build::configure()
        .bytes(".")
        .build_server(false)
        .build_client(true)
        .compile_fds(protox::compile(["protobuf/etcd.proto"], ["protobuf"])?)?;
    // Between our own nodes: not shown by the reflection of what clients may call. Its one method is served and called with a codec
    // that looks at a message before it is decoded, which generated code cannot be told to use.
    tonic_prost_build::configure()
        .bytes(".")
        .build_server(false)
        .build_client(false)
        .compile_fds(protox::compile(["protobuf/bookie.proto"], ["protobuf"])?)?;
    Ok(())
}
