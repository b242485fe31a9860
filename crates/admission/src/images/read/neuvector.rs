//! A scan result as pipelines hand it in to NeuVector (`/v1/scan/result/repository`).

use serde_json::Value;

use super::{
    ImageConfig, Report, Severity, Unreadable, Vulnerability, assembled, environment, id, is_root,
    list, module, score, tenths, text, texts,
};

/// The result in a document, which may be wrapped.
pub(super) fn result(document: &Value) -> Option<&Value> {
    let is_result =
        |value: &&Value| value.get("Repository").is_some() || value.get("Vuls").is_some();
    [document, &document["result"], &document["Result"]].into_iter().find(is_result)
}

pub(super) fn read(result: &Value, received: i64) -> Result<Report, Unreadable> {
    let part = |field| text(result, field);
    let reference = assembled(part("Registry"), part("Repository"), part("Tag"), part("Digest"));
    let found = list(result, "Vuls")?.iter().map(vulnerability);
    let package = |one: &Value| module(text(one, "Name"), "", text(one, "Version"), "");
    let labels = result["Labels"].as_object().into_iter().flatten();
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let commands = texts(result, "Cmds");
    let known = ["Envs", "Labels", "Cmds"].iter().any(|field| !result[*field].is_null());
    let verifiers = &result["SignatureInfo"]["Verifiers"];
    // A result that has only signatures says nothing of vulnerabilities.
    let scanned = !result["Vuls"].is_null() || result["SignatureInfo"].is_null();
    Ok(Report {
        references: reference.into_iter().collect(),
        source: String::new(),
        scanned_at: received,
        vulnerabilities: Some(found.collect::<Result<_, _>>()?).filter(|_| scanned),
        modules: (!result["Modules"].is_null())
            .then(|| list(result, "Modules").map(|all| all.iter().map(package).collect()))
            .transpose()?,
        os: scanned.then(|| part("Namespace").to_owned()),
        secrets: (!result["Secrets"].is_null())
            .then(|| list(&result["Secrets"], "Logs").map(<[Value]>::len))
            .transpose()?,
        set_id: (!result["SetIdPerms"].is_null())
            .then(|| list(result, "SetIdPerms").map(<[Value]>::len))
            .transpose()?,
        config: known.then(|| ImageConfig {
            labels: labels.filter_map(label).collect(),
            env: environment(&texts(result, "Envs")),
            runs_as_root: commands.iter().find_map(|line| user_of(line)).is_none_or(is_root),
        }),
        verifiers: verifiers.is_array().then(|| texts(&result["SignatureInfo"], "Verifiers")),
    })
}

/// The user that a line of the build history sets.
fn user_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("/bin/sh -c #(nop)").map_or(line, str::trim_start);
    line.strip_prefix("USER ").map(|user| user.trim().trim_matches(['[', ']']))
}

fn vulnerability(found: &Value) -> Result<Vulnerability, Unreadable> {
    let scores = ["Score", "ScoreV3"].into_iter().filter_map(|field| score(&found[field]));
    Ok(Vulnerability {
        id: id(found, "Name")?.to_owned(),
        aliases: texts(found, "CVEs"),
        package: text(found, "PackageName").to_owned(),
        installed: text(found, "PackageVersion").to_owned(),
        fixed: text(found, "FixedVersion").to_owned(),
        purl: String::new(),
        severity: Severity::new(text(found, "Severity")),
        has_fix: !text(found, "FixedVersion").is_empty(),
        score: tenths(scores.reduce(f64::max).unwrap_or(0.0)),
        published: text(found, "PublishedDate").parse().unwrap_or(0),
    })
}
