//! `Client`: the agent's end of a connection to a controller.
//!
//! ```text
//! Identity::enrol (once, with a token) ──► Identity (a file) ──► Client::join ──► report, rules, leave
//!        └── renew, from time to time ◄──────────────────────────────┘
//! ```
//!
//! A client belongs to one connection and one join. When anything of it fails, or the identity has been
//! renewed, it is dropped and another one joins: a report may always be sent again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream;
use http::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stallproof::{Deadline, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::{Code, Request, Status, Streaming};
use traffic::agents::JoinFacts;

use policy::program::{Delta, Fingerprint, RuleTotal};
pub use protocol::Answer;
use protocol::program::{ChangeParts, REASONS, fingerprint_out, totals_out};
use protocol::proto::agents_client::AgentsClient;
use protocol::{AGENT, Executor, KNOWN, Malformed, RETRY, encode_report, proto};
use traffic::conversations::Report;
use traffic::ingest::RuleChange;

use crate::Identity;

/// For a connection to one address.
const CONNECT: Duration = Duration::from_secs(5);
/// Finds out that the controller is gone.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);
/// All rules at once: some hundred bytes each.
const RULES: usize = 64 << 20;

/// Where controllers are, and who we are.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Each a name or an address, with a port. All that a name resolves to are tried in turn: one of
    /// them counts.
    pub addresses: Vec<String>,
    /// None: without TLS, which a controller takes on loopback alone.
    pub identity: Option<Identity>,
}

/// Why a call failed; each variant says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Try again later, all addresses.
    #[error("no controller can be reached: {0}")]
    Unreachable(String),
    /// It will be taken then.
    #[error("come back in {after:?}: {why}")]
    ComeBack { after: Duration, why: String },
    /// The certificate or the token is not taken, or was revoked: enrol with another token.
    #[error("not let in: {0}")]
    Denied(String),
    /// Another agent of this node began later, or this one has left: begin a new incarnation.
    #[error("begin again: {why}")]
    Outdated {
        why: String,
        /// The new one must be greater than this.
        known: u64,
    },
    /// What was sent is not right: sending it again will not help.
    #[error("refused: {0}")]
    Refused(String),
    /// Join again.
    #[error("the connection is over: {0}")]
    Over(String),
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let why = status.message().to_owned();
        let number = |name| status.metadata().get(name)?.to_str().ok()?.parse().ok();
        match status.code() {
            Code::ResourceExhausted => {
                let after = Duration::from_millis(number(RETRY).unwrap_or(1000));
                Self::ComeBack { after, why }
            }
            Code::Unauthenticated | Code::PermissionDenied => Self::Denied(why),
            Code::InvalidArgument | Code::OutOfRange => Self::Refused(why),
            Code::FailedPrecondition => Self::Outdated { why, known: number(KNOWN).unwrap_or(0) },
            Code::Unavailable => Self::Unreachable(why),
            _ => Self::Over(why),
        }
    }
}

/// One HTTP/2 connection.
#[derive(Clone, Debug)]
pub(crate) struct Channel(http2::SendRequest<Body>);

impl tower::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A connection to a controller that has taken this agent in.
#[derive(Clone, Debug)]
pub struct Client {
    calls: AgentsClient<Channel>,
    agent: String,
    pub address: SocketAddr,
}

/// A controller's answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Another one than before: send everything again.
    pub epoch: u64,
    pub interval: Duration,
    pub rules_version: u64,
}

impl Client {
    /// Joins at the first controller that takes this agent in. What it runs belongs to `tasks`.
    pub async fn join(
        endpoint: &Endpoint,
        facts: &JoinFacts,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> Result<(Self, Joined), ClientError> {
        let config = endpoint.identity.as_ref().map(Identity::config).transpose();
        let config = config.map_err(|e| ClientError::Denied(stallproof::sentence(&e)))?;
        let mut last = ClientError::Unreachable("there is no address".to_owned());
        for address in resolve(&endpoint.addresses, deadline).await? {
            let joining = Self::join_at(address, config.clone(), facts, tasks);
            match deadline.bound(joining).await {
                Ok(Ok(joined)) => return Ok(joined),
                // Another may take it.
                Ok(Err(error)) => last = worse(last, error),
                Err(_) => return Err(last),
            }
        }
        Err(last)
    }

    async fn join_at(
        address: SocketAddr,
        config: Option<Arc<ClientConfig>>,
        facts: &JoinFacts,
        tasks: &Tasks,
    ) -> Result<(Self, Joined), ClientError> {
        let mut calls = connect(address, config, tasks).await?;
        let asked = Deadline::after(CONNECT)
            .bound(calls.join(proto::JoinRequest::from(facts.clone())))
            .await;
        let joined =
            asked.map_err(|_| ClientError::Unreachable(format!("{address}: no answer")))?;
        let proto::Joined { agent, epoch, interval_ms, rules_version } = joined?.into_inner();
        let interval = Duration::from_millis(interval_ms.into());
        Ok((Self { calls, agent, address }, Joined { epoch, interval, rules_version }))
    }

    /// The same connection with another agent's id, which a controller refuses: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_agent_of(&self, other: &Self) -> Self {
        Self { agent: other.agent.clone(), ..self.clone() }
    }

