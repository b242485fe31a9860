//! Pods of a node: an ADD and a DEL in the journal of addresses, and a pod's change in its node's program.

use std::path::Path;
use std::time::Duration;

use net::addresses::AssignRequest;
use net::{Addresses, AttachmentKey, NamespaceId};
use objects::kinds::Networks;
use stallproof::{Deadline, Ledger, Tasks};
use tokio::runtime::Runtime;

use super::meter::{Grows, Meter};
use super::nodes;
use crate::incident::Cannot;

/// Namespaces of the node's pods.
const NAMESPACES: usize = 4;

pub(super) fn measure(pods: usize, dir: &Path, meter: &mut Meter) -> Result<(), Cannot> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = Tasks::new("growth");
    journal(pods, dir, &runtime, &tasks, meter)?;
    let _ = runtime.block_on(tasks.shutdown(Duration::from_secs(5)));
    program(pods, meter);
    Ok(())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn request(pod: usize) -> AssignRequest {
    AssignRequest {
        key: AttachmentKey { container: format!("{pod:064x}"), ifname: "eth0".to_owned() },
        network: "k8s".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        namespace: NamespaceId { device: 4, inode: pod as u64 },
        netns: format!("/run/netns/{pod}"),
        host_interface: format!("fl{pod}"),
        fixed: Default::default(),
    }
}

fn journal(
    pods: usize,
    dir: &Path,
    runtime: &Runtime,
    tasks: &Tasks,
    meter: &mut Meter,
) -> Result<(), Cannot> {
    let addresses = runtime.block_on(async {
        let addresses = Addresses::open(dir, &Ledger::default(), tasks)?;
        for block in 0..8 {
            let ipv4 = Some(format!("10.0.{block}.0/24").parse()?);
            let networks = Networks { ipv4, ipv6: None };
            addresses.adopt(&format!("default-{block}"), "default", networks, soon()).await?;
        }
        for pod in 0..pods {
            addresses.assign(request(pod), soon()).await?;
        }
        Ok::<_, Cannot>(addresses)
    })?;
    let mut failed = None;
    meter.change("net: an address is assigned and released, in the journal", Grows::Not, |_| {
        let changed = runtime.block_on(async {
            let request = request(pods);
            let key = request.key.clone();
            addresses.assign(request, soon()).await?;
            addresses.release(&key, soon()).await?;
            Ok::<_, Cannot>(())
        });
        failed = failed.take().or(changed.err());
    });
    failed.map_or(Ok(()), Err)
}

fn program(pods: usize, meter: &mut Meter) {
    let mut publisher = nodes::publisher(NAMESPACES);
    for place in 0..pods {
        publisher.apply(nodes::pod(place % NAMESPACES, 0, place, false));
    }
    publisher.follow("n0");
    publisher.publish();
    // A node's program is made anew: it has as many entries as the node has pods.
    meter.change("policy: a pod's labels change, for its node", Grows::Linearly, |i| {
        publisher.apply(nodes::pod(0, 0, 0, i % 2 == 0));
        assert_eq!(publisher.publish().len(), 1);
    });
}
