//! The console in a real browser: Chromium, a real process, real API servers. The steps are in
//! `console/test`, in the browser's own language.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod feed;
mod held_lock;

use std::process::Command;
use std::time::Duration;

use stallproof::Tasks;
use testkit::{KubeServer, requires};

/// Runs the steps of a file, with what they find in their environment.
async fn steps(file: &'static str, environment: Vec<(&'static str, String)>) {
    let run = move || {
        Command::new("node")
            .args(["--test", "--test-reporter=spec", file])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../console"))
            .env("FAIRLEAD_BIN", env!("CARGO_BIN_EXE_fairlead"))
            .envs(environment)
            .status()
            .unwrap()
    };
    let ended = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(ended.success(), "a step failed; what it says is above");
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_the_console_in_a_real_browser() {
    requires!(kube, browser);
    let (first, second) = tokio::join!(KubeServer::start(), KubeServer::start());
    let path = |server: &KubeServer| server.kubeconfig_path().display().to_string();
    let environment = vec![("KUBE_FIRST", path(&first)), ("KUBE_SECOND", path(&second))];
    steps("test/console.test.mjs", environment).await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_the_console_changes_and_what_it_has_evidence_of() {
    requires!(kube, browser);
    // Evictions of old servers are a beta API.
    let server = KubeServer::start_with(&["--runtime-config=policy/v1beta1=true"]).await;
    let tasks = Tasks::new("feed");
    let feed = feed::serve(tasks.clone()).await;
    let environment =
        vec![("KUBE", server.kubeconfig_path().display().to_string()), ("FEED", feed.to_string())];
    steps("test/pages.test.mjs", environment).await;
    tasks.shutdown(Duration::from_secs(2)).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_what_people_work_with_in_the_console() {
    requires!(kube, browser);
    let server = KubeServer::start().await;
    let environment = vec![("KUBE", server.kubeconfig_path().display().to_string())];
    steps("test/work.test.mjs", environment).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn now_names_who_holds_a_lock_and_who_waits_for_it() {
    requires!(browser);
    let tasks = Tasks::new("held lock");
    let held = held_lock::serve(&tasks).await;
    let environment = vec![
        ("API", held.api.to_string()),
        ("HOLD", held.hold.to_string()),
        ("TOKEN", held.token.clone()),
    ];
    steps("test/held-lock.test.mjs", environment).await;
    tasks.shutdown(Duration::from_secs(2)).await;
}
