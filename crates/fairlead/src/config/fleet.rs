//! Which clusters there are.

use std::path::PathBuf;

use super::Setting;
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    /// Kubeconfig files, in order; none takes none.
    pub(crate) kubeconfig: Vec<PathBuf>,
    /// The namespace of imported kubeconfigs, and the label selector of those made by others.
    pub(crate) namespace: String,
    pub(crate) secrets: String,
    pub(crate) secrets_namespace: SecretsNamespace,
}

/// Where Secrets with kubeconfigs are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretsNamespace {
    /// In the namespace of imported kubeconfigs, whichever that is.
    Own,
    Named(String),
    /// In every one: whoever may write a Secret anywhere offers clusters.
    All,
}

impl Fleet {
    /// None: in all namespaces.
    pub(crate) fn secrets_within(&self) -> Option<String> {
        match &self.secrets_namespace {
            SecretsNamespace::Own => Some(self.namespace.clone()),
            SecretsNamespace::Named(name) => Some(name.clone()),
            SecretsNamespace::All => None,
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            kubeconfig: values::default_kubeconfig(),
            namespace: "fairlead".to_owned(),
            secrets: "fairlead.dev/cluster".to_owned(),
            secrets_namespace: SecretsNamespace::Own,
        }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "fleet.kubeconfig",
        metavar: "FILES",
        help: "Kubeconfig files whose contexts are clusters of the fleet, separated by colons; `none` takes none",
        allowed: "none, or files separated by colons",
        take: |c, v| values::paths(v).map(|v| c.fleet.kubeconfig = v),
        show: |c| values::show_paths(&c.fleet.kubeconfig),
    },
    Setting {
        key: "fleet.namespace",
        metavar: "NAME",
        help: "Namespace of the store in which the kubeconfigs of imported clusters are kept",
        allowed: "the name of a namespace: at most 63 of a-z, 0-9 and -",
        take: |c, v| values::label(v).map(|v| c.fleet.namespace = v),
        show: |c| c.fleet.namespace.clone(),
    },
    Setting {
        key: "fleet.secrets",
        metavar: "SELECTOR",
        help: "Label selector of Secrets in the store that hold a kubeconfig (those of Cluster API are found without it)",
        allowed: "a label selector, such as fairlead.dev/cluster or env=prod",
        take: |c, v| (!v.is_empty()).then(|| c.fleet.secrets = v.to_owned()),
        show: |c| c.fleet.secrets.clone(),
    },
    Setting {
        key: "fleet.secrets-namespace",
        metavar: "NAME",
        help: "Namespace in which those Secrets are looked for, fleet.namespace unless said; `all` looks in every one: whoever may write a Secret somewhere then offers clusters",
        allowed: "all, or the name of a namespace: at most 63 of a-z, 0-9 and -",
        take: |c, v| {
            c.fleet.secrets_namespace = match v {
                "all" => SecretsNamespace::All,
                name => SecretsNamespace::Named(values::label(name)?),
            };
            Some(())
        },
        show: |c| c.fleet.secrets_within().unwrap_or_else(|| "all".to_owned()),
    },
];
