//! Faults, for tests and replays: a step of the wiring hangs until it is let go. Not in a build that
//! serves anybody (feature `faults`).

use parking_lot::{Condvar, Mutex};

use crate::AttachmentKey;

/// The steps that hang, by container. Written by tests, read by every step.
static HANGING: Mutex<Vec<(String, &'static str)>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// While it is held, the step hangs.
#[derive(Debug)]
#[must_use]
pub struct Hang(String, &'static str);

/// `step` of `container` hangs from now on.
pub fn hang(container: &str, step: &'static str) -> Hang {
    let hang = (container.to_owned(), step);
    HANGING.lock().push(hang.clone());
    Hang(hang.0, hang.1)
}

impl Drop for Hang {
    fn drop(&mut self) {
        HANGING.lock().retain(|(container, step)| (container, step) != (&self.0, &self.1));
        CHANGED.notify_all();
    }
}

pub(crate) fn pass(key: &AttachmentKey, step: &'static str) {
    let mut hanging = HANGING.lock();
    while hanging.iter().any(|(container, at)| *container == key.container && *at == step) {
        CHANGED.wait(&mut hanging);
    }
}
