//! The cluster that this process runs in, as the pod's service account.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::sleep;

use super::{Offer, SourceOutput};
use crate::config::InCluster;
use crate::credentials::{Access, Auth, Bearer, Endpoint};
use crate::local_address::AddressGuard;
use crate::view::{Source, SourceKind};

/// How often the authority is read, which rotates once in months. The token is read elsewhere.
const EVERY: Duration = Duration::from_secs(60);

pub(super) async fn run(config: InCluster, output: SourceOutput) {
    loop {
        let access = access(&config).await.map(Arc::new);
        output.tell(vec![Offer {
            name: config.name.as_str().into(),
            source: Source {
                kind: SourceKind::InCluster,
                place: config.mounted.display().to_string(),
            },
            labels: BTreeMap::new(),
            enabled: true,
            access,
        }]);
        sleep(EVERY).await;
    }
}

async fn access(config: &InCluster) -> Result<Access, String> {
    // An IPv6 address needs brackets.
    let host =
        if config.host.contains(':') { format!("[{}]", config.host) } else { config.host.clone() };
    let server: Uri = format!("https://{host}:{}", config.port)
        .parse()
        .map_err(|_| "KUBERNETES_SERVICE_HOST is not an address".to_owned())?;
    let pem = read(&config.mounted.join("ca.crt")).await?;
    let authorities: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .filter_map(|der| der.ok().map(|der| der.to_vec()))
        .collect();
    if authorities.is_empty() {
        return Err(format!("{}/ca.crt holds no certificate", config.mounted.display()));
    }
    let namespace = read(&config.mounted.join("namespace")).await.ok();
    let namespace = namespace.and_then(|bytes| String::from_utf8(bytes).ok());
    let namespace = namespace.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    Ok(Access {
        endpoint: Endpoint {
            server,
            authorities: Some(authorities),
            insecure: false,
            tls_server_name: None,
            proxy: None,
            guard: AddressGuard::default(),
        },
        auth: Auth { bearer: Bearer::TokenFile(config.mounted.join("token")), ..Auth::default() },
        namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        impersonation: None,
    })
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path)
        .await
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests;
