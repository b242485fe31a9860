use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::NamespaceId;

/// For tests of other files too: an attachment, and a block that can be adopted.
pub(crate) fn attachment(container: &str, pool: &str, ipv4: Option<&str>) -> Arc<Attachment> {
    Arc::new(Attachment {
        mac: None,
        key: key(container),
        network: "k8s".to_owned(),
        pod: None,
        pool: pool.to_owned(),
        ipv4: ipv4.map(|address| address.parse().unwrap()),
        ipv6: None,
        namespace: NamespaceId { device: 4, inode: 4_026_532_000 },
        netns: format!("/run/netns/{container}"),
        host_interface: format!("fl{container}"),
        since: "2026-01-02T03:04:05Z".parse().unwrap(),
    })
}

pub(crate) fn key(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

pub(crate) fn adopted(block: &str, pool: &str, ipv4: &str) -> AdoptedBlock {
    AdoptedBlock {
        block: block.to_owned(),
        pool: pool.to_owned(),
        ipv4: Some(ipv4.parse().unwrap()),
        ipv6: None,
        next: 0,
    }
}

/// Everything that must survive a restart.
pub(crate) fn essence(
    index: &AddressTable,
) -> (BTreeMap<AttachmentKey, Attachment>, BTreeMap<String, LocalBlock>) {
    let leaving = index.leaving().map(|one| {
        let key = AttachmentKey { ifname: "leaving".to_owned(), ..one.key.clone() };
        (key, (**one).clone())
    });
    let attachments = index.attachments().map(|one| (one.key.clone(), (**one).clone()));
    let attachments = attachments.chain(leaving);
    let blocks = index.blocks().map(|(name, block)| (name.to_owned(), block.clone()));
    (attachments.collect(), blocks.collect())
}

fn assign(index: &mut AddressTable, container: &str) -> Option<String> {
    let (ipv4, _) = index.vacant("default", Instant::now())?;
    let address = ipv4.unwrap().to_string();
    index.apply(&Record::Assigned(attachment(container, "default", Some(&address)))).unwrap();
    Some(address)
}

#[test]
fn an_empty_block_is_given_from_only_when_the_others_are_full() {
    let mut index = AddressTable::default();
    for (name, net) in [("default-1", "10.0.0.0/31"), ("default-5", "10.0.1.0/31")] {
        index.apply(&Record::Adopted(adopted(name, "default", net))).unwrap();
    }
    index.apply(&Record::Adopted(adopted("other-0", "other", "10.9.0.0/31"))).unwrap();
    assert_eq!(assign(&mut index, "a").unwrap(), "10.0.0.0");
    assert_eq!(assign(&mut index, "b").unwrap(), "10.0.0.1");
    assert_eq!(assign(&mut index, "c").unwrap(), "10.0.1.0");
    index.released(&key("a")).unwrap();
    // The block last given from first; then the one with room; a full pool has nothing.
    assert_eq!(assign(&mut index, "d").unwrap(), "10.0.1.1");
    assert_eq!(assign(&mut index, "e").unwrap(), "10.0.0.0");
    assert_eq!(assign(&mut index, "f"), None);
    let holder = index.holder("10.0.0.0".parse().unwrap()).unwrap();
    assert_eq!(holder.key, key("e"));
}

#[test]
fn a_block_that_comes_back_knows_what_of_it_is_taken() {
    let mut index = AddressTable::default();
    index.apply(&Record::Assigned(attachment("a", "default", Some("10.0.0.1")))).unwrap();
    index.apply(&Record::Adopted(adopted("default-0", "default", "10.0.0.0/31"))).unwrap();
    assert_eq!(index.block("default-0").unwrap().used(), 1);
    assert_eq!(assign(&mut index, "b").unwrap(), "10.0.0.0");
    assert_eq!(assign(&mut index, "c"), None);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let mut index = AddressTable::default();
    index.apply(&Record::Adopted(adopted("default-0", "default", "10.0.0.0/30"))).unwrap();
    index.apply(&Record::Assigned(attachment("a", "default", Some("10.0.0.1")))).unwrap();
    let before = essence(&index);
    for (record, why) in [
        (
            Record::Assigned(attachment("b", "default", Some("10.0.0.1"))),
            "10.0.0.1 is given to b/eth0 while a/eth0 has it",
        ),
        (
            Record::Assigned(attachment("a", "default", Some("10.0.0.2"))),
            "a/eth0 is given addresses twice",
        ),
        (Record::Assigned(attachment("b", "default", None)), "b/eth0 is given no address"),
        (
            Record::Adopted(adopted("other-0", "other", "10.0.0.2/31")),
            "block other-0 overlaps block default-0",
        ),
        (
            Record::Adopted(AdoptedBlock {
                ipv4: None,
                ..adopted("other-0", "other", "10.0.0.2/31")
            }),
            "block other-0 has no networks that can be assigned from",
        ),
    ] {
        assert_eq!(index.apply(&record).unwrap_err().to_string(), why);
        assert_eq!(essence(&index), before);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u8),
    Release(u8),
    Adopt(u8),
    Cordon(u8),
    Drop(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..24_u8).prop_map(Step::Assign),
        4 => (0..24_u8).prop_map(Step::Release),
        2 => (0..4_u8).prop_map(Step::Adopt),
        1 => (0..4_u8).prop_map(Step::Cordon),
        1 => (0..4_u8).prop_map(Step::Drop),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    /// Against a model that is nothing but sets: no address twice, none outside of the blocks, none
    /// refused while one is free; and what is replayed, or written anew, is the same.
    #[test]
    fn it_is_as_a_plain_set_of_addresses_would_be(steps in steps()) {
        let mut index = AddressTable::default();
        let mut journal = Vec::new();
        let mut held = BTreeMap::<u8, String>::new();
        let mut open = BTreeSet::<u8>::new();
        let block = |n: u8| format!("default-{n}");
        for step in steps {
            let record = match step {
                Step::Assign(n) if held.contains_key(&n) => continue,
                Step::Assign(n) => {
                    let room = open.iter().any(|b| {
                        let taken = held.values().filter(|a| a.starts_with(&format!("10.0.{b}.")));
                        taken.count() < 4
                    });
                    let vacant = index.vacant("default", Instant::now());
                    prop_assert_eq!(vacant.is_some(), room);
                    let Some((ipv4, _)) = vacant else { continue };
                    let address = ipv4.unwrap();
                    prop_assert!(open.contains(&address.octets()[2]) && address.octets()[3] < 4);
                    let address = address.to_string();
                    prop_assert!(!held.values().any(|other| *other == address));
                    held.insert(n, address.clone());
                    Record::Assigned(attachment(&n.to_string(), "default", Some(&address)))
                }
                Step::Release(n) => {
                    held.remove(&n);
                    Record::Released(key(&n.to_string()).into())
                }
                Step::Adopt(n) => {
                    open.insert(n);
                    let next = index.block(&block(n)).map_or(0, |block| block.next);
                    let net = format!("10.0.{n}.0/30");
                    Record::Adopted(AdoptedBlock { next, ..adopted(&block(n), "default", &net) })
                }
                Step::Cordon(n) => {
                    open.remove(&n);
                    Record::Cordoned { block: block(n), why: "another's".to_owned() }
                }
                Step::Drop(n) => {
                    open.remove(&n);
                    Record::Dropped { block: block(n) }
                }
            };
            index.apply(&record).unwrap();
            journal.push(record);
            for (n, address) in &held {
                let holder = index.holder(address.parse().unwrap()).unwrap();
                prop_assert_eq!(&holder.key, &key(&n.to_string()));
            }
            prop_assert_eq!(index.attachments().count(), held.len());
        }
        let again = |records: Vec<Record>| {
            let mut again = AddressTable::default();
            records.iter().for_each(|record| again.apply(record).unwrap());
            essence(&again)
        };
        prop_assert_eq!(again(journal), essence(&index));
        prop_assert_eq!(again(index.records().collect()), essence(&index));
    }
}

#[test]
fn the_address_of_a_deleted_attachment_is_nobodys_until_it_is_released() {
    let mut index = AddressTable::default();
    index.apply(&Record::Adopted(adopted("default-0", "default", "10.0.0.0/31"))).unwrap();
    assert_eq!(assign(&mut index, "a").unwrap(), "10.0.0.0");
    let leaves = Record::Released(ReleasedKey { key: key("a"), leaving: true });
    index.apply(&leaves).unwrap();
    assert_eq!((index.attachment(&key("a")), index.is_leaving(&key("a"))), (None, true));
    assert_eq!(assign(&mut index, "b").unwrap(), "10.0.0.1");
    assert_eq!(assign(&mut index, "c"), None);
    let again = Record::Assigned(attachment("a", "default", Some("10.0.0.0")));
    assert_eq!(index.apply(&again), Err(InvalidRecord::Again(key("a"))));
    let mut replayed = AddressTable::default();
    index.records().for_each(|record| replayed.apply(&record).unwrap());
    assert_eq!(essence(&replayed), essence(&index));
    index.apply(&Record::Released(key("a").into())).unwrap();
    assert_eq!(assign(&mut index, "c").unwrap(), "10.0.0.0");
}

/// What an agent reads that knows nothing of attachments that are leaving.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OlderRecord {
    Released(AttachmentKey),
}

