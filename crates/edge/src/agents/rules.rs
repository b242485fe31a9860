//! The stream of rules: everything first, unless the agent has it; then what changes.

use futures::{Stream, stream};
use protocol::proto;
use stallproof::snapshot::{Changes, View};
use tonic::Status;
use traffic::ingest::{RuleChange, Shipped};

use super::listen::Caller;
use super::report::Standing;
use super::{ReportSink, Server};

struct Following<C> {
    standing: Standing<C>,
    changes: Changes<Shipped>,
    /// What the agent has; none is nothing that we know.
    before: Option<View<Shipped>>,
    /// To be told at once.
    first: Option<View<Shipped>>,
}

pub(super) fn stream<C: ReportSink>(
    server: &Server<C>,
    caller: &Caller,
    asked: &proto::RulesRequest,
) -> Result<impl Stream<Item = Result<proto::RuleChange, Status>> + Send + use<C>, Status> {
    let standing = Standing::of(server, caller)?;
    let counts = server.counts.load();
    let counts = counts
        .as_ref()
        .ok_or_else(|| Status::unavailable("another replica counts: ask the leader"))?;
    // In this order: what is published in between is told twice, not missed.
    let changes = counts.shipped().subscribe();
    let now = counts.shipped().load();
    let has_it = asked.version == now.version;
    let (before, first) = if has_it { (Some(now), None) } else { (None, Some(now)) };
    let following = Following { standing, changes, before, first };
    Ok(stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        let next = match following.first.take() {
            Some(first) => first,
            None => tokio::select! {
                biased;
                status = following.standing.lost() => return Some((Err(status), None)),
                next = following.changes.changed() => next,
            },
        };
        let change = RuleChange::between(following.before.as_deref(), &next);
        following.before = Some(next);
        Some((Ok(change.into()), Some(following)))
    }))
}
