use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::wiring::host_interface;
use crate::{AttachmentKey, NamespaceId};

/// Attachment `n` has the `n`th address, whoever else may have had it.
fn attachment(n: u8) -> Arc<Attachment> {
    let key = AttachmentKey { container: format!("c{n}"), ifname: "eth0".to_owned() };
    Arc::new(Attachment {
        mac: None,
        network: "pods".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        ipv4: Some([10, 1, 0, n].into()),
        ipv6: n.is_multiple_of(2).then(|| [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)].into()),
        namespace: NamespaceId { device: 4, inode: u64::from(n) },
        netns: String::new(),
        host_interface: host_interface(&key),
        since: jiff::Timestamp::UNIX_EPOCH,
        key,
    })
}

fn link(name: String, index: u32, up: bool) -> Link {
    let kind = Some("veth".to_owned());
    Link {
        index,
        name,
        mac: None,
        mtu: 1500,
        up,
        alias: None,
        kind,
        peer: Some(2),
        bridge: None,
        group: 0,
    }
}

/// What of an attachment's is there.
#[derive(Clone, Debug)]
struct Fate {
    recorded: bool,
    linked: bool,
    up: bool,
    /// Of its neighbours and routes, one bit each.
    present: u8,
}

fn any_fate() -> impl Strategy<Value = Fate> {
    (any::<bool>(), any::<bool>(), any::<bool>(), prop_oneof![Just(0xff), any::<u8>()])
        .prop_map(|(recorded, linked, up, present)| Fate { recorded, linked, up, present })
}

fn world(fates: &[Fate]) -> (KernelState, Vec<Arc<Attachment>>) {
    let (mut seen, mut recorded) = (KernelState::default(), Vec::new());
    for (n, fate) in fates.iter().enumerate() {
        let attachment = attachment(n as u8);
        let index = n as u32 + 10;
        if fate.linked {
            seen.links.push(link(attachment.host_interface.clone(), index, fate.up));
        }
        let names = InterfaceNames::of(&attachment.key);
        for (bit, change) in host_side(&attachment, &names, index).into_iter().enumerate() {
            let present = fate.present >> bit & 1 == 1;
            match change {
                // A neighbour or a route is never without its link.
                Change::Neighbour(neighbour) if present && fate.linked => {
                    seen.neighbours.push(neighbour);
                }
                Change::Route(route) if present && fate.linked => seen.routes.push(route),
                _ => {}
            }
        }
        if fate.recorded {
            recorded.push(attachment);
        }
    }
    (seen, recorded)
}

/// A kernel and a journal of maps: what the repairs leave.
fn after(
    seen: &KernelState,
    recorded: &[Arc<Attachment>],
    repairs: &[Repair],
) -> (KernelState, Vec<Arc<Attachment>>) {
    let (mut seen, mut recorded) = (seen.clone(), recorded.to_vec());
    for repair in repairs {
        match repair {
            Repair::RemoveInterface(index, _) => {
                seen.links.retain(|link| link.index != *index);
                seen.neighbours.retain(|neighbour| neighbour.link != *index);
                seen.routes.retain(|route| route.kind != RouteKind::Link(*index));
            }
            Repair::RemoveRoute(route) => seen.routes.retain(|other| other != route),
            Repair::RestoreHostSide(attachment, index) => {
                for link in seen.links.iter_mut().filter(|link| link.index == *index) {
                    link.up = true;
                }
                for change in host_side(attachment, &InterfaceNames::of(&attachment.key), *index) {
                    match change {
                        Change::Neighbour(neighbour) => seen.neighbours.push(neighbour),
                        Change::Route(route) => {
                            seen.routes.retain(|other| other.destination != route.destination);
                            seen.routes.push(route);
                        }
                        _ => {}
                    }
                }
            }
            Repair::Regain(attachment) => recorded.retain(|other| other != attachment),
        }
    }
    (seen, recorded)
}

