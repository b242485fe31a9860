//! Reports of trivy-operator, `aquasecurity.github.io/v1alpha1`: vulnerabilities, packages and secrets of
//! one image are three objects.

use serde_json::Value;

use super::{
    Report, Severity, Unreadable, Vulnerability, assembled, id, list, module, published, score,
    seconds, tenths, text,
};

pub(super) fn read(document: &Value) -> Result<Report, Unreadable> {
    let report = &document["report"];
    let artifact = &report["artifact"];
    let part = |field| text(artifact, field);
    let registry = text(&report["registry"], "server");
    let mut read = Report {
        references: assembled(registry, part("repository"), part("tag"), part("digest"))
            .into_iter()
            .collect(),
        scanned_at: seconds(text(report, "updateTimestamp")),
        ..Report::default()
    };
    let kind = text(document, "kind");
    match kind.strip_prefix("Cluster").unwrap_or(kind) {
        "VulnerabilityReport" => {
            let found = list(report, "vulnerabilities")?.iter().map(vulnerability);
            read.vulnerabilities = Some(found.collect::<Result<_, _>>()?);
            let os = &report["os"];
            read.os =
                Some(format!("{} {}", text(os, "family"), text(os, "name")).trim().to_owned());
        }
        "SbomReport" => {
            let components = list(&report["components"], "components")?.iter();
            let packages =
                components.filter(|component| text(component, "type") != "operating-system");
            let package = |one: &Value| {
                module(
                    text(one, "name"),
                    text(one, "group"),
                    text(one, "version"),
                    text(one, "purl"),
                )
            };
            read.modules = Some(packages.map(package).collect());
        }
        "ExposedSecretReport" => read.secrets = Some(list(report, "secrets")?.len()),
        other => {
            return Err(Unreadable(format!(
                "is a {other}, which says nothing that a rule asks for; VulnerabilityReport, \
                 SbomReport and ExposedSecretReport do"
            )));
        }
    }
    Ok(read)
}

fn vulnerability(found: &Value) -> Result<Vulnerability, Unreadable> {
    Ok(Vulnerability {
        id: id(found, "vulnerabilityID")?.to_owned(),
        aliases: Vec::new(),
        package: text(found, "resource").to_owned(),
        installed: text(found, "installedVersion").to_owned(),
        fixed: text(found, "fixedVersion").to_owned(),
        purl: text(found, "packagePURL").to_owned(),
        severity: Severity::new(text(found, "severity")),
        has_fix: !text(found, "fixedVersion").is_empty(),
        score: tenths(score(&found["score"]).unwrap_or(0.0)),
        published: published(text(found, "publishedDate")),
    })
}
