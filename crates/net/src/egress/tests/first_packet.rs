//! A pod never leaves beside its egress, from its first packet on, and is not held for longer than need be.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kernel::netns::Namespace;
use objects::Id;
use objects::kinds::SessionAffinity;
use parking_lot::Mutex;
use stallproof::Snapshot;
use testkit::requires;

use super::super::*;
use super::{WORLD, World, is_cut_off, seen_by, until};
use crate::datapath::{Datapath, PodPolicies};
use crate::tests::pods::{pod, reaches};
use crate::{Attachment, Pod};

/// What a pod's first packets do: they are sent from before it has an address until `stop`.
fn send_from_the_first_moment(inside: &Namespace, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let socket = inside.run_in(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // Before there is a route it fails.
            let _ = socket.send_to(b"?", (WORLD[0], 53));
            thread::sleep(Duration::from_micros(200));
        }
    })
}

/// Notes by which addresses datagrams come.
fn note_senders(outside: &Namespace) -> Arc<Mutex<BTreeSet<IpAddr>>> {
    let server = outside.run_in(|| UdpSocket::bind((WORLD[0], 53))).unwrap().unwrap();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&seen);
    thread::spawn(move || {
        while let Ok((_, from)) = server.recv_from(&mut [0; 8]) {
            noted.lock().insert(from.ip());
        }
    });
    seen
}

impl World {
    /// Pods that are made from now on are held until their choice is known. There is no client yet.
    fn with_hold(mut self, longest: Duration) -> (Self, EgressHold, Snapshot<Choices>) {
        let choices = Snapshot::<Choices>::default();
        let hold = EgressHold::new(self.node().clone(), choices.clone()).for_at_most(longest);
        self.clients = self.clients.with_policies([Arc::new(hold.clone()) as Arc<dyn PodPolicies>]);
        self.inputs.clients.clear();
        self.let_go(&hold);
        (self, hold, choices)
    }

    /// What the reconciler does with what it knows.
    fn let_go(&mut self, hold: &EgressHold) {
        let program = self.apply();
        let clients = self.inputs.clients.clone();
        let is_known = |it: &Attachment| {
            let pod = it.pod.as_ref().unwrap();
            clients.iter().any(|client| client.pod == pod.name)
        };
        let inside = || {
            hold.ensure(program.holds()).unwrap();
            hold.let_go(is_known).unwrap();
        };
        self.node().namespace().run_in(inside).unwrap();
    }
}

fn named(number: u8, name: &str) -> (Attachment, Namespace) {
    let (mut attachment, inside) = pod(1, number);
    let uid = Some(format!("uid-{name}"));
    attachment.pod = Some(Pod { namespace: "shop".to_owned(), name: name.to_owned(), uid });
    (attachment, inside)
}

fn chose(uid: &str, egresses: &[&str]) -> PodChoice {
    let egresses = egresses.iter().map(|it| (*it).to_owned()).collect();
    PodChoice { uid: uid.to_owned(), egresses }
}

#[test]
fn a_new_pod_never_leaves_beside_its_egress_and_one_that_chose_none_is_not_held_up() {
    requires!(netns, nft);
    let world = World::new().with_egress(SessionAffinity::ClientIp);
    let (mut world, hold, choices) = world.with_hold(Duration::from_secs(60));
    let seen = note_senders(&world.outside);
    let (new, inside) = named(3, "new");
    let stop = Arc::new(AtomicBool::new(false));
    let sending = send_from_the_first_moment(&inside, Arc::clone(&stop));
    // A pod of that name was here before, and chose nothing: it is another.
    choices.update(|all| all.set(Id::namespaced("shop", "new"), Some(chose("uid-old", &[]))));
    world.clients.set_up(&new, &inside, &()).unwrap();
    assert_eq!(hold.held().len(), 1);
    // Pods and its node are reached meanwhile, and what comes from the world is answered.
    assert!(reaches(&inside, world.other.0.ipv4.unwrap()));
    assert!(reaches(&inside, [10, 0, 0, 1]));
    assert!(reaches(&world.outside, new.ipv4.unwrap()));
    assert!(is_cut_off(&inside, WORLD[0]) && is_cut_off(&inside, WORLD[1]));
    assert_eq!(*seen.lock(), BTreeSet::new());
    // It is known what it chose.
    let mut client = world.choose(&new);
    client.pod = "new".to_owned();
    world.inputs.clients.push(client);
    world.let_go(&hold);
    assert!(hold.held().is_empty());
    until("it leaves", || !seen.lock().is_empty());
    let replicas = world.all_replicas();
    assert!(replicas.contains(&seen_by(&inside, WORLD[0])));
    stop.store(true, Ordering::Relaxed);
    sending.join().unwrap();
    assert!(seen.lock().is_subset(&replicas), "{seen:?}");

    // One that is known to have chosen nothing leaves at once.
    let (plain, inside) = named(4, "plain");
    choices.update(|all| all.set(Id::namespaced("shop", "plain"), Some(chose("uid-plain", &[]))));
    world.clients.set_up(&plain, &inside, &()).unwrap();
    assert!(hold.held().is_empty());
    assert_eq!(seen_by(&inside, WORLD[0]), plain.ipv4.unwrap());

    // Somebody flushes everything, and a pod comes: it is held all the same.
    let flush = || Command::new("nft").args(["delete", "table", "inet", HOLD_TABLE]).status();
    assert!(world.node().namespace().run_in(flush).unwrap().unwrap().success());
    let (third, inside) = named(5, "third");
    world.clients.set_up(&third, &inside, &()).unwrap();
    assert!(is_cut_off(&inside, WORLD[0]));
    // Without egresses nobody is.
    world.inputs.egresses.clear();
    world.inputs.clients.clear();
    world.let_go(&hold);
    assert_eq!(seen_by(&inside, WORLD[0]), third.ipv4.unwrap());
}

#[test]
fn nobody_is_held_for_longer_than_a_moment() {
    requires!(netns, nft);
    let world = World::new().with_egress(SessionAffinity::ClientIp);
    let (mut world, hold, _choices) = world.with_hold(Duration::from_millis(1500));
    let (new, inside) = named(3, "new");
    world.clients.set_up(&new, &inside, &()).unwrap();
    assert!(is_cut_off(&inside, WORLD[0]));
    // By the kernel's clock alone: no agent does anything.
    assert_eq!(seen_by(&inside, WORLD[0]), new.ipv4.unwrap());
    until("it is forgotten", || hold.held().is_empty());
    world.let_go(&hold);
}
