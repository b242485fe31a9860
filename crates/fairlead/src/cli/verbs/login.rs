use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::client::{
    Body, ClientError, ClientResult, LoginFile, Route, SavedLogin, ServerFlags, Tokens, decode,
};
use crate::cli::listing::field;
use crate::cli::terminal::password;
use crate::output::{self, Failure};

/// Log in to a server, with an identity provider or with a password
///
/// With an identity provider, a code is shown to be entered in a browser, on any machine. What is kept of
/// the login (one file a server, for its owner only) lasts minutes and is renewed by every command;
/// after a week without use, or a month, one logs in again. Then name the server with --server or
/// FAIRLEAD_SERVER.
///
/// Examples:
///   fairlead login https://fairlead.example:7680
///   fairlead login https://fairlead.example:7680 --provider corp
///   fairlead login https://fairlead.example:7680 --user ann
///   fairlead logout https://fairlead.example:7680
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct LoginArgs {
    /// Address of Fairlead's API
    #[arg(env = "FAIRLEAD_SERVER")]
    server: String,
    /// The identity provider, if there are several
    #[arg(long, conflicts_with = "user")]
    provider: Option<String>,
    /// A user of Fairlead's own; the password is asked for, or is the first line of standard input
    #[arg(long)]
    user: Option<String>,
    /// Certificate authority (PEM) of the server [default: the public ones]
    #[arg(long, env = "FAIRLEAD_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// Log out of a server: what was kept of the login is removed, and of no use to anybody
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// Address of Fairlead's API
    #[arg(env = "FAIRLEAD_SERVER")]
    server: String,
}

pub(crate) async fn login(args: &LoginArgs) -> ClientResult<ExitCode> {
    let ca_file = match &args.ca_file {
        Some(file) => Some(std::path::absolute(file).map_err(Failure::from)?),
        None => None,
    };
    let server = ServerFlags::of(&args.server, ca_file.clone()).open_stranger()?;
    let file = LoginFile::of(server.address()).ok_or_else(no_home)?;
    let tokens: Tokens = match &args.user {
        Some(user) => {
            let body = json!({ "user": user, "password": password(user)? });
            server.post(&Route::to(["auth", "cli", "login"]), Body::Json(&body)).await?
        }
        None => {
            let body = match &args.provider {
                Some(provider) => json!({ "provider": provider }),
                None => json!({}),
            };
            let begun: Value =
                server.post(&Route::to(["auth", "device"]), Body::Json(&body)).await?;
            let place = begun["verificationUriComplete"].as_str();
            let place = place.or(begun["verificationUri"].as_str()).unwrap_or_default();
            eprintln!("open {place}\nand enter the code {}", field(&begun, "userCode"));
            let seconds = |name: &str| begun[name].as_u64().unwrap_or(5);
            let every = Duration::from_secs(seconds("intervalSeconds").clamp(1, 60));
            let left = Duration::from_secs(seconds("expiresInSeconds"));
            let until = tokio::time::Instant::now() + left;
            let asked = json!({ "handle": begun["handle"] });
            let server = ServerFlags::of(&args.server, ca_file.clone())
                .open_stranger()?
                .showing(&field(&begun, "handle"));
            loop {
                tokio::time::sleep(every).await;
                let route = Route::to(["auth", "device", "poll"]);
                let told: Value = match server.post(&route, Body::Json(&asked)).await {
                    // The provider was away for a moment, or has enough to do.
                    Err(ClientError::Refused(problem)) if problem.is_temporary() => continue,
                    other => other?,
                };
                if told["pending"] == false {
                    break decode(&told)?;
                }
                if tokio::time::Instant::now() >= until {
                    return Err(Failure("the code was not entered in time".to_owned()).into());
                }
            }
        }
    };
    let user = tokens.user.clone();
    file.write(&SavedLogin::new(server.address(), tokens, ca_file))?;
    Ok(output::done(&format!("logged in to {} as {user}", server.address()))?)
}

pub(crate) async fn logout(args: &LogoutArgs) -> ClientResult<ExitCode> {
    let server = ServerFlags::of(&args.server, None).open_stranger()?;
    let file = LoginFile::of(server.address()).ok_or_else(no_home)?;
    let _turn = file.lock().await.ok();
    let login = file.read(server.address());
    // First here: whatever the server says, nothing is left.
    file.remove()?;
    let Some(login) = login? else {
        return Ok(output::done(&format!("there was no login to {}", server.address()))?);
    };
    let server = ServerFlags::of(&args.server, login.ca_file).open_stranger()?;
    let server = server.showing(&login.refresh);
    let body = json!({ "refresh": login.refresh });
    let route = Route::to(["auth", "cli", "logout"]);
    if let Err(error) = server.post::<Value>(&route, Body::Json(&body)).await {
        return Err(Failure(format!(
            "the login is removed here, but {} was not told ({error}); it ends there by itself within \
             a week",
            server.address()
        ))
        .into());
    }
    Ok(output::done(&format!("logged out of {}", server.address()))?)
}

fn no_home() -> Failure {
    Failure("there is no place to keep a login: set HOME or XDG_CONFIG_HOME".to_owned())
}
