//! `User`, `AccessRole`, `AccessToken`: who may do what.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::fmt;

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::store::{Invalid, Kind};

/// The most roles of a user, and the most rules of a role in each direction: every request is compared
/// with all of them.
const MOST: usize = 64;
/// The most words of one kind in a rule.
const MOST_WORDS: usize = 256;
/// The most characters of a word: longer than any name of Kubernetes.
const LONGEST_WORD: usize = 512;
const LONGEST_HASH: usize = 512;
const LONGEST_DESCRIPTION: usize = 1024;
const LONGEST_VERB: usize = 32;
/// The pattern of a verb: one of [`VERBS`], or a glob of such letters.
const VERB: &str = "^(get|list|watch|create|update|delete|scale|restart|cordon|drain|log|exec|forward|[a-z]*[*?][a-z*?]*)$";

pub const VERBS: [&str; 13] = [
    "get", "list", "watch", "create", "update", "delete", "scale", "restart", "cordon", "drain",
    "log", "exec", "forward",
];

/// Somebody who may log in.
#[derive(CustomResource, Clone, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "User",
    doc = "Somebody who may log in.",
    category = "fairlead",
    shortname = "fuser",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Roles","type":"string","jsonPath":".spec.roles"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct UserSpec {
    /// An argon2id hash (PHC string). Without one, the user has tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_HASH), regex(pattern = r"^\$argon2id\$"))]
    pub password_hash: Option<String>,
    /// Names of `AccessRole`s.
    #[serde(default)]
    #[schemars(length(max = MOST), inner(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME)))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a == b))").message("has a role twice"))]
    pub roles: Vec<String>,
    #[serde(default)]
    pub disabled: bool,
}

/// Leaves the hash out: hashes are not for logs.
impl fmt::Debug for UserSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserSpec")
            .field("has_password", &self.password_hash.is_some())
            .field("roles", &self.roles)
            .field("disabled", &self.disabled)
            .finish()
    }
}

/// What those who have the role may do, and may not: deny wins.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AccessRole",
    doc = "What those who have the role may do, and may not: deny wins.",
    category = "fairlead",
    shortname = "arole",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Clusters","type":"string","jsonPath":".spec.allow[*].clusters"}"#,
    printcolumn = r#"{"name":"Verbs","type":"string","jsonPath":".spec.allow[*].verbs"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct AccessRoleSpec {
    #[serde(default)]
    #[schemars(length(max = MOST))]
    pub allow: Vec<Rule>,
    #[serde(default)]
    #[schemars(length(max = MOST))]
    pub deny: Vec<Rule>,
}

/// Globs (`*` and `?`), each matched against the whole word.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Rule {
    /// Clusters by name. `-`, which no glob matches, is the fleet itself: its clusters, users, roles,
    /// tokens, audit.
    #[schemars(
        length(min = 1, max = MOST_WORDS),
        inner(length(min = 1, max = LONGEST_WORD), regex(pattern = field::TEXT))
    )]
    pub clusters: Vec<String>,
    /// The namespaces of namespaced resources; a cluster-scoped resource is in the namespace `-`.
    #[schemars(
        length(min = 1, max = MOST_WORDS),
        inner(length(min = 1, max = LONGEST_WORD), regex(pattern = field::TEXT))
    )]
    pub namespaces: Vec<String>,
    /// Resources as kubectl writes them, `resource.group` (`pods`, `deployments.apps`).
    #[schemars(
        length(min = 1, max = MOST_WORDS),
        inner(length(min = 1, max = LONGEST_WORD), regex(pattern = field::TEXT))
    )]
    pub resources: Vec<String>,
    /// Any of get, list, watch, create, update, delete, scale, restart, cordon, drain, log, exec, forward.
    #[schemars(
        length(min = 1, max = MOST_WORDS),
        inner(length(min = 1, max = LONGEST_VERB), regex(pattern = VERB))
    )]
    pub verbs: Vec<String>,
}

/// A token for programs; only its hash is kept.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AccessToken",
    doc = "A token for programs; only its hash is kept.",
    category = "fairlead",
    shortname = "atoken",
    derive = "PartialEq",
    printcolumn = r#"{"name":"User","type":"string","jsonPath":".spec.user"}"#,
    printcolumn = r#"{"name":"Expires","type":"string","jsonPath":".spec.expires"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[x_kube(validation = Rule::new("self.user == oldSelf.user && self.hash == oldSelf.hash").message("a token stays whose and what it is; make another"))]
pub struct AccessTokenSpec {
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub user: String,
    /// SHA-256 of the token, hexadecimal: the token is 256 random bits, so a slow hash adds nothing.
    #[schemars(length(min = 64, max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub hash: String,
    /// When the token expires (RFC 3339). Without this it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME), extend("format" = "date-time"))]
    pub expires: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_DESCRIPTION), regex(pattern = field::TEXT))]
    pub description: Option<String>,
}

