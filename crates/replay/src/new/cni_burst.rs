//! The real daemon in a node's namespace, the real plugin as a runtime calls it, real pods; one step of
//! one pod's wiring hangs in [`net::faults`].
//!
//! First the same burst with no hang: what "as if alone" means on this machine today.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cni::wire::{self, Operation, Reply, Request, Show};
use kernel::netlink::Netlink;
use net::daemon::{self, DaemonContext, NetConfig};
use net::faults;
use net::wiring::step;
use objects::Objects;
use objects::kinds::Subnet;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stallproof::ledger::{LedgerConfig, OpView};
use stallproof::{Ledger, Readiness, Tasks};

use crate::incident::cni_burst::Load;
use crate::incident::{Cannot, Ran};
use crate::latency::Latencies;
use crate::outcome::Named;
use crate::plan::Plan;
use crate::record::{Recorder, ms};
use crate::stage::node::{ADDRESS, Pod, at_once, on_a_node, pods};

/// For what is not the incident: a start, a deletion.
const PATIENCE: Duration = Duration::from_secs(60);
const METRICS: [&str; 4] = ["cni_in_flight", "cni_wait_seconds", "cni_step_seconds", "cni_hanging"];
/// Below this a p99 is the machine's noise.
const NOISE_MS: f64 = 250.0;

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    on_a_node(|| {
        let load = Load::of(plan);
        let daemon = Daemon::start(&plan.dir, load.slow)?;
        let pods = pods(&plan.dir, load.pods)?;
        let stage = Stage { plan, load, daemon: &daemon, pods: &pods, recorder };
        let alone = stage.alone()?;
        stage.burst(alone)?;
        stage.all_gone()?;
        let text = daemon.metrics();
        let there = METRICS.iter().filter(|name| text.contains(**name)).count();
        recorder.figure("metricsThere", there as f64);
        Ok(())
    })
}

struct Stage<'a> {
    plan: &'a Plan,
    load: Load,
    daemon: &'a Daemon,
    pods: &'a [Pod],
    recorder: &'a Recorder,
}