    /// Opens the stream of reports; one that this agent had before ends.
    pub async fn report(&self, deadline: Deadline) -> Result<Reporting, ClientError> {
        // One: the next is sent when the one before was answered.
        let (send, sent) = mpsc::channel(1);
        let batches = stream::unfold(sent, |mut sent: mpsc::Receiver<proto::Batch>| async move {
            Some((sent.recv().await?, sent))
        });
        let mut request = Request::new(batches);
        let agent = self.agent.parse().map_err(|_| over("the id is no header"))?;
        request.metadata_mut().insert(AGENT, agent);
        let mut calls = self.calls.clone();
        let opened = deadline.bound(calls.report(request)).await;
        let answers = opened.map_err(|_| over("no answer in time"))??.into_inner();
        Ok(Reporting { send, answers })
    }

    /// What changes of rules and groups from `version` on, 0 being nothing.
    pub async fn rules(&self, version: u64, deadline: Deadline) -> Result<Rules, ClientError> {
        let mut calls = self.calls.clone().max_decoding_message_size(RULES);
        let opened = deadline.bound(calls.rules(proto::RulesRequest { version })).await;
        Ok(Rules(opened.map_err(|_| over("no answer in time"))??.into_inner()))
    }

    /// What leads from what this node enforces to what it should, and every change of that. A stream that
    /// this agent had before ends.
    pub async fn programs(
        &self,
        generation: u64,
        fingerprint: Fingerprint,
        deadline: Deadline,
    ) -> Result<ProgramChanges, ClientError> {
        let mut calls = self.calls.clone();
        let asked = proto::ProgramsRequest {
            agent: self.agent.clone(),
            generation,
            fingerprint: fingerprint_out(fingerprint),
        };
        let opened = deadline.bound(calls.programs(asked)).await;
        let stream = opened.map_err(|_| over("no answer in time"))??.into_inner();
        Ok(ProgramChanges { stream, parts: ChangeParts::default() })
    }

    /// Says that the node enforces a generation, or why it does not.
    pub async fn applied(
        &self,
        generation: u64,
        error: Option<String>,
        deadline: Deadline,
    ) -> Result<(), ClientError> {
        let mut calls = self.calls.clone();
        let error = error.unwrap_or_default();
        let asked = proto::AppliedRequest { agent: self.agent.clone(), generation, error };
        deadline.bound(calls.applied(asked)).await.map_err(|_| over("no answer in time"))??;
        Ok(())
    }

    /// Says why packets of some pods are not judged, and what rules counted: at most
    /// [`TOTALS`](protocol::program::TOTALS) of them.
    pub async fn enforced(
        &self,
        uncovered: &[String],
        totals: &[RuleTotal],
        anew: bool,
        deadline: Deadline,
    ) -> Result<(), ClientError> {
        let mut calls = self.calls.clone();
        let asked = proto::EnforcedRequest {
            agent: self.agent.clone(),
            uncovered: uncovered.iter().take(REASONS).cloned().collect(),
            totals: totals_out(totals),
            anew,
        };
        deadline.bound(calls.enforced(asked)).await.map_err(|_| over("no answer in time"))??;
        Ok(())
    }

    /// The node goes for good; the incarnation is over.
    pub async fn leave(mut self, deadline: Deadline) -> Result<(), ClientError> {
        let left = self.calls.leave(proto::LeaveRequest { agent: self.agent });
        deadline.bound(left).await.map_err(|_| over("no answer in time"))??;
        Ok(())
    }

    /// Another certificate for another key, by the one that we have; kept in the identity's file. The
    /// next joining uses it.
    pub async fn renew(
        &self,
        identity: &Identity,
        deadline: Deadline,
    ) -> Result<Identity, ClientError> {
        let mut calls = self.calls.clone();
        identity
            .renewed(|public_key| async move {
                let certified =
                    deadline.bound(calls.renew(proto::RenewRequest { public_key })).await;
                Ok(certified.map_err(|_| over("no answer in time"))??.into_inner())
            })
            .await
    }
}

