use std::time::Duration;

use serde_json::Value;

use crate::cli::admin_token::admin_token;
use crate::cli::client::Route;
use crate::cli::http::{Origin, Trust};
use crate::cli::listing::items;
use crate::cli::runtime::block_on;
use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::output::{self, Failure, Output, Verdict, yes_or_no};

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How large it may be: a line for each operation.
const LARGEST: usize = 64 << 20;

/// Show what a running Fairlead is doing right now, oldest first
///
/// Asks the admin endpoint that this machine's configuration names, with the token of admin.token-file, or of
/// the data directory, or of FAIRLEAD_TOKEN; exit 1 when something is late.
///
/// Examples:
///   fairlead inflight
///   fairlead inflight --kind apply --limit 20
///   fairlead inflight -o json | jq '.operations[] | select(.late)'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Only operations of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only operations of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let config = load(&args.flags)?.config;
    let token = admin_token(&config);
    let admin = config.admin;
    // With a certificate of its own making the port is plain on loopback, where this asks.
    let scheme = if admin.tls_cert.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{}", admin.listen.local());
    let path = Route::at("/debug/inflight")
        .with("format", "json")
        .with("limit", args.limit)
        .maybe("kind", args.kind.as_deref())
        .maybe("tenant", args.tenant.as_deref());
    let failed = |why: String| {
        Failure(format!(
            "{base} does not answer: {why}; is `fairlead up` running, and there? (--admin-listen)"
        ))
    };
    let url = base.parse().map_err(|e| failed(format!("{e}")))?;
    let origin = Origin::of(&url, Trust::Public, PATIENCE).map_err(|e| failed(e.to_string()))?;
    let (status, body) = block_on(async {
        let answer = origin.get(&path.to_string(), token.as_deref(), PATIENCE, LARGEST).await;
        answer.map_err(|e| failed(e.to_string()))
    })?;
    if status != 200 {
        let text = String::from_utf8_lossy(&body);
        return Err(Failure(format!("{base}/debug/inflight answers {status}: {}", text.trim())));
    }
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|e| Failure(format!("{base}/debug/inflight answers no JSON: {e}")))?;
    args.output.print(&answer, || table(&answer))?;
    Ok(yes_or_no(!items(&answer, "operations").iter().any(|op| op["late"] == true)))
}

fn table(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let rows = items(answer, "operations").iter().map(|op| {
        [
            format!("{}ms", op["age_ms"]),
            if op["late"] == true { "late".to_owned() } else { String::new() },
            text(&op["kind"]),
            text(&op["tenant"]),
            text(&op["key"]),
            format!("{} ({}ms)", text(&op["step"]), op["step_age_ms"]),
            text(&op["waits_on"]["what"]),
        ]
    });
    let titles = ["AGE", "LATE", "KIND", "TENANT", "KEY", "STEP", "WAITS ON"];
    format!("{}\n{} in flight", output::table(titles, rows), answer["in_flight"])
}
