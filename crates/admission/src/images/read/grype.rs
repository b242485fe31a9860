//! `grype -o json`. It says neither when a vulnerability was published nor what else is in the image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{
    Reference, Report, Severity, Unreadable, Vulnerability, id, list, oci_config, reference, score,
    seconds, tenths, text, texts,
};

pub(super) fn read(document: &Value) -> Result<Report, Unreadable> {
    let target = &document["source"]["target"];
    let mut names = vec![text(target, "userInput").to_owned()];
    names.extend(texts(target, "tags"));
    names.extend(texts(target, "repoDigests"));
    let mut references: Vec<_> = names.iter().filter_map(|name| reference(name)).collect();
    let manifest = text(target, "manifestDigest");
    if !manifest.is_empty() {
        references.push(Reference { digest: Some(manifest.to_owned()), ..Reference::default() });
    }
    let found = list(document, "matches")?.iter().map(vulnerability);
    let config = STANDARD.decode(text(target, "config")).ok();
    let config = config.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    Ok(Report {
        references,
        scanned_at: seconds(text(&document["descriptor"], "timestamp")),
        vulnerabilities: Some(found.collect::<Result<_, _>>()?),
        os: Some(text(&document["distro"], "name").to_owned()),
        config: config.and_then(|config| oci_config(&config["config"])),
        ..Report::default()
    })
}

fn vulnerability(found: &Value) -> Result<Vulnerability, Unreadable> {
    let (of, artifact) = (&found["vulnerability"], &found["artifact"]);
    let related = list(found, "relatedVulnerabilities")?;
    let highest = |of: &Value| {
        let scores = of["cvss"].as_array().into_iter().flatten();
        scores.filter_map(|one| score(&one["metrics"]["baseScore"])).reduce(f64::max)
    };
    let of_related = || related.iter().filter_map(highest).reduce(f64::max);
    let id = id(of, "id")?;
    let aliases = related.iter().map(|one| text(one, "id")).filter(|alias| *alias != id);
    Ok(Vulnerability {
        id: id.to_owned(),
        aliases: aliases.filter(|alias| !alias.is_empty()).map(str::to_owned).collect(),
        package: text(artifact, "name").to_owned(),
        installed: text(artifact, "version").to_owned(),
        fixed: texts(&of["fix"], "versions").join(", "),
        purl: text(artifact, "purl").to_owned(),
        severity: Severity::new(text(of, "severity")),
        has_fix: text(&of["fix"], "state") == "fixed",
        score: tenths(highest(of).or_else(of_related).unwrap_or(0.0)),
        published: 0,
    })
}
