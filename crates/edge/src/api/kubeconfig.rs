//! Kubeconfigs of one's own login: kubectl asks Fairlead, which decides by the user's roles
//! ([`super::kube_api`]).

use std::fmt::Write as _;

use access::Verb;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use http::uri::{Scheme, Uri};
use pki::Certificates;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::route::BASE;
use super::{Api, Body, Caller, Problem, Route, Routes, affinity};

/// The name in the audit.
const KUBECONFIGS: &str = "kubeconfigs";
/// The user of an address that has the token as its password.
const USER: &str = "fairlead";

pub(crate) fn routes() -> Routes {
    let route = Route::write(Verb::Create, KUBECONFIGS).recording(&["clusters"]);
    Routes::default().with(route, routes!(kubeconfig))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KubeconfigAsk {
    /// This server as kubectl reaches it: `https://fairlead.example.com`.
    server: String,
    /// All that one may see unless said.
    #[serde(default)]
    clusters: Vec<String>,
    /// Certificate authorities (PEM) of this server, where they are not public; its own unless said, where it
    /// has made its certificate itself, for the host of `server`.
    ca: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Kubeconfig {
    /// A file for kubectl, with a context for each cluster. It holds a secret.
    kubeconfig: String,
    /// RFC 3339: the token's end, which comes sooner with the end of the login.
    expires: String,
    /// The contexts' names.
    contexts: Vec<String>,
}

/// A kubeconfig of one's own login
///
/// kubectl asks this server, with a token that is good for the clusters' Kubernetes API alone, for eight hours
/// at most, and no longer than the login that asks for it. What it may do is what one's roles allow at that
/// moment.
#[utoipa::path(
    post, path = "/me/kubeconfig", tag = "access", request_body = KubeconfigAsk,
    responses((status = 201, description = "Made", body = Kubeconfig))
)]
async fn kubeconfig(
    State(api): State<Api>,
    caller: Caller,
    Body(KubeconfigAsk { server, clusters, ca }): Body<KubeconfigAsk>,
) -> Result<(StatusCode, Json<Kubeconfig>), Problem> {
    let server = Server::read(&server)?;
    let view = api.fleet.view();
    let sees =
        |name: &str| view.clusters.contains_key(name) && caller.permissions.may_see_cluster(name);
    if let Some(unknown) = clusters.iter().find(|name| !sees(name)) {
        return Err(Problem::no_such_cluster(unknown));
    }
    let chosen: Vec<&str> = match clusters.is_empty() {
        true => view.clusters.keys().map(|name| &**name).filter(|name| sees(name)).collect(),
        false => clusters.iter().map(String::as_str).collect(),
    };
    if chosen.is_empty() {
        return Err(Problem::invalid("there is no cluster that you may see; add one first"));
    }
    let (token, until) = api.access.kube_token(&caller.who)?;
    let token = affinity::at_home(&api, token.expose());
    let ca = ca.or_else(|| api.own_certificate.as_ref()?.authorities(&server));
    let kubeconfig = written(&server, &chosen, &token, ca.as_deref());
    let contexts = chosen.iter().map(|name| context(name)).collect();
    let made = Kubeconfig { kubeconfig, expires: until.to_string(), contexts };
    Ok((StatusCode::CREATED, Json(made)))
}

fn context(cluster: &str) -> String {
    format!("fairlead-{cluster}")
}

/// The certificate of our own making that the API is served with.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    /// The hosts that it is for.
    pub names: Vec<String>,
    pub certificates: Certificates,
}

impl OwnCertificate {
    /// Whom a client has to trust that reaches this server under the name of `server`. None if the certificate
    /// is not for it: then something in between, such as an ingress, has one of its own.
    fn authorities(&self, server: &Server) -> Option<String> {
        is_for(&self.names, server).then(|| self.certificates.bundle())?
    }
}

fn is_for(names: &[String], server: &Server) -> bool {
    let host = server.host.trim_matches(['[', ']']);
    server.secure && names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// This server as its clients name it.
#[derive(Debug)]
struct Server {
    secure: bool,
    host: String,
    authority: String,
}

impl Server {
    fn read(text: &str) -> Result<Self, Problem> {
        let wrong = || {
            let detail = format!("server={text:?} is no address such as https://HOST:PORT");
            Problem::invalid(detail)
        };
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let authority =
            uri.authority().filter(|it| !it.as_str().contains('@')).ok_or_else(wrong)?;
        if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
            return Err(wrong());
        }
        let host = authority.host().to_owned();
        Ok(Self { secure, host, authority: authority.to_string() })
    }

    /// Where a cluster's Kubernetes API is. kubectl sends a token over TLS alone: to another address, such as
    /// one on loopback, it sends what the address says.
    fn of_cluster(&self, cluster: &str, token: &str) -> String {
        let path = format!("{BASE}/clusters/{}/proxy", escaped(cluster));
        match self.secure {
            true => format!("https://{}{path}", self.authority),
            false => format!("http://{USER}:{token}@{}{path}", self.authority),
        }
    }
}

