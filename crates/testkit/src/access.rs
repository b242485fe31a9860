//! Access: how to reach an API server as its administrator.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::kube_server::Credentials;

/// A kubeconfig, whole in itself. Its contexts are `certificate`, the current one, and `token`.
#[derive(Clone)]
pub struct Access {
    kubeconfig: String,
}

impl Access {
    pub(crate) fn new(address: SocketAddr, admin: &Credentials) -> Self {
        let data = |pem: &str| BASE64_STANDARD.encode(pem);
        let context =
            |user: &str| json!({ "name": user, "context": { "cluster": "test", "user": user } });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "certificate",
            "clusters": [{ "name": "test", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": data(&admin.ca),
            } }],
            "users": [
                { "name": "certificate", "user": {
                    "client-certificate-data": data(&admin.certificate),
                    "client-key-data": data(&admin.key),
                } },
                { "name": "token", "user": { "token": admin.token } },
            ],
            "contexts": [context("certificate"), context("token")],
        });
        // JSON is YAML.
        Self { kubeconfig: format!("{kubeconfig:#}") }
    }

    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// For a client with timeouts of the test's choice; kube's own default has no read timeout.
    pub async fn config(&self) -> kube::Config {
        self.config_in("certificate").await
    }

    /// The config of one of the kubeconfig's contexts.
    pub async fn config_in(&self, context: &str) -> kube::Config {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).expect("a kubeconfig we wrote");
        let options =
            KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap_or_else(|error| panic!("context {context}: {error}"))
    }

    /// As the service account `fairlead/ACCOUNT`, with what it may and no more.
    pub async fn config_as(&self, account: &str) -> kube::Config {
        let mut config = self.config().await;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:fairlead:{account}"));
        let groups = ["system:serviceaccounts", "system:authenticated"];
        config.auth_info.impersonate_groups = Some(groups.map(str::to_owned).into());
        config
    }

    pub async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).expect("a config we wrote")
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}
