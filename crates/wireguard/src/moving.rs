//! `Moving`: peers that another data plane gives up, or takes back.
//!
//! Contract:
//! - A peer that takes over is sent nothing until its tunnel answers, and nothing while it does not.
//! - A peer that stands by is sent nothing when it has done so for [`GRACE`], where somebody else has a
//!   route to its networks. The other data plane says nothing of its tunnels, so it is given that time.
//! - A peer that has taken over for good keeps its routes before the main table for [`GRACE`]: the other
//!   data plane may still put its own back there, and remove them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use objects::kinds::{WireguardMove, WireguardPeer, WireguardRouting};
use tokio::time::Instant;

use crate::claims::{MeshName, cluster_of, mesh_of};
use crate::key::PublicKey;
use crate::peer::{Peers, Routing};
use crate::prober::Verdicts;

pub(crate) const GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moving(BTreeMap<PublicKey, Move>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Move {
    mesh: MeshName,
    cluster: String,
    routing: WireguardRouting,
    since: Instant,
}

impl Moving {
    /// Takes in which peers move.
    pub(crate) fn follow<'p>(&mut self, objects: impl Iterator<Item = &'p WireguardPeer>) {
        let mut now = BTreeMap::new();
        for object in objects {
            let Ok(key) = object.spec.public_key.parse::<PublicKey>() else { continue };
            let (routing, before) = (object.spec.routing, self.0.get(&key));
            let settles = |before: &Move| match before.routing {
                WireguardRouting::TakeOver => true,
                WireguardRouting::Always => before.since.elapsed() < GRACE,
                WireguardRouting::Standby => false,
            };
            if routing.is_always() && !before.is_some_and(settles) {
                continue;
            }
            let before = before.filter(|before| before.routing == routing);
            let since = before.map_or_else(Instant::now, |before| before.since);
            let (mesh, cluster) = (mesh_of(object), cluster_of(object));
            now.entry(key).or_insert(Move { mesh, cluster, routing, since });
        }
        self.0 = now;
    }

    /// By which routes a peer's networks are sent to it.
    pub(crate) fn routing(
        &self,
        key: PublicKey,
        wanted: WireguardRouting,
        verdicts: &Verdicts,
    ) -> Routing {
        let since = self.0.get(&key).map(|it| it.since.elapsed());
        match wanted {
            WireguardRouting::Always if since.is_some() => Routing::Before,
            WireguardRouting::Always => Routing::Main,
            WireguardRouting::TakeOver if verdicts.up.contains(&key) => Routing::Before,
            WireguardRouting::TakeOver => Routing::Nowhere,
            WireguardRouting::Standby if since.is_some_and(|it| it < GRACE) => Routing::Before,
            WireguardRouting::Standby => Routing::Yielding,
        }
    }

    /// When something is due without anything else happening.
    pub(crate) fn due(&self) -> Option<Duration> {
        let left = self.0.values().filter_map(|it| match it.routing {
            WireguardRouting::Standby => Some(GRACE.saturating_sub(it.since.elapsed())),
            WireguardRouting::Always => Some(GRACE.saturating_sub(it.since.elapsed())),
            WireguardRouting::TakeOver => None,
        });
        // Afterwards it is looked again whether somebody else has a route.
        left.map(|left| left.max(Duration::from_secs(1))).min()
    }

    /// How far this node is. `kept` are networks that nobody else has a route to.
    pub(crate) fn report(&self, peers: &Peers, kept: &BTreeSet<IpNet>) -> Vec<WireguardMove> {
        let mut all: BTreeMap<(&MeshName, &str), WireguardMove> = BTreeMap::new();
        for (key, it) in self.0.iter().filter(|(_, it)| !it.routing.is_always()) {
            let (namespace, name) = &it.mesh;
            let entry = all.entry((&it.mesh, &it.cluster)).or_insert_with(|| WireguardMove {
                mesh: format!("{namespace}/{name}"),
                cluster: it.cluster.clone(),
                ..WireguardMove::default()
            });
            let Some(peer) = peers.get(key) else { continue };
            let yields = || !peer.allowed_ips.iter().any(|network| kept.contains(network));
            match (it.routing, peer.routing) {
                (WireguardRouting::TakeOver, Routing::Before) => entry.taken_over += 1,
                (WireguardRouting::Standby, Routing::Yielding) if yields() => {
                    entry.standing_by += 1;
                }
                _ => {}
            }
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use objects::kinds::WireguardPeerSpec;

    use super::*;
    use crate::peer::Peer;

    fn object(routing: WireguardRouting) -> WireguardPeer {
        let spec: WireguardPeerSpec = serde_json::from_value(serde_json::json!({
            "allowedIPs": ["10.2.0.0/24"], "publicKey": PublicKey([1; 32]).to_string(),
            "routing": routing,
        }))
        .unwrap();
        let mut object = WireguardPeer::new("m--b--n", spec);
        let labels = [
            ("fairlead.dev/mesh", "m"),
            ("fairlead.dev/mesh-namespace", "x"),
            ("fairlead.dev/source-cluster", "b"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        object.metadata.labels = Some(labels.into());
        object
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_takes_over_when_it_answers_and_yields_after_a_while_to_whoever_has_a_route() {
        let key = PublicKey([1; 32]);
        let (mut moving, mut verdicts) = (Moving::default(), Verdicts::default());
        let report = |moving: &Moving, routing, kept: &[&str]| {
            let allowed_ips = vec!["10.2.0.0/24".parse().unwrap()];
            let peer = Peer { allowed_ips, routing, ..Peer::default() };
            let kept = kept.iter().map(|it| it.parse().unwrap()).collect();
            let all = moving.report(&[(key, peer)].into(), &kept);
            assert_eq!((all[0].mesh.as_str(), all[0].cluster.as_str()), ("x/m", "b"));
            (all[0].taken_over, all[0].standing_by)
        };
        let over = object(WireguardRouting::TakeOver);
        moving.follow([&over].into_iter());
        let routing = moving.routing(key, over.spec.routing, &verdicts);
        assert_eq!((routing, report(&moving, routing, &[])), (Routing::Nowhere, (0, 0)));
        verdicts.up.insert(key);
        let routing = moving.routing(key, over.spec.routing, &verdicts);
        assert_eq!((routing, report(&moving, routing, &[])), (Routing::Before, (1, 0)));

        // The other data plane may not know yet that it is no longer wanted.
        let always = object(WireguardRouting::Always);
        moving.follow([&always].into_iter());
        assert_eq!(moving.routing(key, always.spec.routing, &verdicts), Routing::Before);
        assert!(moving.report(&Peers::new(), &BTreeSet::new()).is_empty());
        tokio::time::advance(moving.due().unwrap()).await;
        moving.follow([&always].into_iter());
        assert_eq!(moving.routing(key, always.spec.routing, &verdicts), Routing::Main);
        assert!(moving.0.is_empty() && moving.due().is_none());

        let standby = object(WireguardRouting::Standby);
        moving.follow([&standby].into_iter());
        let routing = moving.routing(key, standby.spec.routing, &verdicts);
        assert_eq!((routing, report(&moving, routing, &[])), (Routing::Before, (0, 0)));
        tokio::time::advance(GRACE).await;
        moving.follow([&standby].into_iter());
        let routing = moving.routing(key, standby.spec.routing, &verdicts);
        assert_eq!(routing, Routing::Yielding);
        assert_eq!(report(&moving, routing, &["10.2.0.0/24"]), (0, 0), "nobody else has a route");
        assert_eq!(report(&moving, routing, &[]), (0, 1));

        moving.follow([&object(WireguardRouting::Always)].into_iter());
        assert!(moving.0.is_empty() && moving.due().is_none());
        assert_eq!(moving.routing(key, WireguardRouting::Always, &verdicts), Routing::Main);
    }
}
