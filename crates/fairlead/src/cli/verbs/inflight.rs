use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::output::{self, Failure, NO, Output, Verdict};

/// Show what a running Fairlead is doing right now, oldest first
///
/// Asks the admin endpoint of this machine's configuration; exit 1 when something is late.
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
    let admin = load(&args.flags)?.config.admin;
    // With a certificate of its own making the port is plain on loopback, where this asks.
    let scheme = if admin.tls_cert.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}/debug/inflight", admin.listen.local());
    let token = admin.token_file.as_deref().map(read_token).transpose()?;
    let answer = ask(&url, token.as_deref(), args)?;
    let operations = answer["operations"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&answer, || table(&answer, operations))?;
    let late = operations.iter().any(|op| op["late"] == true);
    Ok(if late { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let token = std::fs::read_to_string(file);
    let token = token.map_err(|e| Failure(format!("{}: cannot be read: {e}", file.display())))?;
    Ok(token.trim().to_owned())
}

fn ask(url: &str, token: Option<&str>, args: &Args) -> Result<serde_json::Value, Failure> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(url).query("format", "json").query("limit", args.limit.to_string());
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in [("kind", &args.kind), ("tenant", &args.tenant)] {
        if let Some(value) = value {
            request = request.query(name, value);
        }
    }
    let mut answer = request.call().map_err(|e| {
        Failure(format!(
            "{url} does not answer: {e}; is `fairlead up` running, and there? (--admin-listen)"
        ))
    })?;
    let body = answer.body_mut().read_to_string().map_err(|e| Failure(format!("{url}: {e}")))?;
    if answer.status() != 200 {
        return Err(Failure(format!("{url} answers {}: {}", answer.status(), body.trim())));
    }
    serde_json::from_str(&body).map_err(|e| Failure(format!("{url} answers no JSON: {e}")))
}

fn table(answer: &serde_json::Value, operations: &[serde_json::Value]) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    let rows: Vec<[String; 7]> = operations
        .iter()
        .map(|op| {
            [
                format!("{}ms", op["age_ms"]),
                if op["late"] == true { "late".to_owned() } else { String::new() },
                text(&op["kind"]),
                text(&op["tenant"]),
                text(&op["key"]),
                format!("{} ({}ms)", text(&op["step"]), op["step_age_ms"]),
                text(&op["waits_on"]["what"]),
            ]
        })
        .collect();
    let titles = ["AGE", "LATE", "KIND", "TENANT", "KEY", "STEP", "WAITS ON"];
    format!("{}\n{} in flight", output::table(titles, &rows), answer["in_flight"])
}
