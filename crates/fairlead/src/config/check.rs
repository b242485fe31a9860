//! Checks that look at several settings at once.

use std::path::PathBuf;

use super::{Config, ListenAddress, Store, TlsSource};

/// Every contradiction between settings: the key that is to change, and what is wrong with it.
pub(super) fn contradictions(config: &Config) -> Vec<(String, String)> {
    let Config { admin, admission, api, net, sense, store, .. } = config;
    let mut found = Vec::new();
    found.extend(tls("admin", admin.listen, admin.tls, &admin.tls_cert, &admin.tls_key));
    found.extend(tls("api", api.listen, api.tls, &api.tls_cert, &api.tls_key));
    let embedded = *store == Store::Embedded;
    let rules = [
        (
            sense.identity_token_file.is_some() && sense.ca_file.is_none() && embedded,
            "guard.identity-token-file",
            "needs guard.ca-file, or store=kubernetes to read the agents' authority from: it is shown to \
             controllers of that authority alone",
        ),
        (
            admission.service.is_some() && admission.url.is_some(),
            "admission.service",
            "is one way to reach the webhook and admission.url another; set one",
        ),
        (
            admission.service.is_some() && embedded,
            "admission.service",
            "needs store=kubernetes: the Service is one of the store's cluster; set admission.url for \
             others",
        ),
        (
            !admission.clusters.is_empty() && admission.url.is_none(),
            "admission.clusters",
            "needs admission.url: their API servers are elsewhere",
        ),
        (
            net.egress && embedded,
            "net.egress",
            "needs store=kubernetes: Egresses, and the pods that choose them, are objects of an API server",
        ),
        (
            net.egress && !net.serve && net.pod_networks.is_empty(),
            "net.pod-networks",
            "is needed by net.egress where net.serve is off: name the networks that the other CNI plugin \
             takes pods' addresses from, such as 10.244.0.0/16",
        ),
        (
            net.serve && !net.pod_networks.is_empty(),
            "net.pod-networks",
            "is for net.serve=off: of pods that this agent connects, the address pools say it; take it away",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, ..)| *is_broken);
    found.extend(broken.map(|(_, key, message)| (key.to_owned(), message.to_owned())));
    found
}

/// What is wrong with the certificate of a section's listener.
fn tls(
    section: &str,
    listen: ListenAddress,
    source: TlsSource,
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> Option<(String, String)> {
    let files = format!("{section}.tls-cert and {section}.tls-key");
    let (setting, message) = match (source, cert, key) {
        (TlsSource::Auto, None, None) | (TlsSource::Files, Some(_), Some(_)) => return None,
        (TlsSource::Auto, ..) => {
            ("tls", format!("auto makes a certificate; take away {files}, or set files"))
        }
        (_, Some(_), None) => ("tls-cert", format!("needs {section}.tls-key beside it")),
        (_, None, Some(_)) => ("tls-key", format!("needs {section}.tls-cert beside it")),
        (_, None, None) if listen.is_loopback() => return None,
        (_, None, None) => (
            "listen",
            format!("an address beyond loopback needs TLS: set {files}, or {section}.tls to auto"),
        ),
    };
    Some((format!("{section}.{setting}"), message))
}
