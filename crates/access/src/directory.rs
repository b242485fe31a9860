//! `Directory`: all users, roles, tokens, identity providers and mappings as one value.
//!
//! Contract: it is plain and cheap to copy. `apply`, `delete` and `reset` take the objects of the store in
//! any order, and the result depends only on the objects that are there in the end. It never fails: an
//! object that is wrong allows nothing and says so in its `problems`. It has no secrets but password
//! hashes, which `Debug` does not show.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use objects::kinds::{AccessRole, AccessToken, IdentityProvider, RoleMapping, User, UserSpec};
use objects::{Id, Index};
use stallproof::Map;

use crate::identity::LOCAL;
use crate::oidc::{Federated, Provider};
use crate::password;
use crate::role::{ADMIN, Permissions, Role, built_in, is_built_in};
use crate::secret::Fingerprint;

#[derive(Clone, Debug)]
pub(crate) struct Directory {
    users: Map<Arc<str>, Arc<Account>>,
    roles: Map<Arc<str>, Arc<StoredRole>>,
    tokens: Map<Fingerprint, Arc<Token>>,
    /// Finds a token that was changed or deleted.
    token_ids: Map<Arc<str>, Arc<Token>>,
    /// The users of identity providers who are logged in. Their names have a colon, which no name of a
    /// stored user has.
    federated: Map<Arc<str>, Arc<Account>>,
    providers: Map<Arc<str>, Arc<Provider>>,
    mappings: Map<Arc<str>, Arc<RoleMapping>>,
    /// The kinds that have been read completely.
    told: Told,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    users: bool,
    roles: bool,
    tokens: bool,
}

/// A user with the permissions of all roles.
pub(crate) struct Account {
    pub(crate) name: Arc<str>,
    pub(crate) user: User,
    /// Empty for a disabled user.
    pub(crate) permissions: Arc<Permissions>,
    /// Changes with the password, and when the user is deleted and created again: a session with another
    /// stamp is invalid.
    pub(crate) stamp: Fingerprint,
    pub(crate) problems: Vec<String>,
    /// Who vouches for the user; none for a user of the store.
    pub(crate) federated: Option<Federated>,
}

#[derive(Debug)]
pub(crate) struct StoredRole {
    pub(crate) role: Arc<Role>,
    version: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) id: Arc<str>,
    pub(crate) token: AccessToken,
    fingerprint: Option<Fingerprint>,
    expires: Expires,
}

#[derive(Debug)]
enum Expires {
    Never,
    At(Timestamp),
    Unreadable,
}

impl Directory {
    /// A directory with the built-in roles and the user `local`.
    pub(crate) fn new() -> Self {
        let local = Account {
            name: LOCAL.into(),
            user: User::new(
                LOCAL,
                UserSpec { password_hash: None, roles: vec![ADMIN.to_owned()], disabled: false },
            ),
            permissions: Arc::new(Permissions::admin()),
            stamp: Fingerprint::of(LOCAL),
            problems: Vec::new(),
            federated: None,
        };
        let stored = |role: &Arc<Role>| {
            let stored = StoredRole { role: Arc::clone(role), version: None };
            (Arc::clone(role.name()), Arc::new(stored))
        };
        Self {
            users: Map::from_iter([(Arc::clone(&local.name), Arc::new(local))]),
            roles: built_in().iter().map(stored).collect(),
            tokens: Map::new(),
            token_ids: Map::new(),
            federated: Map::new(),
            providers: Map::new(),
            mappings: Map::new(),
            told: Told::default(),
        }
    }

    /// Whether all three kinds have been read. Before that, an absence means nothing.
    pub(crate) fn is_whole(&self) -> bool {
        self.told == Told { users: true, roles: true, tokens: true }
    }

    pub(crate) fn account(&self, user: &str) -> Option<&Arc<Account>> {
        self.users.get(user).or_else(|| self.federated.get(user))
    }

    /// Returns a user who is not disabled.
    pub(crate) fn active(&self, user: &str) -> Option<&Arc<Account>> {
        self.account(user).filter(|account| !account.user.spec.disabled)
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.users.values().chain(self.federated.values())
    }

