use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::{ClientResult, ListFlags, NamedFlags, Route, Server, ServerFlags};
use crate::cli::files;
use crate::cli::listing::{field, items, joined};
use crate::output::{self, Failure, Format, NO, Output};

/// A role is a page; what is larger is the wrong file.
const LARGEST: u64 = 1 << 20;

/// Manage what users may do: list, show, apply, remove
///
/// A role allows and denies verbs on resources, in namespaces, of clusters; a denial wins. Each
/// word is a glob that matches as a whole.
///
/// Examples:
///   fairlead roles list
///   fairlead roles show viewer > viewer.yaml
///   fairlead roles apply -f viewer.yaml
///
/// A role as `show` prints and `apply` reads it:
///   name: shop-admin
///   allow: [{clusters: ["prod-*"], namespaces: [shop], resources: ["*"], verbs: ["*"]}]
///   deny: [{clusters: ["*"], namespaces: ["*"], resources: [secrets], verbs: ["*"]}]
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List every role, with how many rules allow and deny
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Print one role, as YAML unless JSON is asked for
    Show {
        name: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Make a role what a file says: the form that `show` prints, or an AccessRole manifest
    Apply {
        /// The file, or `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove a role that nobody has
    #[command(visible_alias = "rm")]
    Remove(NamedFlags),
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let done = match &args.verb {
        Verb::List(flags) => {
            let answer: Value = flags.server.open()?.get(&Route::to(["roles"])).await?;
            let titles = ["NAME", "ALLOWS", "DENIES", "PROBLEMS"];
            flags.output.print_list(&answer, "roles", &titles, |role| {
                let [allows, denies] =
                    ["allow", "deny"].map(|name| items(role, name).len().to_string());
                [field(role, "name"), allows, denies, joined(role, "problems", "; ")]
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Show { name, output, server } => {
            return show(&server.open()?, name, *output).await;
        }
        Verb::Apply { filename, server } => {
            let (name, body) = parse(&files::read(filename, LARGEST)?)?;
            server.open()?.put(&Route::to(["roles", &name]), &body).await?;
            format!("role {name} applied")
        }
        Verb::Remove(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["roles", name])).await?;
            format!("role {name} removed")
        }
    };
    Ok(output::done(&done)?)
}

async fn show(server: &Server, name: &str, output: Output) -> ClientResult<ExitCode> {
    let answer: Value = server.get(&Route::to(["roles"])).await?;
    let Some(role) = items(&answer, "roles").iter().find(|role| role["name"] == name) else {
        eprintln!("error: there is no role {name}\n  `fairlead roles list` shows what there is");
        return Ok(ExitCode::from(NO));
    };
    // What `apply` takes, and nothing else.
    let role = json!({ "name": role["name"], "allow": role["allow"], "deny": role["deny"] });
    let text = match output.output {
        Format::Json => output::json(&role)?,
        Format::Table | Format::Yaml => output::yaml(&role)?,
    };
    Ok(output::done(text.trim_end())?)
}

/// The name and the rules, from either form.
fn parse(text: &str) -> Result<(String, Value), Failure> {
    let role: Value = serde_saphyr::from_str(text)
        .map_err(|e| Failure(format!("the role is not valid YAML: {e}")))?;
    let (name, rules) = match role["kind"].as_str() {
        Some("AccessRole") => (&role["metadata"]["name"], &role["spec"]),
        Some(kind) => return Err(Failure(format!("expected a role, found a {kind}"))),
        None => (&role["name"], &role),
    };
    let name = name.as_str().filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure("the role has no name; `fairlead roles apply --help` shows one".to_owned())
    })?;
    let list = |key: &str| match &rules[key] {
        Value::Null => json!([]),
        rules => rules.clone(),
    };
    Ok((name.to_owned(), json!({ "allow": list("allow"), "deny": list("deny") })))
}

#[cfg(test)]
mod tests;