proptest! {
    #[test]
    fn repairs_make_both_agree_and_harm_nobody(fates in proptest::collection::vec(any_fate(), 0..12)) {
        let (seen, recorded) = world(&fates);
        let repairs = plan(&seen, &UnderWay::default(), &recorded);
        for (n, fate) in fates.iter().enumerate() {
            let own = attachment(n as u8);
            let lost = repairs.contains(&Repair::Regain(Arc::clone(&own)));
            prop_assert_eq!(lost, fate.recorded && !fate.linked);
            let removed = repairs.contains(&Repair::RemoveInterface(n as u32 + 10, own.host_interface.clone()));
            prop_assert_eq!(removed, fate.linked && !fate.recorded);
        }

        let (seen, recorded) = after(&seen, &recorded, &repairs);
        prop_assert_eq!(plan(&seen, &UnderWay::default(), &recorded), []);
        let links: BTreeMap<_, _> = seen.links.iter().map(|link| (&link.name, link)).collect();
        prop_assert_eq!(links.len(), recorded.len());
        for attachment in &recorded {
            let link = links.get(&attachment.host_interface);
            prop_assert!(link.is_some_and(|link| link.up));
        }
    }
}

#[test]
fn a_route_that_leads_to_the_wrong_interface_is_put_right() {
    let (mut seen, recorded) =
        world(&[Fate { recorded: true, linked: true, up: true, present: 0xff }]);
    assert_eq!(plan(&seen, &UnderWay::default(), &recorded), []);
    seen.routes[0].kind = RouteKind::Link(99);
    assert_eq!(
        plan(&seen, &UnderWay::default(), &recorded),
        [Repair::RestoreHostSide(Arc::clone(&recorded[0]), 10)]
    );
}

#[test]
fn a_route_to_an_address_that_nobody_has_goes() {
    let stray = Route {
        destination: "10.9.9.9/32".parse().unwrap(),
        table: MAIN_TABLE,
        protocol: ROUTE_PROTOCOL,
        kind: RouteKind::Link(99),
    };
    let seen = KernelState { routes: vec![stray], ..KernelState::default() };
    assert_eq!(plan(&seen, &UnderWay::default(), &[]), [Repair::RemoveRoute(stray)]);
}

#[test]
fn interfaces_of_others_are_not_ours() {
    let ours = link(attachment(1).host_interface.clone(), 3, true);
    assert!(is_ours(&ours));
    let others =
        ["flannel.1", "fl0", "eth0", "flabcdefghijkl0", "flabcdefghijklM", "veabcdefghijklm"];
    for name in others {
        assert!(!is_ours(&link(name.to_owned(), 3, true)), "{name}");
    }
    assert!(!is_ours(&Link { kind: None, ..ours }));
}

#[test]
fn an_interface_that_a_request_makes_or_that_is_being_removed_is_left_alone() {
    let bare = Fate { recorded: false, linked: true, up: true, present: 0xff };
    let (seen, recorded) = world(&[bare.clone(), bare]);
    let [made, leaving] = [0, 1].map(attachment);
    let idle = plan(&seen, &UnderWay::default(), &recorded);
    let is_removal = |repair: &Repair| matches!(repair, Repair::RemoveInterface(..));
    assert_eq!(idle.iter().filter(|repair| is_removal(repair)).count(), 2);
    let under_way = UnderWay {
        interfaces: [made.host_interface.clone()].into(),
        leaving: vec![Arc::clone(&leaving)],
    };
    let repairs = plan(&seen, &under_way, &recorded);
    assert!(!repairs.iter().any(is_removal), "{repairs:?}");
    let routes_of = |attachment: &Attachment| -> Vec<IpNet> {
        attachment.addresses().map(IpNet::from).collect()
    };
    let leads = |repair: &Repair| match repair {
        Repair::RemoveRoute(route) => routes_of(&leaving).contains(&route.destination),
        _ => false,
    };
    assert!(!repairs.iter().any(leads), "{repairs:?}");

    let half_made = Fate { recorded: true, linked: true, up: false, present: 0 };
    let (seen, recorded) = world(&[half_made]);
    assert_eq!(plan(&seen, &under_way, &recorded), []);
    assert_eq!(plan(&seen, &UnderWay::default(), &recorded).len(), 1);
}
