//! VEX: statements of vendors on whether a vulnerability concerns a product. OpenVEX and CSAF are read
//! here; what CycloneDX says of its own vulnerabilities is read with them.
//!
//! Contract: a statement silences a finding only if it names the image by a digest that the record has,
//! or the package by its URL. Of those that fit, the newest counts.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::Unreadable;

/// One statement on one vulnerability of some products.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Statement {
    /// In capitals.
    names: Vec<String>,
    products: Vec<Product>,
    silences: bool,
    at: i64,
}

/// An image by its digest, a package by its URL, or a package in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Product {
    digest: Option<String>,
    purl: Option<String>,
}

/// Statements, found by the names of vulnerabilities.
#[derive(Clone, Debug, Default)]
pub(super) struct Statements {
    all: Vec<Statement>,
    by_name: HashMap<String, Vec<usize>>,
}

impl FromIterator<Statement> for Statements {
    fn from_iter<T: IntoIterator<Item = Statement>>(statements: T) -> Self {
        let mut read = Self::default();
        for statement in statements {
            for name in &statement.names {
                read.by_name.entry(name.clone()).or_default().push(read.all.len());
            }
            read.all.push(statement);
        }
        read
    }
}

impl Statements {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a finding of these names, in capitals, in a package of this URL counts for nothing.
    pub(super) fn silence<'n>(
        &self,
        digests: &[&str],
        mut names: impl Iterator<Item = &'n str>,
        purl: &str,
    ) -> bool {
        let mut newest: Option<&Statement> = None;
        names.by_ref().filter_map(|name| self.by_name.get(name)).flatten().for_each(|at| {
            let statement = &self.all[*at];
            let fits = statement.products.iter().any(|product| product.fits(digests, purl));
            if fits && newest.is_none_or(|newest| statement.at >= newest.at) {
                newest = Some(statement);
            }
        });
        newest.is_some_and(|newest| newest.silences)
    }
}

impl Product {
    fn fits(&self, digests: &[&str], of: &str) -> bool {
        let image = self.digest.as_deref().map(|digest| digests.contains(&digest));
        let package = self.purl.as_deref().map(|purl| is_package(purl, of));
        match (image, package) {
            (None, None) => false,
            (image, package) => image.unwrap_or(true) && package.unwrap_or(true),
        }
    }
}

/// Whether a statement's package URL is a finding's: the same without qualifiers; a statement without a
/// version is on all of them.
fn is_package(stated: &str, found: &str) -> bool {
    let plain = |purl: &str| purl.split(['?', '#']).next().unwrap_or_default().replace("%40", "@");
    let (stated, found) = (plain(stated), plain(found));
    if found.is_empty() {
        return false;
    }
    // The name of an npm scope begins with an @; that of a version stands behind the last slash.
    let name = stated.rfind('/').map_or(&*stated, |at| &stated[at..]);
    stated == found || (!name.contains('@') && found.starts_with(&format!("{stated}@")))
}