impl Stage<'_> {
    fn plugin(&self, pod: &Pod, command: &str, within: Duration) -> Answer {
        let config = config(&self.daemon.socket, within);
        pod.run(&self.plan.plugin, command, &config).map_err(|error| error.to_string())
    }

    /// All of them with no hang, and gone again. Their p99, in milliseconds.
    fn alone(&self) -> Result<f64, Cannot> {
        let took = Latencies::default();
        let numbered: Vec<(usize, &Pod)> = self.pods.iter().enumerate().collect();
        let added = at_once(&numbered, |(number, pod)| {
            // As in the burst: all at one moment, not as fast as threads can be started.
            self.load.in_turn(*number);
            let began = Instant::now();
            let added = self.plugin(pod, "ADD", PATIENCE);
            took.add(began.elapsed());
            added
        });
        for added in added {
            added?.map_err(|error| format!("a pod could not be set up: {error}"))?;
        }
        let p99 = took.counted().ms(0.99).ok_or("no pod was set up")?;
        self.recorder.figure("p99AloneMs", p99);
        self.delete()?;
        Ok(p99)
    }

    fn burst(&self, alone: f64) -> Ran {
        let Self { load, recorder, pods, .. } = self;
        let hung = &pods[load.hung];
        let (well, hanging) = (AtomicUsize::new(0), AtomicBool::new(true));
        let took = Latencies::default();
        recorder.staged();
        let began = Instant::now();
        let hang = faults::hang(&hung.container, step::CONFIGURE);
        recorder.figure("asked", pods.len() as f64);
        let added = std::thread::scope(|scope| {
            scope.spawn(|| self.slow_log(began, &hanging));
            let numbered: Vec<(usize, &Pod)> = pods.iter().enumerate().collect();
            let added = at_once(&numbered, |(number, pod)| {
                load.in_turn(*number);
                let asked = recorder.begin();
                let added = self.plugin(pod, "ADD", load.deadline);
                match &added {
                    Ok(Ok(_)) => {
                        took.add(asked.answered());
                        recorder.level((well.fetch_add(1, Relaxed) + 1) as f64);
                    }
                    Ok(Err(_)) if pod.container == hung.container => {
                        recorder.figure("hungFailedMs", ms(began.elapsed()));
                        asked.failed();
                    }
                    _ => asked.failed(),
                }
                added
            });
            // It hangs still, so none of the others waited for it.
            hanging.store(false, Relaxed);
            added
        });
        recorder.figure("setUpWhileHung", well.load(Relaxed) as f64);
        let p99 = took.counted().ms(0.99).unwrap_or(f64::NAN);
        recorder.figure("p99BurstMs", p99);
        recorder.figure("p99Ratio", p99.max(NOISE_MS) / alone.max(NOISE_MS));

        let asked = (recorder.begin(), Instant::now());
        match self.plugin(hung, "ADD", load.deadline)? {
            Ok(_) => asked.0.failed(),
            Err(error) => {
                recorder.figure("retryRefusedMs", ms(asked.1.elapsed()));
                recorder
                    .note(format!("the retry was told: {}", error["msg"].as_str().unwrap_or("")));
                asked.0.refused();
            }
        }
        std::thread::sleep(load.hang.saturating_sub(began.elapsed()));
        drop(hang);
        let last = self.again(hung)?;
        recorder.figure("retrySucceeded", f64::from(u8::from(last.is_some())));
        recorder.level((well.load(Relaxed) + usize::from(last.is_some())) as f64);

        let results = added.into_iter().filter_map(|added| added.ok()?.ok()).chain(last);
        let given: Vec<IpAddr> = results.flat_map(|result| addresses(&result)).collect();
        let different = given.iter().collect::<HashSet<_>>().len();
        recorder.figure("addressesGiven", given.len() as f64);
        recorder.figure("addressesTwice", (given.len() - different) as f64);
        Ok(())
    }

    /// As a runtime does it, until it is set up or nobody would wait any longer.
    fn again(&self, pod: &Pod) -> Result<Option<Value>, Cannot> {
        let until = Instant::now() + self.load.deadline;
        loop {
            let asked = self.recorder.begin();
            match self.plugin(pod, "ADD", self.load.deadline)? {
                Ok(result) => {
                    asked.answered();
                    return Ok(Some(result));
                }
                Err(_) if Instant::now() < until => asked.refused(),
                Err(_) => return Ok(None),
            }
            std::thread::sleep(self.load.again);
        }
    }

    /// What the daemon's watchdog does every second.
    fn slow_log(&self, began: Instant, hanging: &AtomicBool) {
        while hanging.load(Relaxed) {
            for late in self.daemon.ledger.name_late(tokio::time::Instant::now()) {
                let OpView { kind, key, step, .. } = late;
                let what = format!("{kind} {key}");
                let after_ms = ms(began.elapsed());
                if what.contains(&self.pods[self.load.hung].container) {
                    self.recorder.named(Named { what, step: step.to_owned(), after_ms });
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn delete(&self) -> Ran {
        for deleted in at_once(self.pods, |pod| self.plugin(pod, "DEL", PATIENCE)) {
            deleted?.map_err(|error| format!("a pod could not be taken down: {error}"))?;
        }
        Ok(())
    }

    fn all_gone(&self) -> Ran {
        self.delete()?;
        // A DEL does not wait for the kernel.
        let until = Instant::now() + PATIENCE;
        let ours = loop {
            let links = Netlink::open()?.links()?;
            let ours = links.iter().filter(|link| cni::interface::is_ours(&link.name)).count();
            if ours == 0 || Instant::now() > until {
                break ours;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.recorder.figure("interfacesLeaked", ours as f64);
        self.recorder.figure("addressesLeaked", self.daemon.recorded()?.len() as f64);
        Ok(())
    }
}

type Answer = Result<Result<Value, Value>, String>;

/// What a runtime makes of our configuration.
pub(crate) fn config(socket: &Path, within: Duration) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "fairlead-cni",
        "socket": socket, "timeout": within.as_secs(),
    })
}

pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = ips.iter().filter_map(|ip| ip["address"].as_str()?.split('/').next());
    text.filter_map(|text| text.parse().ok()).collect()
}

/// The daemon, on a thread in the namespace that its starter is in.
pub(crate) struct Daemon {
    pub(crate) ledger: Ledger,
    pub(crate) socket: PathBuf,
    registry: Registry,
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Daemon {
    pub(crate) fn start(dir: &Path, slow: Duration) -> Result<Self, Cannot> {
        let ledger = Ledger::new(LedgerConfig { late_after: slow });
        let socket = dir.join("run/cni.sock");
        let config = NetConfig {
            socket: socket.clone(),
            data: dir.join("net"),
            node: "node".to_owned(),
            addresses: vec![ADDRESS.parse()?],
            subnets: vec![Subnet {
                ipv4: Some("10.64.0.0/20".to_owned()),
                ipv6: Some("fd64::/116".to_owned()),
            }],
            masquerade: false,
            interface_names: Default::default(),
            mtu: None,
            vxlan_port: net::overlay::PORT,
            egress: false,
            egress_port: net::egress::PORT,
            export_table: Some(119),
            grace: Duration::ZERO,
            encryption: None,
            tunnel: None,
            kubernetes: false,
        };
        let (stop, stopped) = channel::<()>();
        let (begun, has_begun) = channel();
        let store = dir.join("objects");
        let kept = ledger.clone();
        let thread = std::thread::spawn(move || {
            let mut registry = Registry::default();
            let started = tokio::runtime::Runtime::new().map_err(|error| error.to_string());
            let started = started.and_then(|runtime| {
                let tasks = Tasks::new("node");
                let context = DaemonContext {
                    ledger: kept,
                    readiness: Readiness::default(),
                    tasks: tasks.clone(),
                };
                let entered = runtime.enter();
                let objects = Objects::embedded(&store, &tasks)
                    .map_err(|error| stallproof::sentence(&error))?;
                daemon::start(config, objects, context, &mut registry)
                    .map_err(|error| stallproof::sentence(&error))?;
                drop(entered);
                Ok((runtime, tasks))
            });
            match started {
                Ok((runtime, tasks)) => {
                    let _ = begun.send(Ok(registry));
                    // An error: it is over.
                    let _ = stopped.recv();
                    runtime.block_on(tasks.shutdown(Duration::from_secs(10)));
                    runtime.shutdown_background();
                }
                Err(why) => {
                    let _ = begun.send(Err(why));
                }
            }
        });
        let registry = has_begun.recv()??;
        let daemon = Self { ledger, socket, registry, running: Some((stop, thread)) };
        let until = Instant::now() + PATIENCE;
        while !matches!(daemon.ask(Operation::Status), Ok(Reply::Done)) {
            if Instant::now() > until {
                return Err("the daemon does not become ready".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    fn ask(&self, ask: Operation) -> Result<Reply, Cannot> {
        let deadline = Instant::now() + PATIENCE;
        Ok(wire::call(&self.socket, &Request::within(deadline, ask), None, deadline)?)
    }

    /// What the daemon has on record.
    pub(crate) fn recorded(&self) -> Result<Vec<Value>, Cannot> {
        match self.ask(Operation::Show(Show::Addresses))? {
            Reply::Shown(Value::Array(rows)) => Ok(rows),
            other => Err(format!("the daemon said {other:?}").into()),
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        // Into a string, which takes everything.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
