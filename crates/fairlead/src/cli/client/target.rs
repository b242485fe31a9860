//! `Target`: which clusters and which namespace, the same flags on every verb that works with
//! resources; `Object`: which object.

use std::time::Duration;

use super::clusters::{ClusterView, Clusters};
use super::{Answer, Route, Server, ServerFlags};
use crate::output::Failure;

/// The flags.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Clusters to ask: repeat it, or separate them with commas [env: FAIRLEAD_CLUSTER]
    /// [default: the only ready one; for changes, the only one there is]
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',', conflicts_with = "all_clusters")]
    cluster: Vec<String>,
    /// Every cluster that you may see
    #[arg(long)]
    all_clusters: bool,
    /// Namespace [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    server: ServerFlags,
}

/// Whether a verb changes something: then no cluster is chosen because another one happens to be
/// away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    No,
    Yes,
}

/// Which clusters were meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    One(String),
    /// Several by name.
    Some(Vec<String>),
    All,
}

impl Target {
    pub(crate) fn open(&self) -> Result<Server, Failure> {
        self.server.open()
    }

    pub(crate) fn open_for(&self, usual: Duration) -> Result<Server, Failure> {
        self.server.open_for(usual)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// The namespace to ask for, or none for all of them.
    pub(crate) fn within(&self, all_namespaces: bool) -> Option<&str> {
        (!all_namespaces).then(|| self.namespace())
    }

    pub(crate) fn chosen(&self, server: &Server, change: Change) -> Answer<Chosen> {
        if self.all_clusters {
            return Ok(Chosen::All);
        }
        match self.named() {
            names if names.len() == 1 => Ok(Chosen::One(names.concat())),
            names if names.is_empty() => {
                let all: Clusters = server.get(&Route::to(["clusters"]))?;
                Ok(Chosen::One(only(&all.clusters, change)?))
            }
            names => Ok(Chosen::Some(names)),
        }
    }

    /// Whether any cluster is named: a search without one is everywhere.
    pub(crate) fn names_any(&self) -> bool {
        self.all_clusters || !self.named().is_empty()
    }

    fn named(&self) -> Vec<String> {
        named(&self.cluster, &std::env::var("FAIRLEAD_CLUSTER").unwrap_or_default())
    }

    /// For what is done with one cluster at a time.
    pub(crate) fn one(&self, server: &Server, change: Change) -> Answer<String> {
        match self.chosen(server, change)? {
            Chosen::One(name) => Ok(name),
            _ => Err(Failure("this works with one cluster; name it with --cluster".into()).into()),
        }
    }

    /// The names, for what the server does with one cluster at a time.
    pub(crate) fn names(&self, server: &Server, change: Change) -> Answer<Vec<String>> {
        match self.chosen(server, change)? {
            Chosen::One(name) => Ok(vec![name]),
            Chosen::Some(names) => Ok(names),
            Chosen::All => {
                let all: Clusters = server.get(&Route::to(["clusters"]))?;
                if all.clusters.is_empty() {
                    return Err(no_clusters().into());
                }
                Ok(all.clusters.into_iter().map(|c| c.name).collect())
            }
        }
    }
}

/// Flags first, then the environment; each name once, in the order given.
fn named(flags: &[String], env: &str) -> Vec<String> {
    let given: Vec<&str> = if flags.is_empty() {
        env.split(',').collect()
    } else {
        flags.iter().map(String::as_str).collect()
    };
    let mut names: Vec<String> = Vec::new();
    for name in given.into_iter().map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The cluster that is meant when none is named.
fn only(clusters: &[ClusterView], change: Change) -> Result<String, Failure> {
    let mut candidates = clusters.iter().filter(|c| match change {
        Change::No => c.is_usable(),
        Change::Yes => true,
    });
    if let (Some(one), None) = (candidates.next(), candidates.next()) {
        return Ok(one.name.clone());
    }
    if clusters.is_empty() {
        return Err(no_clusters());
    }
    let list: String = clusters.iter().map(|c| format!("\n  {} ({})", c.name, c.state)).collect();
    let why = match (clusters.iter().any(ClusterView::is_usable), change) {
        (false, Change::No) => "no cluster is ready.",
        _ => "which cluster?",
    };
    Err(Failure(format!(
        "{why} Name one with --cluster (or FAIRLEAD_CLUSTER), or take --all-clusters:{list}"
    )))
}

fn no_clusters() -> Failure {
    Failure(
        "there is no cluster yet; add one with `fairlead clusters add NAME --kubeconfig FILE`"
            .into(),
    )
}

/// `KIND NAME` or `KIND/NAME`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Object {
    /// A kind as kubectl takes it (pods, po, deployments.apps), or KIND/NAME
    kind: String,
    /// Its name
    name: Option<String>,
}

impl Object {
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        match (self.kind.split_once('/'), &self.name) {
            (Some((kind, name)), None) if !name.is_empty() => (kind, Some(name)),
            (_, name) => (&self.kind, name.as_deref()),
        }
    }

    pub(crate) fn named(&self) -> Result<(&str, &str), Failure> {
        match self.parts() {
            (kind, Some(name)) => Ok((kind, name)),
            (kind, None) => {
                Err(Failure(format!("which one? Give a name: {kind} NAME, or {kind}/NAME")))
            }
        }
    }

    /// Where it is.
    pub(crate) fn route(&self, cluster: &str) -> Result<Route, Failure> {
        let (kind, name) = self.named()?;
        Ok(Route::to(["clusters", cluster, "resources", kind, name]))
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parts() {
            (kind, Some(name)) => write!(f, "{kind}/{name}"),
            (kind, None) => f.write_str(kind),
        }
    }
}

#[cfg(test)]
mod tests;