impl AccessToken {
    /// Makes the token one that is deleted with its user.
    #[must_use]
    pub fn owned_by(mut self, user: &User) -> Self {
        self.metadata.owner_references = user.owner_ref(&()).map(|owner| vec![owner]);
        self
    }

    /// Whether the token was made for this very user, not for a deleted one of the same name.
    pub fn is_owned_by(&self, user: &User) -> bool {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        owners.is_empty()
            || owners.iter().any(|owner| Some(&owner.uid) == user.metadata.uid.as_ref())
    }
}

impl Kind for User {
    const NAME: &'static str = "User";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let UserSpec { password_hash, roles, disabled: _ } = &self.spec;
        let mut problems = Invalid::default();
        if let Some(hash) = password_hash {
            // The problem must not repeat it.
            if hash.len() > LONGEST_HASH || !is_argon2id(hash) {
                problems.add("spec.passwordHash", "must be an argon2id hash as a PHC string");
            }
        }
        field::at_most(&mut problems, "spec.roles", roles.len(), MOST);
        for (i, role) in roles.iter().enumerate() {
            field::name(&mut problems, &format!("spec.roles[{i}]"), role);
            if roles[..i].contains(role) {
                problems.add(format!("spec.roles[{i}]"), format!("{role:?} is there twice"));
            }
        }
        problems.into_result()
    }
}

impl Kind for AccessRole {
    const NAME: &'static str = "AccessRole";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let AccessRoleSpec { allow, deny } = &self.spec;
        let mut problems = Invalid::default();
        for (direction, rules) in [("allow", allow), ("deny", deny)] {
            field::at_most(&mut problems, &format!("spec.{direction}"), rules.len(), MOST);
            for (i, rule) in rules.iter().enumerate() {
                rule.check(&format!("spec.{direction}[{i}]"), &mut problems);
            }
        }
        problems.into_result()
    }
}

impl Rule {
    fn check(&self, at: &str, problems: &mut Invalid) {
        let Self { clusters, namespaces, resources, verbs } = self;
        let parts = [
            ("clusters", clusters),
            ("namespaces", namespaces),
            ("resources", resources),
            ("verbs", verbs),
        ];
        for (part, words) in parts {
            let part = format!("{at}.{part}");
            if words.is_empty() {
                problems.add(&part, "is empty, so that the rule never applies");
            }
            field::at_most(problems, &part, words.len(), MOST_WORDS);
            for (i, word) in words.iter().enumerate() {
                field::text(problems, &format!("{part}[{i}]"), word, 1, LONGEST_WORD);
            }
        }
        for (i, verb) in verbs.iter().enumerate() {
            let in_glob = |c: char| c.is_ascii_lowercase() || "*?".contains(c);
            let is_glob = verb.contains(['*', '?'])
                && verb.len() <= LONGEST_VERB
                && verb.chars().all(in_glob);
            if !is_glob && !VERBS.contains(&verb.as_str()) {
                let known = VERBS.join(", ");
                problems.add(
                    format!("{at}.verbs[{i}]"),
                    format!("there is no verb {verb:?}; there are {known}"),
                );
            }
        }
    }
}

impl Kind for AccessToken {
    const NAME: &'static str = "AccessToken";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let AccessTokenSpec { user, hash, expires, description } = &self.spec;
        let mut problems = Invalid::default();
        field::name(&mut problems, "spec.user", user);
        let is_hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
        if hash.len() != 64 || !hash.as_bytes().iter().all(is_hex) {
            problems.add("spec.hash", "must be a SHA-256 as 64 digits of 0-9 and a-f");
        }
        if let Some(expires) = expires
            && (expires.len() > field::LONGEST_TIME || expires.parse::<Timestamp>().is_err())
        {
            let problem = format!("{expires:?} is no time of RFC 3339, as 2027-01-31T12:00:00Z is");
            problems.add("spec.expires", problem);
        }
        if let Some(description) = description {
            let most = LONGEST_DESCRIPTION;
            field::text(&mut problems, "spec.description", description, 0, most);
        }
        problems.into_result()
    }
}

/// Checks a hash of the form `$argon2id$v=19$m=…,t=…,p=…$salt$hash`.
fn is_argon2id(hash: &str) -> bool {
    let is_base64 = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_parameter = |text: &str| {
        text.split_once('=').is_some_and(|(name, value)| {
            matches!(name, "m" | "t" | "p" | "keyid" | "data") && !value.is_empty()
        })
    };
    let parts: Vec<_> = hash.split('$').collect();
    let ["", "argon2id", version, parameters, salt, digest] = parts[..] else { return false };
    version.strip_prefix("v=").is_some_and(is_number)
        && parameters.split(',').all(is_parameter)
        && is_base64(salt)
        && is_base64(digest)
}

#[cfg(test)]
mod tests;
