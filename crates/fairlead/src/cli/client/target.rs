//! `Target`: the clusters and the namespace that a verb works with, by the same flags everywhere;
//! `Object`: the object that it works with.

use std::time::Duration;

use super::clusters::{ClusterView, Clusters};
use super::{ClientResult, Route, Server, ServerFlags};
use crate::output::Failure;

/// The flags that choose clusters and a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Clusters to work with: repeat it, or separate them with commas [env: FAIRLEAD_CLUSTER]
    /// [default: the only ready one; for changes, the only one there is]
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',', conflicts_with = "all_clusters")]
    cluster: Vec<String>,
    /// Work with every cluster that you may see
    #[arg(long)]
    all_clusters: bool,
    /// Namespace [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    server: ServerFlags,
}

/// What a verb does with a cluster. One that writes never chooses a cluster because the others
/// happen to be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The clusters that the flags choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClusterChoice {
    One(String),
    /// Several by name.
    Some(Vec<String>),
    All,
}

impl ClusterChoice {
    /// The names as a fan-out of the server takes them; none for all clusters.
    pub(crate) fn list(&self) -> Option<String> {
        match self {
            Self::One(name) => Some(name.clone()),
            Self::Some(names) => Some(names.join(",")),
            Self::All => None,
        }
    }
}

impl Target {
    /// The target of a verb that has flags of the same names for something else.
    pub(crate) fn new(
        cluster: Option<String>,
        namespace: Option<String>,
        server: ServerFlags,
    ) -> Self {
        Self { cluster: cluster.into_iter().collect(), all_clusters: false, namespace, server }
    }

    pub(crate) fn open(&self) -> Result<Server, Failure> {
        self.server.open()
    }

    pub(crate) fn open_for(&self, default_timeout: Duration) -> Result<Server, Failure> {
        self.server.open_for(default_timeout)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// The namespace to ask for, or none for all of them.
    pub(crate) fn namespace_unless(&self, all_namespaces: bool) -> Option<&str> {
        (!all_namespaces).then(|| self.namespace())
    }

    pub(crate) async fn chosen(
        &self,
        server: &Server,
        access: Access,
    ) -> ClientResult<ClusterChoice> {
        if self.all_clusters {
            return Ok(ClusterChoice::All);
        }
        match self.named() {
            names if names.len() == 1 => Ok(ClusterChoice::One(names.concat())),
            names if names.is_empty() => {
                let all: Clusters = server.get(&Route::to(["clusters"])).await?;
                Ok(ClusterChoice::One(only(&all.clusters, access)?))
            }
            names => Ok(ClusterChoice::Some(names)),
        }
    }

    /// Whether any cluster is named: a search that names none is everywhere.
    pub(crate) fn names_any(&self) -> bool {
        self.all_clusters || !self.named().is_empty()
    }

    fn named(&self) -> Vec<String> {
        named(&self.cluster, &std::env::var("FAIRLEAD_CLUSTER").unwrap_or_default())
    }

    /// The one cluster that a verb works with which cannot work with several.
    pub(crate) async fn one(&self, server: &Server, access: Access) -> ClientResult<String> {
        match self.chosen(server, access).await? {
            ClusterChoice::One(name) => Ok(name),
            _ => Err(Failure("this works with one cluster; name it with --cluster".into()).into()),
        }
    }

    /// The names of the clusters, for what the server does with one at a time.
    pub(crate) async fn names(&self, server: &Server, access: Access) -> ClientResult<Vec<String>> {
        match self.chosen(server, access).await? {
            ClusterChoice::One(name) => Ok(vec![name]),
            ClusterChoice::Some(names) => Ok(names),
            ClusterChoice::All => {
                let all: Clusters = server.get(&Route::to(["clusters"])).await?;
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
fn only(clusters: &[ClusterView], access: Access) -> Result<String, Failure> {
    let mut candidates = clusters.iter().filter(|c| match access {
        Access::Read => c.is_usable(),
        Access::Write => true,
    });
    if let (Some(one), None) = (candidates.next(), candidates.next()) {
        return Ok(one.name.clone());
    }
    if clusters.is_empty() {
        return Err(no_clusters());
    }
    let list: String = clusters.iter().map(|c| format!("\n  {} ({})", c.name, c.state)).collect();
    let why = match (clusters.iter().any(ClusterView::is_usable), access) {
        (false, Access::Read) => "no cluster is ready.",
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

/// An object as people name it: `KIND NAME` or `KIND/NAME`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Object {
    /// A kind as kubectl takes it (pods, po, deployments.apps), or KIND/NAME
    kind: String,
    /// Name of the object
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

    /// The route of the object in a cluster.
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
