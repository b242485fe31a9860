//! The stream of reports: a report is read, counted and answered before the next one is read, so that an
//! agent has one report in memory at a time.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use pki::agents::{Authority, AuthorityChanges, Bearer};
use protocol::{AGENT, Answer, decode_report, proto};
use stallproof::gate::LoadSignal;
use stallproof::ledger::Outcome;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Op, Priority, Stop};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tracing::Instrument;
use traffic::agents::{ReportOutcome, ReportStream, SILENT};
use traffic::ingest::{Counted, NotCounted};

use super::codec::Codec;
use super::frames::{Framed, Frames};
use super::listen::AgentPeer;
use super::server::{NOT_LEADING, lapsed, outdated, refuse, unknown};
use super::{ReportSink, Server};
use crate::error_code::ErrorCode;

/// The time for counting a report.
const COUNT: Duration = Duration::from_secs(10);

/// What a stream stands on: a valid certificate, a replica that leads, a process that does not stop.
pub(super) struct StreamAuthorization<C> {
    bearer: Option<(Bearer, Authority, AuthorityChanges)>,
    sinks: Changes<Option<C>>,
    stop: Stop,
}

impl<C: ReportSink> StreamAuthorization<C> {
    /// The standing of a peer whose certificate is valid.
    pub(super) fn of(server: &Server<C>, peer: &AgentPeer) -> Result<Self, Status> {
        // Before the look: a change after it is not missed.
        let (sinks, stop) = (server.sink.subscribe(), server.tasks.stopping());
        let changes = server.authority.as_ref().map(|it| (it.clone(), it.changes()));
        let bearer = server.known(peer)?;
        let bearer =
            bearer.zip(changes).map(|(bearer, (authority, changes))| (bearer, authority, changes));
        Ok(Self { bearer, sinks, stop })
    }

    pub(super) fn bearer(&self) -> Option<&Bearer> {
        self.bearer.as_ref().map(|(bearer, ..)| bearer)
    }

    /// Returns the refusal when one of them is lost. May be dropped and called again.
    pub(super) async fn lost(&mut self) -> Status {
        let revoked = async {
            let Some((bearer, authority, changes)) = &mut self.bearer else {
                return std::future::pending().await;
            };
            loop {
                changes.changed().await;
                if !authority.holds(bearer) {
                    return;
                }
            }
        };
        tokio::select! {
            () = revoked => lapsed(),
            _ = self.sinks.changed() => refuse(ErrorCode::NotReady, NOT_LEADING),
            () = self.stop.stopped() => refuse(ErrorCode::NotReady, "this controller stops"),
        }
    }

    /// A certificate ends also without anybody saying so.
    fn holds(&self) -> bool {
        self.bearer.as_ref().is_none_or(|(bearer, authority, _)| authority.holds(bearer))
    }
}

struct Reports<C> {
    server: Server<C>,
    sink: C,
    authorization: StreamAuthorization<C>,
    stream: ReportStream,
    frames: Frames,
}

