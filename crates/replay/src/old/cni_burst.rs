//! Coil v2.13, `podNetwork.SetupIPAM` (cybozu-go/coil#368):
//!
//! ```text
//! Add, one goroutine a request
//!   pn.mu.Lock()                         one mutex for the node, also of DestroyIPAM
//!     ns.GetNS, netlink: veth, addresses one slow call of these, and all wait
//!     ip.SettleAddresses(container)      up to 10 s
//!     ip.SettleAddresses(host)           up to 10 s
//!   pn.mu.Unlock()
//! ```
//!
//! The kubelet gives up after 120 s and tries again with a new sandbox, while the old one is torn down
//! (Del, the same mutex; a kubelet with containerd makes four of them). The goroutine that was given up
//! on stays in the queue, and does its work for nobody when its turn comes: that keeps the queue full.
//!
//! The kernel's work is done here for real, a veth pair into the pod's namespace; settling is a wait.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use kernel::netlink::{Change, LinkRef, Mac, Netlink, Veth, VethPeer};
use parking_lot::FairMutex;

use crate::incident::cni_burst::Load;
use crate::incident::{Cannot, Ran};
use crate::plan::Plan;
use crate::record::Recorder;
use crate::stage::node::{Pod, at_once, on_a_node, pods, up};

/// For each sandbox that is torn down.
const DELS: usize = 4;

/// `podNetwork`: everything is behind its mutex. Go's hands itself on in order once waiters starve;
/// so does this one.
struct PodNetwork {
    mu: FairMutex<Netlink>,
    load: Load,
    hangs: AtomicBool,
}

impl PodNetwork {
    fn setup(&self, number: usize, pod: &Pod) -> Result<(), Cannot> {
        let mut netlink = self.mu.lock();
        if number == self.load.hung && self.hangs.swap(false, Relaxed) {
            std::thread::sleep(self.load.hang);
        }
        let name = format!("veth{number}");
        // What an earlier, abandoned set-up left behind is garbage.
        if netlink.link(LinkRef::Name(&name))?.is_some() {
            netlink.apply(&[Change::Delete(LinkRef::Name(&name))])?;
        }
        let [high, low] = u16::try_from(number)?.to_be_bytes();
        let peer = VethPeer {
            name: "eth0",
            mac: Mac([2, 0, 1, 0, high, low]),
            namespace: pod.namespace.as_fd(),
        };
        netlink.create_veth(Veth {
            name: &name,
            mac: Mac([2, 0, 2, 0, high, low]),
            mtu: 1500,
            group: None,
            peer,
        })?;
        netlink.apply(&[up(&name)])?;
        pod.namespace.netlink()?.apply(&[up("lo"), up("eth0")])?;
        std::thread::sleep(self.load.settling);
        Ok(())
    }

    fn destroy(&self, number: usize) -> Result<(), Cannot> {
        let mut netlink = self.mu.lock();
        match netlink.apply(&[Change::Delete(LinkRef::Name(&format!("veth{number}")))]) {
            Err(error) if !error.not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    on_a_node(|| {
        let load = Load::of(plan);
        let pods: Vec<_> =
            pods(&plan.dir, load.pods)?.into_iter().enumerate().map(Arc::new).collect();
        let network = Arc::new(PodNetwork {
            mu: FairMutex::new(Netlink::open()?),
            load,
            hangs: AtomicBool::new(true),
        });
        recorder.figure("setUpWithinDeadline", 0.0);
        recorder.staged();
        let (well, tries, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
        at_once(&pods, |pod| {
            load.in_turn(pod.0);
            while !add(&network, pod, recorder) {
                recorder.figure("retries", (tries.fetch_add(1, Relaxed) + 1) as f64);
                std::thread::sleep(load.again);
            }
            let well = well.fetch_add(1, Relaxed) + 1;
            recorder.level(well as f64);
            if began.elapsed() <= load.deadline {
                recorder.figure("setUpWithinDeadline", well as f64);
            }
            recorder.figure("setUp", well as f64);
        });
        Ok(())
    })
}

/// One try of the kubelet: a request, and the sandbox torn down if it was not answered in time.
fn add(network: &Arc<PodNetwork>, pod: &Arc<(usize, Pod)>, recorder: &Recorder) -> bool {
    let asked = recorder.begin();
    // The request's goroutine: it answers, whether anybody still listens or not.
    let (done, answer) = sync_channel(1);
    let (server, served) = (Arc::clone(network), Arc::clone(pod));
    std::thread::spawn(move || {
        let result = server.setup(served.0, &served.1).map_err(|error| error.to_string());
        let _ = done.send(result);
    });
    match answer.recv_timeout(network.load.deadline) {
        Ok(Ok(())) => {
            asked.answered();
            return true;
        }
        Ok(Err(why)) => {
            recorder.note(why);
            asked.failed();
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => asked.failed(),
    }
    for _ in 0..DELS {
        let (server, number) = (Arc::clone(network), pod.0);
        std::thread::spawn(move || server.destroy(number));
    }
    false
}
