//! Identity providers and the mappings of their users to roles.
//!
//! Contract, beside that of [`Administration`]:
//! - Only an `admin` writes providers: whoever decides who vouches for users could become any of them.
//! - A mapping gives roles, so that it is written and removed by the rule for giving roles: nobody grants
//!   more than they have.
//! - A client's secret is written and never shown.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use objects::kinds::{
    ClientSecret, IdentityProvider, IdentityProviderSpec, RoleMapping, RoleMappingSpec,
};
use objects::{Expected, Id, Kind, Within};
use serde::Serialize;
use stallproof::Deadline;

use super::{Administration, AdministrationError, Result, expected};
use crate::oidc::Federation;
use crate::role::Verb;
use crate::secret::Secret;

pub const IDENTITY_PROVIDERS: &str = "identityproviders.fairlead.dev";
pub const ROLE_MAPPINGS: &str = "rolemappings.fairlead.dev";

/// The key of a client's secret in the Secret that is made for it.
const KEY: &str = "client-secret";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderView {
    pub name: String,
    #[serde(flatten)]
    pub spec: IdentityProviderSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingView {
    pub name: String,
    #[serde(flatten)]
    pub spec: RoleMappingSpec,
    /// Sentences that say what is wrong with the mapping.
    pub problems: Vec<String>,
}

/// A provider as it is to be.
#[derive(Debug)]
pub struct ProviderChange {
    pub spec: IdentityProviderSpec,
    /// A secret to keep for its client; `None` leaves it to the Secret that the spec names.
    pub client_secret: Option<Secret>,
}

impl Administration<'_> {
    /// Lists identity providers, sorted by name.
    pub fn providers(&self) -> Result<Vec<ProviderView>> {
        self.ask(Verb::List, IDENTITY_PROVIDERS)?;
        let directory = self.access.0.directory.load();
        let view = |provider: &std::sync::Arc<crate::oidc::Provider>| ProviderView {
            name: provider.name.to_string(),
            spec: provider.object.spec.clone(),
        };
        let mut providers: Vec<_> = directory.providers().map(view).collect();
        providers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(providers)
    }

    /// Makes a provider what is said here.
    pub async fn put_provider(
        &self,
        name: &str,
        change: ProviderChange,
        deadline: Deadline,
    ) -> Result<()> {
        self.may_write_provider(Verb::Update)?;
        let ProviderChange { mut spec, client_secret } = change;
        let secret_name = format!("fairlead-oidc-{name}");
        if client_secret.is_some() {
            spec.client_secret =
                Some(ClientSecret { name: secret_name.clone(), key: KEY.to_owned() });
        }
        let found =
            self.access.0.objects.get::<IdentityProvider>(&Id::cluster(name), deadline).await?;
        let mut provider = IdentityProvider::new(name, spec.clone());
        // Refused before anything is written.
        provider.check().map_err(|invalid| {
            AdministrationError::Guarded(format!("the provider cannot be used: {invalid}"))
        })?;
        self.catch_up(deadline).await?;
        self.may_write_provider(Verb::Update)?;
        if let Some(secret) = client_secret {
            self.keep_client_secret(&secret_name, &secret, deadline).await?;
        }
        let objects = &self.access.0.objects;
        let written = match found {
            Some(known) => {
                let version = expected(known.metadata.resource_version.clone());
                provider = IdentityProvider { spec, ..known };
                objects.apply(&provider, version, deadline).await?
            }
            None => objects.create(&provider, deadline).await?,
        };
        self.seen(|directory| {
            directory.provider(name).is_some_and(|known| known.object.spec == written.spec)
        })
        .await;
        Ok(())
    }

    async fn keep_client_secret(
        &self,
        name: &str,
        secret: &Secret,
        deadline: Deadline,
    ) -> Result<()> {
        let namespace = self.access.0.federation.get().map(Federation::namespace);
        let Some(namespace) = namespace else {
            let why = "this process asks no identity providers".to_owned();
            return Err(AdministrationError::Guarded(why));
        };
        let objects = &self.access.0.objects;
        let id = Id::namespaced(namespace, name);
        let data = [(KEY.to_owned(), ByteString(secret.expose().as_bytes().to_vec()))].into();
        let mut object = KubeSecret { data: Some(data), ..KubeSecret::default() };
        match objects.get::<KubeSecret>(&id, deadline).await? {
            Some(known) => {
                let version = expected(known.metadata.resource_version.clone());
                object.metadata = known.metadata;
                objects.apply(&object, version, deadline).await?;
            }
            None => {
                object.metadata.name = Some(name.to_owned());
                object.metadata.namespace = Some(namespace.to_owned());
                object.type_ = Some("Opaque".to_owned());
                objects.create(&object, deadline).await?;
            }
        }
        Ok(())
    }

    /// Removes a provider: its users are logged out.
    pub async fn delete_provider(&self, name: &str, deadline: Deadline) -> Result<()> {
        self.may_write_provider(Verb::Delete)?;
        self.catch_up(deadline).await?;
        self.may_write_provider(Verb::Delete)?;
        let id = Id::cluster(name);
        self.access.0.objects.delete::<IdentityProvider>(&id, Expected::Any, deadline).await?;
        self.seen(|directory| directory.provider(name).is_none()).await;
        Ok(())
    }

    /// Lists mappings, sorted by name.
    pub fn mappings(&self) -> Result<Vec<MappingView>> {
        self.ask(Verb::List, ROLE_MAPPINGS)?;
        let directory = self.access.0.directory.load();
        let mut mappings: Vec<_> = directory
            .mappings()
            .map(|mapping| {
                let spec = mapping.spec.clone();
                let mut problems = Vec::new();
                if directory.provider(&spec.provider).is_none() {
                    problems.push(format!("there is no identity provider {:?}", spec.provider));
                }
                let missing = spec.roles.iter().filter(|role| directory.role(role).is_none());
                problems.extend(missing.map(|role| format!("there is no role {role:?}")));
                MappingView { name: Id::of(&**mapping).name, spec, problems }
            })
            .collect();
        mappings.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mappings)
    }

    /// Makes a mapping what is said here.
    pub async fn put_mapping(
        &self,
        name: &str,
        spec: RoleMappingSpec,
        deadline: Deadline,
    ) -> Result<()> {
        self.ask(Verb::Update, ROLE_MAPPINGS)?;
        self.may_give(&spec.roles)?;
        let found = self.mapping(name, deadline).await?;
        self.catch_up(deadline).await?;
        self.ask(Verb::Update, ROLE_MAPPINGS)?;
        self.may_give(&spec.roles)?;
        if let Some(known) = &found {
            self.may_take(&known.spec)?;
        }
        let objects = &self.access.0.objects;
        let written = match found {
            Some(known) => {
                let version = expected(known.metadata.resource_version.clone());
                objects.apply(&RoleMapping { spec, ..known }, version, deadline).await?
            }
            None => objects.create(&RoleMapping::new(name, spec), deadline).await?,
        };
        self.seen(|directory| {
            directory.mapping(name).is_some_and(|known| known.spec == written.spec)
        })
        .await;
        Ok(())
    }

    pub async fn delete_mapping(&self, name: &str, deadline: Deadline) -> Result<()> {
        self.ask(Verb::Delete, ROLE_MAPPINGS)?;
        let id = Id::cluster(name);
        let found = self.mapping(name, deadline).await?;
        let found =
            found.ok_or(objects::Error::NotFound { kind: RoleMapping::NAME, id: id.clone() })?;
        self.catch_up(deadline).await?;
        self.ask(Verb::Delete, ROLE_MAPPINGS)?;
        self.may_take(&found.spec)?;
        let version = expected(found.metadata.resource_version);
        self.access.0.objects.delete::<RoleMapping>(&id, version, deadline).await?;
        self.seen(|directory| directory.mapping(name).is_none()).await;
        Ok(())
    }

    async fn mapping(&self, name: &str, deadline: Deadline) -> Result<Option<RoleMapping>> {
        Ok(self.access.0.objects.get::<RoleMapping>(&Id::cluster(name), deadline).await?)
    }

    /// What a mapping gives may be taken away by who may give it: with it somebody might lose a denial.
    fn may_take(&self, spec: &RoleMappingSpec) -> Result<()> {
        match self.rank(&spec.roles) {
            super::Rank::Enough => Ok(()),
            super::Rank::Nobody => Err(AdministrationError::Inactive),
            super::Rank::Short(what) => {
                Err(AdministrationError::Guarded(format!("it gives {what}; ask an admin")))
            }
        }
    }

    fn may_write_provider(&self, verb: Verb) -> Result<()> {
        self.ask(verb, IDENTITY_PROVIDERS)?;
        if !self.is_admin() {
            let why = "only those of the role admin write identity providers".to_owned();
            return Err(AdministrationError::Guarded(why));
        }
        Ok(())
    }

    /// Waits until the directory has the store's providers and mappings, for a caller whose roles come
    /// from them.
    pub(super) async fn catch_up_with_mappings(&self, deadline: Deadline) -> Result<()> {
        let objects = &self.access.0.objects;
        loop {
            let providers = objects.list::<IdentityProvider>(&Within::default(), deadline).await?;
            let mappings = objects.list::<RoleMapping>(&Within::default(), deadline).await?;
            let told = |directory: &crate::directory::Directory| {
                let provider = |stored: &IdentityProvider| {
                    let known = directory.provider(&Id::of(stored).name);
                    known.is_some_and(|known| known.object.spec == stored.spec)
                };
                let mapping = |stored: &RoleMapping| {
                    let known = directory.mapping(&Id::of(stored).name);
                    known.is_some_and(|known| known.spec == stored.spec)
                };
                directory.providers().count() == providers.items.len()
                    && directory.mappings().count() == mappings.items.len()
                    && providers.items.iter().all(provider)
                    && mappings.items.iter().all(mapping)
            };
            self.seen(told).await;
            if self.access.0.directory.read(told) {
                return Ok(());
            }
            if deadline.remaining().is_zero() {
                let doing = "waiting for mappings to be read".to_owned();
                return Err(objects::Error::TooLate { doing }.into());
            }
        }
    }
}
