//! Dumps in, findings out. One rule a file; what the evidence cannot carry is not said.

mod cycle;
mod entry;
mod holder;
mod lock;
mod owner;
mod queue;
mod remedy;
mod scene;
mod wait;
pub(crate) mod words;

pub use remedy::remedy;

use crate::goroutine::{Dump, Form, ProfileKind};
use crate::report::Finding;

use lock::Locks;
use scene::Scene;

/// What one dump shows by itself.
pub fn examine(dump: &Dump) -> Vec<Finding> {
    if dump.form == Form::Text || !matches!(dump.kind, ProfileKind::Goroutine | ProfileKind::GoroutineLeak) {
        return Vec::new();
    }
    let scene = Scene::new(dump);
    Locks::new(&scene).findings()
}
