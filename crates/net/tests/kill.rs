//! `kill -9` at any instant: an address that was assigned is on record, with one attachment, until its release is
//! asked for; one whose release was answered is free.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use net::addresses::AssignRequest;
use net::{Addresses, AttachmentKey, NamespaceId};
use objects::kinds::Networks;
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{acknowledge, killed};

const WORKERS: u64 = 4;
/// The pods that a worker keeps.
const PODS: usize = 6;
/// Records are this much longer than they need be, so that the journal is compacted often.
const LONG: usize = 4096;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn key(pod: &str) -> AttachmentKey {
    AttachmentKey { container: pod.to_owned(), ifname: "eth0".to_owned() }
}

fn request(pod: &str) -> AssignRequest {
    AssignRequest {
        key: key(pod),
        network: "k8s".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        namespace: NamespaceId { device: 4, inode: 1 },
        netns: format!("/run/netns/{}", "x".repeat(LONG)),
        host_interface: "fl0".to_owned(),
        fixed: Default::default(),
    }
}

/// Assigns and releases without end. What is said with `+` is assigned, with `?` is about to be released, with
/// `-` is released.
fn write(dir: &Path, life: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("child");
        let addresses = Addresses::open(dir, &Ledger::default(), &tasks).unwrap();
        let networks = Networks { ipv4: Some("10.0.0.0/24".parse().unwrap()), ipv6: None };
        addresses.adopt("default-0", "default", networks, soon()).await.unwrap();
        // Pods of lives before are released, as whoever runs the node would.
        let before: Vec<_> =
            addresses.view().attachments().map(|it| it.key.container.clone()).collect();
        let (share, workers) = (before.len().div_ceil(4).max(1), before);
        for worker in 0..WORKERS {
            let own = workers.chunks(share).nth(worker as usize).unwrap_or_default().to_vec();
            let work = work(addresses.clone(), life, worker, own);
            tasks.spawn(format!("worker {worker}"), work);
        }
        std::future::pending::<()>().await;
    });
}

async fn work(addresses: Addresses, life: u64, worker: u64, mut pods: Vec<String>) {
    for number in 0_u64.. {
        let pod = format!("{life}/{worker}/{number}");
        let assigned = addresses.assign(request(&pod), soon()).await.unwrap();
        acknowledge(format_args!("+ {pod} {}", assigned.attachment().ipv4.unwrap()));
        pods.push(pod);
        while pods.len() > PODS {
            let pod = pods.remove(0);
            acknowledge(format_args!("? {pod}"));
            addresses.release(&key(&pod), soon()).await.unwrap();
            acknowledge(format_args!("- {pod}"));
        }
    }
}

/// The attachments as another process finds them.
fn found(dir: &Path) -> BTreeMap<String, Ipv4Addr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("check");
        let addresses = Addresses::open(dir, &Ledger::default(), &tasks).unwrap();
        let view = addresses.view();
        let all = view.attachments().map(|it| (it.key.container.clone(), it.ipv4.unwrap()));
        let all = all.collect();
        assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
        all
    })
}

#[test]
fn every_assigned_address_survives_kill_9() {
    let mut assigned: BTreeMap<String, Ipv4Addr> = BTreeMap::new();
    let mut leaving: BTreeSet<String> = BTreeSet::new();
    killed("every_assigned_address_survives_kill_9", write, |dir, killed| {
        let mut released = BTreeSet::new();
        for line in &killed.acknowledged {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["+", pod, address] => {
                    assigned.insert(pod.to_owned(), address.parse().unwrap());
                }
                ["?", pod] => _ = leaving.insert(pod.to_owned()),
                ["-", pod] => _ = released.insert(pod.to_owned()),
                _ => panic!("{line}"),
            }
        }
        assigned.retain(|pod, _| !leaving.contains(pod));
        let found = found(dir);
        for (pod, address) in &assigned {
            assert_eq!(found.get(pod), Some(address), "{pod} in life {}", killed.life);
        }
        for pod in &released {
            assert_eq!(found.get(pod), None, "{pod} was released in life {}", killed.life);
        }
        let addresses: BTreeSet<_> = found.values().collect();
        assert_eq!(addresses.len(), found.len(), "an address is given twice: {found:?}");
        // Those of whom it is not known go on with what they are.
        leaving.retain(|pod| found.contains_key(pod));
        let known: BTreeSet<_> = assigned.keys().chain(&leaving).collect();
        let cut_off = found.keys().filter(|pod| !known.contains(pod)).count();
        assert!(cut_off as u64 <= WORKERS, "{cut_off} are on record and nobody was told so");
        assigned.extend(found);
        leaving.iter().for_each(|pod| _ = assigned.remove(pod));
    });
}
