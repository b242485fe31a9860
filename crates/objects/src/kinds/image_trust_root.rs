//! `ImageTrustRoot`: whose signatures of images count. A root of trust of Sigstore's and its verifiers, with
//! the fields of NeuVector's.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::store::{Invalid, Kind};

/// The most characters of keys and certificates.
const LONGEST_PEM: usize = 65_536;
/// The most characters of a `trusted_root.json`.
const LONGEST_JSON: usize = 262_144;
const LONGEST_IDENTITY: usize = 2048;
const MOST_VERIFIERS: usize = 64;

/// Whose signatures of images count.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema,
)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "ImageTrustRoot",
    doc = "Whose signatures of images count.",
    category = "fairlead",
    shortname = "imgroot",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Verifiers","type":"string","jsonPath":".spec.verifiers[*].name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageTrustRootSpec {
    /// Only keypairs: neither certificates nor logs are asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rootless_keypairs_only: bool,
    /// Sigstore's `trusted_root.json`, in place of the next three.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_JSON))]
    pub trusted_root: String,
    /// Keys of the transparency log (PEM). Without one, no proof of the log is asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_PEM))]
    pub rekor_public_key: String,
    /// Certificates to which those of signers chain (PEM).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_PEM))]
    pub root_cert: String,
    /// Keys of the log of certificates (PEM). Without one, no proof of it is asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_PEM))]
    pub sct_public_key: String,
    #[schemars(length(min = 1, max = MOST_VERIFIERS))]
    pub verifiers: Vec<ImageVerifier>,
}

/// Who must have signed: a keypair, or an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageVerifier {
    /// Rules name it as ROOT/NAME.
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub name: String,
    /// Of a keypair: its public key (PEM).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_PEM))]
    pub public_key: String,
    /// Of an identity: who vouches for it, as `https://accounts.google.com`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_IDENTITY))]
    pub cert_issuer: String,
    /// Of an identity: an address of mail, or a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_IDENTITY))]
    pub cert_subject: String,
}

impl Kind for ImageTrustRoot {
    const NAME: &'static str = "ImageTrustRoot";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let spec = &self.spec;
        let mut problems = Invalid::default();
        let pem = [
            ("spec.rekorPublicKey", &spec.rekor_public_key),
            ("spec.rootCert", &spec.root_cert),
            ("spec.sctPublicKey", &spec.sct_public_key),
        ];
        let given = pem.iter().any(|(_, text)| !text.trim().is_empty());
        for (at, text) in pem {
            field::no_longer(&mut problems, at, text, LONGEST_PEM);
        }
        field::no_longer(&mut problems, "spec.trustedRoot", &spec.trusted_root, LONGEST_JSON);
        let whole = !spec.trusted_root.trim().is_empty();
        if spec.rootless_keypairs_only && (given || whole) {
            problems.add(
                "spec.rootlessKeypairsOnly",
                "goes without certificates and logs; leave them out, or this",
            );
        }
        if given && whole {
            problems.add("spec.trustedRoot", "has certificates and keys; leave the others out");
        }
        if !(spec.rootless_keypairs_only || given || whole) {
            problems.add(
                "spec.trustedRoot",
                "is missing: nothing is fetched; give a trusted_root.json, or certificates and keys, \
                 or rootlessKeypairsOnly",
            );
        }
        if spec.verifiers.is_empty() {
            problems.add("spec.verifiers", "is empty, so that no signature counts");
        }
        field::at_most(&mut problems, "spec.verifiers", spec.verifiers.len(), MOST_VERIFIERS);
        for (i, verifier) in spec.verifiers.iter().enumerate() {
            let at = format!("spec.verifiers[{i}]");
            verifier.check(&at, spec.rootless_keypairs_only, &mut problems);
            if spec.verifiers[..i].iter().any(|other| other.name == verifier.name) {
                problems.add(format!("{at}.name"), format!("{:?} is there twice", verifier.name));
            }
        }
        problems.into_result()
    }
}

impl ImageVerifier {
    fn check(&self, at: &str, keypairs_only: bool, problems: &mut Invalid) {
        let Self { name, public_key, cert_issuer, cert_subject } = self;
        field::name(problems, &format!("{at}.name"), name);
        field::no_longer(problems, &format!("{at}.publicKey"), public_key, LONGEST_PEM);
        let issuer = (format!("{at}.certIssuer"), cert_issuer);
        let subject = (format!("{at}.certSubject"), cert_subject);
        let identity = [issuer, subject];
        let given = identity.iter().filter(|(_, text)| !text.is_empty()).count();
        for (at, text) in &identity {
            field::no_longer(problems, at, text, LONGEST_IDENTITY);
        }
        match (public_key.trim().is_empty(), given) {
            (false, 0) => {}
            (true, 2) if !keypairs_only => {}
            (true, 2) => problems.add(at, "is an identity, and this root has keypairs only"),
            _ => problems.add(at, "has either publicKey, or certIssuer and certSubject"),
        }
    }
}

#[cfg(test)]
mod tests;
