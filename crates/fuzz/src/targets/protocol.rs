//! What agents and controllers say to each other over gRPC.

use std::sync::Arc;

use bytes::Bytes;
use policy::program::{Delta, Program};
use prost::Message as _;
use protocol::program::{ChangeParts, encode_change, parts, totals_in};
use protocol::{decode_report, encode_report, proto};
use traffic::agents::Limits;
use traffic::ingest::RuleChange;

/// An agent's report: within its bounds, and the same when it is sent again.
pub(super) fn report(bytes: &[u8]) {
    let agent: Arc<str> = "agent".into();
    let limits = Limits::default();
    let Ok(report) = decode_report(&agent, Bytes::copy_from_slice(bytes), limits) else { return };
    assert!(report.records.len() <= limits.records);
    assert!(report.records.iter().all(|it| it.first <= it.last));
    let again = encode_report(&report).encode_to_vec();
    if again.len() <= limits.batch {
        assert_eq!(decode_report(&agent, again.into(), limits).as_ref(), Ok(&report));
    }
}

/// A change of a node's program: the same when it is sent again, and refused or made whole by a node that has
/// none.
pub(super) fn program(bytes: &[u8]) {
    let _ = proto::EnforcedRequest::decode(bytes).map(|status| totals_in(&status.totals));
    let take = |change: Bytes| {
        let mut together = ChangeParts::default();
        parts(change).find_map(|part| together.take(&part).transpose())
    };
    let Some(Ok(delta)) = take(Bytes::copy_from_slice(bytes)) else { return };
    let again: Option<Result<Delta, _>> = take(encode_change(&delta));
    assert_eq!(again, Some(Ok(delta.clone())));
    let mut program = Program::default();
    if program.apply(&delta).is_ok() {
        assert!(program.check().is_ok(), "a program that was made is not whole");
    }
}

/// A change of rules: the same when it is sent again.
pub(super) fn rules(bytes: &[u8]) {
    let Ok(message) = proto::RuleChange::decode(bytes) else { return };
    let Ok(change) = RuleChange::try_from(message) else { return };
    let again = RuleChange::try_from(proto::RuleChange::from(change.clone()));
    assert_eq!(again, Ok(change));
}
