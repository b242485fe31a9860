use objects::kinds::Overlay;
use proptest::prelude::*;

use super::super::{RouteInputs, plan, wanted};
use super::*;
use crate::overlay::DeviceSettings;

const NODE: &str = "n0";

/// One thing that changes.
#[derive(Clone, Debug)]
enum Edit {
    Block(BlockRef, Option<RoutedBlock>),
    Underlay(Underlay),
    Overlaid(Vec<IpNet>),
    /// The kernel is brought in line; what it refuses this time, by number.
    Apply {
        complete: bool,
        refused: Vec<usize>,
    },
}

fn any_block() -> impl Strategy<Value = RoutedBlock> {
    let overlay = prop_oneof![Just(Overlay::Direct), Just(Overlay::Auto), Just(Overlay::Vxlan)];
    let via = proptest::collection::vec(0u8..6, 0..3);
    // Few networks, so that several blocks claim the same one.
    let networks = proptest::collection::vec((0u8..4, any::<bool>()), 0..3);
    (0u8..4, networks, via, overlay).prop_map(|(node, networks, via, overlay)| RoutedBlock {
        node: format!("n{node}"),
        networks: networks
            .into_iter()
            .map(|(net, v4)| match (v4, net) {
                (true, 3) => "10.9.0.1/32".parse().unwrap(),
                (true, net) => format!("10.{net}.0.0/27").parse().unwrap(),
                (false, net) => format!("fd00:{net}::/123").parse().unwrap(),
            })
            .collect(),
        via: via
            .into_iter()
            .map(|via| match via {
                0..3 => IpAddr::from([192, 168, via, 1]),
                _ => format!("fd99:{via}::1").parse().unwrap(),
            })
            .collect(),
        overlay,
    })
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let name = (0u8..6, any::<bool>()).prop_map(|(number, own)| {
        let name = Arc::from(format!("block-{number}"));
        if own { BlockRef::Own(name) } else { BlockRef::Listed(name) }
    });
    let block = (name, proptest::option::weighted(0.75, any_block()));
    let own = prop_oneof![
        Just(Vec::new()),
        Just(vec!["192.168.0.9/24"]),
        Just(vec!["192.168.0.9/16", "fd99:3::9/64"]),
    ];
    let underlay = (proptest::option::of(7u32..9), own).prop_map(|(device, own)| Underlay {
        device,
        addresses: own.into_iter().map(|own| own.parse().unwrap()).collect(),
    });
    let overlaid = prop_oneof![Just(Vec::new()), Just(vec!["10.0.0.0/8".parse().unwrap()])];
    let apply = (any::<bool>(), proptest::collection::vec(0usize..12, 0..3));
    prop_oneof![
        6 => block.prop_map(|(name, block)| Edit::Block(name, block)),
        1 => underlay.prop_map(Edit::Underlay),
        1 => overlaid.prop_map(Edit::Overlaid),
        3 => apply.prop_map(|(complete, refused)| Edit::Apply { complete, refused }),
    ]
}

/// Compares as sets: the order within a plan of neighbours, of routes and of rules is nobody's business.
fn sorted(changes: &[Change<'_>]) -> Vec<String> {
    let mut told: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
    told.sort();
    told
}

proptest! {
    #[test]
    fn what_is_kept_by_changes_is_what_follows_from_nothing(
        edits in proptest::collection::vec(any_edit(), 1..40),
    ) {
        let mut planner = RoutePlanner::new(NODE, Some(119));
        let mut blocks = BTreeMap::<BlockRef, RoutedBlock>::new();
        let (mut underlay, mut overlaid) = (Underlay::default(), Vec::new());
        let mut kernel = KernelRoutes::default();
        let mut was_complete = false;
        for edit in edits {
            match edit {
                Edit::Block(name, Some(block)) => {
                    planner.set_block(&name, Some(Arc::new(block.clone())));
                    blocks.insert(name, block);
                }
                Edit::Block(name, None) => {
                    planner.set_block(&name, None);
                    blocks.remove(&name);
                }
                Edit::Underlay(new) => {
                    planner.set_underlay(new.clone());
                    if new.device != underlay.device {
                        // With a device goes what leads by it, and the kernel is read again.
                        kernel.neighbours.clear();
                        kernel.routes.retain(|_, it| !matches!(it.kind, RouteKind::Tunnel(_)));
                        planner.touch_all(&kernel);
                    }
                    underlay = new;
                }
                Edit::Overlaid(new) => {
                    planner.set_overlaid(new.clone());
                    overlaid = new;
                }
                Edit::Apply { complete, refused } => {
                    if complete != was_complete {
                        planner.touch_all(&kernel);
                        was_complete = complete;
                    }
                    let found = RouteState {
                        routes: kernel.routes.values().copied().collect(),
                        neighbours: kernel.neighbours.values().copied().collect(),
                        rules: kernel.rules.clone(),
                    };
                    let changes = planner.changes(&kernel, complete);
                    let whole = plan(&planner.wanted(), &found, complete);
                    prop_assert_eq!(sorted(&changes), sorted(&whole));
                    for (number, change) in changes.iter().enumerate() {
                        if !refused.contains(&number) {
                            kernel.made(change);
                        }
                    }
                    planner.settle(&kernel);
                }
            }
            let inputs = RouteInputs {
                node: NODE.to_owned(),
                blocks: blocks.values().cloned().collect(),
                export_table: Some(119),
                overlaid: overlaid.clone(),
                device: DeviceSettings { port: 4789, mtu: 1450 },
                complete: true,
            };
            prop_assert_eq!(planner.wanted(), wanted(&inputs, &underlay));
            let needed = blocks.values().any(|block| !block.overlay.is_direct());
            prop_assert_eq!(planner.needs_device(), needed);
        }
    }
}

#[test]
fn a_change_of_one_node_among_a_thousand_touches_its_own_routes_alone() {
    let mut planner = RoutePlanner::new(NODE, None);
    let own = vec!["192.168.0.9/24".parse().unwrap()];
    planner.set_underlay(Underlay { device: Some(7), addresses: own });
    let block = |node: u16, number: u8, via: [u8; 4]| {
        let network = format!("10.{}.{}.{}/27", node >> 8, node & 255, number * 32);
        let block = RoutedBlock {
            node: format!("node-{node}"),
            networks: vec![network.parse().unwrap()],
            via: vec![via.into()],
            overlay: Overlay::Auto,
        };
        (BlockRef::Listed(format!("default-{}", node * 8 + u16::from(number)).into()), block)
    };
    for node in 0..1000 {
        for number in 0..8 {
            let (name, block) = block(node, number, [172, 16, (node >> 8) as u8, node as u8]);
            planner.set_block(&name, Some(Arc::new(block)));
        }
    }
    let mut kernel = KernelRoutes::default();
    let all = planner.changes(&kernel, true);
    assert_eq!(all.len(), 1000 * (8 + 3), "a route a block; a neighbour and two routes a node");
    all.iter().for_each(|change| kernel.made(change));
    planner.settle(&kernel);
    assert!(planner.touched.is_empty() && planner.touched_neighbours.is_empty());

    for number in 0..8 {
        let (name, block) = block(500, number, [172, 17, 0, 1]);
        planner.set_block(&name, Some(Arc::new(block)));
    }
    // Its blocks, itself, where pods reach it and where they did.
    assert_eq!(planner.touched.len(), 8 + 3);
    assert_eq!(planner.changes(&kernel, true).len(), 8 + 3);
}
