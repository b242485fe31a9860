//! Compiles the protobuf files: in Rust, so that there is no protoc to install.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    const ROOT: &str = "../../api/proto";
    println!("cargo::rerun-if-changed={ROOT}");
    let files = protox::compile(["fairlead/agents/v1alpha1/agents.proto"], [ROOT])?;
    tonic_prost_build::configure()
        .build_transport(false)
        // The server dispatches itself: it reads batches within a budget.
        .build_server(false)
        .compile_fds(files)?;
    Ok(())
}
