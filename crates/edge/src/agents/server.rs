//! The gRPC calls of agents, each behind a gate.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ::programs::Programs;
use futures::FutureExt;
use futures::future::Either;
use http::{Request, Response};
use hyper::body::Incoming;
use pki::agents::{Authority, Bearer, Certified, NotReviewed, Refused, Token, TokenReviewer};
use prometheus_client::registry::Registry;
use protocol::{KNOWN, RETRY, millis, proto};
use stallproof::deadline::Grant;
use stallproof::gate::{GateConfig, InFlightLimits, Shedding};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Gate, Ledger, MemoryGuard, Op, Pressure, Priority, Snapshot, Tasks};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use traffic::agents::{Agents, JoinFacts, NotJoined, UnknownAgent};

use super::codec::Codec;
use super::frames::Budget;
use super::{ReportSink, listen::AgentPeer};
use super::{listen, programs, report, rules};
use crate::error_code::ErrorCode;

/// The time that a call other than a stream may take.
const GRANT: Grant = Grant { unasked: Duration::from_secs(10), most: Duration::from_secs(30) };
/// Everything but reports is a few lines; a token has some hundred bytes.
const SMALL: usize = 16 << 10;
/// When a caller may come back to a replica that is not ready.
const SOON: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_secs(1);
/// What a replica that does not lead answers.
pub(super) const NOT_LEADING: &str = "another replica counts: ask the leader";

/// The server and what it stands on. Clones share it.
#[derive(Clone, Debug)]
pub struct Server<C> {
    pub(super) agents: Agents,
    /// Counts the reports while this replica leads. Written by the leader's work, read by every join.
    pub(super) sink: Snapshot<Option<C>>,
    /// None: agents connect without TLS and say themselves which node they are. For loopback alone.
    pub(super) authority: Option<Authority>,
    /// The programs of nodes while this replica leads. Written by the leader's work.
    pub(super) programs: Snapshot<Option<Programs>>,
    /// Held while a long change of a program is in memory.
    pub(super) long_changes: Arc<Semaphore>,
    /// None: no pod enrols with its own token.
    reviewer: Option<TokenReviewer>,
    pub(super) ledger: Ledger,
    pub(super) tasks: Tasks,
    strangers: Gate,
    joins: Gate,
    pub(super) reports: Gate,
    pub(super) budget: Budget,
}

impl<C: ReportSink> Server<C> {
    pub fn new(
        agents: Agents,
        sink: Snapshot<Option<C>>,
        authority: Option<Authority>,
        ledger: Ledger,
        tasks: &Tasks,
    ) -> Self {
        // Signing takes a core's tenth of a millisecond; a queue of strangers is nobody's concern.
        let few = InFlightLimits { min: 2, initial: 8, max: 32 };
        let strangers = Gate::new(GateConfig {
            limits: few,
            queue: 256,
            ..GateConfig::new("agents-strangers")
        });
        let joins = Gate::new(GateConfig::new("agents-join"));
        // In flight are those that wait for their shards.
        let reports = Gate::new(GateConfig::new("agents-report"));
        let budget = Budget::new(agents.limits().bytes);
        let tasks = tasks.clone();
        Self {
            agents,
            sink,
            authority,
            programs: Snapshot::default(),
            long_changes: Arc::new(Semaphore::new(programs::LONG_CHANGES)),
            reviewer: None,
            ledger,
            tasks,
            strangers,
            joins,
            reports,
            budget,
        }
    }

    /// Hands nodes their programs, which are found here while this replica leads.
    #[must_use]
    pub fn with_programs(self, programs: Snapshot<Option<Programs>>) -> Self {
        Self { programs, ..self }
    }

    /// Lets pods enrol as the agents of their nodes, with tokens of their service account.
    #[must_use]
    pub fn with_reviewer(self, reviewer: TokenReviewer) -> Self {
        Self { reviewer: Some(reviewer), ..self }
    }

