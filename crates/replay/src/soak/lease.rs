//! Two candidates for one lease of a real API server; whoever leads writes one object, fenced.
//!
//! Each candidate has a thread and a runtime of its own, which can be made to stand still or to be gone,
//! and a way of its own to the server, which can be a black hole.
//!
//! What must hold: no two are ever valid at once; what the store took of a later term comes after all
//! that it took of an earlier one; at the end somebody leads, and writes.
//!
//! A jump of the clock as such is not done: the clock is that since boot, which nobody can set. Who
//! stands still for longer than the lease sees a jump all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::{Election, Expected, Fence, Id, Leader, Objects, Timing};
use parking_lot::Mutex;
use stallproof::{Deadline, Tasks};
use testkit::{Access, Fault as Broken, KubeServer, Proxy};
use tokio::runtime::{Builder, Runtime};

use super::{Drive, Fault, Planned, Ran, Stage, Work};

const CANDIDATES: usize = 2;
/// The shortest that changes hands several times in a short soak.
const LEASE: Duration = Duration::from_secs(3);
/// Between two writes of a leader.
const PAUSE: Duration = Duration::from_millis(150);
const WRITE: Duration = Duration::from_secs(2);
/// For the first leader.
const FIRST: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

/// What the store took of a term: the first version and the last.
type Terms = BTreeMap<i64, (u64, u64)>;

/// What candidates share with who checks them.
#[derive(Default)]
struct Shared {
    written: AtomicU64,
    terms: Mutex<Terms>,
    /// The last term of each candidate.
    fences: Mutex<[Option<Fence>; CANDIDATES]>,
    broken: Mutex<Vec<String>>,
}

impl Shared {
    fn leads(&self, candidate: usize) -> bool {
        self.fences.lock()[candidate].as_ref().is_some_and(Fence::is_valid)
    }

    fn took(&self, fence: &Fence, lease: &Lease) {
        self.written.fetch_add(1, Relaxed);
        let version = lease.resource_version().and_then(|version| version.parse().ok());
        let token = fence.token().to_string();
        let term = token.rsplit('/').next().and_then(|term| term.parse().ok());
        let (Some(version), Some(term)) = (version, term) else {
            self.broken.lock().push(format!("a write without a version, or in no term: {token}"));
            return;
        };
        let mut terms = self.terms.lock();
        let (first, last) = terms.entry(term).or_insert((version, version));
        *first = version.min(*first);
        *last = version.max(*last);
    }
}

/// Terms of which a later one began before the earlier one had ended.
fn overlapping(terms: &Terms) -> Vec<String> {
    let pairs = terms.iter().zip(terms.iter().skip(1));
    let overlap = pairs.filter(|((_, (_, last)), (_, (first, _)))| last >= first);
    overlap
        .map(|((term, (_, last)), (next, (first, _)))| {
            format!("term {term} wrote version {last}, after term {next} had written {first}")
        })
        .collect()
}

/// One candidate, on its thread.
struct Candidate {
    stop: Arc<AtomicBool>,
    /// For how long it is to stand still.
    pause: Arc<Mutex<Option<Duration>>>,
    thread: JoinHandle<()>,
}

impl Candidate {
    fn start(number: usize, access: &Access, shared: &Arc<Shared>) -> std::io::Result<Self> {
        let (stop, pause) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Option<Duration>>>::default());
        let (stopping, pausing) = (Arc::clone(&stop), Arc::clone(&pause));
        let (access, shared) = (access.clone(), Arc::clone(shared));
        // One thread: when that stands still, all of the candidate does.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let tasks = Tasks::new(format!("candidate {number}"));
                let objects = Objects::kubernetes(access.client().await, "soak");
                let lease = Id::namespaced(NAMESPACE, "soak");
                let name = format!("candidate-{number}");
                let election = Election::new(objects, lease, &name, Timing::of(LEASE));
                let own = tasks.clone();
                tasks.spawn("election", async move {
                    election.run(&own, |leader| lead(number, leader, &shared)).await;
                });
                while !stopping.load(Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let pause = pausing.lock().take();
                    if let Some(pause) = pause {
                        std::thread::sleep(pause);
                    }
                }
            });
            // Whatever it was about to do is not done.
            runtime.shutdown_background();
        });
        Ok(Self { stop, pause, thread })
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.join();
    }
}