    pub(crate) fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.get(name)
    }

    pub(crate) fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.values()
    }

    pub(crate) fn mapping(&self, name: &str) -> Option<&Arc<RoleMapping>> {
        self.mappings.get(name)
    }

    pub(crate) fn mappings(&self) -> impl Iterator<Item = &Arc<RoleMapping>> {
        self.mappings.values()
    }

    /// How many mappings there are for users of a provider.
    pub(crate) fn mappings_of(&self, provider: &str) -> usize {
        self.mappings.values().filter(|mapping| mapping.spec.provider == provider).count()
    }

    /// Takes in what a provider says of a user; false if that changes nothing, or if the provider is not
    /// the one that said it any more.
    pub(crate) fn federate(&mut self, federated: Federated) -> bool {
        let known = self.federated.get(&federated.user);
        let same = known.and_then(|account| account.federated.as_ref()).is_some_and(|known| {
            known.claims == federated.claims && known.stamp() == federated.stamp()
        });
        if same {
            return false;
        }
        let Some(account) = self.federated_account(federated) else { return false };
        self.federated.insert(Arc::clone(&account.name), Arc::new(account));
        true
    }

    /// Removes the users of providers for whom `is_wanted` returns false; returns whether there were any.
    pub(crate) fn retain_federated(&mut self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<_> = self.federated.keys().filter(|user| !is_wanted(user)).cloned().collect();
        for user in &gone {
            self.federated.remove(user);
        }
        !gone.is_empty()
    }

    /// The account of a user whom a provider of now vouches for.
    fn federated_account(&self, federated: Federated) -> Option<Account> {
        let provider = self.providers.get(&federated.provider);
        let provider = provider.filter(|provider| provider.stamp == federated.provider_stamp)?;
        let mut roles = Vec::new();
        for mapping in self.mappings.values() {
            let spec = &mapping.spec;
            let claim = spec.claim.as_ref().unwrap_or(&provider.object.spec.groups_claim);
            let has = |value: &String| spec.values.contains(value);
            if *spec.provider == *federated.provider
                && federated.claims.values(claim).iter().any(has)
            {
                roles.extend(spec.roles.iter().cloned());
            }
        }
        roles.sort();
        roles.dedup();
        let user =
            User::new(&federated.user, UserSpec { password_hash: None, roles, disabled: false });
        let account = self.account_of(&federated.user, user);
        Some(Account { stamp: federated.stamp(), federated: Some(federated), ..account })
    }

    /// Makes the accounts of providers' users anew after a change of roles, mappings or providers.
    fn recompute_federated(&mut self) {
        let known: Vec<_> = self.federated.values().cloned().collect();
        for account in known {
            let federated = account.federated.clone();
            match federated.and_then(|federated| self.federated_account(federated)) {
                Some(account) => {
                    self.federated.insert(Arc::clone(&account.name), Arc::new(account))
                }
                None => self.federated.remove(&account.name),
            };
        }
    }

    pub(crate) fn role(&self, name: &str) -> Option<&Arc<StoredRole>> {
        self.roles.get(name)
    }

    pub(crate) fn roles(&self) -> impl Iterator<Item = &Arc<StoredRole>> {
        self.roles.values()
    }

    pub(crate) fn token(&self, id: &str) -> Option<&Arc<Token>> {
        self.token_ids.get(id)
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.token_ids.values()
    }

    /// Returns the token and its user, if the token is valid now.
    pub(crate) fn by_token(
        &self,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Option<(&Arc<Token>, &Arc<Account>)> {
        let token = self.tokens.get(&fingerprint).filter(|token| self.is_valid(token, now))?;
        Some((token, self.active(&token.token.spec.user)?))
    }

    pub(crate) fn is_valid(&self, token: &Token, now: Timestamp) -> bool {
        let account = self.active(&token.token.spec.user);
        !token.has_expired(now)
            && account.is_some_and(|account| token.token.is_owned_by(&account.user))
    }

    /// Says what is wrong with a token, apart from having expired.
    pub(crate) fn token_problem(&self, token: &Token) -> Option<String> {
        if token.fingerprint.is_none() {
            return Some("its hash is not a SHA-256".to_owned());
        }
        if matches!(token.expires, Expires::Unreadable) {
            return Some("its expiry is not a time, so it counts as expired".to_owned());
        }
        match self.account(&token.token.spec.user) {
            None => Some(format!("there is no user {:?}", token.token.spec.user)),
            Some(account) if !token.token.is_owned_by(&account.user) => {
                Some("it was made for an earlier user of that name".to_owned())
            }
            Some(_) => None,
        }
    }

    fn delete_token(&mut self, id: &str) {
        let gone = self.token_ids.remove(id);
        if let Some(fingerprint) = gone.and_then(|token| token.fingerprint)
            && self.tokens.get(&fingerprint).is_some_and(|token| &*token.id == id)
        {
            self.tokens.remove(&fingerprint);
        }
    }

    fn insert_role(&mut self, role: &AccessRole) -> bool {
        let Some(name) = role.metadata.name.as_deref().filter(|name| !is_built_in(name)) else {
            return false;
        };
        let version = role.metadata.resource_version.clone();
        let compiled = Arc::new(Role::compile(name, &role.spec));
        self.roles.insert(name.into(), Arc::new(StoredRole { role: compiled, version }));
        true
    }

    /// Recomputes the permissions of all users after a change of a role.
    fn recompute(&mut self) {
        let judged: Vec<_> = self
            .users
            .values()
            .filter(|account| &*account.name != LOCAL)
            .map(|account| Arc::new(self.account_of(&account.name, account.user.clone())))
            .collect();
        for account in judged {
            self.users.insert(Arc::clone(&account.name), account);
        }
        self.recompute_federated();
    }

    pub(crate) fn account_of(&self, name: &str, user: User) -> Account {
        let mut problems = Vec::new();
        let mut roles = Vec::new();
        for role in &user.spec.roles {
            match self.roles.get(role.as_str()) {
                Some(stored) => roles.push(Arc::clone(&stored.role)),
                None => problems.push(format!("there is no role {role:?}; it gives nothing")),
            }
        }
        let hash = user.spec.password_hash.as_deref();
        if let Some(Err(problem)) = hash.map(password::check_stored) {
            problems.push(format!("its password cannot be used: {problem}"));
        }
        if user.spec.disabled {
            roles.clear();
        }
        let uid = user.metadata.uid.as_deref().unwrap_or_default();
        Account {
            name: name.into(),
            stamp: Fingerprint::of_all(&[uid, hash.unwrap_or_default()]),
            permissions: Arc::new(Permissions::new(roles)),
            problems,
            user,
            federated: None,
        }
    }
}

