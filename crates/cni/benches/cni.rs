//! How long a pod waits for its network: against the plugins that Debian ships, and against the bare
//! netlink calls that nobody can do without. All in one run, on one node, in the same kind of
//! namespaces, IPv4 only (with IPv6 the others wait a second and more for duplicate address detection).
//!
//! Ours is the plugin as it is released, which the benchmark builds first if that is possible here.
//!
//! `cargo bench -p cni -- [ROUNDS]`, as root.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/swarm/mod.rs"]
mod swarm;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bench::{Table, in_turn};
use cni::wire::{self, AddRequest, AttachmentKey, Operation, Reply, Request};
use kernel::netlink::{
    Address, Change, LinkRef, Mac, Neighbour, Netlink, Route, RouteKind, SetLink, Veth, VethPeer,
};
use net::faults;
use net::wiring::{GATEWAY_V4, MAIN_TABLE, ROUTE_PROTOCOL, step};
use objects::kinds::Subnet;
use parking_lot::Mutex;
use serde_json::{Value, json};
use swarm::{Daemon, Pod, config, on_a_node, socket};

/// Where Debian puts them.
const RIVALS: &str = "/usr/lib/cni";
const CONCURRENCY: [usize; 4] = [1, 8, 32, 100];
/// The group of interfaces that are made by netlink alone; ours are in another.
const GROUP: u32 = 7;
/// Bursts with one that hangs and without.
const PAIRS: usize = 5;

/// How long it took until all were done.
#[derive(Clone, Copy)]
struct Pair {
    add: Duration,
    del: Duration,
    /// From the first DEL until the last interface was gone.
    gone: Duration,
}

impl Pair {
    /// Waits until our interfaces are gone, also so that the next who is measured does not pay for them.
    fn new(add: Duration, del: Duration) -> Self {
        let began = Instant::now();
        swarm::until_none_is_left();
        Self { add, del, gone: del + began.elapsed() }
    }
}

type Part = fn(&Pair) -> Duration;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let rounds = args.next().map_or(3, |rounds| rounds.parse().unwrap());
    if let Err(why) = testkit::need::netns() {
        eprintln!("cannot measure: {why}");
        return ExitCode::from(2);
    }
    let rivals = ["ptp", "bridge"].map(|name| Path::new(RIVALS).join(name));
    let there = rivals.iter().all(|rival| rival.exists());
    if !there {
        eprintln!("no rivals: apt-get install containernetworking-plugins puts them in {RIVALS}");
    }
    let plugin = released_plugin().unwrap_or_else(|| {
        eprintln!("the plugin is linked dynamically, and starts more slowly than the released one");
        PathBuf::from(swarm::PLUGIN)
    });
    let plugin = plugin.as_path();
    let mut table = Table::new("pod networking");
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let ipv4 = Subnet { ipv4: Some("10.64.0.0/20".to_owned()), ipv6: None };
        let _daemon = Daemon::with(dir, ipv4);
        let ours = config(dir, 60);
        // The first burst claims the blocks that the others find there.
        of_plugin(dir, plugin, &ours, 100, 100);
        for concurrency in CONCURRENCY {
            let count = concurrency.max(48);
            let mut runs: Vec<(&str, Vec<Pair>)> = Vec::new();
            for _ in 0..rounds {
                let mut note = |name, pair| match runs.iter_mut().find(|run| run.0 == name) {
                    Some(run) => run.1.push(pair),
                    None => runs.push((name, vec![pair])),
                };
                note("fairlead-cni", of_plugin(dir, plugin, &ours, count, concurrency));
                if there {
                    note("ptp", of_plugin(dir, &rivals[0], &ptp(dir), count, concurrency));
                    note("bridge", of_plugin(dir, &rivals[1], &bridge(dir), count, concurrency));
                }
                note("daemon alone", of_daemon(dir, count, concurrency));
                note("netlink alone", of_netlink(dir, count, concurrency));
            }
            report(&mut table, count, concurrency, &runs);
        }
        hung(&mut table, dir, plugin, &ours);
    });
    table.finish()
}

/// Builds the plugin as `scripts/dist` does, linked statically, and returns its path; none if it cannot be
/// built here.
fn released_plugin() -> Option<PathBuf> {
    let rustc = Command::new("rustc").arg("-vV").output().ok()?;
    let told = String::from_utf8(rustc.stdout).ok()?;
    let target = told.lines().find_map(|line| line.strip_prefix("host: "))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--release", "-p", "cni", "--bin", "fairlead-cni"])
        .args(["--target", target])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::null())
        .status();
    // Beside the profile that this benchmark was built in.
    let path = Path::new(swarm::PLUGIN).parent()?.parent()?.join(target);
    let path = path.join("release/fairlead-cni");
    (built.is_ok_and(|status| status.success()) && path.exists()).then_some(path)
}

