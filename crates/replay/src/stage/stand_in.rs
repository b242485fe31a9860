//! Clusters that are played: one real HTTPS server on loopback that answers as an API server does, a
//! path for each cluster, and beside it one that is slow to shake hands, one that accepts and then says
//! nothing, and a port where nobody listens.
//!
//! A cluster takes the newest token that it was shown and, for [`GRACE`], the one before: credentials
//! that rotate. It serves no kind of its own until it is taught one.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rcgen::{Certificate, CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use stallproof::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::incident::Cannot;

/// How far away a cluster is: every answer, and the handshake, is this late.
pub(crate) const FAR: Duration = Duration::from_millis(200);
/// How late the handshake of a slow one is: within what anybody waits for.
pub(crate) const SLOW: Duration = Duration::from_secs(3);
/// How long the token before is taken after the newest was seen.
const GRACE: Duration = Duration::from_secs(2);
/// What its certificate says.
pub(crate) const SERVER_NAME: &str = "stand-in.test";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Manner {
    Well,
    /// Well, and its credentials change during the run.
    Rotates,
    SlowToShakeHands,
    Refuses,
    BlackHole,
}

#[derive(Debug)]
pub(crate) struct StandIns {
    /// The authority of all of them.
    authority: Certificate,
    well: SocketAddr,
    slow: SocketAddr,
    hole: SocketAddr,
    closed: SocketAddr,
    known: Known,
}

/// Of each cluster, by name.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Which token it has been shown: its generation, and since when.
    seen: Arc<Mutex<HashMap<String, (u32, Instant)>>>,
    /// The kinds that it has learned, by their plural.
    taught: Arc<Mutex<HashMap<String, Vec<String>>>>,
}

impl StandIns {
    /// Serves on `tasks`, in the runtime that the caller has entered.
    pub(crate) fn start(tasks: &Tasks) -> Result<Self, Cannot> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([SERVER_NAME.to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let known = Known::default();
        let serve = |name: &'static str, handshake: Option<Duration>| -> Result<_, Cannot> {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            // All clusters of a manner are one listener; who finds it full comes back a second later.
            let listener = socket.listen(4096)?;
            let address = listener.local_addr()?;
            let (acceptor, known, all) = (acceptor.clone(), known.clone(), tasks.clone());
            let stop = tasks.stopping();
            tasks.spawn(name, async move {
                stop.bound(accept(listener, acceptor, handshake, known, all)).await;
            });
            Ok(address)
        };
        let closed = StdListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self {
            authority: cert,
            well: serve("well", Some(FAR))?,
            slow: serve("slow", Some(SLOW))?,
            hole: serve("black hole", None)?,
            closed,
            known,
        })
    }

    /// From now on the cluster serves a kind of this plural.
    pub(crate) fn teach(&self, cluster: &str, kind: &str) {
        self.known.taught.lock().entry(cluster.to_owned()).or_default().push(kind.to_owned());
    }

    pub(crate) fn authority_pem(&self) -> String {
        self.authority.pem()
    }

    pub(crate) fn authority_der(&self) -> Vec<Vec<u8>> {
        vec![self.authority.der().to_vec()]
    }

    /// Where a cluster is, for a kubeconfig.
    pub(crate) fn server(&self, cluster: &str, manner: Manner) -> String {
        let address = match manner {
            Manner::Well | Manner::Rotates => self.well,
            Manner::SlowToShakeHands => self.slow,
            Manner::Refuses => self.closed,
            Manner::BlackHole => self.hole,
        };
        format!("https://{address}/clusters/{cluster}")
    }
}

/// The token of a generation of credentials.
pub(crate) fn token(generation: u32) -> String {
    format!("generation-{generation}")
}