fn lead(number: usize, leader: Leader, shared: &Arc<Shared>) {
    let Leader { tasks, objects, fence, .. } = leader;
    shared.fences.lock()[number] = Some(fence.clone());
    let (shared, stop) = (Arc::clone(shared), tasks.stopping());
    tasks.spawn("writes", async move {
        let writing = async {
            loop {
                let count = shared.written.load(Relaxed);
                let object = Lease {
                    metadata: ObjectMeta {
                        name: Some("soak-work".to_owned()),
                        namespace: Some(NAMESPACE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(format!("{number}-{count}")),
                        ..LeaseSpec::default()
                    }),
                };
                let written = objects.apply(&object, Expected::Any, Deadline::after(WRITE)).await;
                if let Ok(taken) = written {
                    shared.took(&fence, &taken);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        stop.bound(writing).await;
    });
}

pub(super) fn play(_: &Stage<'_>, drive: &mut Drive<'_>) -> Ran {
    let runtime = Runtime::new()?;
    let server = runtime.block_on(KubeServer::start());
    let shared = Arc::<Shared>::default();
    let proxies: [Proxy; CANDIDATES] = std::array::from_fn(|_| Proxy::start(server.address()));
    let mut ways = proxies.into_iter().map(|proxy| (server.through(&proxy), proxy));
    let mut candidates = Vec::new();
    for number in 0..CANDIDATES {
        let Some((access, proxy)) = ways.next() else { break };
        let candidate = Candidate::start(number, &access, &shared)?;
        candidates.push(Way { access, proxy, candidate: Some(candidate) });
    }
    let mut job = Job { shared, candidates, victim: 0 };
    let until = Instant::now() + FIRST;
    while job.shared.written.load(Relaxed) == 0 {
        if Instant::now() > until {
            return Err("nobody becomes leader".into());
        }
        std::thread::sleep(PAUSE);
    }
    let driven = drive(&mut job);
    job.candidates.into_iter().filter_map(|way| way.candidate).for_each(Candidate::end);
    driven
}

struct Way {
    access: Access,
    proxy: Proxy,
    /// None while it is gone.
    candidate: Option<Candidate>,
}

struct Job {
    shared: Arc<Shared>,
    candidates: Vec<Way>,
    victim: usize,
}

impl Work for Job {
    fn begin(&mut self, planned: &Planned) -> Ran {
        // The leader, if there is one.
        let leader = (0..CANDIDATES).find(|candidate| self.shared.leads(*candidate));
        self.victim = leader.unwrap_or((planned.pick % CANDIDATES as u64) as usize);
        let Way { proxy, candidate, .. } = &mut self.candidates[self.victim];
        match planned.fault {
            Fault::LeasePause => {
                if let Some(candidate) = candidate {
                    *candidate.pause.lock() = Some(Duration::from_millis(planned.lasts_ms));
                }
            }
            Fault::LeaseAbort => {
                if let Some(candidate) = candidate.take() {
                    candidate.end();
                }
            }
            _ => proxy.inject(Broken::BlackHole),
        }
        Ok(())
    }

    fn end(&mut self, planned: &Planned) -> Ran {
        let Way { access, proxy, candidate } = &mut self.candidates[self.victim];
        match planned.fault {
            Fault::LeasePause => {}
            Fault::LeaseAbort => {
                *candidate = Some(Candidate::start(self.victim, access, &self.shared)?);
            }
            _ => proxy.heal(),
        }
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        let mut broken = std::mem::take(&mut *self.shared.broken.lock());
        broken.extend(overlapping(&self.shared.terms.lock()));
        // The first is asked again: between two questions a term may end and the next begin.
        if self.shared.leads(0) && self.shared.leads(1) && self.shared.leads(0) {
            broken.push("two lead at once".to_owned());
        }
        broken
    }

    fn load(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    fn finish(&mut self, until: Instant) -> Vec<String> {
        let written = self.shared.written.load(Relaxed);
        while self.shared.written.load(Relaxed) == written {
            if Instant::now() > until {
                return vec!["nobody leads and writes after it all".to_owned()];
            }
            std::thread::sleep(PAUSE);
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_an_earlier_term_after_a_later_one_is_found() {
        let well = Terms::from([(1, (10, 20)), (2, (21, 30)), (4, (31, 31))]);
        assert_eq!(overlapping(&well), Vec::<String>::new());
        let torn = Terms::from([(1, (10, 22)), (2, (21, 30))]);
        assert_eq!(overlapping(&torn), ["term 1 wrote version 22, after term 2 had written 21"]);
    }
}
