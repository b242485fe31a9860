//! `trivy image -f json`, schema 2.

use serde_json::Value;

use super::{
    Module, Report, Severity, Unreadable, Vulnerability, id, list, module, oci_config, published,
    reference, score, seconds, tenths, text, texts,
};

pub(super) fn read(document: &Value) -> Result<Report, Unreadable> {
    let metadata = &document["Metadata"];
    let mut names =
        vec![text(document, "ArtifactName").to_owned(), text(metadata, "Reference").to_owned()];
    names.extend(texts(metadata, "RepoTags"));
    names.extend(texts(metadata, "RepoDigests"));
    let mut references: Vec<_> = names.iter().filter_map(|name| reference(name)).collect();
    references.dedup();
    let mut vulnerabilities = Vec::new();
    let mut modules: Option<Vec<Module>> = None;
    let mut secrets = 0;
    for result in list(document, "Results")? {
        for found in list(result, "Vulnerabilities")? {
            vulnerabilities.push(vulnerability(found)?);
        }
        if result.get("Packages").is_some_and(|packages| !packages.is_null()) {
            let of = list(result, "Packages")?.iter();
            modules.get_or_insert_default().extend(of.map(package));
        }
        secrets += list(result, "Secrets")?.len();
    }
    let os = &metadata["OS"];
    Ok(Report {
        references,
        source: String::new(),
        scanned_at: seconds(text(document, "CreatedAt")),
        vulnerabilities: Some(vulnerabilities),
        modules,
        os: Some(format!("{} {}", text(os, "Family"), text(os, "Name")).trim().to_owned()),
        secrets: Some(secrets),
        set_id: None,
        config: oci_config(&metadata["ImageConfig"]["config"]),
        verifiers: None,
    })
}

fn package(package: &Value) -> Module {
    let version = match (text(package, "Version"), text(package, "Release")) {
        (version, "") => version.to_owned(),
        (version, release) => format!("{version}-{release}"),
    };
    module(text(package, "Name"), "", &version, text(&package["Identifier"], "PURL"))
}

fn vulnerability(found: &Value) -> Result<Vulnerability, Unreadable> {
    let highest = |of: &Value| {
        let scores = ["V2Score", "V3Score"].into_iter().filter_map(|field| score(&of[field]));
        scores.reduce(f64::max)
    };
    let cvss = &found["CVSS"];
    let others = || {
        let of = cvss.as_object().into_iter().flatten().filter_map(|(_, of)| highest(of));
        of.reduce(f64::max)
    };
    Ok(Vulnerability {
        id: id(found, "VulnerabilityID")?.to_owned(),
        aliases: texts(found, "VendorIDs"),
        package: text(found, "PkgName").to_owned(),
        installed: text(found, "InstalledVersion").to_owned(),
        fixed: text(found, "FixedVersion").to_owned(),
        purl: text(&found["PkgIdentifier"], "PURL").to_owned(),
        severity: Severity::new(text(found, "Severity")),
        has_fix: !text(found, "FixedVersion").is_empty(),
        score: tenths(highest(&cvss["nvd"]).or_else(others).unwrap_or(0.0)),
        published: published(text(found, "PublishedDate")),
    })
}