/// The medians of the rounds.
fn report(table: &mut Table, count: usize, concurrency: usize, runs: &[(&str, Vec<Pair>)]) {
    let median = |name: &str, of: Part| {
        let mut all: Vec<_> = runs.iter().find(|run| run.0 == name)?.1.iter().map(of).collect();
        all.sort();
        Some(all.get(all.len() / 2)?.as_nanos() as f64)
    };
    let rivals = |names: &[&'static str], of: Part| -> Vec<(&str, f64)> {
        names.iter().filter_map(|name| Some((*name, median(name, of)?))).collect()
    };
    let commands: [(&str, Part); 3] = [
        ("ADD", |pair| pair.add),
        ("DEL", |pair| pair.del),
        ("DEL until the interfaces are gone", |pair| pair.gone),
    ];
    for (command, of) in commands {
        let what = format!("{command} of {count} pods, {concurrency} at once");
        if let Some(ours) = median("fairlead-cni", of) {
            let rivals = rivals(&["ptp", "bridge"], of);
            table.row(&what, "ns", ours, &rivals);
            let least = match (command, concurrency) {
                ("ADD", 1) => 6.0,
                ("ADD", 100) => 2.5,
                ("DEL", _) => 10.0,
                _ => 0.0,
            };
            if let Some((_, ptp)) = rivals.first().filter(|_| least > 0.0) {
                table.must(&format!("{least} times ptp"), *ptp >= least * ours);
            }
        }
        if let Some(daemon) = median("daemon alone", of) {
            let what = format!("{what}, the daemon alone");
            let floor = rivals(&["netlink alone"], of);
            table.row(&what, "ns", daemon, &floor);
            if let Some((_, floor)) = floor.first().filter(|_| command == "ADD") {
                table.must("0.6 of the floor's rate", *floor >= 0.6 * daemon);
            }
        }
    }
}

/// A hundred at once, one of which hangs: how long the others take, against none that hangs. No
/// namespace is taken down meanwhile: the kernel does that behind everybody's back, under the lock
/// that all of this waits for.
fn hung(table: &mut Table, dir: &Path, plugin: &Path, ours: &Value) {
    let hasty = config(dir, 2);
    let bursts: Vec<_> = (0..2 * PAIRS).map(|_| pods(dir, 100)).collect();
    let mut next = bursts.iter();
    let burst = |hangs: bool| {
        let pods = next.next().unwrap();
        let hang = hangs.then(|| faults::hang(&pods[50].container, step::CONFIGURE));
        let began = Instant::now();
        let last = Mutex::new(Duration::ZERO);
        each(pods, 100, |pod| {
            let is_hung = hangs && pod.container == pods[50].container;
            let result = pod.run(plugin, "ADD", if is_hung { &hasty } else { ours });
            assert_eq!(result.is_err(), is_hung, "{result:?}");
            if !is_hung {
                let mut last = last.lock();
                *last = began.elapsed().max(*last);
            }
        });
        drop(hang);
        // What hung is undone when it comes back; then it is like the others.
        while pods.iter().any(|pod| pod.run(plugin, "DEL", ours).is_err()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        last.into_inner().as_nanos() as f64
    };
    let [without, with] = in_turn(PAIRS, burst, |time| *time);
    table.row("ADD of 99 beside one that hangs", "ns", with, &[("none hangs", without)]);
    table.must("within 1.1 times", with <= 1.1 * without);
}

fn pods(dir: &Path, count: usize) -> Vec<Pod> {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = |_| format!("pod-{}", MADE.fetch_add(1, Ordering::Relaxed));
    (0..count).map(name).map(|name| Pod::new(dir, &name)).collect()
}

/// As many at once as asked, each in its turn.
fn each<I: Sync>(items: &[I], concurrency: usize, work: impl Fn(&I) + Sync) -> Duration {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
    began.elapsed()
}

fn of_plugin(dir: &Path, plugin: &Path, config: &Value, count: usize, concurrency: usize) -> Pair {
    let pods = pods(dir, count);
    let run = |command: &'static str| {
        each(&pods, concurrency, |pod| {
            pod.run(plugin, command, config).unwrap_or_else(|error| panic!("{command} {error}"));
        })
    };
    let add = run("ADD");
    Pair::new(add, run("DEL"))
}

