//! The console in a real browser: Chromium, a real process, real API servers. The steps are in
//! `console/test`, in the browser's own language.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use testkit::{KubeServer, requires};

#[tokio::test(flavor = "multi_thread")]
async fn kube_the_console_in_a_real_browser() {
    requires!(kube, browser);
    let (first, second) = tokio::join!(KubeServer::start(), KubeServer::start());
    let (first_config, second_config) = (first.kubeconfig_path(), second.kubeconfig_path());
    let run = move || {
        Command::new("node")
            .args(["--test", "--test-reporter=spec", "test/console.test.mjs"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../console"))
            .env("FAIRLEAD_BIN", env!("CARGO_BIN_EXE_fairlead"))
            .env("KUBE_FIRST", first_config)
            .env("KUBE_SECOND", second_config)
            .status()
            .unwrap()
    };
    let ended = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(ended.success(), "a step failed; what it says is above");
    drop((first, second));
}
