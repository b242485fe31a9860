//! What NeuVector has, as objects of ours. Pure: documents in, objects and a report out.
//!
//! ```text
//! /v1/file/group export, ten kinds of resources ──► groups (what each stands for) ──► rules in order ──► objects
//!                                                                                 └──► report: kept, changed, refused
//! ```
//!
//! Invariants:
//! 1. Nothing is allowed that NeuVector would not allow. An allow rule is kept only if its ends stand for no more
//!    than they did, a deny rule only if they stand for no less: otherwise that end becomes `any`. Among rules of
//!    one priority, which NeuVector looks at in no certain order, those that deny come first.
//! 2. Everything that was read is in the report, under one of four words.
//! 3. The same documents make the same objects, names and priorities included: a second import changes nothing.

mod criteria;
mod images;
mod network;
mod response;

use std::collections::BTreeMap;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{
    AdmissionRule, Group, ImageTrustRoot, NetworkRule, Receiver, ResponseRule,
    VulnerabilityException,
};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// What was imported, and what became of everything that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub groups: Vec<Group>,
    pub rules: Vec<NetworkRule>,
    pub admission: Vec<AdmissionRule>,
    pub responses: Vec<ResponseRule>,
    pub receivers: Vec<Receiver>,
    pub exceptions: Vec<VulnerabilityException>,
    pub roots: Vec<ImageTrustRoot>,
    pub report: Vec<Finding>,
}

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// group, network rule, response rule, admission rule, receiver, vulnerability exception, root of trust,
    /// and what is not carried over.
    pub what: &'static str,
    pub name: String,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It means what it meant.
    Kept,
    /// It is stricter, or named otherwise; why says how.
    Changed,
    /// It could not be carried over without allowing more, or cannot be read.
    Refused,
    /// There is nothing here that it could become.
    NotCarried,
}

/// What an import must know of the cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where pods have their addresses. NeuVector's groups of addresses never stand for a pod, ours do.
    pub pod_networks: Vec<IpNet>,
}

impl Default for Settings {
    /// Everything that is not public.
    fn default() -> Self {
        let private = [
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "fc00::/7",
            "fe80::/10",
            "::1/128",
        ];
        Self { pod_networks: private.iter().filter_map(|text| text.parse().ok()).collect() }
    }
}

/// Takes the documents of exports. The error is a sentence: not NeuVector's.
pub fn import(documents: &[Value], settings: &Settings) -> Result<Imported, String> {
    let mut flat = Vec::new();
    flatten(documents, &mut flat)?;
    let mut imported = Imported::default();
    let mut names = Names::default();
    let groups = network::groups(&flat, settings, &mut names, &mut imported);
    network::rules(&flat, &groups, &mut names, &mut imported);
    response::receivers(&flat, &mut names, &mut imported);
    response::rules(&flat, &groups, &mut names, &mut imported);
    for document in flat {
        others(document, &mut names, &mut imported)?;
    }
    Ok(imported)
}

const KINDS: [&str; 10] = [
    "NvSecurityRule",
    "NvClusterSecurityRule",
    "NvGroupDefinition",
    "NvAdmissionControlSecurityRule",
    "NvResponseRuleSecurityRule",
    "NvConfigSecurityRule",
    "NvDlpSecurityRule",
    "NvWafSecurityRule",
    "NvVulnerabilityProfile",
    "NvComplianceProfile",
];

fn flatten<'a>(documents: &'a [Value], flat: &mut Vec<&'a Value>) -> Result<(), String> {
    for document in documents {
        let kind = kind(document);
        if kind == "List" || kind.strip_suffix("List").is_some_and(|kind| KINDS.contains(&kind)) {
            let items = document["items"].as_array().map_or(&[][..], Vec::as_slice);
            flatten(items, flat)?;
        } else if KINDS.contains(&kind) || images::is_roots(document) {
            flat.push(document);
        } else if !document.is_null() {
            return Err(format!(
                "kind {kind:?} is none of NeuVector's; export groups, admission and response rules from it, \
                 or its resources by kubectl get -o yaml, or what /v1/scan/sigstore/root_of_trust answers"
            ));
        }
    }
    Ok(())
}