/// A stored user of the reserved name is ignored.
impl Index<User> for Directory {
    fn reset(&mut self, users: Vec<User>) -> bool {
        self.users.retain(|name, _| &**name == LOCAL);
        for user in users {
            self.apply(user);
        }
        self.told.users = true;
        true
    }

    fn apply(&mut self, user: User) -> bool {
        let Some(name) = user.metadata.name.clone().filter(|name| name != LOCAL) else {
            return false;
        };
        let account = Arc::new(self.account_of(&name, user));
        self.users.insert(Arc::clone(&account.name), account);
        true
    }

    fn delete(&mut self, user: User) -> bool {
        let name = Id::of(&user).name;
        name != LOCAL && self.users.remove(name.as_str()).is_some()
    }
}

/// A stored role of a reserved name is ignored.
impl Index<AccessRole> for Directory {
    fn reset(&mut self, roles: Vec<AccessRole>) -> bool {
        self.roles.retain(|name, _| is_built_in(name));
        for role in &roles {
            self.insert_role(role);
        }
        self.recompute();
        self.told.roles = true;
        true
    }

    fn apply(&mut self, role: AccessRole) -> bool {
        let inserted = self.insert_role(&role);
        if inserted {
            self.recompute();
        }
        inserted
    }

    fn delete(&mut self, role: AccessRole) -> bool {
        let name = Id::of(&role).name;
        let removed = !is_built_in(&name) && self.roles.remove(name.as_str()).is_some();
        if removed {
            self.recompute();
        }
        removed
    }
}

impl Index<AccessToken> for Directory {
    fn reset(&mut self, tokens: Vec<AccessToken>) -> bool {
        self.tokens.clear();
        self.token_ids.clear();
        for token in tokens {
            self.apply(token);
        }
        self.told.tokens = true;
        true
    }

