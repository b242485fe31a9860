//! The stream of a node's policy program: what leads from what the agent has to the newest, then changes.
//!
//! A task feeds the stream, so that a deadline runs also where nobody takes anything from it. What waits to
//! be sent is one change; of those that are long only some are in memory at a time.

use std::time::Duration;

use ::programs::{Applied, Ended, Enforced, Follower, NotAnswered, Position};
use futures::{Stream, stream};
use policy::program::{Delta, Fingerprint};
use protocol::program::{REASONS, encode_change, fingerprint_in, parts, totals_in};
use protocol::proto;
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Op};
use tokio::sync::mpsc;
use tonic::Status;

use super::listen::AgentPeer;
use super::report::StreamAuthorization;
use super::server::{NOT_LEADING, come_back, refuse, unknown};
use super::{ReportSink, Server};
use crate::error_code::ErrorCode;

/// A change that touches more than this is long: some dozen kilobytes.
const LONG: usize = 1000;
/// Long changes in memory at a time. One of ten thousand addresses has 200 KB.
pub(super) const LONG_CHANGES: usize = 64;
/// For an agent to take one change.
const TAKE: Duration = Duration::from_secs(30);
/// When to come back for a program that is not there yet.
const SOON: Duration = Duration::from_secs(1);
/// The most of an agent's explanation that is kept.
const EXPLANATION: usize = 500;

type Part = Result<proto::ProgramPart, Status>;

pub(super) async fn stream<C: ReportSink>(
    server: &Server<C>,
    peer: &AgentPeer,
    asked: &proto::ProgramsRequest,
    deadline: Deadline,
) -> Result<impl Stream<Item = Part> + Send + use<C>, Status> {
    let authorization = StreamAuthorization::of(server, peer)?;
    server.own(authorization.bearer(), &asked.agent)?;
    let node = server.agents.find(&asked.agent).map_err(unknown)?.node;
    let programs = server.programs.read(Clone::clone);
    let programs = programs.ok_or_else(|| come_back(ErrorCode::NotReady, NOT_LEADING, SOON))?;
    let follower = programs
        .follow(&node, position(asked)?, deadline)
        .await
        .map_err(|error| not_yet(&error))?;
    // One: the rest of a change waits in the task.
    let (sender, receiver) = mpsc::channel(1);
    let feeding = Feeding { server: server.clone(), node, authorization, follower, sender };
    server.tasks.spawn("agent-program", feeding.run());
    Ok(stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))))
}

/// What an agent says about a change that it was sent.
pub(super) fn applied(asked: proto::AppliedRequest) -> Applied {
    let proto::AppliedRequest { generation, error, .. } = asked;
    let error: String = error.chars().take(EXPLANATION).collect();
    Applied { generation, error: (!error.is_empty()).then_some(error) }
}

/// What an agent says of how its node enforces its program.
pub(super) fn enforced(asked: proto::EnforcedRequest) -> Result<Enforced, Status> {
    let proto::EnforcedRequest { uncovered, totals, anew, .. } = asked;
    let totals =
        totals_in(&totals).map_err(|error| refuse(ErrorCode::Invalid, error.to_string()))?;
    let short = |reason: String| reason.chars().take(EXPLANATION).collect();
    let uncovered = uncovered.into_iter().take(REASONS).map(short).collect();
    Ok(Enforced { uncovered, totals, anew })
}

fn position(asked: &proto::ProgramsRequest) -> Result<Position, Status> {
    let fingerprint = match asked.generation {
        0 => Fingerprint(0),
        _ => fingerprint_in(&asked.fingerprint)
            .map_err(|error| refuse(ErrorCode::Invalid, error.to_string()))?,
    };
    Ok(Position { generation: asked.generation, fingerprint })
}

fn not_yet(error: &NotAnswered) -> Status {
    let code = match error {
        NotAnswered::Busy | NotAnswered::TooLate => ErrorCode::Overloaded,
        NotAnswered::Ended | NotAnswered::NotRead(_) => ErrorCode::NotReady,
    };
    come_back(code, &error.to_string(), SOON)
}

struct Feeding<C> {
    server: Server<C>,
    node: std::sync::Arc<str>,
    authorization: StreamAuthorization<C>,
    follower: Follower,
    sender: mpsc::Sender<Part>,
}

impl<C: ReportSink> Feeding<C> {
    async fn run(mut self) {
        if let Err(Some(status)) = self.feed().await {
            // If there is no room, the agent takes nothing anyway.
            let _ = self.sender.try_send(Err(status));
        }
    }

    /// Feeds until something ends it; without a reason if the agent has gone.
    async fn feed(&mut self) -> Result<(), Option<Status>> {
        loop {
            let delta = tokio::select! {
                biased;
                status = self.authorization.lost() => return Err(Some(status)),
                () = self.sender.closed() => return Err(None),
                next = self.follower.next() => next.map_err(|ended| Some(ended_as(ended)))?,
            };
            let op = self.server.ledger.begin(
                "agent-program",
                self.node.to_string(),
                self.node.to_string(),
            );
            let span = op.span();
            let sent = self.send(delta, &op);
            tracing::Instrument::instrument(sent, span).await?;
            op.step("acknowledgement");
            tokio::select! {
                biased;
                status = self.authorization.lost() => return Err(Some(status)),
                () = self.sender.closed() => return Err(None),
                done = self.follower.acknowledged() => {
                    done.map_err(|ended| Some(ended_as(ended)))?;
                }
            }
            op.finish(Outcome::Done);
        }
    }

    async fn send(&self, delta: Delta, op: &Op) -> Result<(), Option<Status>> {
        let deadline = Deadline::after(TAKE);
        let late = || Some(refuse(ErrorCode::TooLate, "a change was not taken in time"));
        op.step("room");
        let _room = match delta.size() > LONG {
            true => {
                let room = deadline.bound(self.server.long_changes.acquire()).await;
                Some(room.map_err(|_| {
                    Some(come_back(ErrorCode::Overloaded, "too many long changes are sent", SOON))
                })?)
            }
            false => None,
        };
        op.step("send");
        let encoded = encode_change(&delta);
        drop(delta);
        for part in parts(encoded) {
            let sent = deadline.bound(self.sender.send(Ok(part))).await;
            sent.map_err(|_| late())?.map_err(|_| None)?;
        }
        Ok(())
    }
}

fn ended_as(ended: Ended) -> Status {
    let code = match ended {
        Ended::Replaced => ErrorCode::Conflict,
        Ended::Silent => ErrorCode::TooLate,
        Ended::Failed => ErrorCode::Conflict,
        Ended::Over => ErrorCode::NotReady,
    };
    refuse(code, ended.to_string())
}
