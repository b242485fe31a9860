use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, ListFlags, NamedFlags, Route, Server, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::moment;
use crate::output::{self, Failure, Format, Output};
use crate::values;

/// Manage tokens for programs: list, create, revoke
///
/// Examples:
///   (umask 077; fairlead tokens create --description import > import.token)
///   fairlead get pods --token-file import.token
///   fairlead tokens list
///   fairlead tokens revoke NAME
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List every token with its user and when it expires
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Create a token and print it, this once; its name is on standard error
    Create {
        /// The user whose token it is [default: you]
        #[arg(long)]
        user: Option<String>,
        /// How long it is valid, such as 12h or 90d, or `never` for no end
        #[arg(long, value_name = "TIME", default_value = "90d", value_parser = lifetime)]
        expires: Lifetime,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Revoke a token, at once
    Revoke(NamedFlags),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    Never,
    For(Duration),
}

fn lifetime(text: &str) -> Result<Lifetime, String> {
    if text == "never" {
        return Ok(Lifetime::Never);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let time = match days {
        Some(days) => days.checked_mul(86_400).map(Duration::from_secs),
        None => values::duration(text),
    };
    // Ten years is as good as never, and then that should be said.
    time.filter(|time| (1..=10 * 366 * 86_400).contains(&time.as_secs()))
        .map(Lifetime::For)
        .ok_or_else(|| "expected a time up to ten years, such as 12h or 90d, or never".to_owned())
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        Verb::List(flags) => {
            let answer: Value = flags.server.open()?.get(&Route::to(["tokens"])).await?;
            let titles = ["NAME", "USER", "EXPIRES", "DESCRIPTION", "PROBLEM"];
            flags.output.print_list(&answer, "tokens", &titles, row)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Create { user, expires, description, output, server } => {
            let mut body = json!({});
            if let Some(user) = user {
                body["user"] = user.as_str().into();
            }
            body["expires"] = match expires {
                Lifetime::For(time) => moment(&(Timestamp::now() + *time).to_string()).into(),
                Lifetime::Never => "never".into(),
            };
            if let Some(description) = description {
                body["description"] = description.as_str().into();
            }
            let made = create(&server.open()?, &Route::to(["tokens"]), &body, *output).await?;
            if output.output == Format::Table {
                let [name, expires] = ["name", "expires"].map(|key| field(&made, key));
                let until = match expires.as_str() {
                    "never" => "never expires".to_owned(),
                    at => format!("expires {}", moment(at)),
                };
                eprintln!("token {name} is shown this once, and {until}; only its hash is kept");
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Revoke(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["tokens", name])).await?;
            Ok(output::done(&format!("token {name} revoked"))?)
        }
    }
}

fn row(token: &Value) -> [String; 5] {
    let problem = match token["expired"] == true {
        true => "expired",
        false => token["problem"].as_str().unwrap_or_default(),
    };
    let [name, user, expires, description] =
        ["name", "user", "expires", "description"].map(|name| field(token, name));
    let expires = if expires == "-" { "never".to_owned() } else { moment(&expires) };
    [name, user, expires, description, problem.to_owned()]
}

/// Has the server make a token, and prints it alone on stdout, so that it can go into a file.
pub(super) async fn create(
    server: &Server,
    route: &Route,
    body: &Value,
    output: Output,
) -> ClientResult<Value> {
    let made: Value = server.post(route, Body::Json(body)).await?;
    let token = made["token"].as_str().ok_or_else(|| {
        Failure("the server made the token but did not send it; revoke it".to_owned())
    })?;
    output.print(&made, || token.to_owned())?;
    Ok(made)
}

#[cfg(test)]
mod tests;
