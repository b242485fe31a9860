//! The locks, atomics and clock that the primitives are built from: the real ones, or shuttle's
//! when schedules are explored.
//!
//! Under shuttle there is no clock: `sleep_until` never completes by itself, so a test decides what
//! expires by making a deadline that has already passed.

#[cfg(not(feature = "shuttle"))]
mod real {
    #[allow(unused_imports)]
    pub(crate) use parking_lot::Mutex;
    #[allow(unused_imports)]
    pub(crate) use std::sync::atomic;
    pub(crate) use tokio::time::sleep_until;
}

#[cfg(feature = "shuttle")]
mod explored {
    #[allow(unused_imports)]
    pub(crate) use shuttle::sync::atomic;

    /// shuttle's mutex with parking_lot's interface.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    pub(crate) async fn sleep_until(at: tokio::time::Instant) {
        if at > tokio::time::Instant::now() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(feature = "shuttle")]
#[allow(unused_imports)]
pub(crate) use explored::*;
#[cfg(not(feature = "shuttle"))]
#[allow(unused_imports)]
pub(crate) use real::*;
