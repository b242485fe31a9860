//! Admission: what may enter a cluster.
//!
//! ```text
//! AdmissionReview ──► Request ─┐
//!                              ├──► decide ──► Decision ──► AdmissionReview
//! AdmissionRules ──► Program ──┘       ▲
//!                                    Facts (published snapshots; each may answer "unknown")
//! ```
//!
//! Invariants: rules are compiled once, on change; deciding takes no lock, does no I/O and cannot
//! panic or run away on any input; what a rule does not say is let through; an answer names the
//! rule, the container and the criterion, and never a secret's value.

mod audit;
mod cluster_facts;
mod compile;
mod criteria;
mod decide;
mod facts;
mod glob;
mod hostpath;
mod image;
mod images;
mod import;
mod item;
mod metrics;
mod ownership;
mod pod;
mod recent_owners;
mod registration;
mod request;
mod rules;
mod running;
mod service;
mod unreadable;
mod webhook_upkeep;

pub use audit::{Audit, AuditKey, Decided, Line, Outcome};
pub use compile::{Program, Settings};
pub use decide::{Checked, Decision, Explained, Hit, decide, explain};
pub use facts::{Facts, Owner, RiskyTags, Unknown};
pub use images::{
    Document, ImageLimits, Images, Reports, ShownFinding, ShownImage, ShownRecord, Unreadable,
    document,
};
pub use import::{Imported, Note, import};
pub use registration::{CONFIGURATION, FailurePolicy, Reach, Registration, path};
pub use request::{Malformed, Operation, Request, Version, response};
pub use rules::{Listed, Rules};
pub use running::{RunningAudit, RunningFinding, RunningKey, lead_running};
pub use service::{Admission, LOCAL_CLUSTER, Undecided};
pub use webhook_upkeep::{WebhookUpkeep, lead, lead_certificates, unregister};

#[cfg(test)]
mod tests;
