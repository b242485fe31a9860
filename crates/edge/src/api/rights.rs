//! `Rights`: whether a stream may still go on.
//!
//! Contract: who is no longer who they were (a token revoked, a session ended, a user disabled), or
//! may no longer do what was opened, is found out within [`LOOK`], whether or not anything happens.

use std::sync::Arc;
use std::time::Duration;

use access::{Access, AccessRequest, Identity, Permissions, Verb};
use axum::response::sse::Event;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Api, Caller, sse};

const LOOK: Duration = Duration::from_secs(2);

/// The reason that a stream ends with when its reader loses the right to it.
pub(crate) const LOST: &str = "your permissions have changed; open it again if you still may";

type Still = dyn Fn(&Arc<Permissions>) -> bool + Send + Sync;

pub(crate) struct Rights {
    access: Access,
    who: Identity,
    still: Box<Still>,
    look: Interval,
}

impl Rights {
    /// Rights that are held as long as `still` says so of the caller's permissions.
    pub(crate) fn new(
        api: &Api,
        caller: &Caller,
        still: impl Fn(&Arc<Permissions>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (access, who) = (api.access.clone(), caller.who.clone());
        Self { access, who, still: Box::new(still), look }
    }

    /// Rights that are held as long as the caller may do this one thing.
    pub(crate) fn to(
        api: &Api,
        caller: &Caller,
        (cluster, namespace): (&str, Option<&str>),
        resource: &'static str,
        verb: Verb,
    ) -> Self {
        let (cluster, namespace) = (cluster.to_owned(), namespace.map(ToOwned::to_owned));
        Self::new(api, caller, move |permissions| {
            let namespace = namespace.as_deref();
            let ask = AccessRequest { cluster: &cluster, namespace, resource, verb };
            access::decide(permissions, &ask).is_allowed()
        })
    }

    pub(crate) fn are_held(&self) -> bool {
        self.access.is_still(&self.who) && (self.still)(&self.access.permissions(&self.who))
    }

    /// Returns when they are lost. May be dropped and asked again.
    pub(crate) async fn lost(&mut self) {
        loop {
            self.look.tick().await;
            if !self.are_held() {
                return;
            }
        }
    }

    /// `items` as long as they are held; they are looked at before each item, too. Then `last`.
    pub(crate) fn guard<T: Send + 'static>(
        self,
        items: impl Stream<Item = T> + Send + 'static,
        last: impl FnOnce() -> T + Send + 'static,
    ) -> impl Stream<Item = T> + Send + 'static {
        let open = Some((self, items.boxed(), last));
        stream::unfold(open, |open| async move {
            let (mut rights, mut items, last) = open?;
            tokio::select! {
                biased;
                () = rights.lost() => Some((last(), None)),
                next = items.next() => match next? {
                    item if rights.are_held() => Some((item, Some((rights, items, last)))),
                    _ => Some((last(), None)),
                },
            }
        })
    }

    /// As `guard`, of events: the last one is `end`.
    pub(crate) fn guard_events(
        self,
        events: impl Stream<Item = Event> + Send + 'static,
    ) -> impl Stream<Item = Event> + Send + 'static {
        self.guard(events, || sse::end(LOST))
    }
}
