//! `User`, `AccessRole`, `AccessToken`: who may do what.

use std::fmt;

use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::{Invalid, Kind};

/// Somebody who may log in.
#[derive(CustomResource, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "User",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Roles","type":"string","jsonPath":".spec.roles"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct UserSpec {
    /// An argon2id hash (PHC string). Without one, the user has tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Names of `AccessRole`s.
    #[serde(default)]
    pub roles: Vec<String>,
    #[serde(default)]
    pub disabled: bool,
}

/// Hashes are not for logs.
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
    shortname = "arole",
    derive = "PartialEq"
)]
pub struct AccessRoleSpec {
    #[serde(default)]
    pub allow: Vec<Rule>,
    #[serde(default)]
    pub deny: Vec<Rule>,
}

/// Globs (`*` and `?`), each matched against the whole word.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Rule {
    /// `-`, which no glob matches, is the fleet itself: its clusters, users, roles, tokens, audit.
    pub clusters: Vec<String>,
    /// Of namespaced resources; a cluster-scoped one is in the namespace `-`.
    pub namespaces: Vec<String>,
    /// `resource.group` as kubectl writes it (`pods`, `deployments.apps`).
    pub resources: Vec<String>,
    /// get, list, watch, create, update, delete, scale, restart, cordon, drain, log, exec, forward.
    pub verbs: Vec<String>,
}

/// A token for programs; only its hash is kept.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AccessToken",
    shortname = "atoken",
    derive = "PartialEq",
    printcolumn = r#"{"name":"User","type":"string","jsonPath":".spec.user"}"#,
    printcolumn = r#"{"name":"Expires","type":"date","jsonPath":".spec.expires"}"#
)]
pub struct AccessTokenSpec {
    pub user: String,
    /// SHA-256 of the token, hexadecimal: the token is 256 random bits, so a slow hash adds nothing.
    pub hash: String,
    /// RFC 3339; none never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl AccessToken {
    /// Goes when its user goes.
    #[must_use]
    pub fn owned_by(mut self, user: &User) -> Self {
        self.metadata.owner_references = user.owner_ref(&()).map(|owner| vec![owner]);
        self
    }

    /// Whether it was made for this very user, not for one of the same name that is gone.
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
        Invalid::default().into_result()
    }
}

impl Kind for AccessRole {
    const NAME: &'static str = "AccessRole";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        Invalid::default().into_result()
    }
}

impl Kind for AccessToken {
    const NAME: &'static str = "AccessToken";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        Invalid::default().into_result()
    }
}
