use std::process::ExitCode;

use serde::Deserialize;

use crate::cli::client::across::{self, ClusterOutcome};
use crate::cli::client::{Access, ClientResult, ClusterChoice, Route, Target, decode};
use crate::output::{self, Format, NO, Output};

/// Find resources by name, address, label or image, in all clusters or in some
///
/// Examples:
///   fairlead search checkout
///   fairlead search 10.0.3.17   who has this address? 10.0.3. finds all that begin so
///   fairlead search nginx:1.25 --kinds pods,deployments
///   fairlead search checkout --cluster prod-eu,prod-us -o json
///
/// Exit 1 when nothing was found, or some clusters did not answer.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// What to look for
    text: String,
    /// Only these kinds, separated by commas
    #[arg(long, value_name = "KINDS")]
    kinds: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Found {
    hits: Vec<Hit>,
    truncated: bool,
    clusters: Vec<ClusterOutcome>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Hit {
    cluster: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    why: String,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.target.open()?;
    let clusters = match args.target.names_any() {
        true => args.target.chosen(&server, Access::Read).await?,
        false => ClusterChoice::All,
    };
    let route = Route::to(["search"])
        .with("q", &args.text)
        .maybe("clusters", clusters.list())
        .maybe("kinds", args.kinds.as_deref())
        .maybe("limit", args.limit);
    let answer = across::fan_out(&server, &route).await?;
    let found: Found = decode(&answer)?;
    if found.hits.is_empty() && args.output.output == Format::Table {
        eprintln!("nothing found for {:?}", args.text);
    } else {
        args.output.print(&answer, || table(&found.hits))?;
    }
    if found.truncated {
        eprintln!("there is more; search for more of the name, or raise --limit");
    }
    let code = across::report_missing(&found.clusters);
    let complete = found.clusters.iter().all(|cluster| cluster.ok);
    Ok(if complete && found.hits.is_empty() { ExitCode::from(NO) } else { code })
}

fn table(hits: &[Hit]) -> String {
    let rows = hits.iter().map(|hit| {
        let namespace = hit.namespace.as_deref().unwrap_or("-");
        [hit.cluster.as_str(), &hit.kind, namespace, &hit.name, &hit.why]
    });
    output::table(["CLUSTER", "KIND", "NAMESPACE", "NAME", "WHY"], rows)
}
