use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Directory, LINGER};
use crate::conversations::{
    Endpoint, ExternalFacts, Labels, Moment, NodeFacts, PodFacts, ServiceFacts,
};

const MINUTE: u64 = 60_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(minutes: u64) -> Moment {
    Moment(minutes * MINUTE)
}

fn pod(name: &str, addresses: &[&str], from: Moment) -> PodFacts {
    PodFacts {
        uid: name.into(),
        namespace: "shop".into(),
        name: name.into(),
        owner: Some("Deployment/web".into()),
        node: "a".into(),
        addresses: addresses.iter().map(|address| ip(address)).collect(),
        images: Vec::new(),
        labels: Labels::new(),
        from,
        until: None,
    }
}

fn who(directory: &Directory, address: &str, at: Moment) -> String {
    directory.resolve(ip(address), at).to_string()
}

#[test]
fn an_address_that_was_used_again_is_not_credited_to_the_wrong_pod() {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    directory.apply_pod(&pod("old", &["10.0.0.1"], at(0)), at(0));
    directory.delete_pod("old", at(10));
    // Made before the other was gone, as the next of a deployment is.
    directory.apply_pod(&pod("new", &["10.0.0.1"], at(9)), at(11));
    assert_eq!(who(&directory, "10.0.0.1", at(5)), "shop/old");
    assert_eq!(who(&directory, "10.0.0.1", Moment(9 * MINUTE + 30_000)), "shop/old");
    assert_eq!(who(&directory, "10.0.0.1", at(10)), "shop/new");
    assert_eq!(who(&directory, "10.0.0.1", at(1000)), "shop/new");
}

#[test]
fn a_local_address_is_the_node_s_whose_agent_reports_it() {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.244.0.0/16".parse().unwrap()]);
    directory.apply_pod(&pod("web", &["10.244.0.9"], at(0)), at(0));
    let (gateway, docker) = (ip("10.244.0.1"), ip("172.17.0.1"));
    assert!(directory.set_local_addresses("a", &[docker, gateway, docker]));
    assert!(!directory.set_local_addresses("a", &[gateway, docker]), "nothing new");
    assert!(directory.set_local_addresses("b", &[docker, ip("10.244.0.9")]));
    let seen_by = |directory: &Directory, node: &str, address: &str| {
        directory.resolve_seen_by(node, ip(address), at(1)).to_string()
    };
    assert_eq!(seen_by(&directory, "a", "10.244.0.1"), "host a");
    assert_eq!(seen_by(&directory, "a", "::ffff:10.244.0.1"), "host a");
    assert_eq!(seen_by(&directory, "b", "10.244.0.1"), "unmanaged", "it is not b's");
    assert_eq!(seen_by(&directory, "a", "172.17.0.1"), "host a");
    assert_eq!(seen_by(&directory, "b", "172.17.0.1"), "host b");
    assert_eq!(seen_by(&directory, "c", "172.17.0.1"), "external");
    assert_eq!(seen_by(&directory, "b", "10.244.0.9"), "shop/web", "it is known to be a pod's");
    assert!(directory.set_local_addresses("a", &[]));
    assert_eq!(seen_by(&directory, "a", "10.244.0.1"), "unmanaged");
}

#[test]
fn a_deletion_that_is_told_late_still_comes_right() {
    let mut directory = Directory::new();
    directory.apply_pod(&pod("old", &["10.0.0.1"], at(0)), at(0));
    directory.apply_pod(&pod("new", &["10.0.0.1"], at(9)), at(9));
    assert_eq!(who(&directory, "10.0.0.1", at(9)), "shop/new");
    directory.delete_pod("old", at(10));
    assert_eq!(who(&directory, "10.0.0.1", at(9)), "shop/old");
    assert_eq!(who(&directory, "10.0.0.1", at(10)), "shop/new");
}

#[test]
fn the_end_of_a_connection_may_be_told_a_little_after_its_pod_went() {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    directory.apply_pod(&pod("web", &["10.0.0.1"], at(1)), at(1));
    directory.delete_pod("web", at(5));
    assert_eq!(who(&directory, "10.0.0.1", at(6)), "shop/web");
    let later = Moment(at(5).0 + LINGER.as_millis() as u64);
    assert_eq!(who(&directory, "10.0.0.1", later), "unmanaged");
    assert_eq!(who(&directory, "10.0.0.1", at(0)), "unmanaged");
    directory.forget(at(6));
    assert_eq!(who(&directory, "10.0.0.1", at(4)), "unmanaged");
}

#[test]
fn a_pod_that_is_done_gives_its_address_up() {
    let mut directory = Directory::new();
    let mut job = pod("job", &["10.0.0.1"], at(0));
    directory.apply_pod(&job, at(0));
    job.until = Some(at(3));
    assert!(directory.apply_pod(&job, at(4)));
    assert!(!directory.apply_pod(&job, at(5)));
    directory.apply_pod(&pod("web", &["10.0.0.1"], at(3)), at(4));
    assert_eq!(who(&directory, "10.0.0.1", at(3)), "shop/web");
    assert_eq!(who(&directory, "10.0.0.1", at(2)), "shop/job");
}

