#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn rule(verdict: Verdict, ports: &[&str], within: Option<SetId>, without: Vec<SetId>) -> Rule {
    let source =
        Source { kind: PolicyKind::Group, policy: "shop/db".into(), rule: "ingress[0]".into() };
    let ports = ports.iter().map(|it| it.parse().unwrap()).collect();
    Rule { without, report: true, ..Rule::new(verdict, ports, within, vec![source]) }
}

/// One of everything.
fn program() -> Program {
    let [pods, ports, networks, names, own] = ["a", "b", "c", "d", "e"].map(SetId::of);
    let address: IpAddr = "fd00::1".parse().unwrap();
    let chain = |direction| Chain {
        direction,
        tiers: vec![
            Tier {
                kind: TierKind::Admin,
                rules: vec![
                    rule(Verdict::Pass, &["sctp"], Some(pods), vec![networks]),
                    rule(Verdict::Report, &[], Some(ports), vec![]),
                ],
            },
            Tier {
                kind: TierKind::NetworkPolicy,
                rules: vec![
                    rule(Verdict::Accept, &["tcp/80", "udp/1-9"], Some(names), vec![]),
                    rule(Verdict::Accept, &[], Some(own), vec![]),
                    rule(Verdict::Deny(Denial::Reject), &[], None, vec![]),
                    rule(Verdict::DROP, &[], None, vec![]),
                ],
            },
        ],
    };
    let (egress, ingress) = (chain(Direction::Egress), chain(Direction::Ingress));
    let class = Class { egress: Some(egress.id()), ingress: Some(ingress.id()) };
    let set = |kind, element| Set { kind, elements: [element].into_iter().collect() };
    let port = Element::AddressPort { address, protocol: Protocol::TCP, port: 80 };
    let range = Element::Range { first: address, last: "fd00::9".parse().unwrap() };
    Program {
        generation: 7,
        sets: [
            (pods, set(SetKind::Addresses, Element::Address(address))),
            (ports, set(SetKind::AddressPorts, port)),
            (networks, set(SetKind::Networks, range)),
            (names, Set::new(SetKind::Domains(vec!["*.example.com".into()]))),
            (own, Set::new(SetKind::OwnNode)),
        ]
        .into(),
        classes: [(class.id(), class), (Class::default().id(), Class::default())].into(),
        pods: [(address, LocalPod { pod: "shop/db-0".into(), class: class.id() })].into(),
        chains: [egress, ingress].map(|chain| (chain.id(), Arc::new(chain))).into(),
        unsettled: Arc::new(Unsettled { everywhere: true, namespaces: ["shop".into()].into() }),
        notes: Default::default(),
    }
}

#[test]
fn a_program_is_loaded_as_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProgramFile::new(dir.path().join("policy").join("program"));
    assert_eq!(file.load().unwrap(), None);
    let program = program();
    program.check().unwrap();
    file.save(&program).unwrap();
    assert_eq!(file.load().unwrap(), Some(program));
}

#[test]
fn a_file_that_is_damaged_or_lacks_a_part_is_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    let file = ProgramFile::new(path.clone());
    file.save(&program()).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    for cut in (1..whole.len()).step_by(97) {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(file.load().is_err(), "{cut} bytes of {}", whole.len());
    }
    let mut lacking = program();
    lacking.chains.clear();
    file.save(&lacking).unwrap();
    let why = file.load().unwrap_err().to_string();
    assert!(why.contains("a class's chain is missing"), "{why}");
    fs::write(&path, whole.replacen("\"form\":1", "\"form\":2", 1)).unwrap();
    assert!(file.load().is_err());
}
