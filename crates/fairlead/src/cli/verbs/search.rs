use std::process::ExitCode;

use crate::cli::client::{Access, ClientResult, ClusterChoice, Route, Target, across};
use crate::cli::listing::{fields, items};
use crate::output::{Format, NO, Output};

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
    let titles = ["CLUSTER", "KIND", "NAMESPACE", "NAME", "WHY"];
    let columns = ["cluster", "kind", "namespace", "name", "why"];
    let nothing = items(&answer, "hits").is_empty();
    if nothing && args.output.output == Format::Table {
        eprintln!("nothing found for {:?}", args.text);
    } else {
        args.output.print_list(&answer, "hits", &titles, |hit| fields(hit, columns))?;
    }
    if answer["truncated"] == true {
        eprintln!("there is more; search for more of the name, or raise --limit");
    }
    let clusters = across::outcomes(&answer)?;
    let code = across::report_missing(&clusters);
    let complete = clusters.iter().all(|cluster| cluster.ok);
    Ok(if complete && nothing { ExitCode::from(NO) } else { code })
}
