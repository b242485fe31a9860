//! What may be linked: `deny.toml` held against the crates that cargo resolves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// What deny.toml allows.
#[derive(Debug, Default)]
struct Allowed {
    licences: BTreeSet<String>,
    /// By crate.
    exceptions: BTreeMap<String, String>,
    /// Doubled versions, as `name@version`.
    doubled: BTreeSet<String>,
    registries: BTreeSet<String>,
}

/// The texts in quotes.
fn quoted(line: &str) -> Vec<&str> {
    line.split('"').skip(1).step_by(2).collect()
}

impl Allowed {
    /// Reads the lists, one item a line, and refuses what it does not know: a list that is written
    /// otherwise must not count as empty.
    fn read(text: &str) -> Self {
        let mut allowed = Self::default();
        let (mut section, mut list) = ("", None);
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if line.is_empty() {
                continue;
            }
            if list.is_some() && line == "]" {
                list = None;
                continue;
            }
            match (section, list) {
                ("[licenses]", Some("allow")) => allowed.licences.extend(one(line)),
                ("[licenses]", Some("exceptions")) => match quoted(line)[..] {
                    [name, licence] => {
                        allowed.exceptions.insert(name.to_owned(), licence.to_owned());
                    }
                    _ => panic!("an exception has a crate and one licence: {line}"),
                },
                ("[bans]", Some("skip")) => match quoted(line)[..] {
                    [version, reason] if !reason.is_empty() => {
                        allowed.doubled.insert(version.to_owned());
                    }
                    _ => panic!("a doubled version has a crate and a reason: {line}"),
                },
                (_, Some(list)) => panic!("{section} {list}: not known here"),
                (_, None) if line.starts_with('[') => section = line,
                (_, None) => {
                    let (key, value) = line.split_once('=').unwrap();
                    let (key, value) = (key.trim(), value.trim());
                    match (section, key, value) {
                        (_, _, "[") => list = Some(key),
                        ("[sources]", "allow-registry", _) => {
                            allowed.registries.extend(quoted(value).into_iter().map(str::to_owned));
                        }
                        ("[sources]", "allow-git", _) => assert_eq!(value, "[]"),
                        ("[sources]", _, _) | ("[bans]", "multiple-versions" | "wildcards", _) => {
                            assert_eq!(value, "\"deny\"", "{key}");
                        }
                        ("[graph]" | "[advisories]" | "[licenses.private]" | "[bans]", ..) => {}
                        _ => panic!("{section} {key}: not known here"),
                    }
                }
            }
        }
        allowed
    }

    /// Whether an SPDX expression, or the older way with a stroke, can be met.
    fn licence(&self, name: &str, expression: &str) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<_> = spaced.split_whitespace().collect();
        let (met, rest) = self.any(name, &words);
        assert!(rest.is_empty(), "{expression} of {name} is not understood at {rest:?}");
        met
    }

    fn any<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        let (mut met, mut rest) = self.all(name, words);
        while let ["OR", after @ ..] = rest {
            let (other, left) = self.all(name, after);
            (met, rest) = (met | other, left);
        }
        (met, rest)
    }

    fn all<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        let (mut met, mut rest) = self.one(name, words);
        while let ["AND", after @ ..] = rest {
            let (other, left) = self.one(name, after);
            (met, rest) = (met & other, left);
        }
        (met, rest)
    }

    fn one<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        match words {
            ["(", inside @ ..] => {
                let (met, rest) = self.any(name, inside);
                let [")", rest @ ..] = rest else { panic!("no end of a parenthesis: {words:?}") };
                (met, rest)
            }
            [licence, "WITH", exception, rest @ ..] => {
                (self.licences.contains(&format!("{licence} WITH {exception}")), rest)
            }
            [licence, rest @ ..] => {
                // `+`: or any later version of it.
                let licence = licence.trim_end_matches('+');
                let excepted = self.exceptions.get(name).is_some_and(|it| it == licence);
                (excepted || self.licences.contains(licence), rest)
            }
            [] => panic!("{name} has an expression without an end"),
        }
    }

    /// What is linked and may not be, and what is allowed and not there.
    fn faults(&self, metadata: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
        for package in metadata["packages"].as_array().unwrap() {
            let text = |field: &str| package[field].as_str();
            let (name, version) = (text("name").unwrap(), text("version").unwrap());
            versions.entry(name).or_default().insert(version);
            match text("license") {
                Some(licence) if self.licence(name, licence) => {}
                licence => faults.push(format!("{name} has the licence {licence:?}")),
            }
            let Some(source) = text("source") else { continue };
            let registry = source.strip_prefix("registry+");
            if !registry.is_some_and(|registry| self.registries.contains(registry)) {
                faults.push(format!("{name} comes from {source}"));
            }
        }
        let mut unused = self.doubled.clone();
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let named = |version: &&&str| !unused.remove(&format!("{name}@{version}"));
            let unnamed: Vec<_> = versions.iter().filter(named).collect();
            if unnamed.len() > 1 {
                faults.push(format!("{name} is there in versions {unnamed:?}"));
            }
        }
        faults.extend(unused.iter().map(|it| format!("{it} is not doubled: take it out of skip")));
        let is_there = |name: &&String| !versions.contains_key(name.as_str());
        let gone = self.exceptions.keys().filter(is_there);
        faults.extend(gone.map(|it| format!("{it} is not there: take it out of exceptions")));
        faults
    }
}

