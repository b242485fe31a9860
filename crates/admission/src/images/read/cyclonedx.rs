//! CycloneDX in JSON: the packages of an image, and its vulnerabilities if it has any.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Reference, Report, Severity, Unreadable, Vulnerability, host, id, list, module, published,
    reference, score, seconds, tenths, text,
};

pub(super) fn read(document: &Value) -> Result<Report, Unreadable> {
    let image = &document["metadata"]["component"];
    let components = list(document, "components")?;
    let system = components.iter().find(|one| text(one, "type") == "operating-system");
    let packages = components.iter().filter(|one| text(one, "type") != "operating-system");
    let package = |one: &Value| {
        module(text(one, "name"), text(one, "group"), text(one, "version"), text(one, "purl"))
    };
    let by_ref: HashMap<&str, &Value> =
        components.iter().map(|component| (text(component, "bom-ref"), component)).collect();
    // Without the field nobody looked for vulnerabilities.
    let vulnerabilities = match &document["vulnerabilities"] {
        Value::Null => None,
        _ => {
            let mut found = Vec::new();
            for one in list(document, "vulnerabilities")? {
                if is_silenced(text(&one["analysis"], "state")) {
                    continue;
                }
                vulnerability(one, &by_ref, &mut found)?;
            }
            Some(found)
        }
    };
    Ok(Report {
        references: references(image),
        scanned_at: seconds(text(&document["metadata"], "timestamp")),
        vulnerabilities,
        modules: (!components.is_empty()).then(|| packages.map(package).collect()),
        os: system.map(|one| text(one, "name").to_owned()),
        ..Report::default()
    })
}

/// Whether who made the document says that the image is not affected.
fn is_silenced(state: &str) -> bool {
    matches!(state, "not_affected" | "false_positive" | "resolved" | "resolved_with_pedigree")
}

/// `pkg:oci/NAME@DIGEST?repository_url=HOST/PATH&tag=TAG`, or else the component's name.
fn references(image: &Value) -> Vec<Reference> {
    let purl = text(image, "purl").replace("%3A", ":").replace("%3a", ":").replace("%2F", "/");
    let purl = purl.replace("%2f", "/").replace("%40", "@");
    let mut references = Vec::new();
    if let Some(rest) = purl.strip_prefix("pkg:oci/") {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (name, digest) = path.split_once('@').unwrap_or((path, ""));
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let url = value("repository_url").unwrap_or_default();
        let url = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        let (server, path) = match url.split_once('/') {
            Some((server, path)) if crate::image::is_host(server) => (host(server), path),
            _ if !url.contains('/') && crate::image::is_host(url) => (host(url), ""),
            _ => (None, url),
        };
        let path = path.trim_matches('/');
        // The URL may end in the image's own name, or lead to where it is.
        let repository = match path {
            "" => name.to_owned(),
            path if path == name || path.ends_with(&format!("/{name}")) => path.to_owned(),
            path => format!("{path}/{name}"),
        };
        references.push(Reference {
            host: server,
            repository,
            tag: value("tag").as_deref().and_then(filled),
            digest: filled(digest),
        });
    }
    let named = text(image, "name");
    if let Some(mut written) = reference(named).filter(|_| named.contains(['/', ':', '@'])) {
        let version = text(image, "version");
        if version.starts_with("sha256:") {
            written.digest.get_or_insert_with(|| version.to_owned());
        }
        references.push(written);
    } else if references.is_empty() {
        let version = text(image, "version");
        let joint = if version.starts_with("sha256:") { '@' } else { ':' };
        let written =
            if version.is_empty() { named.to_owned() } else { format!("{named}{joint}{version}") };
        references.extend(reference(&written));
    }
    references
}

/// One vulnerability of each package that it affects.
fn vulnerability(
    one: &Value,
    by_ref: &HashMap<&str, &Value>,
    found: &mut Vec<Vulnerability>,
) -> Result<(), Unreadable> {
    let id = id(one, "id")?;
    let ratings = list(one, "ratings")?;
    let severity = ratings.iter().map(|rating| Severity::new(text(rating, "severity"))).max();
    let scored = |rating: &&Value| text(rating, "method").starts_with("CVSS");
    let highest = ratings.iter().filter(scored).filter_map(|one| score(&one["score"]));
    let highest = highest.reduce(f64::max).unwrap_or(0.0);
    let aliases = list(one, "references")?.iter().map(|other| text(other, "id"));
    let aliases: Vec<_> =
        aliases.filter(|alias| !alias.is_empty() && *alias != id).map(str::to_owned).collect();
    let affects = list(one, "affects")?.iter().map(|affected| text(affected, "ref"));
    let affects: Vec<&str> = affects.collect();
    let affects = if affects.is_empty() { vec![""] } else { affects };
    for affected in affects {
        let component = by_ref.get(affected).copied().unwrap_or(&Value::Null);
        let name = text(component, "name");
        let package = if name.is_empty() { affected } else { name };
        found.push(Vulnerability {
            id: id.to_owned(),
            aliases: aliases.clone(),
            package: package.to_owned(),
            installed: text(component, "version").to_owned(),
            fixed: String::new(),
            purl: text(component, "purl").to_owned(),
            severity: severity.unwrap_or(Severity::Low),
            has_fix: false,
            score: tenths(highest),
            published: published(text(one, "published")),
        });
    }
    Ok(())
}
