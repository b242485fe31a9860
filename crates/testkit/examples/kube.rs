//! A real API server to try things on: prints its kubeconfig's path, and runs until it is interrupted.
//!
//! `KUBEBUILDER_ASSETS=$(scripts/kube-assets) cargo run -p testkit --example kube`

#![allow(clippy::print_stdout, reason = "an example prints")]

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = testkit::KubeServer::start().await;
    println!("{}", server.kubeconfig_path().display());
    std::future::pending::<()>().await;
}
