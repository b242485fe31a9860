//! `IdentityProvider`, `RoleMapping`: who logs in with an OpenID provider, and with which roles.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::name;
use crate::store::{Invalid, Kind};

/// The most characters of a provider's name: it is part of its users' names and of a path.
const LONGEST_NAME: usize = 63;
const LONGEST_URL: usize = 1024;
const LONGEST_CLIENT_ID: usize = 512;
const LONGEST_CLAIM: usize = 256;
/// The most characters of a group's name: directories have long ones (`cn=…,ou=…,dc=…`).
const LONGEST_VALUE: usize = 512;
const LONGEST_CA: usize = 64 << 10;
const MOST_SCOPES: usize = 32;
const MOST_VALUES: usize = 256;
const MOST_ROLES: usize = 64;
/// The pattern of a URL without user, query and fragment.
const URL: &str = r"^https?://[^\s?#@]+$";

/// An OpenID provider that users log in with.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "IdentityProvider",
    doc = "An OpenID provider that users log in with.",
    category = "fairlead",
    shortname = "fidp",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("a provider's name has 63 characters at most"),
    printcolumn = r#"{"name":"Issuer","type":"string","jsonPath":".spec.issuer"}"#,
    printcolumn = r#"{"name":"Client","type":"string","jsonPath":".spec.clientId"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct IdentityProviderSpec {
    /// The issuer, as its tokens name it; `/.well-known/openid-configuration` below it describes it.
    /// https, or http on loopback.
    #[schemars(length(min = 1, max = LONGEST_URL), regex(pattern = URL))]
    pub issuer: String,
    /// What the provider calls Fairlead.
    #[schemars(length(min = 1, max = LONGEST_CLIENT_ID), regex(pattern = field::TEXT))]
    pub client_id: String,
    /// The Secret with the client's secret; none for a public client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<ClientSecret>,
    /// Scopes asked for beside `openid`.
    #[serde(default = "scopes")]
    #[schemars(length(max = MOST_SCOPES), inner(length(min = 1, max = LONGEST_CLAIM), regex(pattern = r"^[!#-\[\]-~]+$")))]
    pub scopes: Vec<String>,
    /// The claim that is the user's name here, after `PROVIDER:`.
    #[serde(default = "user_claim")]
    #[schemars(length(min = 1, max = LONGEST_CLAIM), regex(pattern = field::TEXT))]
    pub user_claim: String,
    /// The claim with the user's groups. Dots lead into objects: `realm_access.roles`.
    #[serde(default = "groups_claim")]
    #[schemars(length(min = 1, max = LONGEST_CLAIM), regex(pattern = field::TEXT))]
    pub groups_claim: String,
    /// Where the provider sends browsers back to, as it is registered there; the address that the
    /// browser uses, with `/auth/oidc/NAME/callback`, if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_URL), regex(pattern = URL))]
    pub redirect_uri: Option<String>,
    /// Certificate authorities (PEM) of the provider; the public ones if none are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_CA))]
    pub ca: Option<String>,
    /// How often the provider is asked about a user who is active, in seconds.
    #[serde(default = "recheck_seconds")]
    #[schemars(range(min = 2, max = 3600))]
    pub recheck_seconds: u32,
}

/// A key of a Secret in Fairlead's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ClientSecret {
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub name: String,
    #[serde(default = "client_secret_key")]
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::SECRET_KEY))]
    pub key: String,
}

/// Gives roles to users of a provider by what it says of them.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "RoleMapping",
    doc = "Gives roles to users of a provider by what it says of them.",
    category = "fairlead",
    shortname = "rmap",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Provider","type":"string","jsonPath":".spec.provider"}"#,
    printcolumn = r#"{"name":"Values","type":"string","jsonPath":".spec.values"}"#,
    printcolumn = r#"{"name":"Roles","type":"string","jsonPath":".spec.roles"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RoleMappingSpec {
    /// The `IdentityProvider`.
    #[schemars(length(min = 1, max = LONGEST_NAME), regex(pattern = field::NAME))]
    pub provider: String,
    /// The claim that is looked at; the provider's groups claim if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_CLAIM), regex(pattern = field::TEXT))]
    pub claim: Option<String>,
    /// Users of whom the claim has one of these values get the roles. They are compared as a whole.
    #[schemars(length(min = 1, max = MOST_VALUES), inner(length(min = 1, max = LONGEST_VALUE), regex(pattern = field::TEXT)))]
    pub values: Vec<String>,
    /// Names of `AccessRole`s.
    #[schemars(length(min = 1, max = MOST_ROLES), inner(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME)))]
    pub roles: Vec<String>,
}