#[test]
fn every_kind_of_endpoint_is_found_in_both_families() {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    directory.set_externals(&[
        ExternalFacts { name: "office".into(), networks: vec!["192.0.2.0/24".parse().unwrap()] },
        ExternalFacts { name: "printer".into(), networks: vec!["192.0.2.7/32".parse().unwrap()] },
    ]);
    directory.apply_pod(&pod("web", &["10.0.0.1", "fd00::1"], at(0)), at(0));
    let node = NodeFacts { name: "a".into(), addresses: vec![ip("10.1.0.1")], from: at(0) };
    directory.apply_node(&node, at(0));
    let mut service = ServiceFacts {
        namespace: "shop".into(),
        name: "front".into(),
        cluster_addresses: vec![ip("10.96.0.1"), ip("fd00:96::1")],
        ingress_addresses: vec![ip("203.0.113.9"), ip("10.1.0.1")],
        selector: Labels::new(),
        from: at(0),
    };
    directory.apply_service(&service, at(0));
    let cases = [
        ("10.0.0.1", "shop/web"),
        ("fd00::1", "shop/web"),
        ("::ffff:10.0.0.1", "shop/web"),
        // A node that is also where a service is entered is a node.
        ("10.1.0.1", "host a"),
        ("10.96.0.1", "service shop/front"),
        ("fd00:96::1", "service shop/front"),
        ("203.0.113.9", "ingress shop/front"),
        ("192.0.2.8", "external office"),
        ("192.0.2.7", "external printer"),
        ("10.9.9.9", "unmanaged"),
        ("fd00::9", "unmanaged"),
        ("198.51.100.1", "external"),
    ];
    for (address, expected) in cases {
        assert_eq!(who(&directory, address, at(1)), expected, "{address}");
    }
    service.ingress_addresses.clear();
    assert!(directory.apply_service(&service, at(5)));
    assert_eq!(who(&directory, "203.0.113.9", at(100)), "external");
    assert!(directory.delete_service("shop", "front", at(6)) && directory.delete_node("a", at(6)));
    assert_eq!(who(&directory, "10.96.0.1", at(100)), "unmanaged");
    assert_eq!(who(&directory, "10.1.0.1", at(100)), "unmanaged");
}

#[test]
fn what_changes_nothing_is_no_change() {
    let mut directory = Directory::new();
    let web = pod("web", &["10.0.0.1"], at(0));
    assert!(directory.apply_pod(&web, at(0)));
    let before = directory.resolve(ip("10.0.0.1"), at(1));
    assert!(!directory.apply_pod(&web, at(2)));
    assert!(Arc::ptr_eq(&before, &directory.resolve(ip("10.0.0.1"), at(1))));
    assert!(!directory.delete_pod("no such pod", at(3)));
}

/// One pod's tenure of the one address.
#[derive(Clone, Debug)]
struct Tenure {
    uid: usize,
    from: u64,
    until: Option<u64>,
}

/// As the contract says it, by looking at everything.
fn naive(tenures: &[Tenure], at: u64) -> Option<usize> {
    let mut sorted = tenures.to_vec();
    sorted.sort_by_key(|tenure| tenure.from);
    let ends = |i: usize| sorted[i].until.or(sorted.get(i + 1).map(|next| next.from));
    let holds = |i: &usize| sorted[*i].from <= at && ends(*i).is_none_or(|end| at < end);
    let linger = LINGER.as_millis() as u64;
    let lately =
        |tenure: &&Tenure| tenure.until.is_some_and(|until| until <= at && at - until < linger);
    (0..sorted.len())
        .find(holds)
        .or_else(|| {
            (0..sorted.len()).filter(|i| lately(&&sorted[*i])).max_by_key(|i| sorted[*i].until)
        })
        .map(|i| sorted[i].uid)
}

proptest! {
    #[test]
    fn a_directory_says_what_looking_at_all_of_history_says(
        events in prop::collection::vec((0_usize..4, 0_u64..300_000, any::<bool>()), 1..12),
        queries in prop::collection::vec(0_u64..700_000, 1..20),
    ) {
        let mut directory = Directory::new();
        let mut tenures: Vec<Tenure> = Vec::new();
        let mut now = 0;
        for (uid, step, come) in events {
            now += step / 4;
            let present = tenures.iter_mut().find(|it| it.uid == uid && it.until.is_none());
            match (come, present) {
                (true, None) => {
                    // Known since some time before.
                    let from = Moment(now.saturating_sub(step));
                    directory.apply_pod(&pod(&uid.to_string(), &["10.0.0.1"], from), Moment(now));
                    tenures.push(Tenure { uid, from: from.0, until: None });
                }
                (false, Some(tenure)) => {
                    directory.delete_pod(&uid.to_string(), Moment(now));
                    tenure.until = Some(now.max(tenure.from));
                }
                _ => {}
            }
            for at in &queries {
                let expected = naive(&tenures, *at)
                    .map_or("external".to_owned(), |uid| format!("shop/{uid}"));
                prop_assert_eq!(who(&directory, "10.0.0.1", Moment(*at)), expected);
            }
            let kinds = directory.resolve(ip("10.0.0.2"), Moment(0));
            prop_assert_eq!(&*kinds, &Endpoint::External { name: None });
        }
    }
}