#[test]
fn an_older_agent_takes_a_deleted_attachment_for_released() {
    let leaves = Record::Released(ReleasedKey { key: key("a"), leaving: true });
    let written = serde_json::to_string(&leaves).unwrap();
    let OlderRecord::Released(read) = serde_json::from_str(&written).unwrap();
    assert_eq!(read, key("a"));
    let older = r#"{"released":{"container":"a","ifname":"eth0"}}"#;
    let read: Record = serde_json::from_str(older).unwrap();
    assert_eq!(read, Record::Released(key("a").into()));
}

#[test]
fn an_address_rests_after_its_release_unless_it_is_all_there_is() {
    let mut index = AddressTable::default();
    for (name, net) in [("default-0", "10.0.0.0/31"), ("default-1", "10.0.1.0/31")] {
        index.apply(&Record::Adopted(adopted(name, "default", net))).unwrap();
    }
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let next = |index: &AddressTable, seconds| {
        index.vacant("default", at(seconds)).unwrap().0.unwrap().to_string()
    };
    assert_eq!(assign(&mut index, "a").unwrap(), "10.0.0.0");
    assert_eq!(assign(&mut index, "b").unwrap(), "10.0.0.1");
    assert_eq!(assign(&mut index, "c").unwrap(), "10.0.1.0");
    let b = index.released(&key("b")).unwrap();
    index.rest(&b, at(0));
    let a = index.released(&key("a")).unwrap();
    index.rest(&a, at(5));
    assert_eq!(index.resting("default", at(6)), 2);
    assert_eq!(index.resting("other", at(6)), 0);
    assert_eq!(next(&index, 6), "10.0.1.1", "the one that does not rest");
    assert_eq!(assign(&mut index, "d").unwrap(), "10.0.1.1");
    assert_eq!(next(&index, 6), "10.0.0.1", "the one that has rested longest");
    assert_eq!(next(&index, 40), "10.0.0.0", "round and round");
    assert_eq!(index.resting("default", at(32)), 1);
}
