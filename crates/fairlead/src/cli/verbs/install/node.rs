//! Checks that a node has what an agent needs, on the node itself. Nothing is changed.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;

use install::check::{Finding, Verdict};
use kernel::conntrack;

/// The agent's admin port on the node's loopback.
const ADMIN: (&str, u16) = ("127.0.0.1", 7682);

pub(super) fn check() -> Vec<Finding> {
    let mut found = vec![
        asked("nftables", conntrack::probe_nftables(), "load the module nf_tables"),
        asked(
            "conntrack",
            list_connections(),
            "load the modules nf_conntrack and nf_conntrack_netlink",
        ),
        reverse_path(Path::new("/proc/sys/net/ipv4/conf/all/rp_filter")),
        forwarding(Path::new("/proc/sys/net/ipv4/ip_forward")),
        bridges(Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables")),
        networks(Path::new("/etc/cni/net.d")),
    ];
    if let Err(error) = TcpListener::bind(ADMIN)
        && error.kind() == io::ErrorKind::AddrInUse
    {
        let (_, port) = ADMIN;
        let message = format!(
            "port {port} on loopback is taken: an agent is there already, or set agent.settings.\"admin.listen\" to another"
        );
        found.push(Finding::new("ports", Verdict::Warning, message));
    }
    found
}

fn list_connections() -> io::Result<()> {
    conntrack::Table::open()?.list(|_| {}).map(|_| ())
}

fn asked(check: &'static str, answer: io::Result<()>, otherwise: &str) -> Finding {
    match answer {
        Ok(()) => Finding::new(check, Verdict::Ok, "the kernel has it"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::new(check, Verdict::Warning, "only root can ask: run this as root")
        }
        Err(error) => {
            let message = format!("the kernel does not answer ({error}): {otherwise}");
            Finding::new(check, Verdict::Failure, message)
        }
    }
}

fn value(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// The strict form drops packets that come in by another way than answers would go out.
fn reverse_path(path: &Path) -> Finding {
    match value(path).as_deref() {
        Some("1") => Finding::new(
            "rp_filter",
            Verdict::Warning,
            "net.ipv4.conf.all.rp_filter is 1 (strict): on nodes with several networks set it to 2, or answers to pods may be dropped",
        ),
        _ => Finding::new("rp_filter", Verdict::Ok, "not strict"),
    }
}

fn forwarding(path: &Path) -> Finding {
    let message = match value(path).as_deref() {
        Some("0") => "off: the agent switches it on where it makes the pod network",
        _ => "on",
    };
    Finding::new("ip_forward", Verdict::Ok, message)
}

/// Where a bridge plugin makes the pod network, packets between its pods pass netfilter only by this.
fn bridges(path: &Path) -> Finding {
    match value(path).as_deref() {
        Some("0") => Finding::new(
            "bridges",
            Verdict::Warning,
            "net.bridge.bridge-nf-call-iptables is 0: beside a bridge plugin, connections between pods of one node are not seen; set it to 1",
        ),
        _ => Finding::new("bridges", Verdict::Ok, "nothing hides connections"),
    }
}

/// Names the network that a runtime takes: the first by name.
fn networks(dir: &Path) -> Finding {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end)))
        .collect();
    names.sort();
    match names.first() {
        None => Finding::new("networks", Verdict::Ok, "no other network is configured"),
        Some(first) if first.contains("fairlead") => {
            Finding::new("networks", Verdict::Ok, format!("runtimes take {first}"))
        }
        Some(first) => Finding::new(
            "networks",
            Verdict::Warning,
            format!(
                "runtimes take {} of {} networks in {}; ours would be 10-fairlead.conflist",
                first,
                names.len(),
                dir.display()
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