fn scopes() -> Vec<String> {
    ["profile", "email", "offline_access"].map(str::to_owned).into()
}

fn user_claim() -> String {
    "email".to_owned()
}

fn groups_claim() -> String {
    "groups".to_owned()
}

fn client_secret_key() -> String {
    "client-secret".to_owned()
}

fn recheck_seconds() -> u32 {
    15
}

impl Kind for IdentityProvider {
    const NAME: &'static str = "IdentityProvider";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(problem) = name::dns_label(&self.name_any()) {
            problems.add("metadata.name", problem);
        }
        let spec = &self.spec;
        url(&mut problems, "spec.issuer", &spec.issuer);
        if let Some(redirect) = &spec.redirect_uri {
            url(&mut problems, "spec.redirectUri", redirect);
        }
        field::text(&mut problems, "spec.clientId", &spec.client_id, 1, LONGEST_CLIENT_ID);
        if let Some(secret) = &spec.client_secret {
            field::name(&mut problems, "spec.clientSecret.name", &secret.name);
            field::secret_key(&mut problems, "spec.clientSecret.key", &secret.key);
        }
        field::at_most(&mut problems, "spec.scopes", spec.scopes.len(), MOST_SCOPES);
        for (i, scope) in spec.scopes.iter().enumerate() {
            let in_scope = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
            if scope.is_empty() || scope.len() > LONGEST_CLAIM || !scope.bytes().all(in_scope) {
                problems.add(format!("spec.scopes[{i}]"), "is not a scope");
            }
        }
        field::text(&mut problems, "spec.userClaim", &spec.user_claim, 1, LONGEST_CLAIM);
        field::text(&mut problems, "spec.groupsClaim", &spec.groups_claim, 1, LONGEST_CLAIM);
        if let Some(ca) = &spec.ca {
            field::no_longer(&mut problems, "spec.ca", ca, LONGEST_CA);
            if !ca.contains("-----BEGIN CERTIFICATE-----") {
                problems.add("spec.ca", "holds no certificate in PEM");
            }
        }
        if !(2..=3600).contains(&spec.recheck_seconds) {
            problems.add("spec.recheckSeconds", "must be from 2 to 3600");
        }
        problems.into_result()
    }
}

impl Kind for RoleMapping {
    const NAME: &'static str = "RoleMapping";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let RoleMappingSpec { provider, claim, values, roles } = &self.spec;
        let mut problems = Invalid::default();
        field::name_within(&mut problems, "spec.provider", provider, LONGEST_NAME);
        if let Some(claim) = claim {
            field::text(&mut problems, "spec.claim", claim, 1, LONGEST_CLAIM);
        }
        for (field, count, most) in
            [("spec.values", values.len(), MOST_VALUES), ("spec.roles", roles.len(), MOST_ROLES)]
        {
            field::at_most(&mut problems, field, count, most);
            if count == 0 {
                problems.add(field, "is empty, so that the mapping gives nothing");
            }
        }
        for (i, value) in values.iter().enumerate() {
            field::text(&mut problems, &format!("spec.values[{i}]"), value, 1, LONGEST_VALUE);
        }
        for (i, role) in roles.iter().enumerate() {
            field::name(&mut problems, &format!("spec.roles[{i}]"), role);
        }
        problems.into_result()
    }
}

/// Checks a URL of https, or of http on loopback: over anything else a token could be read.
fn url(problems: &mut Invalid, field: &str, url: &str) {
    let rest = url.strip_prefix("https://").or_else(|| {
        let rest = url.strip_prefix("http://")?;
        is_loopback(rest.split('/').next().unwrap_or_default()).then_some(rest)
    });
    let in_url = |c: char| c.is_ascii_graphic() && !"?#@\"<>\\^`{|}".contains(c);
    match rest {
        Some(rest) if rest.is_empty() || rest.starts_with('/') || !rest.chars().all(in_url) => {
            problems.add(field, format!("{url:?} is not an address"));
        }
        Some(_) if url.len() > LONGEST_URL => {
            problems.add(field, format!("has more than {LONGEST_URL} characters"));
        }
        Some(_) => {}
        None => problems.add(field, format!("{url:?} must be https, or http on loopback")),
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests;
