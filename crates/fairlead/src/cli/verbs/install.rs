//! Fairlead in a cluster: `install`, `install check`, `upgrade`, `uninstall`, `status`.

mod flags;
mod node;
mod remove;
mod steps;

use std::process::ExitCode;
use std::time::Duration;

use install::chart::{self, Release};
use install::check::{self, Finding, Verdict as CheckVerdict};
use install::cluster::{Cluster, Reference};
use install::on_nodes::{self, Task};
use install::record::Record;
use install::rollout::Rollout;
use install::status::{ObservedInstallation, Status, assess};
use install::values::Values;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use crate::cli::runtime::block_on;
use crate::cli::verbs::install::flags::{ChartFlags, ClusterFlags};
use crate::cli::verbs::install::steps::{Step, StepPrinter};
use crate::output::{self, Failure, Format, Output, Verdict, yes_or_no};

/// How long a pod on every node may take to start, look and end.
const ON_NODES: Duration = Duration::from_secs(120);

pub(crate) use remove::{Args as UninstallArgs, run as uninstall};

/// Put Fairlead into a cluster, and wait until it is ready
///
/// The cluster is that of the current kubeconfig context. What is installed is the chart that this
/// program carries, the same that Helm installs: definitions first, then permissions and services, then
/// agents and controllers. Run it again at any time: what is there is brought to what is wanted, with the
/// values of before where no others are given.
///
/// Examples:
///   fairlead install check                       can this cluster take it?
///   fairlead install                             everything but the pod network
///   fairlead install --components net,guard,mesh,console,admission
///                                                Fairlead as the pod network, too
///   fairlead install --values my.yaml --set controller.replicas=1
///   fairlead install --dry-run > fairlead.yaml   what would be applied, for GitOps
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    how: Install,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Install {
    #[command(flatten)]
    chart: ChartFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Print the objects and apply nothing: YAML, or JSON with -o json. No cluster is asked
    #[arg(long)]
    dry_run: bool,
    /// Install although a check refuses
    #[arg(long)]
    skip_checks: bool,
    /// Begin with the chart's own values, not with those of an installation that is there
    #[arg(long)]
    reset_values: bool,
    /// Leave out the pod network although pods have theirs from it
    #[arg(long)]
    force: bool,
    /// Wait for the definitions only
    #[arg(long)]
    no_wait: bool,
    /// How long everything may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    output: Output,
}

/// Say whether a cluster can take Fairlead, and change nothing
///
/// The server's version, what this user may do, whether the server takes every definition, kernels and
/// architectures of nodes, other pod networks, addresses that pools must not have, clocks. Exit code 1 if
/// something stands in the way.
///
/// Examples:
///   fairlead install check
///   fairlead install check --on-nodes   kernel features and sysctls of nodes, too
///   fairlead install check --context prod-eu --components guard,admission -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Check {
    #[command(flatten)]
    chart: ChartFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Also run a pod on every node that looks at its kernel; the pods are removed again, and need
    /// the image there
    #[arg(long)]
    on_nodes: bool,
    /// Check this machine alone, as root: its kernel, sysctls, other networks. No cluster is asked
    #[arg(long, conflicts_with = "on_nodes")]
    this_node: bool,
    #[command(flatten)]
    output: Output,
}

/// Replace what `fairlead install` installed by this version
///
/// Definitions first, then controllers, then agents node by node; pods keep their network. The values of
/// the installation are kept unless others are given. If something does not come up in time, what was
/// there before is put back.
///
/// Examples:
///   fairlead upgrade
///   fairlead upgrade --set controller.replicas=5
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    chart: ChartFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Begin with the chart's own values, not with those of the installation
    #[arg(long)]
    reset_values: bool,
    /// Leave out the pod network although pods have theirs from it
    #[arg(long)]
    force: bool,
    /// How long everything may take, before it is taken back
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    #[command(flatten)]
    output: Output,
}

/// Show the state of the installation: every component on every node, one line each
///
/// Exit 1 if something is not as it should be.
///
/// Examples:
///   fairlead status
///   fairlead status --context prod-eu -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    output: Output,
}

/// The outcome of an installation or an upgrade. The JSON is a contract.
#[derive(Debug, Serialize)]
struct InstallReport {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    namespace: String,
    objects: usize,
    seconds: u64,
    steps: Vec<Step>,
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Some(Verb::Check(check)) => run_check(check),
        None if args.how.dry_run => render(&args.how),
        None => run_install(&args.how),
    }
}