    fn apply(&mut self, token: AccessToken) -> bool {
        let Some(id) = token.metadata.name.clone() else {
            return false;
        };
        self.delete_token(&id);
        let expires = match token.spec.expires.as_deref().map(str::parse) {
            None => Expires::Never,
            Some(Ok(at)) => Expires::At(at),
            Some(Err(_)) => Expires::Unreadable,
        };
        let fingerprint = Fingerprint::from_hex(&token.spec.hash);
        let token = Arc::new(Token { id: id.into(), token, fingerprint, expires });
        if let Some(fingerprint) = fingerprint {
            self.tokens.insert(fingerprint, Arc::clone(&token));
        }
        self.token_ids.insert(Arc::clone(&token.id), token);
        true
    }

    fn delete(&mut self, token: AccessToken) -> bool {
        self.delete_token(&Id::of(&token).name);
        true
    }
}

/// A provider that is applied unchanged keeps its places and what was read of it.
impl Index<IdentityProvider> for Directory {
    fn reset(&mut self, providers: Vec<IdentityProvider>) -> bool {
        let names: Vec<_> = providers.iter().map(|provider| Id::of(provider).name).collect();
        let is_gone = |name: &&Arc<str>| !names.iter().any(|there| **there == ***name);
        let gone: Vec<_> = self.providers.keys().filter(is_gone).cloned().collect();
        for name in gone {
            self.providers.remove(&name);
        }
        for provider in providers {
            self.insert_provider(provider);
        }
        self.recompute_federated();
        true
    }

    fn apply(&mut self, provider: IdentityProvider) -> bool {
        self.insert_provider(provider);
        self.recompute_federated();
        true
    }

    fn delete(&mut self, provider: IdentityProvider) -> bool {
        let removed = self.providers.remove(Id::of(&provider).name.as_str()).is_some();
        self.recompute_federated();
        removed
    }
}

impl Directory {
    fn insert_provider(&mut self, provider: IdentityProvider) {
        let name = Id::of(&provider).name;
        let same = |known: &Arc<Provider>| {
            known.object.spec == provider.spec && known.object.metadata.uid == provider.metadata.uid
        };
        if !self.providers.get(name.as_str()).is_some_and(same) {
            let provider = Provider::new(&name, provider);
            self.providers.insert(Arc::clone(&provider.name), Arc::new(provider));
        }
    }
}

impl Index<RoleMapping> for Directory {
    fn reset(&mut self, mappings: Vec<RoleMapping>) -> bool {
        self.mappings.clear();
        for mapping in mappings {
            self.mappings.insert(Id::of(&mapping).name.into(), Arc::new(mapping));
        }
        self.recompute_federated();
        true
    }

    fn apply(&mut self, mapping: RoleMapping) -> bool {
        self.mappings.insert(Id::of(&mapping).name.into(), Arc::new(mapping));
        self.recompute_federated();
        true
    }

    fn delete(&mut self, mapping: RoleMapping) -> bool {
        let removed = self.mappings.remove(Id::of(&mapping).name.as_str()).is_some();
        self.recompute_federated();
        removed
    }
}

impl Account {
    /// The groups that the user's provider names.
    pub(crate) fn groups(&self, directory: &Directory) -> Vec<String> {
        let Some(federated) = &self.federated else { return Vec::new() };
        let provider = directory.provider(&federated.provider);
        let claim = provider.map(|provider| &provider.object.spec.groups_claim);
        claim.map(|claim| federated.claims.values(claim).to_vec()).unwrap_or_default()
    }

    /// Returns the password hash, if it can be used.
    pub(crate) fn password_hash(&self) -> Option<&str> {
        let hash = self.user.spec.password_hash.as_deref();
        hash.filter(|hash| password::check_stored(hash).is_ok())
    }

    pub(crate) fn has_role(&self, role: &str) -> bool {
        self.user.spec.roles.iter().any(|own| own == role)
    }

    /// Whether the user is active and has the role `admin`.
    pub(crate) fn is_admin(&self) -> bool {
        !self.user.spec.disabled && self.has_role(ADMIN)
    }

    pub(crate) fn is_version(&self, version: Option<&String>) -> bool {
        self.user.metadata.resource_version.as_ref() == version
    }
}

impl StoredRole {
    pub(crate) fn is_version(&self, version: Option<&String>) -> bool {
        self.version.as_ref() == version
    }
}

impl Token {
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        match self.expires {
            Expires::Never => false,
            Expires::At(at) => at <= now,
            Expires::Unreadable => true,
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("roles", &self.user.spec.roles)
            .field("disabled", &self.user.spec.disabled)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
