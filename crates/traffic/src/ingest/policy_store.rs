//! `PolicyStore`: writes the groups and network rules that users make. The leader follows them.

use objects::kinds::{Group, GroupSpec, NetworkRule, NetworkRuleSpec};
use objects::{Error, Expected, Id, Kind, Objects, Version};
use stallproof::Deadline;

/// Writes groups and network rules. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PolicyStore(Objects);

impl PolicyStore {
    pub fn new(objects: Objects) -> Self {
        Self(objects)
    }

    /// The group of this name, if there is one.
    pub async fn group(&self, name: &str, deadline: Deadline) -> Result<Option<Group>, Error> {
        self.0.get(&Id::cluster(name), deadline).await
    }

    /// The rule of this name, if there is one.
    pub async fn rule(&self, name: &str, deadline: Deadline) -> Result<Option<NetworkRule>, Error> {
        self.0.get(&Id::cluster(name), deadline).await
    }

    /// Creates a group, or replaces its spec.
    pub async fn put_group(
        &self,
        name: &str,
        spec: GroupSpec,
        deadline: Deadline,
    ) -> Result<Group, Error> {
        self.put(name, deadline, |found: Option<Group>| match found {
            Some(group) => Group { spec: spec.clone(), ..group },
            None => Group::new(name, spec.clone()),
        })
        .await
    }

    /// Creates a rule, or replaces its spec.
    pub async fn put_rule(
        &self,
        name: &str,
        spec: NetworkRuleSpec,
        deadline: Deadline,
    ) -> Result<NetworkRule, Error> {
        self.put(name, deadline, |found: Option<NetworkRule>| match found {
            Some(rule) => NetworkRule { spec: spec.clone(), ..rule },
            None => NetworkRule::new(name, spec.clone()),
        })
        .await
    }

    /// Writes a learned rule. A rule of that name stays as it is: a user may have edited it.
    pub async fn promote(&self, rule: &NetworkRule, deadline: Deadline) -> Result<(), Error> {
        match self.0.create(rule, deadline).await {
            Ok(_) | Err(Error::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn delete_group(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        self.0.delete::<Group>(&Id::cluster(name), Expected::Any, deadline).await.map(|_| ())
    }

    pub async fn delete_rule(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        self.0.delete::<NetworkRule>(&Id::cluster(name), Expected::Any, deadline).await.map(|_| ())
    }

    async fn put<K: Kind>(
        &self,
        name: &str,
        deadline: Deadline,
        make: impl Fn(Option<K>) -> K,
    ) -> Result<K, Error> {
        let id = Id::cluster(name);
        loop {
            let found = self.0.get::<K>(&id, deadline).await?;
            let written = match found {
                Some(found) => {
                    let version =
                        Version(found.meta().resource_version.clone().unwrap_or_default());
                    let next = make(Some(found));
                    self.0.apply(&next, Expected::Version(version), deadline).await
                }
                None => self.0.create(&make(None), deadline).await,
            };
            match written {
                // Somebody else wrote in between: read it again.
                Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => {}
                written => return written,
            }
        }
    }
}
