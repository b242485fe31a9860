use std::path::PathBuf;
use std::time::Duration;

use cni::wire::Show;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::show::{self, AgentFlags};
use crate::cli::listing::{field, fields};
use crate::cli::pod_command::run_in_pod;
use crate::cli::runtime::block_on;
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Verdict, yes_or_no};

/// How long an agent may take to look at the way to another node.
const PATIENCE: Duration = Duration::from_secs(45);
/// The most that an agent says of one way.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Look at the way from this node to another with real packets instead: its path, the largest packet that
    /// it carries, a port that is blocked
    #[arg(long, value_name = "NODE", conflicts_with = "between")]
    towards: Option<String>,
    /// Look at the ways between two nodes of a cluster, each from its own side
    #[arg(long, num_args = 2, value_names = ["NODE", "NODE"])]
    between: Vec<String>,
    /// With --between: namespace of the installation
    #[arg(short, long, value_name = "NAME", default_value = "fairlead")]
    namespace: String,
    /// With --between: context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "between")]
    context: Option<String>,
    /// With --between: kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "between")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentFlags,
}

pub(super) fn check(args: &Check) -> Verdict {
    let paths = match (&args.towards, args.between.as_slice()) {
        (Some(node), _) => args.agent.ask(Show::Towards(node.clone()))?,
        (None, [a, b]) => block_on(ask_both(args, a, b))?,
        (None, _) => return show::check(&args.agent),
    };
    let titles = ["FROM", "TO", "PODS", "PATH", "MTU", "CARRIES", "MS", "FAULT"];
    args.agent.output().print(&paths, || {
        output::table(
            titles,
            paths.iter().map(|path| {
                let way = match path["port"].as_u64() {
                    Some(port) => {
                        format!("{} to {}, UDP port {port}", field(path, "path"), field(path, "at"))
                    }
                    None => format!("{} to {}", field(path, "path"), field(path, "at")),
                };
                let time =
                    path["milliseconds"].as_f64().map_or("-".to_owned(), |it| format!("{it:.2}"));
                let fault = match path["fault"].as_str() {
                    Some(fault) => Cell::coloured(fault, Colour::Red),
                    None => "-".into(),
                };
                let [from, to, family, mtu, carries] =
                    fields(path, ["from", "to", "family", "mtu", "carries"]);
                [from, to, family, way.into(), mtu, carries, time.into(), fault]
            }),
        )
    })?;
    Ok(yes_or_no(paths.iter().all(|path| path["fault"].is_null())))
}

/// Asks the agents of both nodes, at the same time.
async fn ask_both(args: &Check, a: &str, b: &str) -> Result<Vec<Value>, Failure> {
    if a == b {
        return Err(Failure("--between takes two different nodes".to_owned()));
    }
    let cluster =
        install::cluster::Cluster::connect(args.kubeconfig.clone(), args.context.clone()).await;
    let cluster = cluster.map_err(|error| {
        let why = stallproof::sentence(&error);
        Failure(format!(
            "the cluster cannot be reached: {why}; choose it with --kubeconfig and --context"
        ))
    })?;
    let pods: Api<Pod> = Api::namespaced(cluster.client().clone(), &args.namespace);
    let (there, back) = tokio::join!(ask(&pods, a, b), ask(&pods, b, a));
    let mut paths = there?;
    paths.append(&mut back?);
    Ok(paths)
}

async fn ask(pods: &Api<Pod>, from: &str, to: &str) -> Result<Vec<Value>, Failure> {
    let wrong = |why: String| Failure(format!("the agent of node {from} cannot be asked: {why}"));
    let here = ListParams::default()
        .labels("app.kubernetes.io/name=fairlead-agent")
        .fields(&format!("spec.nodeName={from},status.phase=Running"));
    let listed = timeout(PATIENCE, pods.list(&here)).await;
    let listed = listed.map_err(|_| wrong("the API server does not answer".to_owned()))?;
    let listed = listed.map_err(|error| wrong(stallproof::sentence(&error)))?;
    let name = listed.items.into_iter().find_map(|pod| pod.metadata.name);
    let name =
        name.ok_or_else(|| wrong("no pod of it runs there; see `fairlead status`".to_owned()))?;
    let command = ["/usr/local/bin/fairlead", "net", "check", "--towards", to, "-o", "json"];
    let said =
        timeout(PATIENCE, run_in_pod(pods, &name, command.map(str::to_owned).to_vec(), LONGEST))
            .await;
    let said = said.map_err(|_| wrong(format!("it took longer than {} s", PATIENCE.as_secs())))?;
    let said = said.map_err(wrong)?;
    match serde_json::from_slice::<Vec<Value>>(&said.stdout) {
        Ok(paths) => Ok(paths),
        // It says why it cannot look: that is what was found.
        Err(_) if !said.stderr.is_empty() => Ok(vec![json!({
            "from": from, "to": to, "family": null, "path": null, "at": null, "mtu": null,
            "carries": null, "milliseconds": null, "fault": said.stderr,
        })]),
        Err(error) => Err(wrong(error.to_string())),
    }
}