    /// Lets memory pressure refuse reports first, then joins.
    pub fn heed(&self, memory: &MemoryGuard) {
        let (joins, reports) = (self.joins.clone(), self.reports.clone());
        memory.on_change(move |pressure| {
            let (join, report) = match pressure {
                Pressure::Normal => (Shedding::None, Shedding::None),
                Pressure::Shedding => (Shedding::None, Shedding::Low),
                Pressure::Critical => (Shedding::Normal, Shedding::Low),
            };
            joins.shed(join);
            reports.shed(report);
        });
    }

    pub fn register(&self, registry: &mut Registry) {
        self.agents.register(registry);
        for gate in [&self.strangers, &self.joins, &self.reports] {
            gate.register(registry);
        }
    }

    /// Answers one call. A call that lasts has its answer at once, so that nothing of the others' is
    /// kept for as long as its stream is open.
    pub(super) fn answer(
        self,
        peer: AgentPeer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        let at_once = |response| Either::Left(ready(Ok(response)));
        let path = request.uri().path();
        let Some(call) = path.strip_prefix("/fairlead.agents.v1alpha1.Agents/") else {
            return at_once(Status::unimplemented("no such service").into_http());
        };
        let deadline = match Deadline::of_grpc(request.headers(), GRANT) {
            Ok(deadline) => deadline,
            Err(error) => {
                return at_once(refuse(ErrorCode::Invalid, error.to_string()).into_http());
            }
        };
        // A macro, because each call has types of its own.
        macro_rules! unary {
            ($call:ident) => {{
                let answer = async move {
                    let answer = tower::service_fn(|request: tonic::Request<_>| {
                        let (server, peer) = (self.clone(), peer.clone());
                        async move {
                            let asked = request.into_inner();
                            server.$call(&peer, asked, deadline).await.map(tonic::Response::new)
                        }
                    });
                    grpc().unary(answer, request).await
                };
                Either::Right(in_time(deadline, answer).boxed())
            }};
        }
        match call {
            "Enrol" => unary!(enrol),
            "Renew" => unary!(renew),
            "Join" => unary!(join),
            "Leave" => unary!(leave),
            "Applied" => unary!(applied),
            "Enforced" => unary!(enforced),
            "Report" => at_once(report::serve(self, &peer, request)),
            "Rules" => {
                let answer = async move {
                    let answer = tower::service_fn(|request: tonic::Request<_>| {
                        let stream = rules::stream(&self, &peer, &request.into_inner());
                        async move { stream.map(tonic::Response::new) }
                    });
                    grpc().server_streaming(answer, request).await
                };
                Either::Right(in_time(deadline, answer).boxed())
            }
            "Programs" => {
                let answer = async move {
                    let answer = tower::service_fn(|request: tonic::Request<_>| {
                        let (server, peer) = (self.clone(), peer.clone());
                        async move {
                            let asked = request.into_inner();
                            let stream = programs::stream(&server, &peer, &asked, deadline).await;
                            stream.map(tonic::Response::new)
                        }
                    });
                    grpc().server_streaming(answer, request).await
                };
                Either::Right(in_time(deadline, answer).boxed())
            }
            _ => at_once(Status::unimplemented("no such call").into_http()),
        }
    }

    /// Which node a peer is, if that needs a certificate; it holds still.
    pub(super) fn known(&self, peer: &AgentPeer) -> Result<Option<Bearer>, Status> {
        let Some(authority) = &self.authority else { return Ok(None) };
        let bearer = peer.bearer.clone();
        let bearer = bearer
            .ok_or_else(|| refuse(ErrorCode::Unauthenticated, "this needs a certificate: enrol"))?;
        if authority.holds(&bearer) { Ok(Some(bearer)) } else { Err(lapsed()) }
    }

    /// Whether a certificate still holds.
    pub(super) fn holds(&self, bearer: &Bearer) -> bool {
        self.authority.as_ref().is_some_and(|authority| authority.holds(bearer))
    }

