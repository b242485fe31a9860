use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, ListFlags, NamedFlags, Route, ServerFlags};
use crate::cli::listing::{field, joined};
use crate::cli::terminal::{confirm, new_password};
use crate::output;

/// Manage who may log in: list, add, remove, password, roles
///
/// Examples:
///   fairlead users list
///   fairlead users add ann --role viewer --role shop-admin
///   pass show ann | fairlead users password ann --revoke-tokens
///   fairlead users roles ann viewer            from now on this role alone
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List every user with their roles
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Add a user; the password is asked for, or is the first line of standard input
    Add {
        name: String,
        /// A role to give; repeat it, or separate them with commas
        #[arg(long, value_name = "ROLE", value_delimiter = ',')]
        role: Vec<String>,
        /// Set no password: such a user has API tokens only
        #[arg(long)]
        no_password: bool,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove a user; their sessions and tokens end
    #[command(visible_alias = "rm")]
    Remove(NamedFlags),
    /// Set a password: it is asked for, or is the first line of standard input
    ///
    /// It ends the user's sessions. Tokens stay as they are unless they are revoked as well, as they should
    /// be after a theft: a terminal is asked, a script says --revoke-tokens or --keep-tokens (the default).
    #[command(verbatim_doc_comment)]
    Password {
        name: String,
        /// Revoke all tokens of the user
        #[arg(long, conflicts_with = "keep_tokens")]
        revoke_tokens: bool,
        /// Leave the user's tokens as they are, and ask nothing
        #[arg(long)]
        keep_tokens: bool,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Set the roles of a user; without any, all are taken away
    Roles {
        name: String,
        #[arg(value_name = "ROLE")]
        roles: Vec<String>,
        #[command(flatten)]
        server: ServerFlags,
    },
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let done = match &args.verb {
        Verb::List(flags) => {
            let answer: Value = flags.server.open()?.get(&Route::to(["users"])).await?;
            let titles = ["NAME", "ROLES", "DISABLED", "PROBLEMS"];
            flags.output.print_list(&answer, "users", &titles, |user| {
                let [name, roles, disabled] =
                    ["name", "roles", "disabled"].map(|name| field(user, name));
                [name, roles, disabled, joined(user, "problems", "; ")]
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Add { name, role, no_password, server } => {
            // Before anything is asked for: is there a server at all?
            let server = server.open()?;
            let mut body = json!({ "name": name, "roles": role });
            if !no_password {
                body["password"] = new_password(name)?.into();
            }
            server.post::<Value>(&Route::to(["users"]), Body::Json(&body)).await?;
            format!("user {name} added")
        }
        Verb::Remove(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["users", name])).await?;
            format!("user {name} removed")
        }
        Verb::Password { name, revoke_tokens, keep_tokens, server } => {
            let server = server.open()?;
            let password = new_password(name)?;
            let asked = !revoke_tokens && !keep_tokens && std::io::stdin().is_terminal();
            let question = format!("Revoke the tokens of {name} as well? [y/N] ");
            let revoke = *revoke_tokens || (asked && confirm(&question)?);
            let body = json!({ "password": password, "revokeTokens": revoke });
            let set = server.put(&Route::to(["users", name, "password"]), &body).await?;
            let [revoked, kept] = ["tokensRevoked", "tokensKept"].map(|key| field(&set, key));
            match kept.as_str() {
                "0" => format!("user {name} has a new password; {revoked} tokens revoked"),
                _ => format!(
                    "user {name} has a new password, and {kept} tokens as before (--revoke-tokens ends them)"
                ),
            }
        }
        Verb::Roles { name, roles, server } => {
            let body = json!({ "roles": roles });
            server.open()?.patch(&Route::to(["users", name]), &body).await?;
            let has = if roles.is_empty() { "no roles".to_owned() } else { roles.join(", ") };
            format!("user {name} has {has}")
        }
    };
    Ok(output::done(&done)?)
}
