use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Route, Server, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::cli::verbs::users::problems;
use crate::output::{self, Failure, Format, NO, Output};

/// A role is a page; what is larger is the wrong file.
const LARGEST: u64 = 1 << 20;

/// What users may do: list, show, apply, remove
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
    /// Every role, with how much it allows and denies
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// One role, as YAML unless JSON is asked for
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
    Remove {
        name: String,
        #[command(flatten)]
        server: ServerFlags,
    },
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        Verb::List { output, server } => {
            let answer: Value = server.open()?.get(&Route::to(["roles"]))?;
            output.print(&answer, || table(&answer))?;
        }
        Verb::Show { name, output, server } => return show(&server.open()?, name, *output),
        Verb::Apply { filename, server } => {
            let (name, body) = parse(&read(filename)?)?;
            let route = Route::to(["roles", &name]);
            server.open()?.ask::<Value>(&Method::PUT, &route, &Body::Json(&body))?;
            output::line(&format!("role {name} applied"))?;
        }
        Verb::Remove { name, server } => {
            let route = Route::to(["roles", name]);
            server.open()?.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
            output::line(&format!("role {name} removed"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(answer: &Value) -> String {
    let mut table = Table::new(["NAME", "ALLOWS", "DENIES", "PROBLEMS"]);
    for role in answer["roles"].as_array().into_iter().flatten() {
        let rules = |name: &str| role[name].as_array().map_or(0, Vec::len).to_string();
        table.row([field(role, "name"), rules("allow"), rules("deny"), problems(role)]);
    }
    table.render(Paint::stdout())
}

fn show(server: &Server, name: &str, output: Output) -> Answer<ExitCode> {
    let answer: Value = server.get(&Route::to(["roles"]))?;
    let mut roles = answer["roles"].as_array().into_iter().flatten();
    let Some(role) = roles.find(|role| role["name"] == name) else {
        eprintln!("error: there is no role {name}\n  `fairlead roles list` shows what there is");
        return Ok(ExitCode::from(NO));
    };
    // What `apply` takes, and nothing else.
    let role = json!({ "name": role["name"], "allow": role["allow"], "deny": role["deny"] });
    match output.output {
        Format::Json => output::line(&output::json(&role)?)?,
        Format::Table | Format::Yaml => output::line(output::yaml(&role)?.trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(LARGEST).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(LARGEST).read_to_string(&mut text))
    };
    read.map_err(|e| Failure(format!("{} cannot be read: {e}", file.display())))?;
    Ok(text)
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
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_in_either_form() {
        let rule = "clusters: ['*'], namespaces: ['*'], resources: [pods], verbs: [get]";
        let plain = parse(&format!("name: viewer\nallow:\n- {{{rule}}}\n")).unwrap();
        let manifest = parse(&format!(
            "apiVersion: fairlead.dev/v1alpha1\nkind: AccessRole\nmetadata: {{name: viewer}}\nspec: {{allow: [{{{rule}}}], deny: []}}\n"
        ))
        .unwrap();
        assert_eq!(plain, manifest);
        assert_eq!(plain.0, "viewer");
        assert_eq!(plain.1["allow"][0]["resources"], json!(["pods"]));
        assert!(parse("allow: []").unwrap_err().to_string().contains("no name"));
        assert!(parse("kind: Pod").unwrap_err().to_string().contains("found a Pod"));
        assert!(parse("a: [").is_err());
    }
}