    fn authority(&self) -> Result<&Authority, Status> {
        let none = || refuse(ErrorCode::NotServed, "there are no certificates here: TLS is off");
        self.authority.as_ref().ok_or_else(none)
    }

    async fn enrol(
        self,
        peer: &AgentPeer,
        asked: proto::EnrolRequest,
        deadline: Deadline,
    ) -> Result<proto::Certified, Status> {
        let op = self.ledger.begin("agent-enrol", peer.address.to_string(), "strangers");
        let certified = op.in_span(self.certify(peer, asked, &op, deadline)).await?;
        op.finish(Outcome::Done);
        Ok(on_the_wire(certified))
    }

    async fn certify(
        &self,
        peer: &AgentPeer,
        proto::EnrolRequest { token, node, public_key }: proto::EnrolRequest,
        op: &Op,
        deadline: Deadline,
    ) -> Result<Certified, Status> {
        let _permit = admit(&self.strangers, &peer.share(), deadline).await?;
        let authority = self.authority()?;
        let not_enrolled = |why: &str| tracing::info!(node, why, "a node was not enrolled");
        let certified = match self.reviewer.as_ref().filter(|_| Token::pin(&token).is_none()) {
            None => authority.enrol(&token, &node, &public_key, deadline).await,
            Some(reviewer) => {
                op.step("token-review");
                let reviewed = reviewer.review(&token, deadline).await.map_err(|error| {
                    not_enrolled(&stallproof::sentence(&error));
                    not_reviewed(&error)
                })?;
                authority.enrol_pod(&reviewed, &node, &public_key)
            }
        };
        let certified = certified.map_err(|refused| {
            not_enrolled(&refused.to_string());
            refusal(&refused)
        })?;
        tracing::info!(node, until = %certified.until, "a node was enrolled");
        Ok(certified)
    }

    async fn renew(
        self,
        peer: &AgentPeer,
        asked: proto::RenewRequest,
        deadline: Deadline,
    ) -> Result<proto::Certified, Status> {
        let bearer = self.known(peer)?;
        let bearer = bearer.ok_or_else(|| refuse(ErrorCode::NotServed, "TLS is off"))?;
        let op = self.ledger.begin("agent-renew", bearer.node.to_string(), bearer.node.to_string());
        let _permit = admit(&self.joins, &peer.share(), deadline).await?;
        let certified = self.authority()?.renew(&bearer, &asked.public_key);
        let certified = certified.map_err(|refused| refusal(&refused))?;
        op.finish(Outcome::Done);
        Ok(on_the_wire(certified))
    }

    async fn join(
        self,
        peer: &AgentPeer,
        asked: proto::JoinRequest,
        deadline: Deadline,
    ) -> Result<proto::Joined, Status> {
        let bearer = self.known(peer)?;
        if bearer.is_some_and(|bearer| *bearer.node != *asked.node) {
            return Err(refuse(ErrorCode::Forbidden, "the certificate is of another node"));
        }
        let facts = JoinFacts::try_from(asked);
        let mut facts = facts.map_err(|error| refuse(ErrorCode::Invalid, error.to_string()))?;
        let op = self.ledger.begin("agent-join", facts.node.clone(), facts.node.clone());
        let permit = admit(&self.joins, &peer.share(), deadline).await?;
        let sink = self.sink.load();
        let Some(sink) = sink.as_ref() else {
            permit.ignore();
            op.finish(Outcome::Refused);
            return Err(come_back(ErrorCode::NotReady, NOT_LEADING, SOON));
        };
        // They are many, and of use to the sink alone.
        let local_addresses = std::mem::take(&mut facts.local_addresses);
        let agent = self.agents.join(facts).map_err(|refused| match refused {
            NotJoined::Outdated { known } => outdated(&refused.to_string(), known),
            NotJoined::Full => come_back(ErrorCode::Overloaded, &refused.to_string(), 60 * SOON),
            NotJoined::BadName => refuse(ErrorCode::Invalid, refused.to_string()),
        })?;
        sink.set_node_addresses(&agent.node, &agent.facts.addresses, &local_addresses);
        op.finish(Outcome::Done);
        Ok(proto::Joined {
            agent: agent.id.to_string(),
            epoch: sink.epoch(),
            interval_ms: millis(self.agents.interval()),
            rules_version: sink.agent_policy().read(|policy| policy.version),
        })
    }

