use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::cli::client::{ClientResult, Object, Route, Target, across};
use crate::cli::listing::joined;

/// Delete one object
///
/// Examples:
///   fairlead delete pod web-0 -n shop
///   fairlead delete deploy/web --cluster prod-eu,prod-us --dry-run
///   fairlead delete job/import --cascade foreground
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    object: Object,
    /// Let the server check it and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Seconds that a pod may take to stop [default: its own]
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    /// What becomes of the objects that it owns [default: the server's]
    #[arg(long, value_enum, value_name = "HOW")]
    cascade: Option<Cascade>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Cascade {
    /// They are deleted afterwards
    Background,
    /// They are deleted first
    Foreground,
    /// They are left alone
    Orphan,
}

impl Cascade {
    /// As Kubernetes spells it.
    fn propagation(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let request = |route: Route| {
        let route = route
            .when("dryRun", args.dry_run)
            .maybe("gracePeriod", args.grace_period)
            .maybe("propagation", args.cascade.map(Cascade::propagation));
        (Method::DELETE, route, Value::Null)
    };
    let outcome = |deletion: &Value| {
        let dry = if args.dry_run { " (dry run)" } else { "" };
        let held = joined(deletion, "finalizers", ", ");
        match deletion["outcome"].as_str() {
            Some("waiting") if held.is_empty() => format!("is being deleted{dry}"),
            Some("waiting") => format!("is being deleted; it waits for {held}{dry}"),
            _ => format!("deleted{dry}"),
        }
    };
    across::change_object(&args.object, &args.target, request, outcome).await
}
