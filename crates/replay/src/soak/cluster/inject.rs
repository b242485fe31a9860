//! Injects faults into the cluster, and takes them back.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::fault::{Kind, Planned};
use super::stage::Stage;
use super::{Cannot, NODES, liar};

const AGENT: &str = "^/usr/local/bin/fairlead agent";
const CONTROLLER: &str = "^/usr/local/bin/fairlead controller";
/// Where an agent keeps its state on a node.
const DATA: &str = "/var/lib/fairlead";
/// Connections of strangers that are open at once.
const STRANGERS: usize = 300;

const SIGNAL: &str = r#"pids=$(pgrep -f "$1") && kill -"$2" $pids"#;

/// Holds the file system, and lets go of it when told, when this process ends, or after a minute.
const FREEZE: &str = r#"exec 9<"$1"; fsfreeze -f "$1" || exit 1; echo frozen; read -r -t 60 _; fsfreeze -u /proc/self/fd/9"#;

/// The directory of a process' control group in the hierarchy of a controller, of either version.
const GROUP: &str = r#"
group() {
    pid=$(pgrep -o -f "$1") || exit 1
    at=$(sed -n "s/^[0-9]*:\([^:]*,\)*$2\(,[^:]*\)*://p" "/proc/$pid/cgroup")
    if [ -n "$at" ]; then echo "/sys/fs/cgroup/$2$at"; else echo "/sys/fs/cgroup$(sed -n s/^0:://p "/proc/$pid/cgroup")"; fi
}
"#;

/// Takes most of its memory from a group, as much as the kernel gets back; prints the limit of before.
const TAKE_MEMORY: &str = r#"
at=$(group "$1" memory); limit=memory.limit_in_bytes; used=memory.usage_in_bytes
[ -e "$at/$limit" ] || { limit=memory.max; used=memory.current; }
before=$(cat "$at/$limit"); now=$(cat "$at/$used")
for share in 50 60 70 80 90 100; do
    if echo $((now / 100 * share)) 2>/dev/null >"$at/$limit"; then echo "$at/$limit $before"; exit 0; fi
done
echo "no less memory than it uses can be set" >&2; exit 1
"#;

const SLOW_DISK: &str = r#"
at=$(group "$1" blkio); device=$(mountpoint -d "$2") || exit 1
if [ -e "$at/blkio.throttle.write_bps_device" ]; then
    echo "$device 16384" >"$at/blkio.throttle.write_bps_device"; echo "$at/blkio.throttle.write_bps_device $device 0"
else
    at=$(group "$1" io); echo "$device wbps=16384" >"$at/io.max"; echo "$at/io.max $device wbps=max"
fi
"#;

/// A fault that lasts, and how it is taken back.
pub(super) struct Present {
    planned: Planned,
    heal: Heal,
}

enum Heal {
    Nothing,
    /// Files of the node's control groups, with what was in them.
    Write(String),
    Thaw(Child),
}

/// A command in a node; a node that is off is an error.
pub(super) fn in_node(
    stage: &Stage,
    node: u32,
    script: &str,
    args: &[&str],
) -> Result<String, String> {
    if stage.cluster.node_pid(node).is_none() {
        return Err(format!("node {node} is off"));
    }
    let command = [&["timeout", "20", "bash", "-c", script, "soak"], args].concat();
    let ran = catch_unwind(AssertUnwindSafe(|| stage.cluster.try_in_node(node, &command)));
    ran.unwrap_or_else(|_| Err(format!("node {node} went off")))
}

/// Verbs of the cluster panic with a sentence, which was printed.
fn verb(what: &str, work: impl FnOnce()) -> Result<(), Cannot> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| format!("{what}: the cluster does not do it").into())
}

