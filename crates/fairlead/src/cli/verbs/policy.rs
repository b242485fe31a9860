mod dry_run;
mod offline;
mod online;

use std::path::PathBuf;
use std::process::ExitCode;

use policy::{Answer, Probe, ProbePort, words};
use serde_json::{Value, json};

use crate::cli::client::{self, ServerFlags};
use crate::cli::listing::items;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{Failure, Output, Verdict, yes_or_no};

/// Test, explain and list network policies: who may talk to whom, and which rule decides
///
/// NetworkPolicy, ClusterNetworkPolicy (v1alpha2), AdminNetworkPolicy and BaselineAdminNetworkPolicy
/// (v1alpha1), and Fairlead's Group and NetworkRule are decided together, tier by tier: Admin,
/// NetworkPolicy, Guard, Baseline.
///
/// Without files a running server is asked about the policies in force. With --cluster and --policies
/// everything is decided from files; no cluster is asked.
///
/// Examples:
///   fairlead policy status                                   where policies are in force; exit 1 if one is not
///   fairlead policy list
///   fairlead policy list --rules                             packets and bytes that each rule decided about
///   fairlead policy explain shop/web-0 shop/db-0 5432
///   fairlead policy dry-run --policies new.yaml --since 24h  what would they have stopped?
///
///   kubectl get ns,pods,nodes,services -A -o yaml > cluster.yaml
///   fairlead policy test --cluster cluster.yaml --policies netpol.yaml --probes probes.jsonl -o json
///   fairlead policy explain shop/web-0 shop/db-0 5432 --cluster cluster.yaml --policies netpol.yaml
///   fairlead policy explain shop/web-0 1.1.1.1 53 --protocol UDP --cluster c.yaml --policies p.yaml
///   fairlead policy list --cluster cluster.yaml --policies netpol.yaml
///   fairlead conversations --since 24h --limit 10000 -o json > seen.json
///   fairlead policy dry-run --cluster cluster.yaml --policies new.yaml --conversations seen.json
///
/// A probe is a line of JSON:
///   {"from": "shop/web-0", "to": "shop/db-0", "protocol": "TCP", "port": 5432}
///   {"from": "203.0.113.9", "to": "shop/web-0", "protocol": "TCP", "port": "http"}
///
/// Exit codes: 0 everything is allowed, 1 something is denied, 2 could not do it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Say of each probe whether the connection is allowed, and which rule decides
    ///
    /// The answer of `-o json` is an array in the order of the probes.
    Test(Test),
    /// Show for one connection what each tier says, in words
    Explain(Explain),
    /// Say which conversations that were seen the policies would have stopped
    DryRun(dry_run::DryRun),
    /// List policies in the order in which they decide, with how many pods each selects
    List(List),
    /// Show where policies are in force, and what is waited for; exit 1 if one is not in force everywhere
    Status(online::Status),
}

/// The files that every verb here reads.
#[derive(Debug, clap::Args)]
struct Files {
    /// Files with Namespaces, Pods, Nodes and Services, as kubectl prints them; other kinds are skipped
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    cluster: Vec<PathBuf>,
    /// Files with policies
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// The mode of workloads that are in no Group with a mode
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

/// The files that a verb reads in place of asking a server.
#[derive(Debug, clap::Args)]
struct FilesOrServer {
    /// Files with Namespaces, Pods, Nodes and Services, as kubectl prints them; other kinds are skipped
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "policies")]
    cluster: Vec<PathBuf>,
    /// Files with policies
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "cluster")]
    policies: Vec<PathBuf>,
    /// The mode of workloads that are in no Group with a mode
    #[arg(long, value_enum, default_value_t, requires = "cluster")]
    mode: Mode,
    #[command(flatten)]
    server: ServerFlags,
}

