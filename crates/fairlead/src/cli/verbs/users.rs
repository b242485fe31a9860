use std::process::ExitCode;

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Route, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::Table;
use crate::cli::terminal::{Paint, new_password};
use crate::output::{self, Output};

/// Who may log in: list, add, remove, password, roles
///
/// Examples:
///   fairlead users list
///   fairlead users add ann --role viewer --role shop-admin
///   pass show ann | fairlead users password ann
///   fairlead users roles ann viewer            from now on this role alone
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Every user with their roles
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Add a user; the password is asked for, or the first line of standard input
    Add {
        name: String,
        /// A role to give; repeat it, or separate them with commas
        #[arg(long, value_name = "ROLE", value_delimiter = ',')]
        role: Vec<String>,
        /// No password: such a user has API tokens only
        #[arg(long)]
        no_password: bool,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove a user; sessions and tokens of theirs end
    #[command(visible_alias = "rm")]
    Remove {
        name: String,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Set a password: asked for, or the first line of standard input
    Password {
        name: String,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Set the roles of a user; none takes all away
    Roles {
        name: String,
        #[arg(value_name = "ROLE")]
        roles: Vec<String>,
        #[command(flatten)]
        server: ServerFlags,
    },
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        Verb::List { output, server } => list(server, *output),
        Verb::Add { name, role, no_password, server } => {
            // Before anything is asked for: is there a server at all?
            let server = server.open()?;
            let mut body = json!({ "name": name, "roles": role });
            if !no_password {
                body["password"] = new_password(name)?.into();
            }
            server.ask::<Value>(&Method::POST, &Route::to(["users"]), &Body::Json(&body))?;
            said(&format!("user {name} added"))
        }
        Verb::Remove { name, server } => {
            let route = Route::to(["users", name]);
            server.open()?.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
            said(&format!("user {name} removed"))
        }
        Verb::Password { name, server } => {
            let server = server.open()?;
            let body = json!({ "password": new_password(name)? });
            let route = Route::to(["users", name, "password"]);
            server.ask::<Value>(&Method::PUT, &route, &Body::Json(&body))?;
            said(&format!("user {name} has a new password"))
        }
        Verb::Roles { name, roles, server } => {
            let body = json!({ "roles": roles });
            let route = Route::to(["users", name]);
            server.open()?.ask::<Value>(&Method::PATCH, &route, &Body::Json(&body))?;
            let has = if roles.is_empty() { "no roles".to_owned() } else { roles.join(", ") };
            said(&format!("user {name} has {has}"))
        }
    }
}

fn said(text: &str) -> Answer<ExitCode> {
    output::line(text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with it, for a person to mend.
pub(super) fn problems(of: &Value) -> String {
    let problems = of["problems"].as_array().into_iter().flatten();
    problems.filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
}

fn list(server: &ServerFlags, output: Output) -> Answer<ExitCode> {
    let answer: Value = server.open()?.get(&Route::to(["users"]))?;
    output.print(&answer, || {
        let mut table = Table::new(["NAME", "ROLES", "DISABLED", "PROBLEMS"]);
        for user in answer["users"].as_array().into_iter().flatten() {
            let problems = problems(user);
            let [name, roles, disabled] =
                ["name", "roles", "disabled"].map(|name| field(user, name));
            table.row([name, roles, disabled, problems]);
        }
        table.render(Paint::stdout())
    })?;
    Ok(ExitCode::SUCCESS)
}
