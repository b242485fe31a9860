//! The resource types of `fairlead.dev/v1alpha1` and the store they live in.
//!
//! ```text
//!            ┌─ embedded    one redb file in the data directory, group commit, watchers fed from it
//! Objects ───┤
//!            └─ kubernetes  any API server, through kube; every call with a deadline
//! ```
//!
//! Controllers know only [`Objects`]; which engine is behind it is the binary's choice.
//!
//! ```text
//! reads   watch ──► Watched ──► Snapshot ──► whoever reads, KeyChanges
//! writes  Reconciler: fetch ──► plan ──► apply ──► status, again on a change, a failure, now and then
//! ```
//!
//! Of several processes on one store one leads ([`Election`]), and what it writes is fenced.
//!
//! Invariants:
//! 1. What was acknowledged is durable, and every watcher sees it.
//! 2. A watch begins with everything there is, then tells every change of an object in order; after
//!    a gap it begins again. It never ends by itself.
//! 3. Every call has a deadline. Conflicts, absences and refusals are values a caller can branch on.
//! 4. Nothing invalid is stored: a kind checks itself, whatever the server's schema can express.

mod embedded;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod install;
pub mod kinds;
mod kubernetes;
mod lease;
mod metadata;
mod name;
mod owner;
mod reconcile;
mod selector;
#[cfg(feature = "simulation")]
pub mod simulation;
mod store;
pub mod watched;
pub mod watching;

pub use embedded::OpenError;
pub use install::install;
pub use lease::{Election, Fence, Leader, Leadership, Timing, Token};
pub use name::is_subdomain;
pub use owner::uppermost_owner;
pub use reconcile::{Attempt, Next, Pace, Reconciler, Reconcilers, reconcile};
pub use selector::{BadSelector, Selector};
pub use store::{
    Deletion, Error, Event, Expected, Id, Invalid, KeptWatch, Kind, Listing, Objects, UntypedKind,
    Version, Watch, Within,
};
pub use watched::{Index, KeyChanges, Watched, WatchedIn};
