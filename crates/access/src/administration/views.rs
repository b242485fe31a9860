//! Users, roles and tokens as they are shown, made and changed.

use objects::kinds::AccessRoleSpec;
use serde::Serialize;

use crate::directory::Account;
use crate::secret::Secret;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserView {
    pub name: String,
    pub roles: Vec<String>,
    pub disabled: bool,
    pub has_password: bool,
    /// The identity provider that vouches for the user; none for a user of the store.
    pub provider: Option<String>,
    /// Sentences that say what is wrong with the user.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleView {
    pub name: String,
    pub built_in: bool,
    #[serde(flatten)]
    pub rules: AccessRoleSpec,
    pub problems: Vec<String>,
}

/// A token without its secret, which is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView {
    pub id: String,
    pub user: String,
    pub description: Option<String>,
    /// The time of expiry in RFC 3339; `None` means never.
    pub expires: Option<String>,
    pub expired: bool,
    pub problem: Option<String>,
}

/// A user to create.
#[derive(Debug)]
pub struct NewUser {
    pub name: String,
    pub roles: Vec<String>,
    /// The password; a user without one can only use tokens.
    pub password: Option<Secret>,
}

/// A change of a user; a field that is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct UserChange {
    pub roles: Option<Vec<String>>,
    pub disabled: Option<bool>,
}

impl UserView {
    pub(super) fn of(account: &Account) -> Self {
        Self {
            name: account.name.to_string(),
            roles: account.user.spec.roles.clone(),
            disabled: account.user.spec.disabled,
            has_password: account.user.spec.password_hash.is_some(),
            provider: account.federated.as_ref().map(|by| by.provider.to_string()),
            problems: account.problems.clone(),
        }
    }
}
