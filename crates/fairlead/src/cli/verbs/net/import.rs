use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use install::cluster::{Cluster, Reference};
use net::coil::{self, API_VERSION, Finding, Imported, Outcome};
use objects::kinds::{AddressBlock, AddressPool};
use objects::{Error, Id, Kind, Objects};
use serde_json::{Value, json};
use stallproof::{Deadline, sentence};

use crate::cli::files;
use crate::cli::runtime::block_on;
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output, Verdict, yes_or_no};

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The Deployment that hands out Coil's blocks, and where Coil is usually installed.
const COIL_CONTROLLER: (&str, &str) = ("kube-system", "coil-ipam-controller");

/// Move over from Coil: its address pools, blocks and egresses become ours
///
/// Pools keep their subnets, blocks their addresses and their nodes, egresses what they are for. Nothing is
/// written without --apply, and nothing of Coil's is changed. Each object is said to be kept, changed or refused,
/// and why. The same import twice is the same as once. Exit 1 if something was refused.
///
/// Examples:
///   kubectl get addresspools.coil.cybozu.com,addressblocks.coil.cybozu.com -o yaml | fairlead net import -
///   fairlead net import --cluster             what would become what, of the cluster that kubectl talks to
///   fairlead net import --cluster --apply     write it
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Import {
    /// YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "cluster", conflicts_with = "cluster")]
    files: Vec<PathBuf>,
    /// Read Coil's objects from the cluster
    #[arg(long)]
    cluster: bool,
    /// Write what is kept and changed into the cluster
    #[arg(long)]
    apply: bool,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn import(args: &Import) -> Verdict {
    let (imported, written) = block_on(run(args))?;
    let count = |outcome| imported.report.iter().filter(|it| it.outcome == outcome).count();
    let refused = count(Outcome::Refused);
    let answer = json!({
        "applied": args.apply,
        "written": written,
        "kept": count(Outcome::Kept),
        "changed": count(Outcome::Changed),
        "refused": refused,
        "report": imported.report,
        "objects": objects(&imported),
    });
    args.output.print(&answer, || table(&imported.report, &answer))?;
    Ok(yes_or_no(refused == 0))
}

async fn run(args: &Import) -> Result<(Imported, usize), Failure> {
    let cluster = match args.cluster || args.apply {
        true => Some(connect(args).await?),
        false => None,
    };
    let mut documents = Vec::new();
    for file in &args.files {
        documents.extend(files::documents(file)?);
    }
    let mut known = coil::Cluster::default();
    if let Some(cluster) = &cluster {
        known.nodes = nodes(cluster).await?;
        known.pools = pools(cluster).await?;
        if args.cluster {
            documents = of_coil(cluster).await?;
        }
    }
    let mut imported = coil::import(&documents, &known);
    let Some(cluster) = cluster.filter(|_| args.apply) else { return Ok((imported, 0)) };
    stands_still(&cluster).await?;
    let store = Objects::kubernetes(cluster.client().clone(), "fairlead-import");
    let written = write(&store, &mut imported).await?;
    Ok((imported, written))
}

async fn connect(args: &Import) -> Result<Cluster, Failure> {
    let cluster = Cluster::connect(args.kubeconfig.clone(), args.context.clone()).await;
    let cluster = cluster.map_err(|error| unreachable(&error))?;
    cluster.version().await.map_err(|error| unreachable(&error))?;
    Ok(cluster)
}

fn unreachable(error: &install::cluster::Error) -> Failure {
    let why = sentence(error);
    Failure(format!(
        "the cluster cannot be reached: {why}; choose it with --kubeconfig and --context"
    ))
}

async fn list(cluster: &Cluster, api_version: &str, kind: &str) -> Result<Vec<Value>, Failure> {
    let listed = cluster.list(api_version, kind, None, "").await;
    listed.map_err(|error| Failure(format!("{kind} of {api_version}: {}", sentence(&error))))
}

async fn of_coil(cluster: &Cluster) -> Result<Vec<Value>, Failure> {
    let mut documents = Vec::new();
    for kind in ["AddressPool", "AddressBlock", "Egress"] {
        documents.extend(list(cluster, API_VERSION, kind).await?);
    }
    if documents.is_empty() {
        let why = format!("the cluster has nothing of {API_VERSION}: is it the right one?");
        return Err(Failure(why));
    }
    Ok(documents)
}

/// The addresses by which nodes are reached, those inside the cluster first.
async fn nodes(cluster: &Cluster) -> Result<BTreeMap<String, Vec<IpAddr>>, Failure> {
    let addresses = |node: &Value| -> Vec<IpAddr> {
        let all = node["status"]["addresses"].as_array();
        let inside = all.into_iter().flatten().filter(|it| it["type"] == "InternalIP");
        inside.filter_map(|it| it["address"].as_str()?.parse().ok()).collect()
    };
    let named =
        |node: &Value| Some((node["metadata"]["name"].as_str()?.to_owned(), addresses(node)));
    Ok(list(cluster, "v1", "Node").await?.iter().filter_map(named).collect())
}

async fn pools(cluster: &Cluster) -> Result<Vec<AddressPool>, Failure> {
    let all = list(cluster, "fairlead.dev/v1alpha1", "AddressPool").await?;
    Ok(all.into_iter().filter_map(|pool| serde_json::from_value(pool).ok()).collect())
}

/// While Coil's controller runs, a block that is free now may be a Coil node's a moment later, and one of ours
/// as well.
async fn stands_still(cluster: &Cluster) -> Result<(), Failure> {
    let (namespace, name) = COIL_CONTROLLER;
    let deployment = Reference::new("apps/v1", "Deployment", Some(namespace), name);
    let found = cluster.get(&deployment).await;
    let found = found.map_err(|error| Failure(format!("{deployment}: {}", sentence(&error))))?;
    let replicas = found.map_or(0, |it| it["status"]["replicas"].as_i64().unwrap_or(0));
    if replicas == 0 {
        return Ok(());
    }
    Err(Failure(format!(
        "{name} runs and may give Coil's nodes blocks that nodes of ours claim as well: stop it first \
         (kubectl -n {namespace} scale deployment {name} --replicas=0); Coil's pods do not need it"
    )))
}

/// Writes pools before blocks. What is there already is left, and refused if it is something else.
async fn write(store: &Objects, imported: &mut Imported) -> Result<usize, Failure> {
    let mut written = 0;
    for pool in imported.pools.clone() {
        let same = |there: &AddressPool| {
            there.spec.subnets.starts_with(&pool.spec.subnets)
                && there.spec.block_size_bits == pool.spec.block_size_bits
        };
        written += create(store, &pool, same, &mut imported.report).await?;
    }
    for block in imported.blocks.clone() {
        let same = |there: &AddressBlock| {
            there.spec.node == block.spec.node && there.spec.networks() == block.spec.networks()
        };
        written += create(store, &block, same, &mut imported.report).await?;
    }
    for egress in imported.egresses.clone() {
        written +=
            create(store, &egress, |there| there.spec == egress.spec, &mut imported.report).await?;
    }
    Ok(written)
}

async fn create<K: Kind>(
    store: &Objects,
    object: &K,
    same: impl FnOnce(&K) -> bool,
    report: &mut [Finding],
) -> Result<usize, Failure> {
    let id = Id::of(object);
    let deadline = || Deadline::after(PATIENCE);
    let why = match store.create(object, deadline()).await {
        Ok(_) => return Ok(1),
        Err(Error::Exists { .. }) => {
            let there = store.get::<K>(&id, deadline()).await;
            let there = there
                .map_err(|error| Failure(format!("{} {id}: {}", K::NAME, sentence(&error))))?;
            if there.is_some_and(|there| same(&there)) {
                return Ok(0);
            }
            format!(
                "there is another {} of that name here: compare the two, and delete one",
                K::NAME
            )
        }
        Err(Error::Invalid { problems, .. }) => format!("the API server refuses it: {problems}"),
        Err(error) => return Err(Failure(format!("{} {id}: {}", K::NAME, sentence(&error)))),
    };
    let name = id.to_string();
    // A block that was renamed is in the report by the name that it had.
    let by_name = report.iter().position(|it| it.what == K::NAME && it.name == name);
    match by_name.and_then(|at| report.get_mut(at)) {
        Some(finding) => (finding.outcome, finding.why) = (Outcome::Refused, why),
        None => return Err(Failure(format!("{} {name}: {why}", K::NAME))),
    }
    Ok(0)
}

fn objects(imported: &Imported) -> Vec<Value> {
    let Imported { pools, blocks, egresses, report: _ } = imported;
    let all = pools.iter().map(|it| json!(it)).chain(blocks.iter().map(|it| json!(it)));
    all.chain(egresses.iter().map(|it| json!(it))).collect()
}

fn table(report: &[Finding], answer: &Value) -> String {
    let rows = report.iter().map(|finding| {
        let outcome = match finding.outcome {
            Outcome::Kept => "kept".into(),
            Outcome::Changed => Cell::coloured("changed", Colour::Yellow),
            Outcome::Refused => Cell::coloured("refused", Colour::Red),
        };
        [
            finding.what.as_str().into(),
            finding.name.as_str().into(),
            outcome,
            finding.why.as_str().into(),
        ]
    });
    let table = output::table(["KIND", "NAME", "OUTCOME", "WHY"], rows);
    let written = match answer["applied"] == true {
        true => format!("{} written", answer["written"]),
        false => "nothing was written: --apply writes it".to_owned(),
    };
    let [kept, changed, refused] = ["kept", "changed", "refused"].map(|it| answer[it].to_string());
    format!("{table}\n{kept} kept, {changed} changed, {refused} refused; {written}\n")
}
