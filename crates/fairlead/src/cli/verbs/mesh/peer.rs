//! Machines outside of clusters: their keys are made here, and only the public halves are sent.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;

use ::wireguard::PrivateKey;
use objects::kinds::ExternalPeer;
use qrcode::QrCode;
use qrcode::render::unicode;
use serde_json::{Value, json};

use super::live::named;
use crate::cli::client::{Body, ClientResult, Route, ServerFlags, decode};
use crate::cli::listing::items;
use crate::output::{self, Failure, Output};

/// Machines outside of clusters that reach all of them: a laptop, an office
///
/// Examples:
///   fairlead mesh peer add laptop --mesh prod > prod.conf && sudo wg-quick up ./prod.conf
///   fairlead mesh peer add phone --mesh prod --qr        scan it with the app of WireGuard
///   fairlead mesh peer list
///   fairlead mesh peer revoke laptop --mesh prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    Add(Add),
    List(List),
    Revoke(Revoke),
}

/// Let a machine in, and print its configuration for wg-quick
///
/// The key is made here. Its private half is in what is printed and nowhere else: if it is lost, make the
/// configuration anew with --replace. The mesh needs `externalNetworks` in its spec, from which the
/// machine gets its addresses.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Add {
    /// The machine's name: letters, digits and `-`
    name: String,
    /// NAME, or NAMESPACE/NAME
    #[arg(long)]
    mesh: String,
    /// A network behind the machine that clusters are to reach; may be given again
    #[arg(long = "network", value_name = "CIDR")]
    networks: Vec<String>,
    /// A resolver that the machine is to ask
    #[arg(long, value_name = "ADDRESS")]
    dns: Option<std::net::IpAddr>,
    /// Give a machine of this name a new key
    #[arg(long)]
    replace: bool,
    /// Show the configuration as a QR code, too, on standard error; this is so at a terminal anyway
    #[arg(long)]
    qr: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// List the machines of all meshes
#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// Let a machine in no longer, anywhere
#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// The machine's name
    name: String,
    /// NAME, or NAMESPACE/NAME
    #[arg(long)]
    mesh: String,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) async fn add(args: &Add) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh).await?;
    let of = |last: &str| Route::to(["meshes", &mesh.namespace, &mesh.name, last]);
    // What the machine is to reach is asked for first: without it nothing is written.
    let tunnels: Value = server.get(&of("tunnels")).await?;
    let gates = gates(&tunnels);
    if gates.is_empty() {
        return Err(Failure(format!(
            "no node of mesh {}/{} has an endpoint that a machine outside could reach; give one an \
             external address, or the annotation fairlead.dev/wireguard-endpoint=HOST:PORT",
            mesh.namespace, mesh.name
        ))
        .into());
    }
    let key = PrivateKey::generate().map_err(|e| Failure(format!("no key can be made: {e}")))?;
    let body = json!({
        "name": args.name, "publicKey": key.public().to_string(),
        "networks": args.networks, "replace": args.replace,
    });
    let added: Value = server.post(&of("peers"), Body::Json(&body)).await?;
    let peer: ExternalPeer = decode(&added["peer"])?;
    let title = format!("{} in mesh {}/{}", peer.name, mesh.namespace, mesh.name);
    let configuration = configuration(&title, &key, &peer, args.dns, &gates);
    let value = json!({"peer": peer, "configuration": configuration});
    args.output.print(&value, || configuration.clone())?;
    for cluster in items(&tunnels, "clusters") {
        let name = cluster["cluster"].as_str().unwrap_or_default();
        let nodes = items(cluster, "nodes");
        let without = nodes.iter().filter(|it| it["endpoint"].is_null()).count();
        if without > 0 {
            eprintln!("{without} nodes of {name} have no endpoint: their pods are not reached");
        }
        if let Some(why) = cluster["why"].as_str() {
            eprintln!("not all of {name} is known: {why}");
        }
    }
    if args.qr || std::io::stderr().is_terminal() {
        match QrCode::new(configuration.as_bytes()) {
            Ok(code) => eprintln!("{}", code.render::<unicode::Dense1x2>().build()),
            Err(_) => eprintln!("the configuration is too long for a QR code"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The nodes that can be reached from outside: a title, the key, the endpoint and the networks of each.
fn gates(tunnels: &Value) -> Vec<[String; 4]> {
    let mut gates = Vec::new();
    // Gateways share networks; a machine outside sends each to one of them.
    let mut taken = BTreeSet::new();
    for cluster in items(tunnels, "clusters") {
        for node in items(cluster, "nodes") {
            let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            if node["endpoint"].is_string() {
                let networks = items(node, "networks").iter().filter_map(Value::as_str);
                let networks: Vec<&str> = networks.filter(|it| taken.insert(*it)).collect();
                let title = format!("{}/{}", text(&cluster["cluster"]), text(&node["node"]));
                let (key, endpoint) = (text(&node["publicKey"]), text(&node["endpoint"]));
                gates.push([title, key, endpoint, networks.join(", ")]);
            }
        }
    }
    gates
}

/// What `wg-quick` takes.
fn configuration(
    title: &str,
    key: &PrivateKey,
    peer: &ExternalPeer,
    dns: Option<std::net::IpAddr>,
    gates: &[[String; 4]],
) -> String {
    let mut text = format!("# {title}\n[Interface]\nPrivateKey = {}\n", key.to_base64());
    for address in &peer.addresses {
        let bits = if address.contains(':') { 128 } else { 32 };
        text.push_str(&format!("Address = {address}/{bits}\n"));
    }
    if let Some(dns) = dns {
        text.push_str(&format!("DNS = {dns}\n"));
    }
    for [title, key, endpoint, networks] in gates {
        text.push_str(&format!(
            "\n# {title}\n[Peer]\nPublicKey = {key}\nEndpoint = {endpoint}\nAllowedIPs = {networks}\n\
             PersistentKeepalive = 25\n"
        ));
    }
    text
}

pub(super) async fn list(args: &List) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let answer: Value = server.get(&Route::to(["meshes"])).await?;
    let mut peers = Vec::new();
    for mesh in items(&answer, "meshes") {
        for peer in items(&mesh["spec"], "externalPeers") {
            let mut peer = peer.clone();
            let name = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            peer["mesh"] = json!(format!("{}/{}", name(&mesh["namespace"]), name(&mesh["name"])));
            peers.push(peer);
        }
    }
    let titles = ["MESH", "PEER", "ADDRESSES", "NETWORKS", "KEY"];
    args.output.print_list(&json!({"peers": peers}), "peers", &titles, |peer| {
        let text = |field: &str| peer[field].as_str().unwrap_or_default().to_owned();
        let list = |field: &str| {
            let all: Vec<&str> = items(peer, field).iter().filter_map(Value::as_str).collect();
            all.join(",")
        };
        [text("mesh"), text("name"), list("addresses"), list("networks"), text("publicKey")]
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn revoke(args: &Revoke) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh).await?;
    server.delete(&Route::to(["meshes", &mesh.namespace, &mesh.name, "peers", &args.name])).await?;
    let (namespace, name) = (mesh.namespace, mesh.name);
    Ok(output::done(&format!("{} is let in by mesh {namespace}/{name} no longer", args.name))?)
}
