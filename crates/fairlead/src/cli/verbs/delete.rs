use std::process::ExitCode;

use http::Method;
use serde::Deserialize;

use crate::cli::client::{Answer, Body, Change, Object, Target, across};
use crate::output;

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
    /// Seconds that it may take to stop [default: its own]
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    /// What becomes of what it owns [default: the server's]
    #[arg(long, value_enum, value_name = "HOW")]
    cascade: Option<Cascade>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Cascade {
    /// Deleted afterwards
    Background,
    /// Deleted first
    Foreground,
    /// Left alone
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Deletion {
    outcome: String,
    finalizers: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    args.object.named()?;
    let server = args.target.open()?;
    let names = args.target.names(&server, Change::Yes)?;
    let several = names.len() > 1;
    across::each(
        &names,
        |name| {
            let route = args
                .object
                .route(name)?
                .with("namespace", args.target.namespace())
                .when("dryRun", args.dry_run)
                .maybe("gracePeriod", args.grace_period)
                .maybe("propagation", args.cascade.map(Cascade::propagation));
            server.ask::<Deletion>(&Method::DELETE, &route, &Body::None)
        },
        |name, deletion| {
            let prefix = if several { format!("{name}: ") } else { String::new() };
            output::warn(&prefix, &deletion.warnings);
            let dry = if args.dry_run { " (dry run)" } else { "" };
            let what = match (deletion.outcome.as_str(), deletion.finalizers.join(", ")) {
                ("waiting", held) if !held.is_empty() => {
                    format!("is being deleted; it waits for {held}")
                }
                ("waiting", _) => "is being deleted".to_owned(),
                _ => "deleted".to_owned(),
            };
            output::line(&format!("{prefix}{} {what}{dry}", args.object))?;
            Ok(0)
        },
    )
}
