use std::process::ExitCode;

use crate::config::{ConfigFlags, Problem, Resolved, Sources};
use crate::output::{self, Failure, Output, Verdict, yes_or_no};

/// Check the configuration, or show it with where each value came from
///
/// Settings come from flags, then the environment (FAIRLEAD_ADMIN_LISTEN for
/// admin.listen), then one YAML file, then defaults.
///
/// Examples:
///   fairlead config show
///   FAIRLEAD_LOG_LEVEL=debug fairlead config show -o json
///   fairlead config check --config fairlead.yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Say whether the configuration is valid, with every problem at once; exit 1 if it is not
    Check(What),
    /// Print every setting, its value and where it came from
    Show(What),
}

#[derive(Debug, clap::Args)]
struct What {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Check(what) => check(what),
        Verb::Show(what) => show(what),
    }
}

/// The configuration a daemon starts with, or one failure that lists every problem.
pub(crate) fn load(flags: &ConfigFlags) -> Result<Resolved, Failure> {
    load_with(flags, |_| ())
}

/// The same for a verb whose defaults differ.
pub(crate) fn load_with(
    flags: &ConfigFlags,
    imply: impl FnOnce(&mut Resolved),
) -> Result<Resolved, Failure> {
    let resolved = Sources::of_this_process(flags).resolve_with(imply);
    resolved.map_err(|problems| Failure(list(&problems)))
}

fn list(problems: &[Problem]) -> String {
    let lines: String = problems.iter().map(|p| format!("\n  {p}")).collect();
    let count = problems.len();
    format!("the configuration has {count} problem{}:{lines}", if count == 1 { "" } else { "s" })
}

fn check(what: &What) -> Verdict {
    let problems = Sources::of_this_process(&what.flags).resolve().err().unwrap_or_default();
    let valid = problems.is_empty();
    let answer = serde_json::json!({ "valid": valid, "problems": problems });
    what.output.print(&answer, || {
        if valid { "the configuration is valid".to_owned() } else { list(&problems) }
    })?;
    Ok(yes_or_no(valid))
}

fn show(what: &What) -> Verdict {
    let rows = load(&what.flags)?.rows();
    what.output.print(&rows, || {
        let cells = rows.iter().map(|r| [r.key, &r.value, &r.from]);
        output::table(["SETTING", "VALUE", "FROM"], cells)
    })?;
    Ok(ExitCode::SUCCESS)
}