    async fn leave(
        self,
        peer: &AgentPeer,
        asked: proto::LeaveRequest,
        deadline: Deadline,
    ) -> Result<proto::Left, Status> {
        let bearer = self.known(peer)?;
        self.own(bearer.as_ref(), &asked.agent)?;
        let _permit = admit(&self.joins, &peer.share(), deadline).await?;
        let agent = self.agents.leave(&asked.agent).map_err(unknown)?;
        if let Some(sink) = self.sink.load().as_ref() {
            sink.forget_agent(&agent.node);
        }
        Ok(proto::Left {})
    }

    /// What became of a change of the node's program.
    fn applied(
        self,
        peer: &AgentPeer,
        asked: proto::AppliedRequest,
        _: Deadline,
    ) -> Ready<Result<proto::AppliedReply, Status>> {
        ready(self.note_applied(peer, asked))
    }

    fn note_applied(
        &self,
        peer: &AgentPeer,
        asked: proto::AppliedRequest,
    ) -> Result<proto::AppliedReply, Status> {
        let bearer = self.known(peer)?;
        self.own(bearer.as_ref(), &asked.agent)?;
        let node = self.agents.find(&asked.agent).map_err(unknown)?.node;
        if let Some(programs) = self.programs.load().as_ref() {
            programs.applied(&node, programs::applied(asked));
        }
        Ok(proto::AppliedReply {})
    }

    /// What a node sees of its program.
    fn enforced(
        self,
        peer: &AgentPeer,
        asked: proto::EnforcedRequest,
        _: Deadline,
    ) -> Ready<Result<proto::EnforcedReply, Status>> {
        ready(self.note_enforced(peer, asked))
    }

    fn note_enforced(
        &self,
        peer: &AgentPeer,
        asked: proto::EnforcedRequest,
    ) -> Result<proto::EnforcedReply, Status> {
        let bearer = self.known(peer)?;
        self.own(bearer.as_ref(), &asked.agent)?;
        let node = self.agents.find(&asked.agent).map_err(unknown)?.node;
        let enforced = programs::enforced(asked)?;
        let programs = self.programs.load();
        let not_leading = || come_back(ErrorCode::NotReady, NOT_LEADING, SOON);
        programs.as_ref().as_ref().ok_or_else(not_leading)?.enforced(&node, &enforced);
        Ok(proto::EnforcedReply {})
    }

    /// A certificate speaks for its own node alone.
    pub(super) fn own(&self, bearer: Option<&Bearer>, id: &str) -> Result<(), Status> {
        let agent = self.agents.find(id).map_err(unknown)?;
        if bearer.is_some_and(|bearer| bearer.node != agent.node) {
            return Err(refuse(ErrorCode::Forbidden, "the certificate is of another node"));
        }
        Ok(())
    }

    /// Once a second: the interval, and who has long been away.
    async fn tick(self) {
        let stop = self.tasks.stopping();
        while stop.bound(tokio::time::sleep(TICK)).await.is_some() {
            let status = self.reports.status();
            let queued: usize = status.queued.iter().sum();
            let waiting = queued as f64 / (queued + status.limit).max(1) as f64;
            let gone = self.agents.tick(self.budget.taken().max(waiting));
            if let Some(sink) = self.sink.load().as_ref() {
                gone.iter().for_each(|node| sink.forget_agent(node));
            }
        }
    }
}

