//! What is known of images: vulnerability profiles become exceptions, Sigstore's roots of trust become ours.
//!
//! An exception lets images in, so that it is kept only if it takes out no more than NeuVector's did. There, a
//! pattern with `*` is a regular expression that may stand anywhere in a name; here it is a glob for the whole
//! of it, which is less. A pattern that means something else here is refused.

use objects::Kind;
use objects::kinds::{
    ImageTrustRoot, ImageTrustRootSpec, ImageVerifier, VulnerabilityException,
    VulnerabilityExceptionSpec,
};
use serde_json::Value;

use crate::{Imported, Names, Outcome};

const EXCEPTION: &str = "vulnerability exception";
const ROOT: &str = "root of trust";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default().trim()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::trim).collect()
}

/// Why a pattern of NeuVector's would mean something else here; none if it means the same, or less.
fn foreign(pattern: &str) -> Option<&'static str> {
    if pattern.is_empty() {
        return Some("is empty");
    }
    if pattern.contains('?') {
        return Some("has a ?, which stands for any character here");
    }
    let is_regex = pattern.contains(['+', '(', ')', '[', ']', '{', '}', '|', '^', '$', '\\']);
    (pattern.contains('*') && is_regex).then_some("has a * and is a regular expression there")
}

/// Why an image of NeuVector's list would stand for more here.
fn foreign_image(item: &str) -> Option<&'static str> {
    let first = item.split_once('/').map(|(first, _)| first);
    let names_registry = first.is_some_and(|it| it.contains(['.', ':']) || it == "localhost");
    if names_registry || item.contains("//") {
        return Some("names a registry, which NeuVector does not compare");
    }
    if !item.contains([':', '*']) {
        return Some("has no tag, and stands for every tag here");
    }
    foreign(item)
}

/// An entry of a vulnerability profile.
fn exception(entry: &Value) -> Result<(VulnerabilityExceptionSpec, Vec<String>), String> {
    let name = text(entry, "name");
    if let Some(why) = foreign(name) {
        return Err(format!("{name:?} {why}; write a VulnerabilityException"));
    }
    if !texts(&entry["domains"]).is_empty() {
        return Err("its domains are those that a registry is set up for, whoever runs the image, and here \
             they would be the namespace of the pod; write a VulnerabilityException with the namespaces \
             that are meant"
            .to_owned());
    }
    let mut notes = Vec::new();
    let listed = texts(&entry["images"]);
    let mut images = Vec::new();
    for item in &listed {
        match foreign_image(item) {
            Some(why) => notes.push(format!("image {item:?} is left out: it {why}")),
            None => images.push((*item).to_owned()),
        }
    }
    if images.is_empty() && !listed.is_empty() {
        return Err(format!("{}; without images it would be for all of them", notes.join("; ")));
    }
    let spec = VulnerabilityExceptionSpec {
        name: name.to_owned(),
        days: entry["days"].as_i64().unwrap_or_default(),
        images,
        comment: text(entry, "comment").to_owned(),
        reason: "imported from NeuVector's vulnerability profile".to_owned(),
        ..VulnerabilityExceptionSpec::default()
    };
    if name.contains('*') || spec.images.iter().any(|item| item.contains('*')) {
        notes.push("patterns with * are for whole names here".to_owned());
    }
    Ok((spec, notes))
}

/// The exceptions of a vulnerability profile.
pub(crate) fn profile(document: &Value, names: &mut Names, imported: &mut Imported) {
    let entries = document["spec"]["profile"]["entries"].as_array();
    for entry in entries.into_iter().flatten() {
        let shown = text(entry, "name");
        let made = exception(entry).and_then(|(spec, notes)| {
            // What the entry is for, so that the same entry has the same name in another order.
            let of = [spec.name.clone(), spec.images.join(","), spec.days.to_string()].join(" ");
            let made = VulnerabilityException::new(&names.give("exception", &of), spec);
            made.check().map_err(|problems| problems.to_string())?;
            Ok((made, notes))
        });
        match made {
            Ok((made, notes)) => {
                let outcome = if notes.is_empty() { Outcome::Kept } else { Outcome::Changed };
                imported.note(EXCEPTION, shown, outcome, notes.join("; "));
                imported.exceptions.push(made);
            }
            Err(why) => imported.note(EXCEPTION, shown, Outcome::Refused, why),
        }
    }
}

/// Whether it is what `GET /v1/scan/sigstore/root_of_trust` answers.
pub(crate) fn is_roots(document: &Value) -> bool {
    document["roots_of_trust"].is_array()
}

/// The roots of trust and their verifiers.
pub(crate) fn roots(document: &Value, imported: &mut Imported) {
    for root in document["roots_of_trust"].as_array().into_iter().flatten() {
        let shown = text(root, "name");
        match trust_root(root) {
            Ok((made, notes)) => {
                let outcome = if notes.is_empty() { Outcome::Kept } else { Outcome::Changed };
                imported.note(ROOT, shown, outcome, notes.join("; "));
                imported.roots.push(made);
            }
            Err(why) => imported.note(ROOT, shown, Outcome::Refused, why),
        }
    }
}

fn trust_root(root: &Value) -> Result<(ImageTrustRoot, Vec<String>), String> {
    let (name, keypairs_only) = (text(root, "name"), root["rootless_keypairs_only"] == true);
    if !objects::is_subdomain(name) {
        return Err("its name is none of Kubernetes', and rules name it; make it anew".to_owned());
    }
    let is_private = root["is_private"] == true;
    if !keypairs_only && !is_private {
        return Err("it is Sigstore's public one, which NeuVector fetches; nothing is fetched here: make an \
             ImageTrustRoot with its trusted_root.json"
            .to_owned());
    }
    let mut notes = Vec::new();
    let mut verifiers = Vec::new();
    for verifier in root["verifiers"].as_array().into_iter().flatten() {
        let name = text(verifier, "name").to_owned();
        let is_keypair = text(verifier, "verifier_type") == "keypair";
        if keypairs_only && !is_keypair {
            notes.push(format!("verifier {name:?} is left out: it is no keypair"));
            continue;
        }
        for (field, proof) in
            [("ignore_tlog", "the log's"), ("ignore_sct", "the certificate log's")]
        {
            if verifier[field] == true {
                notes.push(format!("verifier {name:?} asks for {proof} proof here"));
            }
        }
        let of = |field: &str, is: bool| match is {
            true => text(verifier, field).to_owned(),
            false => String::new(),
        };
        verifiers.push(ImageVerifier {
            public_key: of("public_key", is_keypair),
            cert_issuer: of("cert_issuer", !is_keypair),
            cert_subject: of("cert_subject", !is_keypair),
            name,
        });
    }
    let pem = |field: &str| text(root, field).to_owned();
    let spec = match keypairs_only {
        true => {
            ImageTrustRootSpec { rootless_keypairs_only: true, verifiers, ..Default::default() }
        }
        false => ImageTrustRootSpec {
            rekor_public_key: pem("rekor_public_key"),
            root_cert: pem("root_cert"),
            sct_public_key: pem("sct_public_key"),
            verifiers,
            ..Default::default()
        },
    };
    let made = ImageTrustRoot::new(name, spec);
    made.check().map_err(|problems| problems.to_string())?;
    Ok((made, notes))
}
