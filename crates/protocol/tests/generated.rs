//! The messages that are checked in are those of the protobuf files. They are checked in so that a build
//! needs no protobuf compiler; this test brings one, in Rust.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

#[test]
fn the_messages_are_those_of_the_protobuf_files() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../../api/proto");
    let files = protox::compile(["fairlead/agents/v1alpha1/agents.proto"], [root]).unwrap();
    let place = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        // The server dispatches itself: it reads batches within a budget.
        .build_server(false)
        .out_dir(place.path())
        .compile_fds(files)
        .unwrap();
    let generated = fs::read(place.path().join("fairlead.agents.v1alpha1.rs")).unwrap();
    let kept = here.join("src/generated.rs");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&kept, &generated).unwrap();
    }
    assert!(
        fs::read(&kept).unwrap_or_default() == generated,
        "crates/protocol/src/generated.rs is not what api/proto says; write it anew with \
         `UPDATE=1 cargo nextest run -p protocol --test generated` and look at the difference"
    );
}
