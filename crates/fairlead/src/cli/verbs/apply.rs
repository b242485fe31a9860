use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::cli::client::{Access, Body, ClientResult, Problem, Route, Target, across};
use crate::cli::files;
use crate::cli::table::printable;
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Failure, Format, NO, Output};

/// The size of what the server takes at once.
const LARGEST: u64 = 4 << 20;

/// Apply manifests to one cluster, to several, or to all (server-side apply)
///
/// Examples:
///   fairlead apply -f web.yaml -n shop
///   fairlead apply -f manifests/ --dry-run --diff   what would change?
///   kustomize build . | fairlead apply -f - --cluster prod-eu,prod-us
///   fairlead apply -f web.yaml --force              take over fields of others
///
/// Exit 1 when an object was refused; the others are applied.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A file, a directory (its .yaml, .yml and .json files), or `-` for standard input
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,
    /// Let the server check everything and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Take over fields that somebody else manages
    #[arg(long)]
    force: bool,
    /// Show what changes (with --dry-run: what would change)
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Applied {
    results: Vec<ApplyOutcome>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ApplyOutcome {
    cluster: String,
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl ApplyOutcome {
    fn object(&self) -> String {
        let kind = self.kind.to_lowercase();
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{}", self.name),
            None => format!("{kind}/{}", self.name),
        }
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let manifests = read(&args.filename)?;
    let server = args.target.open()?;
    let names = args.target.names(&server, Access::Write).await?;
    let paint = Paint::stdout();
    let mut all = Applied::default();
    let code = across::each(
        &names,
        async |name: &str| {
            let route = Route::to(["clusters", name, "apply"])
                .with("namespace", args.target.namespace())
                .when("dryRun", args.dry_run)
                .when("force", args.force);
            server.post::<Applied>(&route, Body::Yaml(&manifests)).await
        },
        |name, applied| {
            let prefix = across::prefix(&names, name);
            // Each once, as kubectl does: twenty objects of one old version are one warning.
            let mut warnings = Vec::new();
            for warning in applied.results.iter().flat_map(|result| &result.warnings) {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            output::warn(&prefix, &warnings);
            let failed = applied.results.iter().any(|result| result.problem.is_some());
            if args.output.output == Format::Table {
                for result in &applied.results {
                    print(args, &prefix, result, paint)?;
                }
            }
            all.results.extend(applied.results);
            Ok(if failed { NO } else { 0 })
        },
    )
    .await?;
    if args.output.output != Format::Table {
        args.output.print(&all, String::new)?;
    }
    Ok(code)
}

fn print(args: &Args, prefix: &str, result: &ApplyOutcome, paint: Paint) -> Result<(), Failure> {
    let object = printable(&result.object());
    if let Some(problem) = &result.problem {
        eprintln!("error: {prefix}{object}: {problem}");
        return Ok(());
    }
    let dry = if args.dry_run { " (dry run)" } else { "" };
    output::line(&format!("{prefix}{object} {}{dry}", result.outcome))?;
    match &result.diff {
        Some(diff) if args.diff && !diff.is_empty() => {
            output::line(coloured(diff, paint).trim_end())
        }
        _ => Ok(()),
    }
}

fn coloured(diff: &str, paint: Paint) -> String {
    let mut text = String::new();
    for line in diff.lines() {
        let line = printable(line);
        text.push_str(&match line.as_bytes().first() {
            Some(b'+') => paint.paint(Colour::Green, line),
            Some(b'-') => paint.paint(Colour::Red, line),
            Some(b'@') => paint.paint(Colour::Cyan, line),
            _ => line,
        });
        text.push('\n');
    }
    text
}

/// All documents as one stream of YAML; JSON is YAML too.
fn read(sources: &[PathBuf]) -> Result<String, Failure> {
    let mut all = String::new();
    for source in sources {
        let files = if source.is_dir() { manifests_in(source)? } else { vec![source.clone()] };
        for file in files {
            if !all.is_empty() {
                all.push_str(if all.ends_with('\n') { "---\n" } else { "\n---\n" });
            }
            all.push_str(&files::read(&file, LARGEST)?);
            if all.len() as u64 > LARGEST {
                return Err(Failure(format!(
                    "with {} it is more than the {} MiB that are applied at once; apply it in parts",
                    file.display(),
                    LARGEST >> 20
                )));
            }
        }
    }
    Ok(all)
}

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |e: std::io::Error| Failure(format!("{} cannot be read: {e}", directory.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if manifest && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Failure(format!(
            "{} has no .yaml, .yml or .json file (directories below it are not read)",
            directory.display()
        )));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