fn one(line: &str) -> Option<String> {
    match quoted(line)[..] {
        [one] => Some(one.to_owned()),
        _ => panic!("one item a line: {line}"),
    }
}

fn allowed() -> Allowed {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Allowed::read(&std::fs::read_to_string(root.join("deny.toml")).unwrap())
}

#[test]
fn what_is_linked_is_what_deny_toml_allows() {
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--all-features", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let metadata: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert!(metadata["packages"].as_array().unwrap().len() > 200);
    assert_eq!(allowed().faults(&metadata), Vec::<String>::new());
}

#[test]
fn a_planted_licence_source_and_doubled_version_are_found() {
    const CRATES: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let package = |name: &str, version: &str, license: Value, source: &str| json!({"name": name, "version": version, "license": license, "source": source});
    let metadata = json!({"packages": [
        package("ours", "0.1.0", json!("MIT"), CRATES),
        package("copyleft", "1.0.0", json!("GPL-3.0"), CRATES),
        package("half", "1.0.0", json!("MIT AND GPL-3.0"), CRATES),
        package("either", "1.0.0", json!("GPL-3.0 OR (MIT AND Zlib)"), CRATES),
        package("silent", "1.0.0", Value::Null, CRATES),
        package("borrowed", "1.0.0", json!("MPL-2.0+"), CRATES),
        package("forked", "1.0.0", json!("MIT/Apache-2.0"), "git+https://example.com/forked"),
        package("elsewhere", "1.0.0", json!("MIT"), "registry+https://example.com/index"),
        package("twice", "1.0.0", json!("MIT"), CRATES),
        package("twice", "2.0.0", json!("MIT"), CRATES),
    ]});
    let mut allowed = allowed();
    allowed.doubled = ["gone@1.0.0".to_owned()].into();
    allowed.exceptions = [("imbl".to_owned(), "MPL-2.0".to_owned())].into();
    assert_eq!(
        allowed.faults(&metadata),
        [
            "copyleft has the licence Some(\"GPL-3.0\")",
            "half has the licence Some(\"MIT AND GPL-3.0\")",
            "silent has the licence None",
            "borrowed has the licence Some(\"MPL-2.0+\")",
            "forked comes from git+https://example.com/forked",
            "elsewhere comes from registry+https://example.com/index",
            "twice is there in versions [\"1.0.0\", \"2.0.0\"]",
            "gone@1.0.0 is not doubled: take it out of skip",
            "imbl is not there: take it out of exceptions",
        ]
    );
}

#[test]
#[should_panic(expected = "not known here")]
fn a_list_that_is_not_understood_is_not_taken_for_empty() {
    Allowed::read("[bans]\nfeatures = [\n    \"x\",\n]\n");
}
