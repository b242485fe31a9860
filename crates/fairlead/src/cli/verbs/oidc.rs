use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, ListFlags, NamedFlags, Route, Server, ServerFlags};
use crate::cli::files;
use crate::cli::listing::{field, items, joined};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output, yes_or_no};

/// A client's secret is a line.
const LARGEST_SECRET: u64 = 4096;

/// Manage logins with OpenID providers: providers, mappings, apply, map, unmap, remove, test
///
/// A provider says who a user is and in which groups; mappings give groups their roles. Who is in no
/// mapped group may log in and see nothing. Nobody maps to more than they have themselves.
///
/// Examples:
///   fairlead oidc apply -f corp.yaml --client-secret-file corp.secret
///   fairlead oidc test corp             what is wrong with it, step by step?
///   fairlead oidc map devs --provider corp --value devs --role viewer
///   fairlead oidc mappings
///   fairlead oidc unmap devs
///
/// A provider as `apply` reads it:
///   apiVersion: fairlead.dev/v1alpha1
///   kind: IdentityProvider
///   metadata: {name: corp}
///   spec: {issuer: "https://id.example", clientId: fairlead, groupsClaim: groups}
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List identity providers; their secrets are never shown
    Providers(ListFlags),
    /// List which groups have which roles
    Mappings(ListFlags),
    /// Make providers and mappings what a file says: IdentityProvider and RoleMapping manifests
    Apply {
        /// The file, or `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,
        /// File with the secret of the provider's client, to be kept by the server
        #[arg(long, value_name = "FILE")]
        client_secret_file: Option<PathBuf>,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Give a group of a provider roles
    Map {
        /// Name of the mapping
        name: String,
        #[arg(long)]
        provider: String,
        /// The claim that is looked at [default: the provider's groups]
        #[arg(long)]
        claim: Option<String>,
        /// A group; may be repeated: one of them is enough
        #[arg(long = "value", required = true)]
        values: Vec<String>,
        /// A role; may be repeated
        #[arg(long = "role", required = true)]
        roles: Vec<String>,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove a mapping
    Unmap(NamedFlags),
    /// Remove a provider; its users are logged out
    #[command(visible_alias = "rm")]
    Remove(NamedFlags),
    /// Try a provider step by step; exit 1 when something is wrong
    Test {
        name: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let done = match &args.verb {
        Verb::Providers(flags) => {
            let route = Route::to(["oidc", "providers"]);
            let answer: Value = flags.server.open()?.get(&route).await?;
            let titles = ["NAME", "ISSUER", "CLIENT", "SECRET", "USER CLAIM", "GROUPS CLAIM"];
            flags.output.print_list(&answer, "providers", &titles, |provider| {
                let [name, issuer, client, user, groups] =
                    ["name", "issuer", "clientId", "userClaim", "groupsClaim"]
                        .map(|name| field(provider, name));
                let secret = field(&provider["clientSecret"], "name");
                [name, issuer, client, secret, user, groups]
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Mappings(flags) => {
            let route = Route::to(["oidc", "mappings"]);
            let answer: Value = flags.server.open()?.get(&route).await?;
            let titles = ["NAME", "PROVIDER", "CLAIM", "VALUES", "ROLES", "PROBLEMS"];
            flags.output.print_list(&answer, "mappings", &titles, |mapping| {
                let [name, provider, claim] =
                    ["name", "provider", "claim"].map(|name| field(mapping, name));
                let list = |name| joined(mapping, name, ", ");
                [
                    name,
                    provider,
                    claim,
                    list("values"),
                    list("roles"),
                    joined(mapping, "problems", "; "),
                ]
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Apply { filename, client_secret_file, server } => {
            let secret = match client_secret_file {
                Some(file) => Some(files::read(file, LARGEST_SECRET)?.trim().to_owned()),
                None => None,
            };
            apply(&server.open()?, &files::documents(filename)?, secret.as_deref()).await?
        }
        Verb::Map { name, provider, claim, values, roles, server } => {
            let mut body = json!({ "provider": provider, "values": values, "roles": roles });
            if let Some(claim) = claim {
                body["claim"] = claim.as_str().into();
            }
            server.open()?.put(&Route::to(["oidc", "mappings", name]), &body).await?;
            format!("mapping {name} applied")
        }
        Verb::Unmap(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["oidc", "mappings", name])).await?;
            format!("mapping {name} removed")
        }
        Verb::Remove(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["oidc", "providers", name])).await?;
            format!("identity provider {name} removed")
        }
        Verb::Test { name, output, server } => return test(&server.open()?, name, *output).await,
    };
    Ok(output::done(&done)?)
}

async fn apply(server: &Server, documents: &[Value], secret: Option<&str>) -> ClientResult<String> {
    let named = |document: &Value| {
        let name = document["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        name.map(str::to_owned).ok_or_else(|| Failure("an object has no name".to_owned()))
    };
    let providers = documents.iter().filter(|it| it["kind"] == "IdentityProvider").count();
    if secret.is_some() && providers != 1 {
        let why = format!("--client-secret-file goes with one provider; the file has {providers}");
        return Err(Failure(why).into());
    }
    let mut done = Vec::new();
    for document in documents {
        let name = named(document)?;
        match document["kind"].as_str() {
            Some("IdentityProvider") => {
                let mut body = json!({ "provider": document["spec"] });
                if let Some(secret) = secret {
                    body["secret"] = secret.into();
                }
                server.put(&Route::to(["oidc", "providers", &name]), &body).await?;
                done.push(format!("identity provider {name} applied"));
            }
            Some("RoleMapping") => {
                server.put(&Route::to(["oidc", "mappings", &name]), &document["spec"]).await?;
                done.push(format!("mapping {name} applied"));
            }
            kind => {
                let kind = kind.unwrap_or("nothing of a kind");
                return Err(Failure(format!(
                    "expected an IdentityProvider or a RoleMapping, found {kind}"
                ))
                .into());
            }
        }
    }
    Ok(done.join("\n"))
}

async fn test(server: &Server, name: &str, output: Output) -> ClientResult<ExitCode> {
    let route = Route::to(["oidc", "providers", name, "test"]);
    let answer: Value = server.post(&route, Body::None).await?;
    output.print(&answer, || {
        let rows = items(&answer, "steps").iter().map(|step| {
            let outcome = match step["ok"] == true {
                true => Cell::coloured("ok", Colour::Green),
                false => Cell::coloured("failed", Colour::Red),
            };
            [field(step, "step").into(), outcome, field(step, "says").into()]
        });
        output::table(["STEP", "OUTCOME", "WHAT"], rows)
    })?;
    Ok(yes_or_no(answer["ok"] == true))
}