fn kind(document: &Value) -> &str {
    document["kind"].as_str().unwrap_or_default()
}

fn name_of(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_default()
}

impl Imported {
    fn note(&mut self, what: &'static str, name: &str, outcome: Outcome, why: impl Into<String>) {
        self.report.push(Finding { what, name: name.to_owned(), outcome, why: why.into() });
    }

    /// How much became what.
    pub fn counts(&self) -> BTreeMap<Outcome, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.report {
            *counts.entry(finding.outcome).or_default() += 1;
        }
        counts
    }
}

/// Names for objects of ours, each given once.
#[derive(Debug, Default)]
struct Names(BTreeMap<(&'static str, String), u32>);

impl Names {
    /// The name itself where it can be one; else one that is made of it and of its hash.
    fn give(&mut self, what: &'static str, name: &str) -> String {
        let base = plain(name);
        let times = self.0.entry((what, base.clone())).or_default();
        *times += 1;
        if *times == 1 { base } else { format!("{base}-{times}") }
    }
}

/// The name that the first of its kind is given.
fn plain(name: &str) -> String {
    let right = objects::is_subdomain(name)
        && name.len() <= 200
        && !objects::kinds::RESERVED_GROUPS.contains(&name);
    if right { name.to_owned() } else { made_up(name) }
}

fn made_up(name: &str) -> String {
    let plain: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(60)
        .collect();
    let digest = Sha256::digest(name.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { format!("nv-{hash}") } else { format!("{plain}-{hash}") }
}

/// What has nothing to do with the network.
fn others(document: &Value, names: &mut Names, imported: &mut Imported) -> Result<(), String> {
    let (kind, name) = (kind(document), name_of(document));
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    match kind {
        "NvAdmissionControlSecurityRule" => {
            let admission::Imported { rules, notes } =
                admission::import(std::slice::from_ref(document))?;
            for rule in rules {
                let name = rule.name_any();
                let of: Vec<_> = notes.iter().filter(|note| note.rule == name).collect();
                let why = of.iter().map(|note| note.why.as_str()).collect::<Vec<_>>().join("; ");
                let outcome = if of.is_empty() { Outcome::Kept } else { Outcome::Changed };
                imported.note("admission rule", &name, outcome, why);
                imported.admission.push(rule);
            }
            let known: Vec<_> = imported.admission.iter().map(ResourceExt::name_any).collect();
            for note in notes.into_iter().filter(|note| !known.contains(&note.rule)) {
                let outcome = if note.carried { Outcome::Changed } else { Outcome::Refused };
                imported.note("admission rule", &note.rule, outcome, note.why);
            }
        }
        "NvSecurityRule" | "NvClusterSecurityRule" => {
            let spec = &document["spec"];
            for (field, what) in [("process", "process rules"), ("file", "file rules")] {
                if count(&spec[field]) > 0 {
                    let why =
                        format!("{}: Fairlead does not look into containers", count(&spec[field]));
                    imported.note(what, name, Outcome::NotCarried, why);
                }
            }
            for (field, what) in [("dlp", "DLP sensors"), ("waf", "WAF sensors")] {
                if count(&spec[field]["settings"]) > 0 {
                    let why = "Fairlead does not look into payloads";
                    imported.note(what, name, Outcome::NotCarried, why);
                }
            }
        }
        "NvDlpSecurityRule" | "NvWafSecurityRule" => {
            let why = "Fairlead does not look into payloads";
            imported.note(
                if kind.contains("Dlp") { "DLP sensor" } else { "WAF sensor" },
                name,
                Outcome::NotCarried,
                why,
            );
        }
        "NvVulnerabilityProfile" => images::profile(document, names, imported),
        "NvComplianceProfile" => {
            imported.note(
                "compliance profile",
                name,
                Outcome::NotCarried,
                "Fairlead runs no benchmarks",
            );
        }
        _ if images::is_roots(document) => images::roots(document, imported),
        _ => {}
    }
    Ok(())
}
