//! A cluster, policies and probes from files.

use std::path::{Path, PathBuf};

use objects::Invalid;
use policy::{Inputs, Probe};
use serde_json::Value;

use super::Files;
use crate::cli::files::{documents, read};
use crate::output::Failure;

/// Probes of a cluster of a thousand pods by a thousand, as text.
const LARGEST: u64 = 256 << 20;

pub(super) fn inputs(files: &Files) -> Result<Inputs, Failure> {
    let mut inputs = Inputs::new(files.mode.settings());
    let mut found = 0;
    for file in &files.cluster {
        for (i, document) in documents(file)?.iter().enumerate() {
            let added = inputs.add_cluster(document);
            found += usize::from(added.map_err(|wrong| failure(file, i, document, &wrong))?);
        }
    }
    if found == 0 {
        let problem = "the files of --cluster have no Namespace, Pod, Node or Service";
        return Err(Failure(problem.to_owned()));
    }
    add_policies(&mut inputs, &files.policies)?;
    inputs.complete();
    Ok(inputs)
}

/// Adds the policies of files; one that is there already is replaced.
pub(super) fn add_policies(inputs: &mut Inputs, files: &[PathBuf]) -> Result<(), Failure> {
    for file in files {
        for (i, document) in documents(file)?.iter().enumerate() {
            let added = inputs.add_policy(document);
            for warning in added.map_err(|wrong| failure(file, i, document, &wrong))? {
                eprintln!("warning: {}: {warning}", place(file, i, document));
            }
        }
    }
    Ok(())
}

/// Names the file, the document and the field.
fn failure(file: &Path, place_in_file: usize, document: &Value, wrong: &Invalid) -> Failure {
    Failure(format!("{}: {wrong}", place(file, place_in_file, document)))
}

fn place(file: &Path, place: usize, document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, meta) = (text(&document["kind"]), &document["metadata"]);
    let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
    let name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    let named = format!("{kind} {name}");
    let named = named.trim();
    let named = if named.is_empty() { String::new() } else { format!(" ({named})") };
    format!("{}, document {}{named}", file.display(), place + 1)
}

/// The probes of a file with their lines. An array of them is taken too.
pub(super) fn probes(file: &Path) -> Result<Vec<(String, Probe)>, Failure> {
    let text = read(file, LARGEST)?;
    let shown = file.display();
    let probe = |place: String, json: &str| {
        serde_json::from_str(json).map(|probe| (place.clone(), probe)).map_err(|wrong| {
            let hint = r#"a probe is as {"from": "shop/web-0", "to": "shop/db-0", "protocol": "TCP", "port": 80}"#;
            // The line is ours; its column is of use.
            let wrong = wrong.to_string().replace(" at line 1", "");
            Failure(format!("{place}: is no probe: {wrong}; {hint}"))
        })
    };
    let mut probes = Vec::new();
    if text.trim_start().starts_with('[') {
        let all: Vec<Value> = serde_json::from_str(&text)
            .map_err(|wrong| Failure(format!("{shown}: is no array of probes: {wrong}")))?;
        for (i, value) in all.iter().enumerate() {
            probes.push(probe(format!("{shown}, probe {}", i + 1), &value.to_string())?);
        }
    } else {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            probes.push(probe(format!("{shown}, line {}", i + 1), line)?);
        }
    }
    if probes.is_empty() {
        return Err(Failure(format!("{shown} has no probes: one JSON object a line")));
    }
    Ok(probes)
}
