//! KubeServer: a real kube-apiserver on its own etcd, on loopback, with TLS and RBAC.
//!
//! - It and its directory are gone with the test process, however that ends.
//! - etcd keeps what was written over [`KubeServer::restart`]; the address stays as well.
//! - There is no controller manager: no service account gets a token, a deleted namespace stays
//!   `Terminating`, nothing is garbage-collected. The `ServiceAccount` admission plugin is off, so
//!   that pods can be created all the same.
//! - It is real, and so must be the clock: not for tests that pause time.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{fmt, io};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

mod credentials;

pub(crate) use credentials::Credentials;

use crate::leash::Leash;
use crate::proxy::Proxy;
use crate::{Access, need, port};

/// Ten times what a start takes on two busy cores.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Sockets in the server's directory: no port to lose, and nobody else gets in. etcd reads the URL
/// as host and port, and makes the two the socket's name.
const ETCD: &str = "unix://etcd:0";
const ETCD_PEER: &str = "unix://peer:0";

pub struct KubeServer {
    // In this order they go: the directory last.
    apiserver: Option<Leash>,
    _etcd: Leash,
    dir: Dir,
    flags: Vec<String>,
    address: SocketAddr,
    admin: Credentials,
    access: Access,
}

impl KubeServer {
    /// This process' server, for tests that leave it as they found it; it cannot be stopped.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<KubeServer> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// A server of one's own, ready to serve.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with more kube-apiserver flags.
    pub async fn start_with(flags: &[&str]) -> Self {
        let dir = Dir::new().unwrap_or_else(|error| panic!("no directory for a server: {error}"));
        let admin = Credentials::make(&dir.path).unwrap_or_else(|error| panic!("keys: {error}"));
        let etcd = launch("etcd", &etcd_flags(), &dir);
        let flags: Vec<_> =
            apiserver_flags().into_iter().chain(flags.iter().map(ToString::to_string)).collect();
        let (address, access, apiserver) = loop {
            let address = port::pick().local_addr().expect("a bound socket has an address");
            let access = Access::new(address, &admin);
            // Between our picking the port and the server's using it, another may take it.
            if let Some(apiserver) = launch_apiserver(&flags, &dir, address, &access).await {
                break (address, access, Some(apiserver));
            }
        };
        let server = Self { apiserver, _etcd: etcd, dir, flags, address, admin, access };
        fs::write(server.kubeconfig_path(), server.access.kubeconfig())
            .unwrap_or_else(|error| panic!("cannot write the kubeconfig: {error}"));
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As the administrator, straight.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// As the administrator, through a proxy in front of [`Self::address`].
    pub fn through(&self, proxy: &Proxy) -> Access {
        Access::new(proxy.address(), &self.admin)
    }

    pub async fn client(&self) -> kube::Client {
        self.access.client().await
    }

    pub fn kubeconfig_path(&self) -> PathBuf {
        self.dir.path.join("kubeconfig")
    }

    /// A bearer token of the administrator.
    pub fn token(&self) -> &str {
        &self.admin.token
    }

    /// Makes a namespace whose name nobody else has.
    pub async fn namespace(&self) -> String {
        let namespaces = Api::<Namespace>::all(self.client().await);
        let metadata =
            ObjectMeta { generate_name: Some("test-".to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(made) => made.name_any(),
            Err(error) => panic!("cannot make a namespace: {error}"),
        }
    }

    /// Kills kube-apiserver. [`Self::restart`] brings it back.
    pub fn stop(&mut self) {
        self.apiserver = None;
    }

    /// Kills kube-apiserver if it runs, and starts it again; returns when it is ready.
    pub async fn restart(&mut self) {
        self.stop();
        self.apiserver = launch_apiserver(&self.flags, &self.dir, self.address, &self.access).await;
        assert!(self.apiserver.is_some(), "another process took {}", self.address);
    }
}

impl fmt::Debug for KubeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn launch(program: &str, flags: &[String], dir: &Dir) -> Leash {
    let assets = need::kube_assets().unwrap_or_else(|why| panic!("{why}"));
    let mut command = Command::new(assets.join(program));
    // They do not live long enough for their garbage to matter, and start the faster.
    command.args(flags).current_dir(&dir.path).env("GOGC", "400");
    File::create(dir.log(program))
        .and_then(|log| Leash::run(&command, log))
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}

/// Returns when the server is ready; `None` if its port is taken.
async fn launch_apiserver(
    flags: &[String],
    dir: &Dir,
    address: SocketAddr,
    access: &Access,
) -> Option<Leash> {
    let mut flags = flags.to_vec();
    flags.push(format!("--secure-port={}", address.port()));
    let mut apiserver = launch("kube-apiserver", &flags, dir);
    let client = access.client().await;
    let started = Instant::now();
    loop {
        // An answer that does not come must not keep us from seeing that the server has ended.
        if timeout(Duration::from_secs(1), is_ready(&client)).await == Ok(true) {
            return Some(apiserver);
        }
        let ended = apiserver.ended().expect("a child of ours can be asked");
        if ended.is_some() || started.elapsed() > READY_WITHIN {
            let log = dir.last_words("kube-apiserver");
            if log.contains("address already in use") {
                return None;
            }
            let etcd = dir.last_words("etcd");
            panic!("kube-apiserver is not ready ({ended:?}):\n{log}\n\netcd:\n{etcd}");
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn is_ready(client: &kube::Client) -> bool {
    let readyz = http::Request::get("/readyz").body(Vec::new()).expect("a constant path");
    // The server says that it is ready a moment before it makes the namespace that everyone expects.
    client.request_text(readyz).await.is_ok()
        && Api::<Namespace>::all(client.clone()).get("default").await.is_ok()
}

fn etcd_flags() -> Vec<String> {
    vec![
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        format!("--listen-peer-urls={ETCD_PEER}"),
        format!("--initial-advertise-peer-urls={ETCD_PEER}"),
        format!("--initial-cluster=default={ETCD_PEER}"),
        // Its data need not survive the machine.
        "--unsafe-no-fsync".to_owned(),
        // The only member waits this long before it elects itself.
        "--heartbeat-interval=20".to_owned(),
        "--election-timeout=100".to_owned(),
        "--logger=zap".to_owned(),
    ]
}

fn apiserver_flags() -> Vec<String> {
    [
        &format!("--etcd-servers={ETCD}"),
        "--bind-address=127.0.0.1",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=server.key",
        "--client-ca-file=ca.crt",
        "--token-auth-file=tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-signing-key-file=service-account.key",
        "--service-account-key-file=service-account.pub",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged",
        "--service-cluster-ip-range=10.96.0.0/16",
        // As servers since 1.24 have it, and a quarter less to start. What shares out requests needs
        // a beta API on the older ones; so do CronJobs, which 1.20 has as beta alone.
        "--runtime-config=api/beta=false,batch/v1beta1=true,policy/v1beta1=true",
        "--enable-priority-and-fairness=false",
        // Else it looks for a default route, which a machine without a network has not. The
        // `kubernetes` service cannot have this address; nobody dials that.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
    ]
    .map(ToOwned::to_owned)
    .into()
}

/// A directory that goes with this process.
struct Dir {
    path: PathBuf,
    _removed: Leash,
}

/// Again if need be: a server in its last moment may make a file between `rm`'s looks.
const REMOVE: &str = r#"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$1" && exit
    sleep 0.1
done
"#;

impl Dir {
    fn new() -> io::Result<Self> {
        let path = tempfile::Builder::new().prefix("fairlead-kube-").tempdir()?.keep();
        let name = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        Ok(Self { _removed: Leash::finally(REMOVE, &[name])?, path })
    }

    fn log(&self, program: &str) -> PathBuf {
        self.path.join(program).with_extension("log")
    }

    fn last_words(&self, program: &str) -> String {
        let log = fs::read_to_string(self.log(program)).unwrap_or_else(|error| error.to_string());
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

#[cfg(test)]
mod tests;
