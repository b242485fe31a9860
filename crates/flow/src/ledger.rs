//! `Ledger`: every operation in flight. (Interface only; the owner of this file fills it in.)

use std::borrow::Cow;
use std::sync::Arc;

/// Names one operation for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<()>);

/// One operation in flight; dropping it takes it off the ledger.
#[derive(Debug)]
pub struct Op {
    id: OpId,
}

impl Ledger {
    pub fn begin(
        &self,
        _kind: &'static str,
        _key: impl Into<Cow<'static, str>>,
        _tenant: impl Into<Cow<'static, str>>,
    ) -> Op {
        Op { id: OpId(0) }
    }
}

impl Op {
    pub fn id(&self) -> OpId {
        self.id
    }

    /// Ends the step before and begins this one.
    pub fn step(&self, _name: &'static str) {}

    /// Says what this operation now waits on, and which operation holds that, if known.
    /// Cleared by the next `step`.
    pub fn waits_on(&self, _what: impl Into<Cow<'static, str>>, _holder: Option<OpId>) {}
}
