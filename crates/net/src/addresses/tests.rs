use std::collections::BTreeSet;
use std::fs;

use futures::FutureExt;
use stallproof::group_commit::GroupWriter;
use tempfile::TempDir;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

pub(crate) fn wanted(container: &str, pool: &str) -> AssignRequest {
    AssignRequest {
        fixed: Default::default(),
        key: key(container),
        network: "k8s".to_owned(),
        pod: None,
        pool: pool.to_owned(),
        namespace: NamespaceId { device: 4, inode: 1 },
        netns: format!("/run/netns/{container}"),
        host_interface: format!("fl{container}"),
    }
}

fn key(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

fn networks(ipv4: &str, ipv6: &str) -> Networks {
    Networks { ipv4: ipv4.parse().ok(), ipv6: ipv6.parse().ok() }
}

fn new(assigned: Result<Assignment, AssignError>) -> Arc<Attachment> {
    match assigned.unwrap() {
        Assignment::New(attachment) => attachment,
        Assignment::Existing(attachment) => panic!("{} had it already", attachment.key),
    }
}

async fn stand(addresses: &Addresses, availability: &[(&str, PoolAvailability)]) {
    let availability = availability.iter().map(|(pool, one)| (Arc::from(*pool), one.clone()));
    addresses.set_availability(availability.collect()).await;
}

async fn waits(addresses: &Addresses, pool: &str, how_many: u32) {
    let mut changes = addresses.changes();
    let waiting = |addresses: &Addresses| {
        addresses.view().demand.get(pool).is_some_and(|demand| demand.waiting == how_many)
    };
    while !waiting(addresses) {
        soon().bound(changes.changed()).await.unwrap();
    }
}

#[tokio::test]
async fn add_twice_delete_twice_and_delete_without_add_are_exact() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let both = networks("10.0.0.0/30", "fd00::/126");
    addresses.adopt("default-0", "default", both, soon()).await.unwrap();

    let first = new(addresses.assign(wanted("a", "default"), soon()).await);
    assert_eq!(first.ipv4.unwrap().to_string(), "10.0.0.0");
    assert_eq!(first.ipv6.unwrap().to_string(), "fd00::");
    // The record is as it was, whatever is wanted now.
    let again = addresses.assign(wanted("a", "other"), soon()).await.unwrap();
    assert_eq!(again, Assignment::Existing(Arc::clone(&first)));
    assert_eq!(addresses.view().holder("fd00::".parse().unwrap()).unwrap().key, key("a"));

    let other = AttachmentKey { ifname: "eth1".to_owned(), ..key("a") };
    assert_eq!(addresses.release(&other, soon()).await.unwrap(), None);
    assert_eq!(addresses.release(&key("b"), soon()).await.unwrap(), None);
    assert_eq!(addresses.release(&key("a"), soon()).await.unwrap(), Some(first));
    assert_eq!(addresses.release(&key("a"), soon()).await.unwrap(), None);
    assert_eq!(addresses.view().attachments().count(), 0);

    // Not the one that was just given back.
    let next = new(addresses.assign(wanted("a", "default"), soon()).await);
    assert_eq!(next.ipv4.unwrap().to_string(), "10.0.0.1");
}

#[tokio::test]
async fn what_was_assigned_is_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let assigned = {
        let tasks = Tasks::new("test");
        let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
        let block = networks("10.0.0.0/28", "");
        addresses.adopt("default-0", "default", block, soon()).await.unwrap();
        let mut assigned = Vec::new();
        for container in ["a", "b", "c"] {
            assigned.push(new(addresses.assign(wanted(container, "default"), soon()).await));
        }
        addresses.release(&key("b"), soon()).await.unwrap();
        assigned.remove(1);
        // As after kill -9: what was acknowledged is in the file, nothing was closed.
        let left = tempfile::tempdir().unwrap();
        let copy = left.path().join("addresses.journal");
        fs::copy(dir.path().join("addresses.journal"), copy).unwrap();
        let killed = Addresses::open(left.path(), &Ledger::default(), &tasks).unwrap();
        assert_eq!(killed.view().attachments().count(), 2);

        assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
        let refused = addresses.assign(wanted("d", "default"), soon()).await;
        assert_eq!(refused, Err(AssignError::Closed));
        assigned
    };
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &Tasks::new("test")).unwrap();
    let view = addresses.view();
    assert_eq!(view.attachments().count(), 2);
    for attachment in assigned {
        assert_eq!(view.attachment(&attachment.key), Some(&attachment));
    }
    // Without any store it goes on from the block it has.
    let next = new(addresses.assign(wanted("d", "default"), soon()).await);
    assert_eq!(next.ipv4.unwrap().to_string(), "10.0.0.3");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_of_a_burst_is_given_twice() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let block = networks("10.0.0.0/23", "");
    addresses.adopt("default-0", "default", block, soon()).await.unwrap();
    let burst = (0..500).map(|n| {
        let addresses = addresses.clone();
        async move { new(addresses.assign(wanted(&n.to_string(), "default"), soon()).await) }
    });
    let assigned = futures::future::join_all(burst).await;
    let distinct: BTreeSet<_> = assigned.iter().map(|attachment| attachment.ipv4).collect();
    assert_eq!(distinct.len(), 500);
    let on_disk = Journal::open(dir.path()).unwrap().1;
    assert_eq!(on_disk.attachments().count(), 500);
}