/// A name as one part of a path.
fn escaped(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let part = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(part).collect()
}

/// The file, in kubectl's order.
fn written(server: &Server, clusters: &[&str], token: &str, ca: Option<&str>) -> String {
    // What JSON quotes, YAML reads as the same text.
    let quoted = |text: &str| Value::from(text).to_string();
    let mut file = String::from("apiVersion: v1\nkind: Config\n");
    let _ = writeln!(file, "current-context: {}", quoted(&context(clusters[0])));
    file += "clusters:\n";
    for cluster in clusters {
        let at = server.of_cluster(cluster, token);
        let _ = writeln!(file, "- name: {}", quoted(&context(cluster)));
        let _ = writeln!(file, "  cluster:\n    server: {}", quoted(&at));
        if let Some(ca) = ca.filter(|_| server.secure) {
            let ca = access::kube_token::base64(ca.as_bytes());
            let _ = writeln!(file, "    certificate-authority-data: {ca}");
        }
    }
    file += "contexts:\n";
    for cluster in clusters {
        let name = quoted(&context(cluster));
        let _ = writeln!(file, "- name: {name}\n  context:\n    cluster: {name}\n    user: {USER}");
    }
    let _ = writeln!(file, "users:\n- name: {USER}\n  user:");
    let _ = match server.secure {
        true => writeln!(file, "    token: {}", quoted(token)),
        false => writeln!(file, "    {{}}"),
    };
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_authority_is_for_the_hosts_of_the_own_certificate_alone() {
        let names = ["fairlead.fairlead.svc", "127.0.0.1", "::1"].map(String::from);
        for (server, own) in [
            ("https://127.0.0.1:7680", true),
            ("https://[::1]:7680", true),
            ("https://Fairlead.fairlead.svc", true),
            // An ingress answers there, with a certificate of its own.
            ("https://fairlead.example.com", false),
            ("http://127.0.0.1:7680", false),
        ] {
            assert_eq!(is_for(&names, &Server::read(server).unwrap()), own, "{server}");
        }
    }

    #[test]
    fn a_token_goes_over_tls_as_a_token_and_over_loopback_in_the_address() {
        let secure = Server::read("https://fairlead.example.com/").unwrap();
        let file = written(&secure, &["eu", "us"], "flk_a.b", Some("PEM"));
        let read = crate::api::yaml::documents(&file).unwrap().remove(0);
        assert_eq!(read["current-context"], "fairlead-eu");
        let first = &read["clusters"][0]["cluster"];
        let wanted = "https://fairlead.example.com/api/v1/clusters/eu/proxy";
        assert_eq!(first["server"], wanted);
        assert_eq!(first["certificate-authority-data"], "UEVN");
        assert_eq!(read["users"][0]["user"]["token"], "flk_a.b");
        assert_eq!(read["contexts"][1]["context"]["cluster"], "fairlead-us");

        let plain = Server::read("http://127.0.0.1:7680").unwrap();
        let file = written(&plain, &["eu"], "flk_a.b", None);
        let read = crate::api::yaml::documents(&file).unwrap().remove(0);
        let wanted = "http://fairlead:flk_a.b@127.0.0.1:7680/api/v1/clusters/eu/proxy";
        assert_eq!(read["clusters"][0]["cluster"]["server"], wanted);
        assert_eq!(read["users"][0]["user"], serde_json::json!({}));
    }

    #[test]
    fn a_clusters_name_is_one_part_of_the_path() {
        let server = Server::read("https://f").unwrap();
        let at = server.of_cluster("arn:aws/eu west", "t");
        assert_eq!(at, "https://f/api/v1/clusters/arn%3Aaws%2Feu%20west/proxy");
    }

    #[test]
    fn an_address_is_a_scheme_and_a_host() {
        for wrong in
            ["fairlead", "ftp://a", "https://", "https://a@b", "https://a/b", "https://a?b", ""]
        {
            assert!(Server::read(wrong).is_err(), "{wrong}");
        }
    }
}