/// Without a process for every call.
fn of_daemon(dir: &Path, count: usize, concurrency: usize) -> Pair {
    let pods = pods(dir, count);
    let socket = socket(dir);
    let key =
        |pod: &Pod| AttachmentKey { container: pod.container.clone(), ifname: "eth0".to_owned() };
    let call = |ask, pod: &Pod| {
        let deadline = Instant::now() + Duration::from_secs(60);
        let request = Request::within(deadline, ask);
        let reply = wire::call(&socket, &request, Some(pod.namespace.as_fd()), deadline).unwrap();
        assert!(matches!(reply, Reply::Added(_) | Reply::Done), "{reply:?}");
    };
    let network = || "pods".to_owned();
    let add = each(&pods, concurrency, |pod| {
        let netns = pod.path.display().to_string();
        let (key, network) = (key(pod), network());
        let add =
            AddRequest { key, network, netns, pod: None, pool: None, fixed: Default::default() };
        call(Operation::Add(add), pod);
    });
    let del = each(&pods, concurrency, |pod| {
        call(Operation::Del { key: key(pod), network: network() }, pod);
    });
    Pair::new(add, del)
}

/// What ours asks of the kernel for each pod, the very same changes in the same calls, with sockets that are
/// open and in their namespaces before the clock starts.
fn of_netlink(dir: &Path, count: usize, concurrency: usize) -> Pair {
    let pods = pods(dir, count);
    let host: Mutex<Vec<Netlink>> =
        Mutex::new((0..concurrency).map(|_| Netlink::open().unwrap()).collect());
    let inside: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(at, pod)| (at, pod, Mutex::new(pod.namespace.netlink().unwrap())))
        .collect();
    let with_host = |work: &dyn Fn(&mut Netlink)| {
        let mut netlink = host.lock().pop().unwrap();
        work(&mut netlink);
        host.lock().push(netlink);
    };
    let name = |at: usize| format!("raw{at}");
    let add = each(&inside, concurrency, |(at, pod, inside)| {
        let address: IpAddr = Ipv4Addr::from_bits(0x0a50_0000 + *at as u32).into();
        with_host(&|netlink| wire_raw(netlink, &name(*at), pod, &mut inside.lock(), address));
    });
    let del = each(&inside, concurrency, |(at, ..)| {
        with_host(&|netlink| {
            netlink.apply(&[Change::Delete(LinkRef::Name(&name(*at)))]).unwrap();
        });
    });
    Pair::new(add, del)
}

fn wire_raw(host: &mut Netlink, name: &str, pod: &Pod, inside: &mut Netlink, address: IpAddr) {
    let [here, there] = [1, 2].map(|number| Mac([2, 0, 0, 0, 1, number]));
    let peer = VethPeer { name: "eth0", mac: there, namespace: pod.namespace.as_fd() };
    let veth = Veth { name, mac: here, mtu: 1500, group: Some(GROUP), peer };
    let made = host.create_veth(veth).unwrap();
    let gateway = IpAddr::from(GATEWAY_V4);
    let route = |destination, kind| {
        Change::Route(Route { destination, table: MAIN_TABLE, protocol: ROUTE_PROTOCOL + 1, kind })
    };
    let up = |link, alias| {
        let quiet = SetLink { alias, no_own_addresses: true, ..SetLink::default() };
        let up = SetLink { up: true, ..SetLink::default() };
        [quiet, up].map(|set| Change::Set(LinkRef::Index(link), set))
    };
    let end = made.peer.unwrap();
    let link = end;
    let mut changes = up(link, None).to_vec();
    changes.push(Change::Address(Address { link, address: address.into() }));
    changes.push(Change::Neighbour(Neighbour { link, address: gateway, mac: here }));
    changes.push(route("0.0.0.0/0".parse().unwrap(), RouteKind::On(link, gateway)));
    inside.apply(&changes).unwrap();
    let link = made.index;
    let mut changes = up(link, Some(name)).to_vec();
    changes.push(Change::Neighbour(Neighbour { link, address, mac: there }));
    changes.push(route(address.into(), RouteKind::Link(link)));
    // To look at the ends is what makes them ready to send.
    host.apply_then_link(&changes, link).unwrap();
    inside.link(LinkRef::Index(end)).unwrap();
}

fn ptp(dir: &Path) -> Value {
    json!({"cniVersion": "1.0.0", "name": "ptp", "type": "ptp", "ipam": ipam(dir, "10.80.0.0/16")})
}

fn bridge(dir: &Path) -> Value {
    json!({"cniVersion": "1.0.0", "name": "bridge", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "ipam": ipam(dir, "10.81.0.0/16")})
}

fn ipam(dir: &Path, subnet: &str) -> Value {
    let data: PathBuf = dir.join("host-local");
    json!({"type": "host-local", "dataDir": data, "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}]})
}
