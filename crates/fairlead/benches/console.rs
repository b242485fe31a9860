//! The console against two other ways to show the same pods: polling the whole list, and a watch that is
//! kept in the page. A real browser, a real process, a real API server; `console/bench` measures.
//!
//! `CONSOLE_PODS=30000 cargo bench -p fairlead --bench console`

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::fs;
use std::process::{Command, ExitCode};

use bench::Table;
use serde_json::Value;
use testkit::KubeServer;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = runtime.block_on(KubeServer::start());
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.json");
    let ran = Command::new("node")
        .arg("bench/bench.mjs")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../console"))
        .env("FAIRLEAD_BIN", env!("CARGO_BIN_EXE_fairlead"))
        .env("KUBE", server.kubeconfig_path())
        .env("CONSOLE_OUT", &results)
        .status()
        .unwrap();
    let Ok(told) = fs::read_to_string(&results) else {
        assert!(ran.success(), "it could not be measured; why is above");
        return ExitCode::FAILURE;
    };
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut table = Table::new(&format!("console, {} pods", told["pods"]));
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for row in told["rows"].as_array().unwrap() {
        // In the table's own units, of which less is better.
        let (unit, factor) = match row["unit"].as_str().unwrap() {
            "ms" => ("ns", 1e6),
            "kB" => ("B", 1e3),
            "MB" => ("B", 1e6),
            _ => ("requests", 1.0),
        };
        let [ours, poll, watch] =
            ["console", "poll", "watch"].map(|way| (number(&row[way]) * factor).max(1.0));
        let rivals = [("polling every 5 s", poll), ("a watch in the page", watch)];
        table.row(row["what"].as_str().unwrap(), unit, ours, &rivals);
    }
    for limit in told["limits"].as_array().unwrap() {
        let (unit, factor) = match limit["unit"].as_str().unwrap() {
            "ms" => ("ns", 1e6),
            "MB" => ("B", 1e6),
            _ => ("", 1.0),
        };
        table.row(limit["what"].as_str().unwrap(), unit, number(&limit["value"]) * factor, &[]);
        let unit = limit["unit"].as_str().unwrap();
        table.must(&format!("at most {:.0} {unit}", number(&limit["limit"])), limit["ok"] == true);
    }
    drop(server);
    table.finish()
}
