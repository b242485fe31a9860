//! The stream of reports: a batch is read, counted and answered before the next one is looked at, so
//! an agent has one in our hands at a time.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use pki::agents::{Authority, AuthorityChanges, Bearer};
use protocol::proto::answer::Answer;
use protocol::{AGENT, Batch, proto};
use stallproof::gate::LoadSignal;
use stallproof::ledger::Outcome as End;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Op, Priority, Stop};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tracing::Instrument;
use traffic::agents::{ReportStream, Outcome, SILENT};
use traffic::conversations::Report;
use traffic::ingest::{Counted, NotCounted};

use super::codec::Codec;
use super::frames::{Framed, Frames};
use super::listen::AgentPeer;
use super::server::{NOT_LEADING, lapsed, millis, outdated, refuse, unknown};
use super::{ReportSink, Server};
use crate::error_code::ErrorCode;

/// The time for counting a batch.
const COUNT: Duration = Duration::from_secs(10);

/// What a stream stands on: a valid certificate, a replica that leads, a process that does not stop.
pub(super) struct StreamAuthorization<C> {
    bearer: Option<(Bearer, Authority, AuthorityChanges)>,
    counts: Changes<Option<C>>,
    stop: Stop,
}

impl<C: ReportSink> StreamAuthorization<C> {
    /// The standing of a peer whose certificate is valid.
    pub(super) fn of(server: &Server<C>, peer: &AgentPeer) -> Result<Self, Status> {
        // Before the look: a change after it is not missed.
        let (counts, stop) = (server.counts.subscribe(), server.tasks.stopping());
        let changes = server.authority.as_ref().map(|it| (it.clone(), it.changes()));
        let bearer = server.known(peer)?;
        let bearer =
            bearer.zip(changes).map(|(bearer, (authority, changes))| (bearer, authority, changes));
        Ok(Self { bearer, counts, stop })
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
            _ = self.counts.changed() => refuse(ErrorCode::NotReady, NOT_LEADING),
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
    counts: C,
    standing: StreamAuthorization<C>,
    attendance: ReportStream,
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
        let standing = StreamAuthorization::of(&server, peer)?;
        let id = request.headers().get(AGENT).and_then(|id| id.to_str().ok());
        let id =
            id.ok_or_else(|| refuse(ErrorCode::Invalid, "the header fairlead-agent is missing"))?;
        server.own(standing.bearer(), id)?;
        let counts = (*server.counts.load()).clone();
        let counts = counts.ok_or_else(|| refuse(ErrorCode::NotReady, NOT_LEADING))?;
        let attendance = server.agents.attend(id).map_err(unknown)?;
        let largest = server.agents.limits().batch;
        let frames = Frames::new(request.into_body(), largest, server.budget.clone());
        Ok(Self { server, counts, standing, attendance, frames })
    }

    /// The answer to the next batch; none when the agent has ended the stream.
    async fn next(&mut self) -> Result<Option<proto::Answer>, Status> {
        let begun = tokio::select! {
            biased;
            status = self.standing.lost() => return Err(status),
            () = self.attendance.ended() => {
                return Err(refuse(ErrorCode::Conflict, "another stream, or another joining, took its place"));
            }
            begun = Deadline::after(SILENT).bound(self.frames.wait()) => begun,
        };
        let begun =
            begun.map_err(|_| refuse(ErrorCode::TooLate, "nothing was heard for long"))??;
        if !begun {
            return Ok(None);
        }
        let node = &self.attendance.agent.node;
        let op = self.server.ledger.begin("agent-report", node.to_string(), node.to_string());
        op.step("read");
        let Framed { bytes, room } = self.frames.read().await?;
        if !self.standing.holds() {
            return Err(lapsed());
        }
        // On the heap while it lasts: most of the time an agent has nothing to count.
        let span = op.span();
        let answer = Box::pin(self.count(bytes, op).instrument(span)).await;
        drop(room);
        answer.map(|answer| Some(proto::Answer { answer: Some(answer) }))
    }

    async fn count(&self, bytes: Bytes, op: Op) -> Result<Answer, Status> {
        let node = &self.attendance.agent.node;
        op.step("decode");
        let batch = Batch::decode(bytes, self.server.agents.limits()).map_err(|malformed| {
            self.attendance.not_counted(Outcome::Malformed);
            refuse(ErrorCode::Invalid, malformed.to_string())
        })?;
        let Batch { incarnation, sequence, records, dropped, workloads } = batch;
        if incarnation != self.attendance.agent.facts.incarnation {
            self.attendance.not_counted(Outcome::Malformed);
            return Err(refuse(
                ErrorCode::Invalid,
                "the batch is of another incarnation than joined",
            ));
        }
        if let Err(wait) = self.attendance.heard(dropped) {
            op.finish(End::Refused);
            return Ok(self.come_back(Outcome::TooFast, wait));
        }
        op.step("gate");
        let deadline = Deadline::after(COUNT);
        let permit = match self.server.reports.admit(Priority::Low, deadline).await {
            Ok(permit) => permit,
            Err(refused) => {
                op.finish(End::Refused);
                return Ok(self.come_back(Outcome::Busy, refused.retry_after));
            }
        };
        op.step("count");
        if let Some(workloads) = workloads {
            self.counts.pods_of(node, &workloads);
        }
        let report = Report { agent: node.clone(), incarnation, sequence, records };
        let counted = self.counts.offer(&report, self.server.agents.living(), deadline).await;
        match counted {
            Ok(Counted { through, durable }) => {
                self.attendance.counted(report.records.len(), through, durable);
                op.finish(End::Done);
                let interval_ms = millis(self.server.agents.interval());
                Ok(Answer::Counted(proto::Counted { through, durable, interval_ms }))
            }
            Err(NotCounted::Busy { retry }) => {
                permit.end(LoadSignal::Failed);
                op.finish(End::Refused);
                Ok(self.come_back(Outcome::Busy, retry))
            }
            Err(NotCounted::Outdated { known }) => {
                permit.end(LoadSignal::Ignored);
                op.finish(End::Refused);
                self.attendance.not_counted(Outcome::Outdated);
                Err(outdated("an agent of this node has begun later", known))
            }
        }
    }

    /// Up to half as long again, so that those who were refused together do not come together.
    fn come_back(&self, outcome: Outcome, after: Duration) -> Answer {
        self.attendance.not_counted(outcome);
        let after = after.mul_f64(1.0 + fastrand::f64() / 2.0);
        Answer::ComeBack(proto::ComeBack { after_ms: millis(after).max(1) })
    }
}