fn explain(error: &dyn std::error::Error) -> Failure {
    Failure(stallproof::sentence(error))
}

fn render(args: &Install) -> Verdict {
    let release = args.cluster.release();
    let mut objects = vec![chart::namespace(&release)];
    objects.extend(args.chart.render(&release, None)?.objects);
    args.output.print_objects(&serde_json::json!(objects), &objects)?;
    Ok(ExitCode::SUCCESS)
}

fn run_check(args: &Check) -> Verdict {
    if args.this_node {
        return judged(&node::check(), args.output);
    }
    let findings = block_on(async {
        let cluster = args.cluster.connect().await?;
        let namespace = args.cluster.namespace();
        let rendered = args.cluster.render(&cluster, &args.chart, None).await?;
        let now = Timestamp::now();
        let checked = check::check(&cluster, namespace, &rendered.objects, now).await;
        let mut findings = checked.map_err(|error| explain(&error))?;
        if args.on_nodes {
            let looked = look_at_nodes(&cluster, namespace, &rendered.objects).await;
            findings.extend(looked.map_err(|error| explain(&error))?);
        }
        Ok(findings)
    })?;
    judged(&findings, args.output)
}

/// Runs the check of a node on every node, in a namespace made for it where there is none yet.
async fn look_at_nodes(
    cluster: &Cluster,
    namespace: &str,
    objects: &[Value],
) -> Result<Vec<Finding>, install::cluster::Error> {
    let Some(agents) = objects.iter().find(|object| object["kind"] == "DaemonSet") else {
        return Ok(Vec::new());
    };
    let release = Release { namespace: namespace.to_owned(), ..Release::default() };
    let space = chart::namespace(&release);
    let of = Reference::new("v1", "Namespace", None, namespace);
    let was_there = cluster.get(&of).await?.is_some();
    if !was_there {
        cluster.apply(&space).await?;
    }
    let args = ["install", "check", "--this-node", "-o", "json"].map(str::to_owned);
    let directories = ["/etc/cni/net.d".to_owned()];
    let task = Task {
        args: &args,
        directories: &directories,
        ..Task::like_agents(agents, "check", namespace)
    };
    let nodes = on_nodes::linux_nodes(cluster).await?;
    let ended = task.run(cluster, &nodes, Deadline::after(ON_NODES)).await;
    if !was_there {
        cluster.delete(&of).await?;
        cluster.is_gone(&of, Deadline::after(ON_NODES)).await?;
    }
    Ok(check::of_tasks(ended?))
}

fn judged(findings: &[Finding], output: Output) -> Verdict {
    output.print(&findings, || table(findings))?;
    Ok(yes_or_no(!findings.iter().any(|finding| finding.verdict == CheckVerdict::Failure)))
}

fn table(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let verdict = match finding.verdict {
            CheckVerdict::Ok => "ok",
            CheckVerdict::Warning => "warning",
            CheckVerdict::Failure => "NO",
        };
        let node = finding.node.as_deref().unwrap_or("-").to_owned();
        [finding.check.to_string(), node, verdict.to_owned(), finding.message.clone()]
    };
    output::table(["CHECK", "NODE", "", "WHAT"], findings.iter().map(row))
}

