//! Admission: rules, requests, decisions.

mod compile;
mod criteria;
mod decide;
mod facts;
mod glob;
mod image;
mod import;
mod pod;
mod request;

pub use compile::{Program, Settings};
pub use decide::{Checked, Decision, Explained, Hit, decide, explain};
pub use facts::{Facts, ImageFacts, Owner, RiskyTags, Unknown};
pub use import::{Imported, Note, import};
pub use request::{Malformed, Operation, Request, Version, response};

#[cfg(test)]
mod tests;
