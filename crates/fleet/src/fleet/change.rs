//! Changes of the fleet: import, remove, enable, disable. An acknowledged change is in the store; the
//! view follows through the watches of the sources.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use objects::kinds::{Cluster, ClusterSpec, Impersonation, KubeconfigSecret};
use objects::{Expected, Id};
use stallproof::Deadline;

use super::{Fleet, disabled};
use crate::error::Error;
use crate::local_address;
use crate::source::kubeconfig::sent;
use crate::view::{Source, SourceKind};

/// How long names of an import are looked up; what is not known by then is checked at each connection.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(3);
/// The label of Secrets that Fairlead made and so may replace and delete.
const OURS: (&str, &str) = ("fairlead.dev/part-of", "fleet");
const KEY: &str = "kubeconfig";
/// The limit of a label, because the name is part of the name of a Secret.
const LONGEST_NAME: usize = 63;
/// How long an import waits for all sources.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

impl Fleet {
    /// Adds a cluster under `name`, with `context` of the kubeconfig or its current one. The
    /// kubeconfig must be valid; the cluster need not answer yet.
    pub async fn import(
        &self,
        name: &str,
        kubeconfig: &str,
        context: Option<&str>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        self.import_impersonating(name, kubeconfig, context, None, deadline).await
    }

    /// As [`Self::import`], for a cluster on which users act under their own names.
    pub async fn import_impersonating(
        &self,
        name: &str,
        kubeconfig: &str,
        context: Option<&str>,
        impersonation: Option<Impersonation>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        check_name(name)?;
        let invalid = |why| Error::Invalid(format!("{name} cannot be imported: {why}"));
        let access = sent(kubeconfig, context)
            .and_then(|access| match &impersonation {
                Some(impersonation) => access.impersonating(impersonation.clone()),
                None => Ok(access),
            })
            .map_err(invalid)?;
        if !self.local_imports {
            let deadline = deadline.within(LOOKED_UP_WITHIN);
            let checked = local_address::check(&access.endpoint, &self.context.resolver, deadline);
            checked.await.map_err(invalid)?;
        }
        self.refuse_taken(name, deadline).await?;
        let secret = Id::namespaced(&*self.namespace, format!("fairlead-cluster-{name}"));
        if let Some(taken) = self.objects.get::<Secret>(&secret, deadline).await?
            && !is_ours(&taken)
        {
            return Err(Error::Invalid(format!(
                "there is a Secret {secret} that Fairlead did not make; delete or rename it"
            )));
        }

        let spec = ClusterSpec {
            kubeconfig_secret: KubeconfigSecret {
                namespace: self.namespace.to_string(),
                name: secret.name.clone(),
                key: KEY.to_owned(),
            },
            context: context.map(ToOwned::to_owned),
            enabled: true,
            impersonation,
        };
        // The cluster comes first: a Secret without a cluster would be a credential that nobody sees,
        // whereas a cluster without its Secret is shown as misconfigured and can be removed.
        let cluster = self.objects.create(&Cluster::new(name, spec), deadline).await;
        let cluster = cluster.map_err(|error| match error {
            objects::Error::Exists { .. } => {
                Error::NameTaken { cluster: name.to_owned(), by: "an import".to_owned() }
            }
            other => other.into(),
        })?;
        let secret = made_of(&cluster, &secret, kubeconfig);
        if let Err(error) = self.objects.apply(&secret, Expected::Any, deadline).await {
            // If this fails as well, the cluster is shown as misconfigured.
            let _ =
                self.objects.delete::<Cluster>(&Id::cluster(name), Expected::Any, deadline).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Refuses a name that a cluster of any source has.
    async fn refuse_taken(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let mut changes = self.changes();
        let told = async {
            while !self.published.read(|fleet| fleet.synced) {
                changes.changed().await;
            }
        };
        if deadline.within(TOLD_WITHIN).bound(told).await.is_err() {
            return Err(Error::NotSynced { retry_after: TOLD_WITHIN });
        }
        match self.source(name) {
            None => Ok(()),
            Some(by) => Err(Error::NameTaken { cluster: name.to_owned(), by: by.to_string() }),
        }
    }

    /// Removes an imported cluster, whatever its state; for others the error says what to do instead.
    pub async fn remove(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        // The store is asked, because a cluster that was just imported may not be in the view yet.
        match self.imported(name, deadline).await? {
            Some(cluster) => {
                let id = Id::cluster(name);
                match self.objects.delete::<Cluster>(&id, Expected::Any, deadline).await {
                    Ok(_) | Err(objects::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                self.remove_secret(&cluster, deadline).await
            }
            None => Err(match self.source(name) {
                None => Error::NoSuchCluster { cluster: name.to_owned() },
                Some(source) => Error::Invalid(how_to_remove(name, &source)),
            }),
        }
    }

    /// Deletes the cluster's Secret, for stores without a garbage collector.
    async fn remove_secret(&self, cluster: &Cluster, deadline: Deadline) -> Result<(), Error> {
        let from = &cluster.spec.kubeconfig_secret;
        let id = Id::namespaced(&from.namespace, &from.name);
        match self.objects.get::<Secret>(&id, deadline).await? {
            Some(secret) if is_ours(&secret) && owns(cluster, &secret) => {
                match self.objects.delete::<Secret>(&id, Expected::Any, deadline).await {
                    Ok(_) | Err(objects::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Enables a cluster: it is connected to again.
    pub async fn enable(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        self.set_enabled(name, true, deadline).await
    }

    /// Disables a cluster of any source: it is listed and not connected to, also after a restart.
    pub async fn disable(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        self.set_enabled(name, false, deadline).await
    }

    async fn set_enabled(
        &self,
        name: &str,
        enabled: bool,
        deadline: Deadline,
    ) -> Result<(), Error> {
        // Repeated when somebody else has changed the object meanwhile.
        while let Some(mut cluster) = self.imported(name, deadline).await? {
            if cluster.spec.enabled == enabled {
                return Ok(());
            }
            cluster.spec.enabled = enabled;
            let version = objects::Version(cluster.resource_version().unwrap_or_default());
            match self.objects.apply(&cluster, Expected::Version(version), deadline).await {
                Ok(_) => return Ok(()),
                Err(objects::Error::Conflict { .. } | objects::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.source(name) {
            Some(_) => {
                disabled::set(&self.objects, &self.namespace, name, !enabled, deadline).await
            }
            None => Err(Error::NoSuchCluster { cluster: name.to_owned() }),
        }
    }

    async fn imported(&self, name: &str, deadline: Deadline) -> Result<Option<Cluster>, Error> {
        match self.objects.get(&Id::cluster(name), deadline).await {
            // A name that no object can have was not imported.
            Err(objects::Error::Invalid { .. }) => Ok(None),
            other => Ok(other?),
        }
    }

    fn source(&self, name: &str) -> Option<Source> {
        self.published.read(|fleet| fleet.clusters.get(name).map(|view| view.source.clone()))
    }
}

fn how_to_remove(name: &str, source: &Source) -> String {
    let how = match source.kind {
        SourceKind::Kubeconfig => {
            format!("it comes from {}: remove its context there", source.place)
        }
        SourceKind::Secret => {
            format!("it comes from Secret {}: delete that, or its label", source.place)
        }
        SourceKind::InCluster => "it is the cluster that Fairlead runs in".to_owned(),
        SourceKind::Imported => "it is being removed already".to_owned(),
    };
    format!("{name} cannot be removed here: {how}, or disable it here")
}

/// Checks a name that becomes the name of objects.
fn check_name(name: &str) -> Result<(), Error> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-' || c == '.';
    let good = name.len() <= LONGEST_NAME
        && name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(inner);
    if good {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{name:?} cannot be the name of an imported cluster: use up to {LONGEST_NAME} lowercase \
         letters, digits, dashes and dots, with a letter or digit at both ends"
    )))
}

fn made_of(cluster: &Cluster, id: &Id, kubeconfig: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(id.name.clone()),
            namespace: id.namespace.clone(),
            labels: Some([(OURS.0.to_owned(), OURS.1.to_owned())].into()),
            owner_references: Some(cluster.owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn is_ours(secret: &Secret) -> bool {
    secret.labels().get(OURS.0).is_some_and(|value| value == OURS.1)
}

fn owns(cluster: &Cluster, secret: &Secret) -> bool {
    secret.owner_references().iter().any(|owner| Some(&owner.uid) == cluster.meta().uid.as_ref())
}