fn run_install(args: &Install) -> Verdict {
    let mut steps = StepPrinter::new(args.output.output == Format::Table);
    let (done, notes) = block_on(async {
        let cluster = args.cluster.connect().await?;
        let namespace = args.cluster.namespace();
        let before = Record::read(&cluster, namespace).await.map_err(|error| explain(&error))?;
        let chosen = before.as_ref().map(|record| &record.chosen);
        let kept = chosen.filter(|_| !args.reset_values);
        if let Some(before) = before.as_ref().filter(|_| !args.force) {
            keep_network(&cluster, namespace, before, &args.chart.values(kept)?).await?;
        }
        let rendered = args.cluster.render(&cluster, &args.chart, kept).await?;
        if !args.skip_checks {
            let now = Timestamp::now();
            let checked = check::check(&cluster, namespace, &rendered.objects, now).await;
            refuse(&checked.map_err(|error| explain(&error))?, &mut steps)?;
        }
        let wanted = args.chart.record(&rendered, kept)?;
        let mut rollout = Rollout {
            cluster: &cluster,
            namespace,
            deadline: Deadline::after(Duration::from_secs(args.timeout)),
            tell: &mut |progress| steps.print(progress),
        };
        let rolled = rollout.install(&wanted, !args.no_wait).await;
        rolled.map_err(|error| explain(&error))?;
        Ok((done(&wanted, None, namespace, &steps), rendered.notes))
    })?;
    args.output.print(&done, || {
        format!("\nfairlead {} is installed in {} s\n\n{notes}", done.version, done.seconds)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to take the pod network away by values that were left out. It is asked before the chart is, which may
/// refuse the same values for a lesser reason.
async fn keep_network(
    cluster: &Cluster,
    namespace: &str,
    before: &Record,
    chosen: &Values,
) -> Result<(), Failure> {
    // The chart's own value is false.
    if !install::remove::takes_network(&before.values, &chosen.as_json()) {
        return Ok(());
    }
    let users = install::remove::pods_on_our_network(cluster, namespace)
        .await
        .map_err(|error| explain(&error))?;
    match users.is_empty() {
        true => Ok(()),
        false => Err(Failure(format!(
            "this leaves out the component net: {}",
            remove::would_lose(&users)
        ))),
    }
}

/// Refuses with everything that stands in the way at once; prints warnings.
fn refuse(findings: &[Finding], steps: &mut StepPrinter) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for finding in findings {
        match finding.verdict {
            CheckVerdict::Ok => {}
            // That it is there is what `install` again is for.
            CheckVerdict::Warning if finding.check == "earlier" => {}
            CheckVerdict::Warning => steps.note(&format!("{}: {}", finding.check, finding.message)),
            CheckVerdict::Failure => {
                wrong.push(format!("\n  {}: {}", finding.check, finding.message));
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure(format!(
        "this cluster cannot take it yet, and nothing was changed:{}\n--skip-checks installs all the same",
        wrong.concat()
    )))
}

fn done(
    wanted: &Record,
    before: Option<&Record>,
    namespace: &str,
    steps: &StepPrinter,
) -> InstallReport {
    InstallReport {
        version: wanted.version.clone(),
        before: before.map(|record| record.version.clone()),
        namespace: namespace.to_owned(),
        objects: wanted.objects.len(),
        seconds: steps.elapsed().as_secs(),
        steps: steps.done().to_vec(),
    }
}

/// The record of the installation, or a sentence that says what to do without one.
async fn recorded(cluster: &Cluster, namespace: &str) -> Result<Record, Failure> {
    match Record::read(cluster, namespace).await {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(Failure(format!(
            "`fairlead install` has installed nothing in the namespace {namespace}: name another with --namespace; what Helm installed is Helm's to upgrade and to remove"
        ))),
        Err(error) => Err(explain(&error)),
    }
}

pub(crate) fn upgrade(args: &UpgradeArgs) -> Verdict {
    let mut steps = StepPrinter::new(args.output.output == Format::Table);
    let done = block_on(async {
        let cluster = args.cluster.connect().await?;
        let namespace = args.cluster.namespace();
        let before = recorded(&cluster, namespace).await?;
        let kept = (!args.reset_values).then_some(&before.chosen);
        if !args.force {
            keep_network(&cluster, namespace, &before, &args.chart.values(kept)?).await?;
        }
        let rendered = args.cluster.render(&cluster, &args.chart, kept).await?;
        let wanted = args.chart.record(&rendered, kept)?;
        let mut rollout = Rollout {
            cluster: &cluster,
            namespace,
            deadline: Deadline::after(Duration::from_secs(args.timeout)),
            tell: &mut |progress| steps.print(progress),
        };
        rollout.upgrade(&before, &wanted).await.map_err(|error| explain(&error))?;
        Ok(done(&wanted, Some(&before), namespace, &steps))
    })?;
    args.output.print(&done, || {
        let before = done.before.as_deref().unwrap_or_default();
        format!("\nfairlead {before} became {} in {} s", done.version, done.seconds)
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn status(args: &StatusArgs) -> Verdict {
    let status = block_on(async {
        let cluster = args.cluster.connect().await?;
        let seen = ObservedInstallation::of(&cluster, args.cluster.namespace()).await;
        Ok(assess(&seen.map_err(|error| explain(&error))?, Timestamp::now()))
    })?;
    args.output.print(&status, || status_table(&status))?;
    Ok(yes_or_no(status.ok))
}

fn status_table(status: &Status) -> String {
    let rows = status.lines.iter().map(|line| {
        let node = line.node.as_deref().unwrap_or("-");
        [line.component, node, if line.ok { "ok" } else { "NO" }, &line.state]
    });
    output::table(["COMPONENT", "NODE", "", "STATE"], rows)
}
