use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;
use testkit::{Sandbox, requires};

use super::expression::*;
use super::*;
use crate::conntrack::attributes::{nested, write};
use crate::netns::Namespace;

const TABLE: &str = "test";

/// Runs `work` in a namespace of its own.
fn inside<T: Send>(work: impl FnOnce(Nftables) -> T + Send) -> T {
    let sandbox = Sandbox::new();
    let namespace = Namespace::open(sandbox.host("rules").netns()).unwrap();
    namespace.run_in(|| work(Nftables::open().unwrap())).unwrap()
}

fn nft(args: &[&str]) -> String {
    let output = Command::new("nft").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What nft prints, a line each, without the spaces before it.
fn printed() -> Vec<String> {
    let text = nft(&["list", "ruleset"]);
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn chain(name: &str) -> Chain {
    Chain { name: name.to_owned(), hook: None, drops: false }
}

fn key(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::new();
    for part in parts {
        key.extend(*part);
        key.resize(key.len().next_multiple_of(4), 0);
    }
    key
}

fn rule(expressions: Vec<Expression>) -> Rule {
    Rule { expressions, ..Rule::default() }
}

const R: Register = Register::FIRST;

fn is_family(family: u8) -> [Expression; 2] {
    [
        Expression::Meta { fact: Meta::Family, into: R },
        Expression::Compare { register: R, is: Comparison::Equal, value: vec![family] },
    ]
}

fn address(offset: u32, length: u32) -> Expression {
    Expression::Payload { header: Header::Network, offset, length, into: R }
}

/// One of everything, and what nft prints for it.
#[test]
fn nft_prints_each_expression_as_what_is_meant() {
    requires!(netns, nft);
    inside(|mut nftables| {
        let mut batch = Batch::new(TABLE);
        batch.add_table(0);
        batch.add_chain(&Chain {
            name: "forward".to_owned(),
            hook: Some((Hook::Forward, 5)),
            drops: false,
        });
        batch.add_chain(&Chain {
            name: "input".to_owned(),
            hook: Some((Hook::Input, -10)),
            drops: true,
        });
        batch.add_chain(&chain("class"));
        let verdicts = Set { verdicts: true, ..Set::hash("out4", &[Field::Ipv4]) };
        let addresses = Set { timeouts: true, ..Set::hash("peers6", &[Field::Ipv6]) };
        let named = Set::hash("named", &[Field::Ipv4, Field::Protocol, Field::Port]);
        let networks = Set { ranges: true, ..Set::hash("networks", &[Field::Ipv4]) };
        let ports = Set { ranges: true, ..Set::hash("ports", &[Field::Protocol, Field::Port]) };
        for set in [&verdicts, &addresses, &named, &networks, &ports] {
            batch.add_set(set);
        }
        batch.add_elements(
            &verdicts,
            &[
                Element::with([10, 0, 0, 1], Verdict::Jump("class".to_owned())),
                Element::with([10, 0, 0, 2], Verdict::Goto("class".to_owned())),
                Element::with([10, 0, 0, 3], Verdict::Drop),
            ],
        );
        let six = "fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
        batch.add_elements(&addresses, &[Element::new(six)]);
        batch.add_elements(&named, &[Element::new(key(&[&[10, 0, 0, 9], &[6], &[0, 80]]))]);
        batch.add_elements(
            &networks,
            &[
                Element::range([10, 1, 0, 0], [10, 1, 255, 255]),
                Element::range([10, 2, 0, 7], [10, 2, 0, 7]),
                Element::range([224, 0, 0, 0], [255, 255, 255, 255]),
            ],
        );
        batch.add_elements(
            &ports,
            &[
                Element::range(key(&[&[6], &[0x1f, 0x90]]), key(&[&[6], &[0x1f, 0x9a]])),
                Element::range(key(&[&[17], &[0, 53]]), key(&[&[17], &[0, 53]])),
            ],
        );
        let transport = Expression::Payload {
            header: Header::Transport,
            offset: 2,
            length: 2,
            into: Register(1),
        };
        let protocol = || Expression::Meta { fact: Meta::Protocol, into: R };
        let is = |value: Vec<u8>| Expression::Compare { register: R, is: Comparison::Equal, value };
        batch.add_rule(
            "forward",
            &rule(vec![
                Expression::Tracked { fact: Tracked::Mark, into: R },
                Expression::Bits {
                    register: R,
                    mask: 0x10u32.to_ne_bytes().to_vec(),
                    xor: vec![0; 4],
                },
                is(0x10u32.to_ne_bytes().to_vec()),
                Expression::Verdict(Verdict::Drop),
            ]),
        );
        batch.add_rule(
            "forward",
            &rule(vec![
                Expression::Tracked { fact: Tracked::Direction, into: R },
                is(vec![1]),
                Expression::Verdict(Verdict::Accept),
            ]),
        );
        let [family, four] = is_family(2);
        batch.add_rule(
            "forward",
            &rule(vec![
                family.clone(),
                four.clone(),
                address(12, 4),
                Expression::VerdictFrom { map: "out4".to_owned(), key: R },
            ]),
        );
        let lookup = |set: &str, absent| Expression::Lookup { set: set.to_owned(), key: R, absent };
        batch.add_rule(
            "class",
            &Rule {
                expressions: vec![
                    family,
                    four,
                    address(16, 4),
                    lookup("networks", true),
                    protocol(),
                    transport,
                    lookup("ports", false),
                    Expression::Counter { packets: 3, bytes: 4 },
                    Expression::Verdict(Verdict::Return),
                ],
                comment: "shop/db ingress[0]".to_owned(),
                digest: 7,
                tag: 9 << 100,
            },
        );
        let [family, six] = is_family(10);
        batch.add_rule("class", &rule(vec![family, six, address(8, 16), lookup("peers6", false)]));
        batch.add_rule(
            "class",
            &rule(vec![
                Expression::Limit { per_second: 10, burst: 20 },
                Expression::Log { group: 5, prefix: "why".to_owned(), length: 96 },
            ]),
        );
        batch.add_rule(
            "class",
            &rule(vec![protocol(), is(vec![6]), Expression::Reject(Rejection::TcpReset)]),
        );
        batch.add_rule("class", &rule(vec![Expression::Reject(Rejection::Prohibited)]));
        let before = nftables.generation().unwrap();
        nftables.commit(&batch, Some(before)).unwrap();
        assert_eq!(nftables.generation().unwrap(), before + 1);

        let lines = printed();
        for line in [
            "table inet test {",
            "type filter hook forward priority filter + 5; policy accept;",
            "type filter hook input priority filter - 10; policy drop;",
            "type ipv4_addr : verdict",
            "elements = { 10.0.0.1 : jump class, 10.0.0.2 : goto class,",
            "10.0.0.3 : drop }",
            "type ipv4_addr . inet_proto . inet_service",
            "elements = { 10.0.0.9 . tcp . 80 }",
            "flags interval",
            "elements = { 10.1.0.0/16, 10.2.0.7,",
            "224.0.0.0/3 }",
            "elements = { tcp . 8080-8090,",
            "ct mark & 0x00000010 == 0x00000010 drop",
            "ct direction reply accept",
            "ip saddr vmap @out4",
            "ip daddr != @networks meta l4proto . th dport @ports counter packets 3 bytes 4 return \
             comment \"shop/db ingress[0]\"",
            "ip6 saddr @peers6",
            "limit rate 10/second burst 20 packets log prefix \"why\" group 5 snaplen 96",
            "meta l4proto tcp reject with tcp reset",
            "reject with icmpx admin-prohibited",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line:?} is not in {lines:#?}");
        }

        // What is listed is what was added.
        for (set, wanted) in [(&verdicts, 3), (&addresses, 1), (&named, 1), (&networks, 3)] {
            assert_eq!(nftables.elements(TABLE, set).unwrap().len(), wanted, "{set:?}");
        }
        let found = nftables.elements(TABLE, &networks).unwrap();
        assert_eq!(found[1], Element::range([10, 2, 0, 7], [10, 2, 0, 7]));
        assert_eq!(found[2], Element::range([224, 0, 0, 0], [255, 255, 255, 255]));
        let found = nftables.elements(TABLE, &verdicts).unwrap();
        assert_eq!(found[0], Element::with([10, 0, 0, 1], Verdict::Jump("class".to_owned())));
        let found = nftables.elements(TABLE, &ports).unwrap();
        let http = Element::range(key(&[&[6], &[0x1f, 0x90]]), key(&[&[6], &[0x1f, 0x9a]]));
        let dns = Element::range(key(&[&[17], &[0, 53]]), key(&[&[17], &[0, 53]]));
        assert_eq!(found, [http, dns]);
        let rules = nftables.rules(TABLE).unwrap();
        let told = rules.iter().find(|rule| rule.digest == 7).unwrap();
        assert_eq!((told.chain.as_str(), told.comment.as_str()), ("class", "shop/db ingress[0]"));
        assert_eq!(told.tag, 9 << 100);
        assert_eq!(told.counted, Some(Counted { packets: 3, bytes: 4 }));
        let chains = nftables.chains(TABLE).unwrap();
        assert_eq!(chains.iter().filter(|chain| chain.hooked).count(), 2);
        assert_eq!(nftables.sets(TABLE).unwrap().len(), 5);
    });
}

/// A table with one set, of which batches add and delete elements.
fn with_set(nftables: &mut Nftables, flags: u32) -> Set {
    let set = Set::hash("addresses", &[Field::Ipv4]);
    let mut batch = Batch::new(TABLE);
    batch.add_table(flags);
    batch.add_set(&set);
    nftables.commit(&batch, None).unwrap();
    set
}

#[test]
fn a_batch_is_made_whole_or_not_at_all_and_the_refused_change_is_named() {
    requires!(netns);
    inside(|mut nftables| {
        let set = with_set(&mut nftables, 0);
        let mut batch = Batch::new(TABLE);
        batch.add_elements(&set, &[Element::new([10, 0, 0, 1])]);
        batch.add_chain(&chain("new"));
        batch.delete_chain("absent");
        batch.add_chain(&chain("another"));
        let generation = nftables.generation().unwrap();
        match nftables.commit(&batch, None) {
            Err(CommitError::Refused { what, at, source }) => {
                assert_eq!((what.as_str(), at), ("delete chain absent", 2));
                assert_eq!(source.kind(), io::ErrorKind::NotFound);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(nftables.elements(TABLE, &set).unwrap(), []);
        assert_eq!(nftables.chains(TABLE).unwrap(), []);
        assert_eq!(nftables.generation().unwrap(), generation);
    });
}

#[test]
fn a_batch_for_another_generation_is_refused_as_stale() {
    requires!(netns, nft);
    inside(|mut nftables| {
        let set = with_set(&mut nftables, 0);
        let generation = nftables.generation().unwrap();
        nft(&["add", "table", "ip", "somebody"]);
        let mut batch = Batch::new(TABLE);
        batch.add_elements(&set, &[Element::new([10, 0, 0, 1])]);
        let stale = nftables.commit(&batch, Some(generation));
        assert!(matches!(stale, Err(CommitError::Stale)), "{stale:?}");
        let generation = nftables.generation().unwrap();
        nftables.commit(&batch, Some(generation)).unwrap();
        assert_eq!(nftables.elements(TABLE, &set).unwrap().len(), 1);
    });
}

#[test]
fn a_hundred_thousand_elements_are_one_batch_and_are_listed_whole() {
    requires!(netns);
    inside(|mut nftables| {
        let set = with_set(&mut nftables, 0);
        let elements: Vec<_> = (0..100_000u32)
            .map(|number| Element::new((0x0a00_0000 + number).to_be_bytes()))
            .collect();
        let mut batch = Batch::new(TABLE);
        batch.add_elements(&set, &elements);
        assert!(batch.len() > 1 << 20);
        nftables.commit(&batch, None).unwrap();
        assert!(nftables.elements(TABLE, &set).unwrap() == elements);
        let mut batch = Batch::new(TABLE);
        batch.delete_elements(&set, &elements[1..]);
        nftables.commit(&batch, None).unwrap();
        assert_eq!(nftables.elements(TABLE, &set).unwrap(), elements[..1]);
    });
}

#[test]
fn an_owned_table_outlives_a_foreign_flush_and_its_owner_and_is_taken_by_the_next() {
    requires!(netns, nft);
    inside(|mut nftables| {
        let flags = TABLE_OWNER | TABLE_PERSIST;
        let mut probe = Batch::new(TABLE);
        probe.add_table(flags);
        if let Err(error) = nftables.commit(&probe, None) {
            // Linux before 6.9.
            assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
            return;
        }
        let set = with_set(&mut nftables, flags);
        nft(&["flush", "ruleset"]);
        assert_eq!(nftables.sets(TABLE).unwrap().len(), 1);
        let own = nftables.port().unwrap();
        assert_eq!(nftables.table(TABLE).unwrap().unwrap().owner, Some(own));

        let mut next = Nftables::open().unwrap();
        let mut batch = Batch::new(TABLE);
        batch.add_table(flags);
        batch.add_elements(&set, &[Element::new([10, 0, 0, 1])]);
        assert!(next.commit(&batch, None).is_err(), "it has an owner");
        // Without an owner it stays, and anybody may change it.
        drop(nftables);
        assert_eq!(next.table(TABLE).unwrap().map(|table| table.owner), Some(None));
        next.commit(&batch, None).unwrap();
        assert_eq!(next.elements(TABLE, &set).unwrap().len(), 1);
        assert_eq!(next.table(TABLE).unwrap().unwrap().owner, Some(next.port().unwrap()));
    });
}

#[test]
fn changes_of_others_to_the_table_are_heard_and_own_ones_are_not() {
    requires!(netns, nft);
    inside(|mut nftables| {
        let mut changes = ForeignChanges::open(TABLE).unwrap();
        let own = nftables.port().unwrap();
        with_set(&mut nftables, 0);
        nft(&["add", "table", "ip", "somebody"]);
        let none = changes.read(Duration::from_millis(100), own).unwrap();
        assert_eq!(none, Seen::default());
        nft(&["flush", "ruleset"]);
        let seen = changes.read(Duration::from_secs(20), own).unwrap();
        assert_eq!(seen, Seen { changed: true, lost: false });
    });
}

#[test]
fn an_element_ends_by_itself() {
    requires!(netns);
    inside(|mut nftables| {
        let set = Set { timeouts: true, ..Set::hash("names", &[Field::Ipv4]) };
        let mut batch = Batch::new(TABLE);
        batch.add_table(0);
        batch.add_set(&set);
        let lasting = Element::new([10, 0, 0, 1]);
        let brief = Element { timeout: Some(50), ..Element::new([10, 0, 0, 2]) };
        batch.add_elements(&set, &[lasting.clone(), brief]);
        nftables.commit(&batch, None).unwrap();
        while nftables.elements(TABLE, &set).unwrap() != [lasting.clone()] {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

proptest! {
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = listing::table(&bytes);
        let _ = listing::chain(&bytes);
        let _ = listing::rule(&bytes);
        let _ = listing::set(&bytes);
        let _ = listing::generation(&bytes);
        let _ = listing::table_of(&bytes);
        for ranges in [false, true] {
            let set = Set { ranges, ..Set::hash("x", &[Field::Ipv4]) };
            let _ = listing::joined(listing::elements(&bytes), &set);
        }
        for kind in NEW_TABLE..NEW_TABLE + 40 {
            let _ = listing::describe(kind, &bytes);
        }
    }

    /// Nested attributes with anything in them are reached more often than by chance.
    #[test]
    fn any_attributes_can_be_read(
        outer in 0u16..16, inner in 0u16..16,
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut payload = vec![1, 0, 0, 0];
        nested(&mut payload, outer, |out| {
            nested(out, 1, |out| {
                write(out, inner, &bytes);
                nested(out, 2, |out| nested(out, 2, |out| out.extend(&bytes)));
            });
            write(out, 2, &bytes);
        });
        let _ = listing::rule(&payload);
        let _ = listing::elements(&payload);
        let _ = listing::set(&payload);
    }

    /// Ranges come back from the two entries that the kernel has for each.
    #[test]
    fn ranges_are_joined_from_their_ends(cuts in proptest::collection::btree_set(any::<u16>(), 2..20)) {
        let cuts: Vec<u16> = cuts.into_iter().collect();
        let set = Set { ranges: true, ..Set::hash("x", &[Field::Port]) };
        let ranges: Vec<_> = cuts
            .chunks_exact(2)
            .map(|pair| Element::range(pair[0].to_be_bytes(), (pair[1] - 1).to_be_bytes()))
            .collect();
        let mut batch = Batch::new(TABLE);
        batch.add_elements(&set, ranges.iter().rev());
        let sent = messages(&batch.bytes).next().unwrap();
        prop_assert_eq!(listing::joined(listing::elements(sent.payload()), &set), ranges);
    }
}

/// The set that rules fill, and the rule that fills it with where datagrams go.
fn remembering(most: u32) -> (Set, Batch) {
    let set = Set {
        timeouts: true,
        filled_by_rules: Some(most),
        ..Set::hash("looked", &[Field::Ipv4, Field::Ipv4, Field::Protocol, Field::Port])
    };
    let compare = |is, than: u64| {
        let value = than.to_be_bytes().to_vec();
        Expression::Compare { register: R, is, value }
    };
    let mut batch = Batch::new(TABLE);
    batch.add_table(TABLE_OWNER);
    let hook = Some((Hook::Output, 300));
    batch.add_chain(&Chain { name: "out".to_owned(), hook, drops: false });
    batch.add_set(&set);
    let key = || "looked".to_owned();
    let network =
        |offset, into| Expression::Payload { header: Header::Network, offset, length: 4, into };
    let [family, four] = is_family(2);
    batch.add_rule(
        "out",
        &rule(vec![
            family,
            four,
            Expression::Tracked { fact: Tracked::Packets, into: R },
            Expression::Comparable { register: R, length: 8 },
            compare(Comparison::AtMost, 4),
            compare(Comparison::NotEqual, 0),
            Expression::Payload { header: Header::Carried, offset: 0, length: 1, into: R },
            network(12, R),
            network(16, Register(1)),
            Expression::Meta { fact: Meta::Protocol, into: Register(2) },
            Expression::Payload {
                header: Header::Transport,
                offset: 2,
                length: 2,
                into: Register(3),
            },
            Expression::Lookup { set: key(), key: R, absent: true },
            Expression::Remember { set: key(), key: R, timeout: 600_000 },
            Expression::Counter { packets: 0, bytes: 0 },
        ]),
    );
    (set, batch)
}

#[test]
fn a_rule_remembers_each_conversation_once_and_no_more_than_the_set_may_have() {
    requires!(netns, nft);
    inside(|mut nftables| {
        let (set, batch) = remembering(2);
        nftables.commit(&batch, None).unwrap();
        let lines = printed();
        for line in [
            "type ipv4_addr . ipv4_addr . inet_proto . inet_service",
            "size 2",
            "flags dynamic,timeout",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line:?} is not in {lines:#?}");
        }
        let rule = lines.iter().find(|it| it.contains("ct packets")).unwrap();
        for part in [
            "ct packets <= 4",
            "ct packets != 0",
            "ip saddr . ip daddr . meta l4proto . th dport != @looked",
            "add @looked { ip saddr . ip daddr . meta l4proto . th dport timeout 10m }",
        ] {
            assert!(rule.contains(part), "{part:?} is not in {rule:?}");
        }
        let counted =
            |nftables: &mut Nftables| nftables.rules(TABLE).unwrap()[0].counted.unwrap().packets;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = |port: u16, bytes: &[u8]| socket.send_to(bytes, ("127.0.0.1", port)).unwrap();
        // Two of one conversation, one that carries nothing, another, and one more than there is room for.
        send(7001, b"x");
        send(7001, b"x");
        send(7002, b"");
        assert_eq!(counted(&mut nftables), 1);
        send(7003, b"x");
        send(7004, b"x");
        send(7005, b"x");
        assert_eq!(counted(&mut nftables), 2);
        let found: Vec<_> =
            nftables.elements(TABLE, &set).unwrap().into_iter().map(|it| it.key).collect();
        let of = |port: u16| {
            let here: &[u8] = &[127, 0, 0, 1];
            key(&[here, here, &[17], &port.to_be_bytes()])
        };
        assert_eq!(found, [of(7001), of(7003)]);
        // Who owned the table is gone, and so is the table.
        drop(nftables);
        assert_eq!(Nftables::open().unwrap().table(TABLE).unwrap(), None);
    });
}
