use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Route, Server, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::{Table, moment};
use crate::cli::terminal::Paint;
use crate::cli::values;
use crate::output::{self, Failure, Format, Output};

/// Tokens for programs: list, create, revoke
///
/// Examples:
///   (umask 077; fairlead tokens create --description "nightly import" > import.token)
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
    /// Every token, whose it is and when it expires
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Create a token and print it, this once; its name is on standard error
    Create {
        /// Whose it is [default: yours]
        #[arg(long)]
        user: Option<String>,
        /// When it expires: in so long (12h, 90d), or `never`
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
    Revoke {
        name: String,
        #[command(flatten)]
        server: ServerFlags,
    },
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

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        Verb::List { output, server } => list(&server.open()?, *output),
        Verb::Create { user, expires, description, output, server } => {
            let mut body = json!({});
            if let Some(user) = user {
                body["user"] = user.as_str().into();
            }
            if let Lifetime::For(time) = expires {
                body["expires"] = moment(&(Timestamp::now() + *time).to_string()).into();
            }
            if let Some(description) = description {
                body["description"] = description.as_str().into();
            }
            create(&server.open()?, &body, *output)
        }
        Verb::Revoke { name, server } => {
            let route = Route::to(["tokens", name]);
            server.open()?.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
            output::line(&format!("token {name} revoked"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(server: &Server, output: Output) -> Answer<ExitCode> {
    let answer: Value = server.get(&Route::to(["tokens"]))?;
    output.print(&answer, || {
        let mut table = Table::new(["NAME", "USER", "EXPIRES", "DESCRIPTION", "PROBLEM"]);
        for token in answer["tokens"].as_array().into_iter().flatten() {
            let expired = token["expired"] == true;
            let problem =
                if expired { "expired" } else { token["problem"].as_str().unwrap_or_default() };
            let [name, user, expires, description] =
                ["name", "user", "expires", "description"].map(|name| field(token, name));
            table.row([name, user, moment(&expires), description, problem.to_owned()]);
        }
        table.render(Paint::stdout())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn create(server: &Server, body: &Value, output: Output) -> Answer<ExitCode> {
    let made: Value = server.ask(&Method::POST, &Route::to(["tokens"]), &Body::Json(body))?;
    let token = made["token"].as_str().ok_or_else(|| {
        Failure("the server made the token but did not tell it; revoke it".to_owned())
    })?;
    // Stdout has the token alone, so that it can go into a file.
    output.print(&made, || token.to_owned())?;
    if output.output == Format::Table {
        eprintln!("token {} is shown this once; only its hash is kept", field(&made, "name"));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_time_or_never() {
        let days = |days: u64| Ok(Lifetime::For(Duration::from_secs(days * 86_400)));
        assert_eq!(lifetime("90d"), days(90));
        assert_eq!(lifetime("24h"), days(1));
        assert_eq!(lifetime("never"), Ok(Lifetime::Never));
        for wrong in ["", "90", "0d", "5000d", "d", "-1d", "99999999999999999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