/// A stream of reports.
#[derive(Debug)]
pub struct Reporting {
    send: mpsc::Sender<proto::Batch>,
    answers: Streaming<proto::Answer>,
}

impl Reporting {
    /// Sends a report. Its answer comes by `next`, in the order of reports.
    pub async fn send(&self, report: &Report) -> Result<(), ClientError> {
        // The reason of the end is what `next` answers.
        self.send.send(encode_report(report)).await.map_err(|_| over("the stream has ended"))
    }

    /// The next answer. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Answer, ClientError> {
        let answer = self.answers.message().await?.ok_or_else(|| over("the stream has ended"))?;
        answer.try_into().map_err(|malformed: Malformed| over(&malformed.to_string()))
    }
}

/// A stream of changes of this node's policy program.
#[derive(Debug)]
pub struct ProgramChanges {
    stream: Streaming<proto::ProgramPart>,
    parts: ChangeParts,
}

impl ProgramChanges {
    /// The next change, to be acknowledged by [`Client::applied`]. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Delta, ClientError> {
        loop {
            let part = self.stream.message().await?.ok_or_else(|| over("the stream has ended"))?;
            let taken = self.parts.take(&part);
            if let Some(delta) = taken.map_err(|malformed| over(&malformed.to_string()))? {
                return Ok(delta);
            }
        }
    }
}

/// A stream of rules.
#[derive(Debug)]
pub struct Rules(Streaming<proto::RuleChange>);

impl Rules {
    /// The next change. May be dropped and called again.
    pub async fn next(&mut self) -> Result<RuleChange, ClientError> {
        let change = self.0.message().await?.ok_or_else(|| over("the stream has ended"))?;
        change.try_into().map_err(|malformed: Malformed| over(&malformed.to_string()))
    }
}

fn over(why: &str) -> ClientError {
    ClientError::Over(why.to_owned())
}

/// Of two failures, what says more: one that somebody answered.
fn worse(before: ClientError, now: ClientError) -> ClientError {
    match (&before, &now) {
        (_, ClientError::Unreachable(_)) if !matches!(before, ClientError::Unreachable(_)) => {
            before
        }
        _ => now,
    }
}

/// All addresses, of all names.
pub(crate) async fn resolve(
    addresses: &[String],
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, ClientError> {
    let mut all = Vec::new();
    let mut why = "there is no address".to_owned();
    for address in addresses {
        match deadline.within(CONNECT).bound(tokio::net::lookup_host(address)).await {
            Ok(Ok(found)) => all.extend(found),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: the name was not resolved in time"),
        }
    }
    if all.is_empty() { Err(ClientError::Unreachable(why)) } else { Ok(all) }
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: Option<Arc<ClientConfig>>,
    tasks: &Tasks,
) -> Result<Calls, ClientError> {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        match config {
            None => handshake(stream, tasks).await,
            Some(config) => {
                let name = ServerName::try_from(pki::agents::SERVER_NAME)
                    .expect("a constant that is a name");
                handshake(TlsConnector::from(config).connect(name, stream).await?, tasks).await
            }
        }
    };
    // A handshake's state is large, and gone a moment later.
    let connected = Deadline::after(CONNECT).bound(Box::pin(connecting)).await;
    let connected =
        connected.map_err(|_| ClientError::Unreachable(format!("{address}: no answer in time")))?;
    let channel = connected.map_err(|error: std::io::Error| match is_distrust(&error) {
        true => ClientError::Denied(format!("{address} is no controller that we know: {error}")),
        false => ClientError::Unreachable(format!("{address}: {error}")),
    })?;
    // Whatever the address, it goes to this connection.
    Ok(AgentsClient::with_origin(channel, Uri::from_static("http://controller")))
}

/// Whether a connection failed because the other end is of no authority that we know: it may have
/// another by now, and who enrols again learns of it.
fn is_distrust(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

pub(crate) type Calls = AgentsClient<Channel>;

async fn handshake<S>(stream: S, tasks: &Tasks) -> std::io::Result<Channel>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http2::Builder::new(Executor(tasks.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream));
    let (send, connection) = handshake.await.map_err(std::io::Error::other)?;
    let stop = tasks.stopping();
    tasks.spawn("controller-connection", async move {
        if let Some(Err(error)) = stop.bound(connection).await {
            tracing::debug!(%error, "the connection to the controller ended");
        }
    });
    Ok(Channel(send))
}
