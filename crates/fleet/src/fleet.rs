//! `Fleet`: every cluster there is, connected to as well as it can be.

use std::time::Duration;

use flow::snapshot::{Changes, View};
use flow::{Deadline, Ledger, Snapshot, Tasks};
use objects::Objects;
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::config::FleetConfig;
use crate::connection::Connection;
use crate::error::Error;
use crate::view::{FleetView, State};

/// A handle; clones are the same fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    published: Snapshot<FleetView>,
}

/// What [`Fleet::test`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TestReport {
    pub cluster: String,
    /// In order, up to the one that failed: `credentials`, `resolve`, `tcp`, `proxy`, `tls`,
    /// `authenticate`, `version`.
    pub steps: Vec<Step>,
    /// What the cluster would be if this were all we knew of it.
    pub verdict: State,
    pub why: Option<String>,
    pub version: Option<String>,
}

/// One step of reaching a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub name: &'static str,
    pub ok: bool,
    #[serde(rename = "tookMs", serialize_with = "millis")]
    pub took: Duration,
}

fn millis<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_micros() as f64 / 1000.0)
}

impl Fleet {
    /// Starts the sources and connects to what they bring. Ends with `tasks`.
    pub fn start(config: FleetConfig, objects: Objects, ledger: Ledger, tasks: &Tasks) -> Self {
        let _ = (config, objects, ledger, tasks);
        Self { published: Snapshot::default() }
    }

    /// One generation of everything.
    pub fn view(&self) -> View<FleetView> {
        self.published.load()
    }

    /// Tells of new generations.
    pub fn changes(&self) -> Changes<FleetView> {
        self.published.subscribe()
    }

    /// A load and a map lookup.
    pub fn connection(&self, name: &str) -> Result<Connection, Error> {
        Err(Error::NoSuchCluster { cluster: name.to_owned() })
    }

    /// Adds a cluster under `name`, with `context` of the kubeconfig or its current one.
    pub async fn import(
        &self,
        name: &str,
        kubeconfig: &str,
        context: Option<&str>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let _ = (name, kubeconfig, context, deadline);
        Err(Error::Invalid("not yet".to_owned()))
    }

    /// Removes an imported cluster, in whatever state it is; for others says what to do instead.
    pub async fn remove(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let _ = (name, deadline);
        Err(Error::Invalid("not yet".to_owned()))
    }

    /// Connects to it again.
    pub async fn enable(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let _ = (name, deadline);
        Err(Error::Invalid("not yet".to_owned()))
    }

    /// Keeps it listed and lets go of it, from whatever source it is; survives a restart.
    pub async fn disable(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let _ = (name, deadline);
        Err(Error::Invalid("not yet".to_owned()))
    }

    /// Tries it now, on a connection of its own, and says how each step went.
    pub async fn test(&self, name: &str, deadline: Deadline) -> Result<TestReport, Error> {
        let _ = (name, deadline);
        Err(Error::Invalid("not yet".to_owned()))
    }

    pub fn register(&self, registry: &mut Registry) {
        let _ = registry;
    }
}
