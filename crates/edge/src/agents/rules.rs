//! The stream of rules: all of them first, unless the agent has them; then what changes.

use futures::{Stream, stream};
use protocol::proto;
use stallproof::snapshot::{Changes, View};
use tonic::Status;
use traffic::ingest::{AgentPolicy, RuleChange};

use super::listen::AgentPeer;
use super::report::StreamAuthorization;
use super::server::{NOT_LEADING, refuse};
use super::{ReportSink, Server};
use crate::error_code::ErrorCode;

struct Following<C> {
    authorization: StreamAuthorization<C>,
    changes: Changes<AgentPolicy>,
    /// The rules that the agent has; none if that is not known.
    before: Option<View<AgentPolicy>>,
    /// The rules to send at once.
    first: Option<View<AgentPolicy>>,
}

pub(super) fn stream<C: ReportSink>(
    server: &Server<C>,
    peer: &AgentPeer,
    asked: &proto::RulesRequest,
) -> Result<impl Stream<Item = Result<proto::RuleChange, Status>> + Send + use<C>, Status> {
    let authorization = StreamAuthorization::of(server, peer)?;
    let sink = server.sink.load();
    let sink = sink.as_ref().ok_or_else(|| refuse(ErrorCode::NotReady, NOT_LEADING))?;
    // In this order: what is published in between is told twice, not missed.
    let changes = sink.agent_policy().subscribe();
    let now = sink.agent_policy().load();
    let has_it = asked.version == now.version;
    let (before, first) = if has_it { (Some(now), None) } else { (None, Some(now)) };
    let following = Following { authorization, changes, before, first };
    Ok(stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        let next = match following.first.take() {
            Some(first) => first,
            None => tokio::select! {
                biased;
                status = following.authorization.lost() => return Some((Err(status), None)),
                next = following.changes.changed() => next,
            },
        };
        let change = RuleChange::between(following.before.as_deref(), &next);
        following.before = Some(next);
        Some((Ok(change.into()), Some(following)))
    }))
}
