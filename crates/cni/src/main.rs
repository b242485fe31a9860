//! The executable that a container runtime calls.
fn main() {}
