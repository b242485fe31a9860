//! Who may import whom: the table of ARCHITECTURE.md, held against what the crates' manifests say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Libraries that stand for a world of their own: who imports one is listed with it.
const WORLDS: [&str; 10] = [
    "axum",
    "clap",
    "hyper",
    "kube",
    "netlink-packet-core",
    "netlink-packet-route",
    "redb",
    "rustls",
    "tokio",
    "tonic",
];
/// In the table: imports are not restricted.
const EVERYTHING: &str = "everything";
/// For tests and replays alone.
const STAGE: [&str; 4] = ["bench", "fuzz", "simulation", "testkit"];

type Imports = BTreeMap<String, BTreeSet<String>>;

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// The crates of the table with what each may import.
fn table(page: &str) -> Imports {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| [`"));
    rows.map(|row| {
        let (name, rest) = row.split_once('`').unwrap();
        let imports = rest.trim_end().trim_end_matches('|').rsplit('|').next().unwrap();
        let imports = imports.split('`').skip(1).step_by(2).map(str::to_owned);
        (name.to_owned(), imports.collect())
    })
    .collect()
}

/// What each crate of ours imports, of our own and of [`WORLDS`].
fn imports(metadata: &Value) -> Imports {
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<_> = packages.iter().map(name).collect();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let normal = all.filter(|it| it["kind"].is_null()).map(name);
        normal.filter(|it| ours.contains(it) || WORLDS.contains(&it.as_str())).collect()
    };
    packages.iter().map(|package| (name(package), of(package))).collect()
}

/// What is imported and may not be, and crates that the table lacks or has too many.
fn faults(table: &Imports, imports: &Imports) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, imported) in imports {
        let Some(allowed) = table.get(name) else {
            faults.push(format!("{name} is not in the table"));
            continue;
        };
        let stage = STAGE.iter().filter(|_| !STAGE.contains(&name.as_str()) && name != "replay");
        faults.extend(
            stage.filter(|it| imported.contains(**it)).map(|it| format!("{name} imports {it}")),
        );
        if !allowed.contains(EVERYTHING) {
            faults.extend(imported.difference(allowed).map(|it| format!("{name} imports {it}")));
        }
    }
    faults.extend(
        table
            .keys()
            .filter(|name| !imports.contains_key(*name))
            .map(|it| format!("{it} is in the table, and no crate")),
    );
    faults.sort();
    faults.dedup();
    faults
}

#[test]
fn crates_import_what_the_table_of_the_architecture_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let metadata = serde_json::from_slice(&asked.stdout).unwrap();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (table, imports) = (table(&page), imports(&metadata));
    assert!(imports.len() > 15 && imports["net"].contains("kernel"), "{imports:?}");
    assert_eq!(faults(&table, &imports), Vec::<String>::new());
}

#[test]
fn files_that_the_architecture_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let named = page.split('`').skip(1).step_by(2);
    let files: Vec<_> = named.filter(|it| it.contains("/src/") && it.ends_with(".rs")).collect();
    assert!(files.len() > 15, "{files:?}");
    let is_gone =
        |file: &&&str| !root.join(file).is_file() && !root.join("crates").join(file).is_file();
    let gone: Vec<_> = files.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn a_planted_import_is_found() {
    let page = "| crate | its one sentence | may import |\n\
                | [`net`](crates/net) | pools | `objects`, `tokio` |\n\
                | [`cni`](crates/cni) | the plugin, with `std` | |\n\
                | [`old`](crates/old) | gone | |\n";
    let planted = Imports::from([
        ("net".to_owned(), names(["objects", "kube", "tokio"])),
        ("cni".to_owned(), names(["testkit"])),
        ("new".to_owned(), names([])),
    ]);
    assert_eq!(
        faults(&table(page), &planted),
        [
            "cni imports testkit",
            "net imports kube",
            "new is not in the table",
            "old is in the table, and no crate",
        ]
    );
}
