//! Pods come and go, a few at a time, on a node whose kernel hangs now and then and whose daemon is
//! started anew. No two pods have an address, and what is gone leaves nothing.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use kernel::netlink::Netlink;
use net::faults;
use net::wiring::step;

use super::{Rounds, Soak};
use crate::incident::Cannot;
use crate::new::cni_burst::{Daemon, addresses, config};
use crate::stage::node::{Pod, at_once, on_a_node, pods};

const PODS: usize = 24;
const DEADLINE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
enum Fault {
    Nothing,
    /// A step of one pod hangs until its runtime has given up.
    Hang(&'static str),
    Restart,
}

const FAULTS: [(&str, Fault); 6] = [
    ("none", Fault::Nothing),
    ("none", Fault::Nothing),
    ("hang in create-veth", Fault::Hang(step::CREATE)),
    ("hang in configure-pod", Fault::Hang(step::CONFIGURE)),
    ("hang in route-pod", Fault::Hang(step::ROUTE)),
    ("daemon started anew", Fault::Restart),
];

pub(super) fn run(soak: &Soak, rounds: &Rounds<'_>) -> Result<(), Cannot> {
    on_a_node(|| {
        let pods = pods(&soak.dir, PODS)?;
        let mut daemon = Daemon::start(&soak.dir, Duration::from_secs(10))?;
        let mut living: HashMap<usize, Vec<IpAddr>> = HashMap::new();
        let ask = |daemon: &Daemon, pod: &Pod, command: &str| {
            pod.run(&soak.plugin, command, &config(&daemon.socket, DEADLINE))
        };
        while rounds.next() {
            let fault = rounds.fault(&FAULTS);
            if let Fault::Restart = fault {
                drop(daemon);
                daemon = Daemon::start(&soak.dir, Duration::from_secs(10))?;
            }
            let chosen: Vec<usize> = (0..PODS).filter(|_| rounds.number(3) == 0).collect();
            let hang = match (fault, chosen.first()) {
                (Fault::Hang(step), Some(pod)) => Some(faults::hang(&pods[*pod].container, step)),
                _ => None,
            };
            let did = at_once(&chosen, |number| {
                let command = if living.contains_key(number) { "DEL" } else { "ADD" };
                ask(&daemon, &pods[*number], command).map_err(|error| error.to_string())
            });
            drop(hang);
            for (number, did) in chosen.iter().zip(did) {
                let was_there = living.contains_key(number);
                match (did?, was_there) {
                    (Ok(_), true) => drop(living.remove(number)),
                    (Ok(result), false) => drop(living.insert(*number, addresses(&result))),
                    // A runtime that got no answer takes it down before it tries again.
                    (Err(_), _) => {
                        until_deleted(|| ask(&daemon, &pods[*number], "DEL"))?;
                        living.remove(number);
                    }
                }
            }
            look(&daemon, &living)?;
        }
        for pod in &pods {
            until_deleted(|| ask(&daemon, pod, "DEL"))?;
        }
        look(&daemon, &HashMap::new())
    })
}

/// A set-up that hung undoes itself when the kernel lets go of it; until then a DEL is refused.
fn until_deleted<T, E>(delete: impl Fn() -> Result<Result<T, E>, Cannot>) -> Result<(), Cannot> {
    for _ in 0..100 {
        if delete()?.is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("a pod cannot be taken down".into())
}

fn look(daemon: &Daemon, living: &HashMap<usize, Vec<IpAddr>>) -> Result<(), Cannot> {
    let given: Vec<IpAddr> = living.values().flatten().copied().collect();
    if given.iter().collect::<HashSet<_>>().len() != given.len() {
        return Err(format!("an address was given twice: {living:?}").into());
    }
    let recorded = daemon.recorded()?.len();
    if recorded != living.len() {
        return Err(format!("{recorded} pods are on record, and {} live", living.len()).into());
    }
    let links = Netlink::open()?.links()?;
    let ours = links.iter().filter(|link| cni::interface::is_ours(&link.name)).count();
    if ours != living.len() {
        return Err(format!("{ours} interfaces are there, and {} pods live", living.len()).into());
    }
    Ok(())
}