/// `handshake`: how late it is; none: it never comes.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshake: Option<Duration>,
    known: Known,
    tasks: Tasks,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open for a moment.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, known, stop) = (acceptor.clone(), known.clone(), tasks.stopping());
        tasks.spawn("connection", async move {
            let serving = async {
                match handshake {
                    Some(late) => {
                        tokio::time::sleep(late).await;
                        // A peer that goes away is no concern of ours.
                        let _ = serve(stream, &acceptor, &known).await;
                    }
                    None => std::future::pending().await,
                }
            };
            // On the heap: a handshake is large.
            stop.bound(Box::pin(serving)).await;
        });
    }
}

async fn serve(stream: TcpStream, acceptor: &TlsAcceptor, known: &Known) -> std::io::Result<()> {
    const LARGEST: usize = 16 << 10;
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let count = stream.read_buf(&mut read).await?;
            if count == 0 || read.len() > LARGEST {
                return Ok(());
            }
        };
        let request: Vec<u8> = read.drain(..end).collect();
        let (status, body) = answer(&String::from_utf8_lossy(&request), known);
        tokio::time::sleep(FAR).await;
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        stream.flush().await?;
    }
}

/// Requests have no body here: nobody writes.
fn answer(request: &str, known: &Known) -> (&'static str, String) {
    let path = request.split(' ').nth(1).unwrap_or_default();
    let mut parts = path.strip_prefix("/clusters/").unwrap_or_default().splitn(2, '/');
    let (cluster, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let shown = request.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let token = value.trim().strip_prefix("Bearer generation-")?;
        name.eq_ignore_ascii_case("authorization").then(|| token.parse::<u32>().ok())?
    });
    if !shown.is_some_and(|generation| is_taken(known, cluster, generation)) {
        let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        return ("401 Unauthorized", status.to_owned());
    }
    let body = match rest.split('?').next().unwrap_or_default() {
        "version" => {
            r#"{"major":"1","minor":"31","gitVersion":"v1.31.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#
        }
        "readyz" => r#""ok""#,
        "api/v1" => r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[]}"#,
        "apis" => {
            r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"stand-in.test","versions":[{"groupVersion":"stand-in.test/v1","version":"v1"}],"preferredVersion":{"groupVersion":"stand-in.test/v1","version":"v1"}}]}"#
        }
        "apis/stand-in.test/v1" => return ("200 OK", kinds(cluster, known)),
        _ => {
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}"#
        }
    };
    ("200 OK", body.to_owned())
}

fn kinds(cluster: &str, known: &Known) -> String {
    let taught = known.taught.lock();
    let resource = |plural: &String| {
        json!({
            "name": plural, "singularName": plural, "kind": plural, "namespaced": false,
            "verbs": ["get", "list"],
        })
    };
    let resources: Vec<Value> = taught.get(cluster).into_iter().flatten().map(resource).collect();
    json!({
        "kind": "APIResourceList", "groupVersion": "stand-in.test/v1", "resources": resources,
    })
    .to_string()
}

fn is_taken(known: &Known, cluster: &str, generation: u32) -> bool {
    let mut seen = known.seen.lock();
    let newest = seen.entry(cluster.to_owned()).or_insert((generation, Instant::now()));
    if generation > newest.0 {
        *newest = (generation, Instant::now());
    }
    generation == newest.0 || (generation + 1 == newest.0 && newest.1.elapsed() < GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: &str, path: &str, known: &Known) -> &'static str {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
        answer(&request, known).0
    }

    #[test]
    fn a_rotated_token_is_taken_for_a_while_and_each_cluster_has_its_own() {
        let known = Known::default();
        let version = "/clusters/a/version";
        assert_eq!(asked(&token(1), version, &known), "200 OK");
        assert_eq!(asked(&token(2), version, &known), "200 OK");
        assert_eq!(asked(&token(1), version, &known), "200 OK");
        known.seen.lock().get_mut("a").unwrap().1 -= GRACE;
        assert_eq!(asked(&token(1), version, &known), "401 Unauthorized");
        assert_eq!(asked(&token(1), "/clusters/b/version", &known), "200 OK");
        assert_eq!(asked("other", version, &known), "401 Unauthorized");
    }
}