impl FilesOrServer {
    /// The files, if they are given.
    fn files(&self) -> Option<Files> {
        let (cluster, policies) = (self.cluster.clone(), self.policies.clone());
        (!cluster.is_empty()).then_some(Files { cluster, policies, mode: self.mode })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    #[default]
    Discover,
    Monitor,
    Protect,
}

#[derive(Debug, clap::Args)]
struct Test {
    #[command(flatten)]
    files: Files,
    /// The file with probes, one JSON object a line, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    probes: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Explain {
    /// NAMESPACE/POD or an address
    from: String,
    /// NAMESPACE/POD or an address
    to: String,
    /// A number, or the name of a container port of the destination
    port: Option<String>,
    /// TCP, UDP, SCTP, ICMP, ICMPv6 or as ip-47
    #[arg(long, default_value = "TCP")]
    protocol: String,
    /// The domain name under which the source knows the destination
    #[arg(long, value_name = "DOMAIN")]
    to_name: Option<String>,
    #[command(flatten)]
    files: FilesOrServer,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct List {
    /// List rules, each with the packets and bytes that it decided about on all nodes; asks a server
    #[arg(long, conflicts_with = "cluster")]
    rules: bool,
    #[command(flatten)]
    files: FilesOrServer,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Test(args) => test(args),
        Verb::Explain(args) => explain(args),
        Verb::DryRun(args) => dry_run::run(args),
        Verb::List(args) => list(args),
        Verb::Status(args) => client::run(online::status(args)),
    }
}

fn test(args: &Test) -> Verdict {
    let inputs = offline::inputs(&args.files)?;
    let mut answers: Vec<Answer> = Vec::new();
    for (place, probe) in offline::probes(&args.probes)? {
        let answer = probe.answer(&inputs.cluster, &inputs.policies);
        answers.push(answer.map_err(|why| Failure(format!("{place}: {why}")))?);
    }
    args.output.print(&answers, || {
        let titles = ["FROM", "TO", "PORT", "VERDICT", "EGRESS", "INGRESS"];
        let mut table = Table::new(titles);
        for answer in &answers {
            let port = port_text(&answer.protocol, answer.port.as_ref());
            let said = |it: &policy::probe::DirectionAnswer| format!("{}: {}", it.verdict, it.why);
            let (egress, ingress) = (said(&answer.egress), said(&answer.ingress));
            table.row([&answer.from, &answer.to, &port, answer.verdict, &egress, &ingress]);
        }
        table.render(Paint::stdout())
    })?;
    Ok(yes_or_no(answers.iter().all(Answer::allowed)))
}

fn port_text(protocol: &str, port: Option<&ProbePort>) -> String {
    match port {
        None => protocol.to_owned(),
        Some(ProbePort::Number(port)) => format!("{protocol}/{port}"),
        Some(ProbePort::Name(name)) => format!("{protocol}/{name}"),
    }
}

fn explain(args: &Explain) -> Verdict {
    let Some(files) = args.files.files() else { return client::run(online::explain(args)) };
    let inputs = offline::inputs(&files)?;
    let port = args
        .port
        .as_ref()
        .map(|text| text.parse().map_or_else(|_| ProbePort::Name(text.clone()), ProbePort::Number));
    let probe = Probe {
        from: args.from.clone(),
        to: args.to.clone(),
        protocol: args.protocol.clone(),
        port,
        to_name: args.to_name.clone(),
    };
    let wrong = |why: String| Failure(why.replacen(':', " cannot be explained:", 1));
    let value = words::explain(&probe, &inputs.cluster, &inputs.policies).map_err(wrong)?;
    print_explained(&args.output, &value)
}

/// Prints what each tier said; the exit code says whether the connection is allowed.
fn print_explained(output: &Output, value: &Value) -> Verdict {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    output.print(value, || {
        let port: Option<ProbePort> = serde_json::from_value(value["port"].clone()).ok();
        let port = port_text(&text(&value["protocol"]), port.as_ref());
        let (from, to, verdict) =
            (text(&value["from"]), text(&value["to"]), text(&value["verdict"]));
        let mut all = format!("{from} to {to} {port}: {verdict}\n");
        // What a server adds where rules name domains.
        if let Some(name) = value["toName"].as_str() {
            all.push_str(&format!("as {name}, which its node resolved to the address\n"));
        }
        if let Some(depends) = value["dependsOn"].as_str() {
            all.push_str(&format!("it depends on {depends}\n"));
        }
        for (name, end) in [("egress", from), ("ingress", to)] {
            let side = &value[name];
            all.push_str(&format!("\n{name} of {end}: {}\n", text(&side["verdict"])));
            for tier in items(side, "tiers") {
                all.push_str(&format!("  {:<14} {}\n", text(&tier["tier"]), text(&tier["said"])));
            }
            all.push_str(&format!("  so: {}\n", text(&side["why"])));
            if let Some(counted) = counted_words(&side["counted"]) {
                all.push_str(&format!("  counted: {counted}\n"));
            }
        }
        all
    })?;
    Ok(yes_or_no(value["verdict"] == "allow"))
}

/// What the rule that decided has counted, if a server said so.
fn counted_words(counted: &Value) -> Option<String> {
    let number = |field: &str| counted[field].as_u64();
    let (packets, bytes, nodes) = (number("packets")?, number("bytes")?, number("nodes")?);
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    let together = match number("rules").unwrap_or(1) {
        0 | 1 => String::new(),
        2 => ", together with another rule".to_owned(),
        rules => format!(", together with {} other rules", rules - 1),
    };
    Some(format!("{packets} packets, {bytes} bytes on {nodes}{together}"))
}

fn list(args: &List) -> Verdict {
    let Some(files) = args.files.files() else { return client::run(online::list(args)) };
    let inputs = offline::inputs(&files)?;
    print_rows(&args.output, &policy::list::rows(&inputs.cluster, &inputs.policies))
}

fn print_rows(output: &Output, rows: &impl serde::Serialize) -> Verdict {
    output.print(rows, || {
        let mut table =
            Table::new(["TIER", "PRIORITY", "KIND", "POLICY", "PODS", "INGRESS", "EGRESS"]);
        for row in json!(rows).as_array().into_iter().flatten() {
            let fields = ["tier", "priority", "kind", "policy", "pods", "ingress", "egress"];
            let cells = fields.map(|field| match &row[field] {
                Value::Null => "-".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            table.row(cells.iter().map(String::as_str));
        }
        table.render(Paint::stdout())
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Mode {
    fn settings(self) -> policy::spec::Settings {
        use objects::kinds::GroupMode;
        let mode = match self {
            Self::Discover => GroupMode::Discover,
            Self::Monitor => GroupMode::Monitor,
            Self::Protect => GroupMode::Protect,
        };
        policy::spec::Settings { mode, ..Default::default() }
    }
}