pub(super) fn serve<C: ReportSink>(
    server: Server<C>,
    peer: &AgentPeer,
    request: Request<Incoming>,
) -> Response<Body> {
    let reports = match Reports::open(server, peer, request) {
        Ok(reports) => reports,
        Err(refused) => return refused.into_http(),
    };
    let answers = stream::unfold(Some(reports), |reports| async move {
        let mut reports = reports?;
        match reports.next().await {
            Ok(Some(answer)) => Some((Ok(answer), Some(reports))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    });
    let encoder = Codec::<proto::Answer, proto::Batch>::default().encoder();
    let plain = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, answers, None, plain, None);
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

impl<C: ReportSink> Reports<C> {
    fn open(
        server: Server<C>,
        peer: &AgentPeer,
        request: Request<Incoming>,
    ) -> Result<Self, Status> {
        let authorization = StreamAuthorization::of(&server, peer)?;
        let id = request.headers().get(AGENT).and_then(|id| id.to_str().ok());
        let id =
            id.ok_or_else(|| refuse(ErrorCode::Invalid, "the header fairlead-agent is missing"))?;
        server.own(authorization.bearer(), id)?;
        let sink = (*server.sink.load()).clone();
        let sink = sink.ok_or_else(|| refuse(ErrorCode::NotReady, NOT_LEADING))?;
        let stream = server.agents.open_stream(id).map_err(unknown)?;
        let largest = server.agents.limits().batch;
        let frames = Frames::new(request.into_body(), largest, server.budget.clone());
        Ok(Self { server, sink, authorization, stream, frames })
    }

    /// The answer to the next report; none when the agent has ended the stream.
    async fn next(&mut self) -> Result<Option<proto::Answer>, Status> {
        let begun = tokio::select! {
            biased;
            status = self.authorization.lost() => return Err(status),
            () = self.stream.ended() => {
                return Err(refuse(ErrorCode::Conflict, "another stream, or another joining, took its place"));
            }
            begun = Deadline::after(SILENT).bound(self.frames.wait()) => begun,
        };
        let begun =
            begun.map_err(|_| refuse(ErrorCode::TooLate, "nothing was heard for long"))??;
        if !begun {
            return Ok(None);
        }
        let node = &self.stream.agent.node;
        let op = self.server.ledger.begin("agent-report", node.to_string(), node.to_string());
        op.step("read");
        let Framed { bytes, room } = self.frames.read().await?;
        if !self.authorization.holds() {
            return Err(lapsed());
        }
        // On the heap while it lasts: most of the time an agent has nothing to count.
        let span = op.span();
        let answer = Box::pin(self.count(bytes, op).instrument(span)).await;
        drop(room);
        answer.map(|answer| Some(answer.into()))
    }

    async fn count(&self, bytes: Bytes, op: Op) -> Result<Answer, Status> {
        let agent = &self.stream.agent;
        let malformed = |why: String| {
            self.stream.not_counted(ReportOutcome::Malformed);
            refuse(ErrorCode::Invalid, why)
        };
        op.step("decode");
        let report = decode_report(&agent.node, bytes, self.server.agents.limits());
        let report = report.map_err(|error| malformed(error.to_string()))?;
        if report.incarnation != agent.facts.incarnation {
            let why = "the report is of another incarnation than the agent joined with";
            return Err(malformed(why.to_owned()));
        }
        if let Err(wait) = self.stream.heard(report.dropped) {
            op.finish(Outcome::Refused);
            return Ok(self.come_back(ReportOutcome::TooFast, wait));
        }
        op.step("gate");
        let deadline = Deadline::after(COUNT);
        let permit = match self.server.reports.admit_for(&agent.node, Priority::Low, deadline).await
        {
            Ok(permit) => permit,
            Err(refused) => {
                op.finish(Outcome::Refused);
                return Ok(self.come_back(ReportOutcome::Busy, refused.retry_after));
            }
        };
        let alive = self.server.agents.living();
        match self.sink.offer(&report, alive, deadline, &op).await {
            Ok(Counted { through, durable }) => {
                self.stream.counted(report.records.len(), through, durable);
                op.finish(Outcome::Done);
                let interval = self.server.agents.interval();
                Ok(Answer::Counted { through, durable, interval })
            }
            Err(NotCounted::Busy { retry }) => {
                permit.end(LoadSignal::Failed);
                op.finish(Outcome::Refused);
                Ok(self.come_back(ReportOutcome::Busy, retry))
            }
            Err(NotCounted::Outdated { known }) => {
                permit.end(LoadSignal::Ignored);
                op.finish(Outcome::Refused);
                self.stream.not_counted(ReportOutcome::Outdated);
                Err(outdated("an agent of this node has begun later", known))
            }
        }
    }

    /// Adds up to half as long again, so that agents that were refused together do not come together.
    fn come_back(&self, outcome: ReportOutcome, after: Duration) -> Answer {
        self.stream.not_counted(outcome);
        Answer::ComeBack { after: after.mul_f64(1.0 + fastrand::f64() / 2.0) }
    }
}