type Answered = oneshot::Receiver<Result<Assignment, AssignError>>;

/// For whoever calls the writer itself.
fn assigning(n: u32) -> (Message, Answered) {
    let (answer, answered) = oneshot::channel();
    let request = wanted(&n.to_string(), "default");
    let (chosen, recorded) = (Box::new(|_: &_| ()), Box::new(|_: &_| ()));
    let waiting = writer::Waiting { request, deadline: soon(), chosen, recorded, answer };
    (Message::Assign(Box::new(waiting)), answered)
}

fn adopting() -> Message {
    let Networks { ipv4, ipv6 } = networks("10.0.0.0/24", "");
    let (block, pool) = ("default-0".to_owned(), "default".to_owned());
    let change = BlockChange::Adopt(AdoptedBlock { block, pool, ipv4, ipv6, next: 0 });
    Message::Change { change, answer: oneshot::channel().0 }
}

#[test]
fn all_that_wait_are_one_frame_of_the_journal() {
    let dir = TempDir::new().unwrap();
    let (journal, table) = Journal::open(dir.path()).unwrap();
    let (assigning, answers): (Vec<_>, Vec<_>) = (0..100).map(assigning).unzip();
    let (flusher, _flushes) = GroupCommit::channel(FLUSHES);
    let mut writer = Writer::new(journal, Snapshot::new(table), flusher);
    writer.write([adopting()].into_iter().chain(assigning).collect());
    writer.close();
    answers.into_iter().for_each(|answer| drop(new(answer.blocking_recv().unwrap())));
    let bytes = fs::read(dir.path().join("addresses.journal")).unwrap();
    assert_eq!(bytes.windows(4).filter(|window| window == b"FLJ1").count(), 1);
}

#[test]
fn a_disk_that_hangs_holds_up_no_assignment_and_has_one_flush_to_do() {
    let dir = TempDir::new().unwrap();
    let (journal, table) = Journal::open(dir.path()).unwrap();
    let (flusher, mut flushes) = GroupCommit::channel(FLUSHES);
    let mut next = || flushes.next().now_or_never().flatten();
    let mut writer = Writer::new(journal, Snapshot::new(table), flusher);
    writer.write(vec![adopting()]);
    assert!(next().is_none(), "a block is on disk when that is said");
    for n in 0..3 {
        let (message, answered) = assigning(n);
        writer.write(vec![message]);
        new(answered.blocking_recv().unwrap());
    }
    let first = next().unwrap();
    assert!(next().is_none());
    // What was assigned since it began is the next one's.
    writer.write(vec![Message::Flushed(first.run())]);
    let second = next().unwrap();
    writer.write(vec![Message::Flushed(second.run())]);
    assert!(next().is_none(), "all is on disk");
    let key = key("0");
    writer.write(vec![Message::Release { key, answer: oneshot::channel().0 }]);
    assert!(next().is_none(), "a release waits for what is flushed next");
}

#[tokio::test]
async fn without_an_address_it_waits_for_a_block_or_for_a_release() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let assign = |container: &str| {
        let (addresses, wanted) = (addresses.clone(), wanted(container, "default"));
        tasks.spawn("assign", async move { addresses.assign(wanted, soon()).await })
    };
    // At the start nothing is known; then the pool is open, and a claim is under way.
    let first = assign("a");
    waits(&addresses, "default", 1).await;
    stand(&addresses, &[("default", PoolAvailability::Open)]).await;
    let second = assign("b");
    waits(&addresses, "default", 2).await;
    let block = networks("10.0.0.0/31", "");
    addresses.adopt("default-0", "default", block, soon()).await.unwrap();
    new(first.await.unwrap());
    new(second.await.unwrap());
    waits(&addresses, "default", 0).await;

    let third = assign("c");
    waits(&addresses, "default", 1).await;
    addresses.release(&key("a"), soon()).await.unwrap();
    assert_eq!(new(third.await.unwrap()).ipv4.unwrap().to_string(), "10.0.0.0");

    // Who leaves is not waited for, and gets nothing.
    let short = Deadline::after(Duration::from_millis(50));
    let left = addresses.assign(wanted("d", "default"), short).await;
    assert!(matches!(left, Err(AssignError::NoBlockYet { .. } | AssignError::TooLate)), "{left:?}");
    waits(&addresses, "default", 0).await;
    addresses.release(&key("b"), soon()).await.unwrap();
    assert_eq!(addresses.view().attachments().count(), 1);
}

