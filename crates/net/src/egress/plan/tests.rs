use super::*;

fn net(of: &str) -> IpNet {
    of.parse().unwrap()
}

fn replica(pod: &str, last: u8) -> ReplicaView {
    ReplicaView { pod: pod.to_owned(), addresses: vec![[10, 2, 0, last].into()], draining: false }
}

fn egress(destinations: &[&str], replicas: Vec<ReplicaView>) -> EgressView {
    EgressView {
        destinations: destinations.iter().map(|it| net(it)).collect(),
        affinity: SessionAffinity::ClientIp,
        failure: EgressFailure::Drop,
        namespaces: None,
        replicas,
    }
}

fn client(number: u8, egresses: &[&str]) -> Client {
    Client {
        namespace: "shop".to_owned(),
        pod: format!("web-{number}"),
        addresses: vec![[10, 1, 0, number].into()],
        egresses: egresses.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn inputs(egresses: Vec<(&str, EgressView)>, clients: Vec<Client>) -> EgressInputs {
    EgressInputs {
        egresses: egresses.into_iter().map(|(id, it)| (id.to_owned(), it)).collect(),
        clients,
        silent: BTreeSet::new(),
        own: vec![net("10.1.0.0/16"), net("10.2.0.0/16")],
        foreign: None,
    }
}

/// Where a packet with this mark goes, as the kernel would say: the tunnel's other end, or none.
fn way(program: &EgressProgram, number: u16, to: &str) -> Option<RouteKind> {
    let to: IpAddr = to.parse().unwrap();
    let matching = program.routes.iter().filter(|it| it.table == table_of(number));
    let matching = matching.filter(|it| it.destination.contains(&to));
    let longest = matching.max_by_key(|it| it.destination.prefix_len())?;
    (longest.kind != RouteKind::Throw).then_some(longest.kind)
}

fn remote(way: Option<RouteKind>) -> Option<IpAddr> {
    match way {
        Some(RouteKind::Tunnel(tunnel)) => Some(tunnel.remote),
        _ => None,
    }
}

#[test]
fn the_longest_destination_decides_and_what_is_private_is_meant_only_by_name() {
    let all = egress(&["0.0.0.0/0", "172.20.0.0/16"], vec![replica("all-1", 1)]);
    let some = egress(&["198.51.100.0/24"], vec![replica("some-1", 2)]);
    let clients = vec![client(1, &["net/all", "net/some"])];
    let inputs = inputs(vec![("net/all", all), ("net/some", some)], clients);
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let [number] = program.ways.values().next().unwrap()[..] else { panic!("{program:?}") };
    let to = |to: &str| remote(way(&program, number, to));
    assert_eq!(to("203.0.113.9"), Some([10, 2, 0, 1].into()));
    assert_eq!(to("198.51.100.7"), Some([10, 2, 0, 2].into()));
    assert_eq!(to("172.20.3.4"), Some([10, 2, 0, 1].into()));
    for own in ["10.1.0.9", "10.2.0.1", "10.96.0.1", "192.168.1.1", "172.21.0.1", "169.254.1.1"] {
        assert_eq!(way(&program, number, own), None, "{own}");
    }
}

#[test]
fn with_one_replica_less_only_its_clients_move() {
    let replicas = || vec![replica("e-1", 1), replica("e-2", 2), replica("e-3", 3)];
    let clients: Vec<_> = (1..=200).map(|number| client(number, &["net/e"])).collect();
    let mut inputs = inputs(vec![("net/e", egress(&["0.0.0.0/0"], replicas()))], clients);
    let mut numbers = ClassNumbers::default();
    let chosen = |program: &EgressProgram| -> BTreeMap<IpAddr, IpAddr> {
        let to = |ways: &[u16]| remote(way(program, ways[0], "203.0.113.9")).unwrap();
        program.ways.iter().map(|(client, ways)| (*client, to(ways))).collect()
    };
    let before = chosen(&plan(&inputs, &mut numbers, 7));
    for last in 1..=3 {
        let mine = before.values().filter(|it| **it == IpAddr::from([10, 2, 0, last])).count();
        assert!((30..=110).contains(&mine), "{mine} of 200");
    }
    let gone: IpAddr = [10, 2, 0, 3].into();
    inputs.silent.insert(gone);
    let after = chosen(&plan(&inputs, &mut numbers, 7));
    for (client, to) in &before {
        assert!(after[client] != gone);
        assert!(*to == gone || after[client] == *to, "{client} moved without need");
    }
}

#[test]
fn connections_of_a_replica_that_drains_stay_and_new_ones_go_elsewhere() {
    let mut inputs = inputs(
        vec![("net/e", egress(&["0.0.0.0/0"], vec![replica("e-1", 1), replica("e-2", 2)]))],
        vec![client(1, &["net/e"])],
    );
    let mut numbers = ClassNumbers::default();
    let program = plan(&inputs, &mut numbers, 7);
    let [old] = program.ways.values().next().unwrap()[..] else { panic!("{program:?}") };
    let first = remote(way(&program, old, "203.0.113.9")).unwrap();
    let mine = |it: &&mut ReplicaView| it.addresses.contains(&first);
    let view = inputs.egresses.get_mut("net/e").unwrap();
    view.replicas.iter_mut().find(mine).unwrap().draining = true;
    let program = plan(&inputs, &mut numbers, 7);
    let [new] = program.ways.values().next().unwrap()[..] else { panic!("{program:?}") };
    assert_ne!(old, new);
    assert_eq!(remote(way(&program, old, "203.0.113.9")), Some(first));
    assert_ne!(remote(way(&program, new, "203.0.113.9")), Some(first));
    // When it is gone its class is, too, and its number is not given again soon.
    inputs.egresses.get_mut("net/e").unwrap().replicas.retain(|it| !it.addresses.contains(&first));
    let program = plan(&inputs, &mut numbers, 7);
    assert!(!program.numbers.contains(&old));
    inputs.egresses.get_mut("net/e").unwrap().replicas = vec![replica("e-9", 9)];
    assert!(!plan(&inputs, &mut numbers, 7).numbers.contains(&old));
}

#[test]
fn without_affinity_connections_are_spread_over_all_replicas_of_all_egresses() {
    let mut a = egress(&["0.0.0.0/0"], vec![replica("a-1", 1), replica("a-2", 2)]);
    let mut b = egress(&["198.51.100.0/24"], vec![replica("b-1", 3), replica("b-2", 4)]);
    a.affinity = SessionAffinity::None;
    b.affinity = SessionAffinity::None;
    let inputs = inputs(vec![("net/a", a), ("net/b", b)], vec![client(1, &["net/a", "net/b"])]);
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let ways = program.ways.values().next().unwrap();
    let pairs: BTreeSet<_> = ways
        .iter()
        .map(|it| ["203.0.113.9", "198.51.100.9"].map(|to| remote(way(&program, *it, to)).unwrap()))
        .collect();
    assert_eq!(pairs.len(), 4);
}

#[test]
fn an_egress_without_replicas_drops_or_lets_go_as_it_says() {
    let mut direct = egress(&["203.0.113.0/24"], vec![]);
    direct.failure = EgressFailure::Direct;
    let drop = egress(&["198.51.100.0/24"], vec![]);
    let clients = vec![client(1, &["net/direct", "net/drop"])];
    let inputs = inputs(vec![("net/direct", direct), ("net/drop", drop)], clients);
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let [number] = program.ways.values().next().unwrap()[..] else { panic!("{program:?}") };
    assert_eq!(way(&program, number, "203.0.113.9"), None);
    assert_eq!(way(&program, number, "198.51.100.9"), Some(RouteKind::Blackhole));
}

#[test]
fn an_egress_of_other_namespaces_drops_and_one_that_is_not_there_is_named() {
    let mut others = egress(&["203.0.113.0/24"], vec![replica("e-1", 1)]);
    others.failure = EgressFailure::Direct;
    others.namespaces = Some(vec!["bank".to_owned()]);
    let clients = vec![client(1, &["net/others", "net/nowhere"]), client(2, &["net/nowhere"])];
    let inputs = inputs(vec![("net/others", others)], clients);
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let [number] = program.ways[&IpAddr::from([10, 1, 0, 1])][..] else { panic!("{program:?}") };
    assert_eq!(way(&program, number, "203.0.113.9"), Some(RouteKind::Blackhole));
    assert!(!program.ways.contains_key(&IpAddr::from([10, 1, 0, 2])));
    assert_eq!(program.troubles.len(), 3, "{:?}", program.troubles);
}

#[test]
fn if_nobody_answers_it_is_not_the_replicas_that_are_silent() {
    let replicas = vec![replica("e-1", 1), replica("e-2", 2)];
    let mut inputs =
        inputs(vec![("net/e", egress(&["0.0.0.0/0"], replicas))], vec![client(1, &["net/e"])]);
    inputs.silent = [1, 2].map(|last| IpAddr::from([10, 2, 0, last])).into();
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let [number] = program.ways.values().next().unwrap()[..] else { panic!("{program:?}") };
    assert!(remote(way(&program, number, "203.0.113.9")).is_some());
}

/// Connections outlive the choice of their pods, and the pods: the device that carries them is asked for.
#[test]
fn with_no_client_left_connections_keep_their_device() {
    let nat = || egress(&["203.0.113.0/24"], vec![replica("nat-0", 1), replica("nat-1", 2)]);
    let mut numbers = ClassNumbers::default();
    let asked = std::cell::Cell::new(0);
    let device = || {
        asked.set(asked.get() + 1);
        Ok::<u32, std::convert::Infallible>(7)
    };
    let devices = |program: &EgressProgram| -> BTreeSet<u32> {
        let tunnels = program.routes.iter().filter_map(|route| match route.kind {
            RouteKind::Tunnel(tunnel) => Some(tunnel.link),
            _ => None,
        });
        tunnels.collect()
    };
    let clients: Vec<_> = (1..=8).map(|number| client(number, &["a/nat"])).collect();
    let used = inputs(vec![("a/nat", nat())], clients);
    let Ok(before) = plan_on(&used, &mut numbers, device);
    assert_eq!((devices(&before), asked.get()), ([7].into(), 1));

    let unused = inputs(vec![("a/nat", nat())], Vec::new());
    let Ok(after) = plan_on(&unused, &mut numbers, device);
    assert_eq!(after.clients(), 0);
    assert_eq!(after.numbers, before.numbers, "connections that there are keep their marks");
    assert_eq!((devices(&after), asked.get()), ([7].into(), 2));

    // With the egress the last connection's way is gone, and nobody needs a device.
    let gone = inputs(Vec::new(), Vec::new());
    let Ok(none) = plan_on(&gone, &mut numbers, device);
    assert!(none.is_empty() && none.routes.is_empty());
    assert_eq!(asked.get(), 2);
}

/// A node whose pods use one egress may have replicas of another, whose packets to other nodes it lets pass.
#[test]
fn replicas_that_this_node_does_not_use_may_send_all_the_same() {
    let (mine, others) = (vec![replica("mine-1", 1)], vec![replica("other-1", 2)]);
    let all = |them: Vec<ReplicaView>| egress(&["0.0.0.0/0"], them);
    let inputs = inputs(
        vec![("net/mine", all(mine)), ("net/other", all(others))],
        vec![client(1, &["net/mine"])],
    );
    let program = plan(&inputs, &mut ClassNumbers::default(), 7);
    let addresses = |last: &[u8]| last.iter().map(|it| IpAddr::from([10, 2, 0, *it])).collect();
    assert_eq!(program.replicas, addresses(&[1]), "only these are asked whether they answer");
    assert_eq!(program.senders, addresses(&[1, 2]));
}