/// The plan as it can be carried out: a controller is hit on a node that has one.
pub(super) fn aim(stage: &Stage, planned: &Planned) -> Planned {
    let mut aimed = planned.clone();
    let of_controllers = [Kind::KillController, Kind::FreezeController, Kind::ControllerMemory];
    if of_controllers.contains(&aimed.kind) {
        let has = |node: &u32| in_node(stage, *node, r#"pgrep -f "$1""#, &[CONTROLLER]).is_ok();
        let mut nodes = (0..NODES).map(|more| (planned.node + more - 1) % NODES + 1);
        aimed.node = nodes.find(has).unwrap_or(planned.node);
    }
    aimed
}

/// Whether a daemon that was started is still there after a while.
const STAYS: &str = r#"sleep 1.5; kill -0 "$(cat "/run/daemons/$1")""#;

fn daemon(kind: Kind) -> (&'static str, bool) {
    match kind {
        Kind::KillKubelet | Kind::FreezeKubelet => ("kubelet", false),
        Kind::KillContainerd | Kind::FreezeContainerd => ("containerd", false),
        Kind::KillApiServer | Kind::FreezeApiServer => ("kube-apiserver", true),
        _ => ("etcd", true),
    }
}

fn signal_daemon(stage: &Stage, planned: &Planned, signal: &str) -> Result<(), Cannot> {
    let (name, is_first) = daemon(planned.kind);
    let node = if is_first { 1 } else { planned.node };
    let script = r#"kill -"$2" "$(cat "/run/daemons/$1")""#;
    in_node(stage, node, script, &[name, signal])?;
    Ok(())
}

fn mac(node: u32) -> String {
    format!("02:00:0a:61:00:{:02x}", 10 + node)
}

fn ingress(rule: &str) -> String {
    format!(
        "nft 'table netdev soak {{ chain in {{ type filter hook ingress device \"node0\" priority -500; {rule}; }}; }}'"
    )
}

pub(super) fn begin(stage: &Stage, planned: &Planned) -> Result<Present, Cannot> {
    let node = planned.node;
    let run =
        |script: &str, args: &[&str]| in_node(stage, node, script, args).map_err(Cannot::from);
    let mut heal = Heal::Nothing;
    match planned.kind {
        Kind::KillController => drop(run(SIGNAL, &[CONTROLLER, "KILL"])?),
        Kind::KillAgent => drop(run(SIGNAL, &[AGENT, "KILL"])?),
        Kind::FreezeController => drop(run(SIGNAL, &[CONTROLLER, "STOP"])?),
        Kind::FreezeAgent => drop(run(SIGNAL, &[AGENT, "STOP"])?),
        Kind::KillKubelet | Kind::KillContainerd | Kind::KillApiServer | Kind::KillEtcd => {
            let (name, is_first) = daemon(planned.kind);
            verb(name, || stage.cluster.kill(name, if is_first { 1 } else { node }))?;
        }
        Kind::FreezeKubelet | Kind::FreezeContainerd | Kind::FreezeApiServer | Kind::FreezeEtcd => {
            signal_daemon(stage, planned, "STOP")?;
        }
        Kind::BlackHole => {
            let rule = |from: u32| ingress(&format!("ether saddr {} drop", mac(from)));
            run(&rule(planned.other), &[])?;
            in_node(stage, planned.other, &rule(node), &[])?;
        }
        Kind::Loss => drop(run(&ingress("numgen random mod 5 == 0 drop"), &[])?),
        Kind::SlowLink => {
            run("tc qdisc add dev node0 root tbf rate 2mbit burst 16kb latency 400ms", &[])?;
        }
        // It fails when the disk is full, which is what is wanted.
        Kind::FullDisk => {
            run(
                r#"head -c 1G /dev/zero >"$1/soak-fill" 2>/dev/null; [ -s "$1/soak-fill" ]"#,
                &[DATA],
            )?;
        }
        Kind::SlowDisk => heal = Heal::Write(run(&[GROUP, SLOW_DISK].concat(), &[AGENT, DATA])?),
        Kind::HungDisk => heal = Heal::Thaw(freeze(stage, node)?),
        Kind::ControllerMemory => {
            heal = Heal::Write(run(&[GROUP, TAKE_MEMORY].concat(), &[CONTROLLER])?);
        }
        Kind::AgentMemory => heal = Heal::Write(run(&[GROUP, TAKE_MEMORY].concat(), &[AGENT])?),
        Kind::Reboot => verb("power off", || stage.cluster.cut_power(node))?,
        Kind::Strangers => strangers(stage, Duration::from_millis(planned.lasts_ms)),
        Kind::DarkCluster => stage.second.go_dark(),
        Kind::LyingAgent => {
            let data = agent_data(stage, node)?;
            liar::lie(stage, node, &data, Duration::from_millis(planned.lasts_ms))?;
        }
    }
    Ok(Present { planned: planned.clone(), heal })
}

impl Present {
    pub(super) fn end(self, stage: &Stage) -> Result<(), Cannot> {
        let Self { planned, heal } = self;
        let node = planned.node;
        let run =
            |script: &str, args: &[&str]| in_node(stage, node, script, args).map_err(Cannot::from);
        match heal {
            Heal::Nothing => {}
            Heal::Write(written) => {
                // The group may be gone with a process that the kernel ended.
                let (file, before) =
                    written.trim().split_once(' ').ok_or("no control group was told")?;
                let _ = run(r#"[ ! -e "$1" ] || echo "$2" >"$1""#, &[file, before]);
            }
            Heal::Thaw(child) => thaw(child)?,
        }
        match planned.kind {
            Kind::FreezeController => drop(run(SIGNAL, &[CONTROLLER, "CONT"])?),
            Kind::FreezeAgent => drop(run(SIGNAL, &[AGENT, "CONT"])?),
            Kind::KillKubelet | Kind::KillContainerd | Kind::KillApiServer | Kind::KillEtcd => {
                let (name, is_first) = daemon(planned.kind);
                let node = if is_first { 1 } else { node };
                verb(name, || stage.cluster.restart(name, node))?;
                in_node(stage, node, STAYS, &[name])?;
            }
            Kind::FreezeKubelet
            | Kind::FreezeContainerd
            | Kind::FreezeApiServer
            | Kind::FreezeEtcd => {
                signal_daemon(stage, &planned, "CONT")?;
            }
            Kind::BlackHole => {
                let there = in_node(stage, planned.other, "nft delete table netdev soak", &[]);
                run("nft delete table netdev soak", &[])?;
                there?;
            }
            Kind::Loss => drop(run("nft delete table netdev soak", &[])?),
            Kind::SlowLink => drop(run("tc qdisc del dev node0 root", &[])?),
            Kind::FullDisk => drop(run(r#"rm -f "$1/soak-fill""#, &[DATA])?),
            Kind::Reboot => verb("power on", || stage.cluster.power_on(node))?,
            Kind::DarkCluster => stage.second.come_back(),
            _ => {}
        }
        Ok(())
    }
}

/// Where the state of a node's agent is for who is on this machine.
fn agent_data(stage: &Stage, node: u32) -> Result<PathBuf, Cannot> {
    let pid = stage.cluster.node_pid(node).ok_or("the node is off")?;
    Ok(PathBuf::from(format!("/proc/{pid}/root{DATA}")))
}

fn freeze(stage: &Stage, node: u32) -> Result<Child, Cannot> {
    let data = agent_data(stage, node)?;
    // On this machine, not in the node: it must let go also when the node ends.
    let mut command = Command::new("bash");
    command.args(["-c", FREEZE, "freeze"]).arg(data);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said)?;
    }
    match said.trim() {
        "frozen" => Ok(child),
        _ => Err("the file system cannot be frozen".into()),
    }
}

fn thaw(mut child: Child) -> Result<(), Cannot> {
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(b"\n");
    }
    match child.wait()?.success() {
        true => Ok(()),
        false => Err("the file system does not thaw".into()),
    }
}

/// Connections that say nothing, half of a greeting, or nonsense, and stay.
fn strangers(stage: &Stage, lasts: Duration) {
    let until = Instant::now() + lasts;
    let addresses: Vec<_> = stage.controllers().into_values().map(|it| it.address).collect();
    for number in 0..STRANGERS {
        let Some(address) = addresses.get(number % addresses.len().max(1)).copied() else { return };
        let port = [7680, 7681, 7682, 7683][number / addresses.len() % 4];
        stage.outside.spawn(async move {
            while Instant::now() < until {
                let opened = tokio::time::timeout(
                    Duration::from_secs(2),
                    TcpStream::connect((address, port)),
                )
                .await;
                if let Ok(Ok(mut stream)) = opened {
                    let greeting: &[u8] = match number % 3 {
                        0 => b"",
                        1 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                        _ => b"GET / HTTP/1.1\r\nhost: nobody\r\n\r\n",
                    };
                    let _ = stream.write_all(greeting).await;
                    let mut buffer = [0; 256];
                    let wait = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer);
                    let _ = tokio::time::timeout(Duration::from_secs(2), wait).await;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
}
