//! Looks up the names of endpoints, beside all other work: a resolver that does not answer holds up
//! nothing but its names.
//!
//! Contract: a name is looked up when it is first wanted, every [`AGE`], and every [`DEAD_AGE`] while
//! nobody answers where it leads; a few at a time. What was found stays while nothing else is.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use stallproof::{Deadline, Snapshot, Stop};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

const AGE: Duration = Duration::from_secs(60);
const DEAD_AGE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(500);
const LOOKUP: Duration = Duration::from_secs(3);
/// How many names are looked up at once; the others have their turn afterwards.
const LOOKUPS: usize = 16;

/// A host and a port.
pub(crate) type Name = (String, u16);

/// Where names lead.
pub(crate) type Found = BTreeMap<Name, SocketAddr>;

/// The names that are wanted, each with whether nobody answers there, and where they lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) wanted: Snapshot<BTreeMap<Name, bool>>,
    pub(crate) found: Snapshot<Found>,
}

/// Looks names up until `stop`.
pub(crate) async fn run(names: Names, stop: Stop) {
    let (mut wanted, mut looked) = (names.wanted.subscribe(), HashMap::<Name, Instant>::new());
    while !stop.is_stopped() {
        let all = names.wanted.load();
        looked.retain(|name, _| all.contains_key(name));
        names.found.update(|found| {
            let before = found.len();
            found.retain(|name, _| all.contains_key(name));
            found.len() != before
        });
        let due = all.iter().filter(|(name, is_dead)| {
            let most = if **is_dead { DEAD_AGE } else { AGE };
            // One that leads nowhere is as urgent as one where nobody answers.
            let most = if names.found.read(|it| it.contains_key(*name)) { most } else { DEAD_AGE };
            looked.get(*name).is_none_or(|at| at.elapsed() >= most)
        });
        let mut lookups = JoinSet::new();
        for (name, _) in due.take(LOOKUPS) {
            lookups.spawn(look_up(name.clone()));
        }
        while let Some(done) = lookups.join_next().await {
            let Ok((name, addresses)) = done else { continue };
            looked.insert(name.clone(), Instant::now());
            take(&names.found, name, &addresses);
        }
        tokio::select! {
            _ = wanted.changed() => {}
            () = sleep(LOOK) => {}
            () = stop.stopped() => {}
        }
    }
}

async fn look_up(name: Name) -> (Name, Vec<SocketAddr>) {
    let looking = tokio::net::lookup_host((name.0.as_str(), name.1));
    let found = Deadline::after(LOOKUP).bound(looking).await;
    let found = found.ok().and_then(Result::ok).into_iter().flatten().collect();
    (name, found)
}

fn take(found: &Snapshot<Found>, name: Name, addresses: &[SocketAddr]) {
    let before = found.read(|found| found.get(&name).copied());
    match chosen(before, addresses) {
        Some(address) if before != Some(address) => {
            info!(name = name.0, %address, "the name of a peer's endpoint leads there");
            found.update(|found| found.insert(name, address) != Some(address));
        }
        Some(_) => {}
        None => warn!(name = name.0, "the name of a peer's endpoint leads nowhere yet"),
    }
}

/// The address to use of those that a name leads to. One is as good as another, so the one in use stays
/// while it is one of them, and while nothing is found.
fn chosen(before: Option<SocketAddr>, found: &[SocketAddr]) -> Option<SocketAddr> {
    before.filter(|before| found.contains(before)).or(found.first().copied()).or(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_followed_and_one_of_several_addresses_stays() {
        let at = |last: u8| SocketAddr::from(([192, 0, 2, last], 51821));
        assert_eq!(chosen(None, &[]), None);
        assert_eq!(chosen(None, &[at(1), at(2)]), Some(at(1)));
        assert_eq!(chosen(Some(at(2)), &[at(1), at(2)]), Some(at(2)), "it is one of them");
        assert_eq!(chosen(Some(at(2)), &[at(3)]), Some(at(3)), "it leads elsewhere");
        assert_eq!(chosen(Some(at(2)), &[]), Some(at(2)), "nobody could be asked");
    }

    #[tokio::test]
    async fn names_are_looked_up_as_they_are_wanted_and_forgotten_with_their_peers() {
        let (names, tasks) = (Names::default(), stallproof::Tasks::new("test"));
        tasks.spawn("names", run(names.clone(), tasks.stopping()));
        let name = |port| ("localhost".to_owned(), port);
        let mut found = names.found.subscribe();
        names.wanted.publish([(name(7), false)].into());
        let now = found.changed().await;
        assert!(now[&name(7)].ip().is_loopback() && now[&name(7)].port() == 7);
        names.wanted.publish([(name(8), true)].into());
        while found.changed().await.keys().ne([&name(8)]) {}
        tasks.shutdown(Duration::from_secs(1)).await;
    }
}
