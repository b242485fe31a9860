//! Admission: rules, requests, decisions; and what runs them for clusters that ask.

mod audit;
pub(crate) mod certificates;
mod compile;
mod criteria;
mod decide;
mod facts;
mod glob;
mod hostpath;
mod image;
mod import;
mod item;
mod judge;
mod known;
mod lead;
mod metrics;
mod ownership;
mod pod;
mod registration;
mod request;
mod rules;
mod seen;
mod unreadable;

pub use audit::{Audit, Decided, Line, Outcome, Subject};
pub use certificates::{
    CertificateChanges, Certificates, Lifetimes, PUBLISHED, PrivateKey, Serving,
};
pub use compile::{Program, Settings};
pub use decide::{Checked, Decision, Explained, Hit, decide, explain};
pub use facts::{Facts, ImageFacts, Owner, RiskyTags, Unknown};
pub use import::{Imported, Note, import};
pub use judge::{Admission, HERE, Undecided};
pub use lead::{Charge, lead, lead_certificates, unregister};
pub use registration::{CONFIGURATION, FailurePolicy, Reach, Registration, path};
pub use request::{Malformed, Operation, Request, Version, response};
pub use rules::{Listed, Rules};

#[cfg(test)]
mod tests;
