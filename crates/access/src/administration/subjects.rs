//! Users, roles and tokens as the audit describes them, without secrets; and the end of a user's tokens.

use objects::kinds::{AccessToken, User};
use objects::{Expected, Id, Within};
use serde_json::{Value, json};
use stallproof::Deadline;

use super::{Administration, AdministrationError, Result, USERS, refuse_local};
use crate::role::Verb;

impl Administration<'_> {
    /// The user as it is now, for the audit.
    pub fn user_for_audit(&self, name: &str) -> Option<Value> {
        self.access.0.directory.read(|directory| {
            let spec = &directory.account(name)?.user.spec;
            let has_password = spec.password_hash.is_some();
            Some(json!({
                "roles": spec.roles, "disabled": spec.disabled, "hasPassword": has_password,
            }))
        })
    }

    /// The role as it is now, for the audit.
    pub fn role_for_audit(&self, name: &str) -> Option<Value> {
        self.access.0.directory.read(|directory| {
            let spec = directory.role(name)?.role.spec();
            Some(json!({ "allow": spec.allow, "deny": spec.deny }))
        })
    }

    /// The token as it is now, for the audit.
    pub fn token_for_audit(&self, id: &str) -> Option<Value> {
        self.access.0.directory.read(|directory| {
            let spec = &directory.token(id)?.token.spec;
            Some(json!({
                "user": spec.user, "description": spec.description,
                "expires": spec.expires.as_deref().unwrap_or("never"),
            }))
        })
    }

    /// Counts the tokens of a user.
    pub fn count_tokens(&self, user: &str) -> usize {
        let is_theirs = |spec: &objects::kinds::AccessTokenSpec| spec.user == user;
        self.access.0.directory.read(|directory| {
            directory.tokens().filter(|token| is_theirs(&token.token.spec)).count()
        })
    }

    /// Revokes all tokens of a user, and returns how many there were. It needs what setting the user's
    /// password needs: to be that user, or to be above them.
    pub async fn revoke_tokens_of(&self, name: &str, deadline: Deadline) -> Result<usize> {
        refuse_local(name)?;
        let user: User = self.user(name, deadline).await?;
        // Whoever has just changed their own password has no session any more.
        if *name != *self.who.user {
            self.catch_up(deadline).await?;
            self.ask(Verb::Update, USERS)?;
            self.may_touch(&user)?;
        } else if user.spec.disabled {
            return Err(AdministrationError::Inactive);
        }
        let objects = &self.access.0.objects;
        let all = objects.list::<AccessToken>(&Within::default(), deadline).await?;
        let theirs = all.items.iter().filter(|token| token.spec.user == name);
        let mut revoked = 0;
        for id in theirs.map(Id::of) {
            match objects.delete::<AccessToken>(&id, Expected::Any, deadline).await {
                Ok(_) => revoked += 1,
                // Somebody else revoked it.
                Err(objects::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.seen(|directory| directory.token(&id.name).is_none()).await;
        }
        Ok(revoked)
    }
}
