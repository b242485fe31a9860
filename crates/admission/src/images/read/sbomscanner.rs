//! Reports of Kubewarden's sbomscanner, `storage.sbomscanner.kubewarden.io/v1alpha1`.

use serde_json::Value;

use super::{
    Report, Severity, Unreadable, Vulnerability, assembled, id, list, score, seconds, tenths, text,
    texts,
};

pub(super) fn read(document: &Value) -> Result<Report, Unreadable> {
    if text(document, "kind") != "VulnerabilityReport" {
        let kind = text(document, "kind");
        return Err(Unreadable(format!(
            "is a {kind}; of sbomscanner, VulnerabilityReport is read"
        )));
    }
    let image = &document["imageMetadata"];
    let named = |digest| {
        assembled(text(image, "registryURI"), text(image, "repository"), text(image, "tag"), digest)
    };
    let digests = [text(image, "digest"), text(image, "indexDigest")];
    let references = digests.into_iter().filter(|digest| !digest.is_empty()).filter_map(named);
    let mut references: Vec<_> = references.collect();
    if references.is_empty() {
        references.extend(named(""));
    }
    let mut read = Report {
        references,
        scanned_at: seconds(text(&document["metadata"], "creationTimestamp")),
        ..Report::default()
    };
    let (mut found, mut os) = (Vec::new(), String::new());
    for result in list(&document["report"], "results")? {
        for one in list(result, "vulnerabilities")? {
            if one["suppressed"] != true {
                found.push(vulnerability(one)?);
            }
        }
        if text(result, "class") == "os-pkgs" {
            text(result, "target").clone_into(&mut os);
        }
    }
    (read.vulnerabilities, read.os) = (Some(found), Some(os));
    Ok(read)
}

fn vulnerability(found: &Value) -> Result<Vulnerability, Unreadable> {
    let scores = found["cvss"].as_object().into_iter().flatten();
    let scores = scores.filter_map(|(source, one)| Some((source, score(&one["v3score"])?)));
    let nvd = scores.clone().find(|(source, _)| *source == "nvd").map(|(_, score)| score);
    let highest = scores.map(|(_, score)| score).reduce(f64::max);
    Ok(Vulnerability {
        id: id(found, "cve")?.to_owned(),
        aliases: Vec::new(),
        package: text(found, "packageName").to_owned(),
        installed: text(found, "installedVersion").to_owned(),
        fixed: texts(found, "fixedVersions").join(", "),
        purl: text(found, "purl").to_owned(),
        severity: Severity::new(text(found, "severity")),
        has_fix: !texts(found, "fixedVersions").is_empty(),
        score: tenths(nvd.or(highest).unwrap_or(0.0)),
        published: 0,
    })
}