/// Serves agents on `listener` until the server's tasks stop. Waits for nothing: handshakes fail until
/// there is an authority, joins are refused until somebody counts.
pub fn start<C: ReportSink>(server: Server<C>, listener: TcpListener) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let tasks = server.tasks.clone();
    tasks.spawn("agents-tick", server.clone().tick());
    tasks.spawn_essential("agents", listen::serve(listener, server));
    Ok(())
}

fn grpc<Q, A>() -> tonic::server::Grpc<Codec<A, Q>>
where
    Q: prost::Message + Default + Send + 'static,
    A: prost::Message + Send + 'static,
{
    tonic::server::Grpc::new(Codec::default()).max_decoding_message_size(SMALL)
}

/// The request may drip, too.
async fn in_time(
    deadline: Deadline,
    answer: impl Future<Output = Response<Body>>,
) -> Result<Response<Body>, Infallible> {
    let late = |_| refuse(ErrorCode::TooLate, "not done in time").into_http();
    Ok(deadline.bound(answer).await.unwrap_or_else(late))
}

/// A place at a gate, in the share of `caller`: a node, or the address of who has not proved that it is one.
async fn admit(
    gate: &Gate,
    caller: &str,
    deadline: Deadline,
) -> Result<stallproof::gate::Permit, Status> {
    let admitted = gate.admit_for(caller, Priority::Normal, deadline).await;
    admitted.map_err(|no| come_back(ErrorCode::Overloaded, &no.to_string(), no.retry_after))
}

/// A refusal in gRPC's terms.
pub(super) fn refuse(code: ErrorCode, why: impl Into<String>) -> Status {
    Status::new(code.grpc(), why)
}

/// A refusal with a time to come back.
pub(super) fn come_back(code: ErrorCode, why: &str, after: Duration) -> Status {
    let mut status = refuse(code, why);
    status.metadata_mut().insert(RETRY, millis(after).into());
    status
}

/// A refusal of an incarnation that is over.
pub(super) fn outdated(why: &str, known: u64) -> Status {
    let mut status = refuse(ErrorCode::Outdated, why);
    status.metadata_mut().insert(KNOWN, known.into());
    status
}

/// The refusal of a certificate that is no longer valid.
pub(super) fn lapsed() -> Status {
    refuse(
        ErrorCode::Unauthenticated,
        "the certificate has expired, or the node was revoked: enrol with a token of \
         `fairlead agents token`",
    )
}

pub(super) fn unknown(unknown: UnknownAgent) -> Status {
    refuse(ErrorCode::NotFound, unknown.to_string())
}

fn refusal(refused: &Refused) -> Status {
    let why = refused.to_string();
    match refused {
        Refused::NotYet => come_back(ErrorCode::NotReady, &why, SOON),
        Refused::TooOften(after) => come_back(ErrorCode::Overloaded, &why, *after),
        Refused::BadName | Refused::BadKey | Refused::BadTtl => refuse(ErrorCode::Invalid, why),
        Refused::Unmade => refuse(ErrorCode::Internal, why),
        Refused::NotOurs | Refused::Expired | Refused::OtherNode | Refused::Revoked => {
            refuse(ErrorCode::Unauthenticated, why)
        }
    }
}

fn not_reviewed(error: &NotReviewed) -> Status {
    match error {
        // What the API server said is in our log; strangers need not know it.
        NotReviewed::Unavailable(_) | NotReviewed::TooLate | NotReviewed::NoPod(_) => {
            come_back(ErrorCode::NotReady, &error.to_string(), SOON)
        }
        NotReviewed::Unknown(_) | NotReviewed::OtherAccount { .. } | NotReviewed::Unbound => {
            refuse(ErrorCode::Unauthenticated, error.to_string())
        }
    }
}

fn on_the_wire(certified: Certified) -> proto::Certified {
    let Certified { certificate, authorities, until } = certified;
    let until = u64::try_from(until.as_millisecond()).unwrap_or_default();
    proto::Certified { certificate, authorities, until }
}
