//! Agents as this process listens to them: always, and counted while it leads.

use std::net::{SocketAddr, TcpListener};

use edge::agents::{self as wire, Server};
use edge::api::AgentsApi;
use objects::{Leader, Objects};
use pki::agents::{self, Authority, TokenReviewer};
use programs::ActivePrograms;
use prometheus_client::registry::Registry;
use stallproof::Tasks;
use traffic::agents::{Agents, Limits};
use traffic::ingest::ActiveIngest;

use crate::config::{Config, ListenAddress, ServiceAccount, Store};
use crate::daemon::process::{self, Process};
use crate::daemon::store::lazy_client;
use crate::output::Failure;

/// What listening to agents must have before anything runs.
#[derive(Debug)]
pub(crate) struct Listeners {
    listener: TcpListener,
    address: ListenAddress,
}

impl Listeners {
    pub(crate) fn take(config: &Config) -> Result<Self, Failure> {
        let (listener, address) = process::listen(config.agents.listen, "--agents-listen")?;
        Ok(Self { listener, address })
    }
}

/// What the leader does about it: the authority is made and renewed.
#[derive(Clone, Debug)]
pub(crate) struct LeaderWork(Option<Authority>);

impl LeaderWork {
    /// Begins a term.
    pub(crate) fn lead(&self, leader: &Leader) {
        if let Some(authority) = &self.0 {
            agents::lead(leader, authority);
        }
    }
}

/// What was begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) api: AgentsApi,
    pub(crate) leader_work: LeaderWork,
    /// Where agents are listened to.
    pub(crate) place: String,
    pub(crate) address: SocketAddr,
}

/// `active` is where the one who counts is found, `programs` where nodes' policy programs are.
pub(crate) fn begin(
    config: &Config,
    listeners: Listeners,
    objects: &Objects,
    active: &ActiveIngest,
    programs: &ActivePrograms,
    process: &Process,
    registry: &mut Registry,
) -> Result<Begun, Failure> {
    let Process { ledger, tasks, memory, .. } = process;
    let Listeners { listener, address } = listeners;
    let (namespace, lifetime) = (&config.fleet.namespace, config.agents.certificate);
    let authority =
        (!config.agents.plain).then(|| Authority::follow(objects, namespace, lifetime, tasks));
    let agents = Agents::new(Limits::default());
    let counts = active.current().clone();
    let server = Server::new(agents.clone(), counts, authority.clone(), ledger.clone(), tasks);
    let server = server.with_programs(programs.current().clone());
    let server = match reviewer(config, tasks) {
        Some(reviewer) => server.with_reviewer(reviewer),
        None => server,
    };
    server.register(registry);
    server.heed(memory);
    wire::start(server, listener)
        .map_err(|e| Failure(format!("agents cannot be listened to: {e}")))?;
    let how = if authority.is_some() { "with certificates" } else { "without TLS" };
    Ok(Begun {
        api: AgentsApi { agents, authority: authority.clone(), active: active.clone() },
        leader_work: LeaderWork(authority),
        place: format!("{address} ({how})"),
        address: address.local(),
    })
}

/// Who says which node a pod is the agent of: the API server that the store is.
fn reviewer(config: &Config, tasks: &Tasks) -> Option<TokenReviewer> {
    if config.store != Store::Kubernetes {
        return None;
    }
    let (namespace, account) = match &config.agents.service_account {
        ServiceAccount::Auto => (config.fleet.namespace.as_str(), "fairlead-agent"),
        ServiceAccount::Named(name) => (name.namespace.as_str(), name.name.as_str()),
        ServiceAccount::None => return None,
    };
    Some(TokenReviewer::new(lazy_client(tasks), namespace, account))
}
