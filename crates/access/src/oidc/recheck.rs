//! Asks providers again about the users who are active: whether they are still there, and in which groups.
//!
//! Contract: a session is checked every `recheckSeconds` of its provider while its user is active, which
//! an open stream is as well; one check at a time. What is checked before a place is free waits for the
//! next second. A provider that is away changes nothing; one that says no ends the session.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stallproof::{Deadline, Tasks};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::endpoints::{ProviderError, Purpose};
use super::{Federation, Provider};
use crate::access::Access;
use crate::secret::Secret;
use crate::session::Session;

const TICK: Duration = Duration::from_millis(500);
/// A user who did something within this time is active. Streams look every two seconds.
const ACTIVE: Duration = Duration::from_secs(60);
/// The time for one check: the token, and what the provider says of the user.
const CHECK: Duration = Duration::from_secs(10);
/// Marks a check that is under way.
const UNDER_WAY: u64 = u64::MAX;

pub(super) fn start(access: &Access, tasks: &Tasks) {
    let (access, all, stop) = (access.clone(), tasks.clone(), tasks.stopping());
    tasks.spawn_essential("oidc rechecks", async move {
        let began = Instant::now();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.bound(tick.tick()).await.is_some() {
            round(&access, began, &all);
        }
    });
}

/// Starts the checks that are due, and removes the accounts of users who have no session any more.
fn round(access: &Access, began: Instant, tasks: &Tasks) {
    let now = millis(began.elapsed());
    for session in access.0.sessions.active_with_grant(ACTIVE) {
        let Some(grant) = &session.grant else { continue };
        let provider = access.0.directory.read(|all| all.provider(&grant.provider).cloned());
        let provider = provider.filter(|provider| provider.stamp == grant.provider_stamp);
        let Some(provider) = provider else {
            access.0.sessions.end(session.id);
            continue;
        };
        let due = grant.due.load(Relaxed);
        if due == 0 {
            // A login is a check itself.
            grant.due.store(now + millis(provider.recheck()), Relaxed);
            continue;
        }
        if due > now || !grant.can_be_checked() {
            continue;
        }
        let Some(place) = provider.calls.recheck_place() else { continue };
        grant.due.store(UNDER_WAY, Relaxed);
        let under_way = UnderWay { session, began, every: provider.recheck() };
        let (access, stop) = (access.clone(), tasks.stopping());
        tasks.spawn("oidc recheck", async move {
            let _place = place;
            stop.bound(check(&access, &provider, &under_way.session)).await;
        });
    }
    let (sessions, visitors) = (&access.0.sessions, &access.0.visitors);
    access.0.directory.update(|directory| {
        directory.retain_federated(|user| sessions.has_any(user) || visitors.has(user))
    });
}

/// A check that is under way; the next one is due some time after it ends, however it ends.
struct UnderWay {
    session: Arc<Session>,
    began: Instant,
    every: Duration,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(grant) = &self.session.grant {
            grant.due.store(millis(self.began.elapsed() + self.every), Relaxed);
        }
    }
}

async fn check(access: &Access, provider: &Provider, session: &Arc<Session>) {
    let (Some(federation), Some(grant)) = (access.0.federation.get(), &session.grant) else {
        return;
    };
    let Some(refresh) = grant.refresh.lock().clone() else { return };
    let checked = ask(federation, access, provider, session, refresh).await;
    match checked {
        Ok(()) => {}
        Err(ProviderError::Away(why)) => {
            tracing::debug!(provider = %provider.name, user = %session.user, why, "not rechecked");
        }
        Err(ProviderError::Busy { .. }) => {}
        Err(error) => {
            let why = error.of(provider).to_string();
            tracing::info!(user = %session.user, session = %session.id, why, "session ended");
            access.0.sessions.end(session.id);
        }
    }
}

async fn ask(
    federation: &Federation,
    access: &Access,
    provider: &Provider,
    session: &Session,
    refresh: Secret,
) -> Result<(), ProviderError> {
    let Some(grant) = &session.grant else { return Ok(()) };
    let deadline = Deadline::after(CHECK);
    let form = vec![
        ("grant_type".to_owned(), Secret::new("refresh_token")),
        ("refresh_token".to_owned(), refresh),
    ];
    let tokens = federation.tokens_for(access, provider, form, Purpose::Recheck, deadline).await?;
    if let Some(next) = &tokens.refresh_token {
        *grant.refresh.lock() = Some(next.clone());
    }
    let subject = Some(&*grant.subject);
    let federated = federation.federated(provider, &tokens, None, subject, deadline).await?;
    if federated.user != session.user {
        return Err(ProviderError::Refused("the user has another name now".to_owned()));
    }
    access.0.directory.update(|directory| directory.federate(federated));
    Ok(())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(UNDER_WAY - 1).min(UNDER_WAY - 1)
}