/// What an identifier of a product says: a digest, or the URL of a package.
fn product(id: &str) -> Product {
    let id = id.replace("%3A", ":").replace("%3a", ":").replace("%40", "@");
    let digest = id.find("sha256:").map(|at| {
        let hex = id[at + 7..].bytes().take_while(u8::is_ascii_hexdigit).count();
        id[at..at + 7 + hex].to_owned()
    });
    let is_image = id.starts_with("pkg:oci/") || id.starts_with("pkg:docker/");
    let purl = (digest.is_none() && id.starts_with("pkg:") && !is_image).then_some(id);
    Product { digest, purl }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

fn seconds(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

/// Reads a document; none if it is no VEX document.
pub(super) fn read(document: &Value) -> Result<Option<Vec<Statement>>, Unreadable> {
    if text(document, "@context").starts_with("https://openvex.dev/") {
        if !document["statements"].is_array() {
            return Err(Unreadable("is an OpenVEX document without statements".to_owned()));
        }
        return Ok(Some(open_vex(document)));
    }
    let category = text(&document["document"], "category");
    if category == "csaf_vex" || category == "csaf_security_advisory" {
        return Ok(Some(csaf(document)));
    }
    Ok(None)
}

fn open_vex(document: &Value) -> Vec<Statement> {
    let statement = |one: &Value| {
        let vulnerability = &one["vulnerability"];
        let id = vulnerability.as_str().unwrap_or_else(|| text(vulnerability, "name"));
        let aliases = items(vulnerability, "aliases").filter_map(Value::as_str);
        let names = std::iter::once(id).chain(aliases).map(str::to_uppercase).collect();
        let at = [one, document].map(|of| seconds(text(of, "timestamp")));
        Statement {
            names,
            products: items(one, "products").flat_map(open_vex_product).collect(),
            silences: matches!(text(one, "status"), "not_affected" | "fixed"),
            at: if at[0] == 0 { at[1] } else { at[0] },
        }
    };
    items(document, "statements").map(statement).collect()
}

/// A product, or each of the parts of it that a statement is on.
fn open_vex_product(of: &Value) -> Vec<Product> {
    let of_one = |of: &Value| {
        let id = of.as_str().unwrap_or_else(|| text(of, "@id"));
        let mut found = product(id);
        if found == Product::default() {
            found = product(text(&of["identifiers"], "purl"));
        }
        if let Some(hash) = of.pointer("/hashes/sha-256").and_then(Value::as_str) {
            found.digest.get_or_insert_with(|| format!("sha256:{hash}"));
        }
        found
    };
    let whole = of_one(of);
    let parts: Vec<_> = items(of, "subcomponents").map(of_one).collect();
    if parts.is_empty() {
        return vec![whole];
    }
    // A part without a URL could be any: the statement is on none that is known.
    let known = parts.into_iter().filter_map(|part| part.purl);
    known.map(|purl| Product { digest: whole.digest.clone(), purl: Some(purl) }).collect()
}

fn csaf(document: &Value) -> Vec<Statement> {
    let mut products: HashMap<&str, Product> = HashMap::new();
    let mut branches: Vec<&Value> = vec![&document["product_tree"]];
    while let Some(branch) = branches.pop() {
        branches.extend(items(branch, "branches"));
        let named = items(branch, "full_product_names").chain([&branch["product"]]);
        for name in named {
            let helper = &name["product_identification_helper"];
            let mut found = product(text(helper, "purl"));
            for hash in items(helper, "hashes").flat_map(|of| items(of, "file_hashes")) {
                if text(hash, "algorithm") == "sha256" {
                    found.digest.get_or_insert_with(|| format!("sha256:{}", text(hash, "value")));
                }
            }
            products.insert(text(name, "product_id"), found);
        }
    }
    for relation in items(&document["product_tree"], "relationships") {
        let part = products.get(text(relation, "product_reference")).cloned().unwrap_or_default();
        let whole = products.get(text(relation, "relates_to_product_reference")).cloned();
        let digest = whole.unwrap_or_default().digest;
        let id = text(&relation["full_product_name"], "product_id");
        products.insert(id, Product { digest, purl: part.purl });
    }
    let at = seconds(text(&document["document"]["tracking"], "current_release_date"));
    let statements = items(document, "vulnerabilities").flat_map(|vulnerability| {
        let ids = items(vulnerability, "ids").map(|id| text(id, "text"));
        let names = std::iter::once(text(vulnerability, "cve")).chain(ids);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_uppercase).collect();
        let status = vulnerability["product_status"].as_object().into_iter().flatten();
        let products = &products;
        status.map(move |(status, ids)| {
            let ids = ids.as_array().into_iter().flatten().filter_map(Value::as_str);
            Statement {
                names: names.clone(),
                products: ids.filter_map(|id| products.get(id).cloned()).collect(),
                silences: matches!(status.as_str(), "known_not_affected" | "fixed" | "first_fixed"),
                at,
            }
        })
    });
    statements.collect()
}
