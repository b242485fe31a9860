//! The flags that choose a cluster, and the values of the chart.

use std::path::PathBuf;

use install::chart::{Chart, Release, Rendered};
use install::cluster::Cluster;
use install::record::Record;
use install::rollout;
use install::values::Values;
use serde_json::Value;

use super::explain;
use crate::output::Failure;

/// The cluster and the namespace to install into.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ClusterFlags {
    /// Kubeconfig file [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the installation
    #[arg(short, long, value_name = "NAMESPACE", default_value = "fairlead")]
    namespace: String,
}

impl ClusterFlags {
    pub(super) async fn connect(&self) -> Result<Cluster, Failure> {
        let connected = Cluster::connect(self.kubeconfig.clone(), self.context.clone()).await;
        connected.map_err(|error| explain(&error))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The release for a cluster of today.
    pub(super) fn release(&self) -> Release {
        Release { namespace: self.namespace.clone(), ..Release::default() }
    }

    /// The objects as this cluster takes them.
    pub(super) async fn render(
        &self,
        cluster: &Cluster,
        chart: &ChartFlags,
        before: Option<&Value>,
    ) -> Result<Rendered, Failure> {
        let mut release = self.release();
        release.api_versions = cluster.api_versions().await.map_err(|error| explain(&error))?;
        let version = cluster.version().await.map_err(|error| explain(&error))?;
        let mut rendered = chart.render(&release, before)?;
        rendered.objects = rollout::fitted(rendered.objects, &version);
        Ok(rendered)
    }
}

/// The components and the values to install.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ChartFlags {
    /// Components to install, separated by commas: net, guard, mesh, console, admission [default:
    /// all but net, or those that are installed]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    components: Vec<String>,
    /// YAML file with values of the chart; repeat it, the last one wins
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// One value, as Helm has it: --set controller.replicas=1
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One value that is a text whatever it looks like
    #[arg(long, value_name = "KEY=VALUE")]
    set_string: Vec<String>,
}

impl ChartFlags {
    /// The values that the user chose, on top of those chosen before.
    pub(super) fn values(&self, before: Option<&Value>) -> Result<Values, Failure> {
        let mut values = Values::default();
        if let Some(before) = before {
            let text = before.to_string();
            values.merge_yaml("the installation's own", &text).map_err(|e| explain(&e))?;
        }
        for path in &self.values {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure(format!("{shown} cannot be read: {error}")))?;
            values.merge_yaml(&shown, &text).map_err(|error| explain(&error))?;
        }
        if !self.components.is_empty() {
            let known = ["net", "guard", "mesh", "console", "admission"];
            let unknown = self.components.iter().find(|name| !known.contains(&name.as_str()));
            if let Some(name) = unknown {
                let message = format!(
                    "--components {name}: there is no such component, only {}",
                    known.join(", ")
                );
                return Err(Failure(message));
            }
            for name in known {
                let on = self.components.iter().any(|chosen| chosen == name);
                values.set(&format!("components.{name}={on}")).map_err(|e| explain(&e))?;
            }
        }
        for text in &self.set {
            values.set(text).map_err(|error| explain(&error))?;
        }
        for text in &self.set_string {
            values.set_string(text).map_err(|error| explain(&error))?;
        }
        Ok(values)
    }

    pub(super) fn render(
        &self,
        release: &Release,
        before: Option<&Value>,
    ) -> Result<Rendered, Failure> {
        let values = self.values(before)?;
        Chart::embedded().render(release, &values).map_err(|error| explain(&error))
    }

    /// The record of an installation with these values.
    pub(super) fn record(
        &self,
        rendered: &Rendered,
        before: Option<&Value>,
    ) -> Result<Record, Failure> {
        Ok(Record {
            version: Chart::embedded().version().map_err(|error| explain(&error))?,
            chosen: self.values(before)?.as_json(),
            values: rendered.values.clone(),
            objects: rendered.objects.clone(),
        })
    }
}
