//! `fairlead uninstall`.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use install::remove::{self, PodsByNamespace, Removal};
use serde::Serialize;
use stallproof::Deadline;

use super::flags::ClusterFlags;
use super::steps::{Step, StepPrinter};
use super::{explain, recorded};
use crate::cli::runtime::block_on;
use crate::output::{Failure, Format, Output, Verdict, yes_or_no};

/// Remove what `fairlead install` installed, from the cluster and from its nodes
///
/// Everything goes: controllers, agents, the webhook's registration, what agents left on nodes, all objects
/// of Fairlead's kinds with their definitions, the namespace. Refused while pods have their network from
/// Fairlead, since they would lose it: move them to another pod network first, or say --force.
///
/// Examples:
///   fairlead uninstall
///   fairlead uninstall --keep-definitions      rules, users, pools and meshes stay
///   fairlead uninstall --yes --force -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Remove it although pods have their network from Fairlead
    #[arg(long)]
    force: bool,
    /// Leave the definitions, and the objects of Fairlead's kinds
    #[arg(long)]
    keep_definitions: bool,
    /// How long everything may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    output: Output,
}

/// The outcome of an uninstallation. The JSON is a contract.
#[derive(Debug, Serialize)]
struct UninstallReport {
    version: String,
    namespace: String,
    /// Nodes that could not be cleaned, and why.
    nodes: BTreeMap<String, String>,
    seconds: u64,
    steps: Vec<Step>,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let mut steps = StepPrinter::new(args.output.output == Format::Table);
    let done = block_on(async {
        let namespace = args.cluster.namespace();
        let cluster = args.cluster.connect().await?;
        let record = recorded(&cluster, namespace).await?;
        let users = remove::pods_on_our_network(&cluster, namespace)
            .await
            .map_err(|error| explain(&error))?;
        if !users.is_empty() && !args.force {
            return Err(Failure(would_lose(&users)));
        }
        if !args.yes {
            let written = match args.keep_definitions {
                true => BTreeMap::new(),
                false => remove::written(&cluster).await.map_err(|error| explain(&error))?,
            };
            confirm(cluster.url(), &written)?;
        }
        let mut removal = Removal {
            cluster: &cluster,
            namespace,
            record: &record,
            force: args.force,
            keep_definitions: args.keep_definitions,
            deadline: Deadline::after(Duration::from_secs(args.timeout)),
            tell: &mut |progress| steps.print(progress),
        };
        let removed = removal.run().await.map_err(|error| explain(&error))?;
        Ok(UninstallReport {
            version: record.version,
            namespace: namespace.to_owned(),
            nodes: removed.nodes,
            seconds: steps.elapsed().as_secs(),
            steps: steps.done().to_vec(),
        })
    })?;
    args.output.print(&done, || summary(&done))?;
    Ok(yes_or_no(done.nodes.is_empty()))
}

fn summary(done: &UninstallReport) -> String {
    let mut text = format!("\nfairlead {} is removed, in {} s", done.version, done.seconds);
    for (node, why) in &done.nodes {
        text.push_str(&format!(
            "\nnode {node} was not cleaned: {why}; run `fairlead net uninstall --purge` on it"
        ));
    }
    text
}

pub(super) fn would_lose(users: &PodsByNamespace) -> String {
    let count: usize = users.values().map(Vec::len).sum();
    let shown: Vec<_> = users
        .iter()
        .map(|(namespace, pods)| match pods.as_slice() {
            [one] => format!("{namespace}/{one}"),
            [first, ..] => format!("{namespace}/{first} and {} more there", pods.len() - 1),
            [] => namespace.clone(),
        })
        .take(5)
        .collect();
    format!(
        "{count} pods have their network from Fairlead and would lose it: {}; delete them or move them to another pod network first, or say --force",
        shown.join(", ")
    )
}

fn confirm(cluster: &str, written: &BTreeMap<String, usize>) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure("nothing was removed: say --yes where nobody can be asked".to_owned()));
    }
    let lost: Vec<_> = written.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let lost = match lost.is_empty() {
        true => String::new(),
        false => format!(" with {}", lost.join(", ")),
    };
    eprint!("Remove Fairlead{lost} from {cluster}? Type yes: ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(Failure("nothing was removed".to_owned())),
    }
}