#[tokio::test]
async fn where_waiting_is_of_no_use_it_is_told_at_once_and_why() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let full = PoolAvailability::Exhausted("all its 8 blocks are claimed".into());
    let failing = PoolAvailability::Failing("no block can be claimed: the store is away".into());
    stand(&addresses, &[("full", full), ("failing", failing)]).await;
    for (pool, sentence) in [
        (
            "none",
            "there is no address pool none: create AddressPool/none, or correct the namespace's \
             annotation fairlead.dev/pool",
        ),
        ("full", "address pool full has no address for this node: all its 8 blocks are claimed"),
        (
            "failing",
            "this node has no free address of pool failing yet: no block can be claimed: the store \
             is away",
        ),
    ] {
        let error = addresses.assign(wanted("a", pool), soon()).await.unwrap_err();
        assert_eq!(error.to_string(), sentence);
    }
    // Whoever claims is told that somebody came.
    assert!(addresses.view().demand.contains_key("failing"));

    // What is here is assigned from, however the pool stands; but not once the pool is gone.
    let block = networks("10.0.0.0/31", "");
    addresses.adopt("failing-0", "failing", block, soon()).await.unwrap();
    new(addresses.assign(wanted("a", "failing"), soon()).await);
    stand(&addresses, &[]).await;
    let error = addresses.assign(wanted("b", "failing"), soon()).await.unwrap_err();
    assert!(matches!(error, AssignError::NoPool { .. }), "{error}");
}

#[tokio::test]
async fn a_barred_block_keeps_what_it_gave_and_gives_no_more_also_after_a_restart() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let block = networks("10.0.0.0/30", "");
    addresses.adopt("default-0", "default", block, soon()).await.unwrap();
    new(addresses.assign(wanted("a", "default"), soon()).await);
    addresses.cordon("default-0", "it is another's", soon()).await.unwrap();
    assert_eq!(addresses.drop_if_empty("default-0", soon()).await, Ok(false));
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());

    let tasks = Tasks::new("test");
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let failing = PoolAvailability::Failing("the store is away".into());
    stand(&addresses, &[("default", failing)]).await;
    assert_eq!(addresses.view().block("default-0").unwrap().cordoned(), Some("it is another's"));
    addresses.assign(wanted("b", "default"), soon()).await.unwrap_err();

    addresses.release(&key("a"), soon()).await.unwrap().unwrap();
    assert_eq!(addresses.drop_if_empty("default-0", soon()).await, Ok(true));
    assert_eq!(addresses.drop_if_empty("default-0", soon()).await, Ok(true));
    assert_eq!(Journal::open(dir.path()).unwrap().1.blocks().count(), 0);
}

#[tokio::test]
async fn a_disk_that_fails_refuses_assignments_and_not_releases_and_heals() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let block = networks("10.0.0.0/30", "");
    addresses.adopt("default-0", "default", block, soon()).await.unwrap();
    let held = new(addresses.assign(wanted("a", "default"), soon()).await);
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());

    // Neither can it be appended to, nor is there room for another file.
    let obstacle = dir.path().join("addresses.journal.new");
    fs::create_dir(&obstacle).unwrap();
    let (mut journal, table) = Journal::open(dir.path()).unwrap();
    journal.fail();
    let tasks = Tasks::new("test");
    let addresses = Addresses::start(journal, table, &Ledger::default(), &tasks).unwrap();

    for _ in 0..2 {
        let refused = addresses.assign(wanted("b", "default"), soon()).await.unwrap_err();
        assert!(matches!(&refused, AssignError::Journal { .. }), "{refused}");
        assert!(refused.to_string().contains("make room on its disk, or mend it"), "{refused}");
        assert_eq!(addresses.view().attachments().count(), 1);
    }
    assert_eq!(addresses.release(&key("a"), soon()).await.unwrap(), Some(held));
    assert_eq!(addresses.view().attachments().count(), 0);

    fs::remove_dir(&obstacle).unwrap();
    let healed = new(addresses.assign(wanted("b", "default"), soon()).await);
    let on_disk = Journal::open(dir.path()).unwrap().1;
    assert_eq!(on_disk.attachments().collect::<Vec<_>>(), [&healed]);
}
