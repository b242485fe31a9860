//! A process in a pod: which of its ports serves profiles.
//!
//! The ports that may come from the pod (annotations, names and numbers of its containers' ports) and
//! from custom. Each is asked once for a small page, within a few seconds. How a port is reached is the
//! caller's matter: it is asked as `http://POD:PORT`.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Fetch;

/// Ports that are asked at most: each costs a connection through the cluster.
pub const MOST_PORTS: usize = 16;
/// How long the search for the port may take altogether.
const SEARCH: Duration = Duration::from_secs(30);
/// How long one port may take to answer the small page.
pub const PROBE: Duration = Duration::from_secs(4);
/// The ports that daemons of this field listen on for profiles and metrics; 7682 is Fairlead's.
pub const CUSTOMARY: [u16; 8] = [6060, 6061, 8080, 8081, 9090, 7682, 10249, 9153];
/// The pages that tell a debug port, best first.
const PAGES: [&str; 3] = ["/debug/pprof/", "/debug/inflight?format=json", "/metrics"];

/// A pod and the ports of it that may be asked.
#[derive(Clone, Debug)]
pub struct PodPorts {
    pub pod: String,
    pub ports: Vec<u16>,
}

impl PodPorts {
    /// Returns the address of the first port that serves profiles, else ledgers, else metrics. `probe`
    /// answers within [`PROBE`]; `tell` is called with each page before it is asked.
    pub fn search(&self, probe: &dyn Fetch, tell: &mut dyn FnMut(&str)) -> Option<String> {
        let until = Instant::now() + SEARCH;
        let mut silent: Vec<u16> = Vec::new();
        for page in PAGES {
            for port in &self.ports {
                if silent.contains(port) || Instant::now() >= until {
                    continue;
                }
                let address = format!("http://{}:{port}", self.pod);
                tell(&format!("{address}{page}"));
                match probe.get(&format!("{address}{page}")) {
                    Ok((200..300, _)) => return Some(address),
                    Ok(_) => {}
                    Err(_) => silent.push(*port),
                }
            }
        }
        None
    }

    /// Splits the URL of a page of this pod into the port and the path; none for another address.
    pub fn page<'u>(&self, url: &'u str) -> Option<(u16, &'u str)> {
        let rest = url.strip_prefix("http://")?.strip_prefix(self.pod.as_str())?;
        let rest = rest.strip_prefix(':')?;
        let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let port = port.parse().ok().filter(|port| self.ports.contains(port))?;
        Some((port, path))
    }

    /// Says that there is nothing to ask, and what to do; `how` is how the caller names a port.
    pub fn nothing(&self, how: &str) -> String {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        format!(
            "no port of the pod {0} serves profiles or metrics (asked: {1}). Name it {how}, or in \
             the pod's annotation fairlead.dev/debug-port. To enable one: Go, import \
             _ \"net/http/pprof\" and serve http.DefaultServeMux on 127.0.0.1:6060 (a forwarded port \
             reaches loopback). Without one: Java, `kubectl exec {0} -- jcmd 1 Thread.print -l > dump.txt`; \
             Python, `py-spy dump --native --pid 1`; any other, `gdb -batch -ex 'thread apply all bt' -p 1`; \
             then `fairlead doctor dump.txt`",
            self.pod,
            ports.join(", ")
        )
    }
}

/// Returns the ports of a pod that may serve profiles, the most likely first.
pub fn debug_ports(pod: &Value) -> Vec<u16> {
    let mut ports: Vec<u16> = Vec::new();
    let mut add = |port: Option<u64>| {
        if let Some(port) = port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0)
            && !ports.contains(&port)
            && ports.len() < MOST_PORTS
        {
            ports.push(port);
        }
    };
    let annotations = pod["metadata"]["annotations"].as_object();
    let annotated = |wanted: &dyn Fn(&str) -> bool| -> Vec<u64> {
        let found = annotations.into_iter().flatten().filter(|(name, _)| wanted(name));
        found.filter_map(|(_, value)| value.as_str()?.trim().parse().ok()).collect()
    };
    let is_ours = |name: &str| name == "fairlead.dev/debug-port";
    // Such as profiles.grafana.com/goroutine.port and pprof.example.org/port.
    let profiles =
        |name: &str| name.ends_with("port") && (name.contains("profile") || name.contains("pprof"));
    annotated(&is_ours).into_iter().for_each(|port| add(Some(port)));
    annotated(&profiles).into_iter().for_each(|port| add(Some(port)));
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let declared: Vec<(&str, Option<u64>)> = containers
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter(|port| port["protocol"].as_str().is_none_or(|protocol| protocol == "TCP"))
        .map(|port| (port["name"].as_str().unwrap_or(""), port["containerPort"].as_u64()))
        .collect();
    for word in ["pprof", "prof", "debug", "admin"] {
        declared.iter().filter(|(name, _)| name.contains(word)).for_each(|(_, port)| add(*port));
    }
    add(Some(u64::from(CUSTOMARY[0])));
    for word in ["metrics", "http"] {
        declared.iter().filter(|(name, _)| name.contains(word)).for_each(|(_, port)| add(*port));
    }
    annotated(&|name| name == "prometheus.io/port").into_iter().for_each(|port| add(Some(port)));
    declared.iter().for_each(|(_, port)| add(*port));
    CUSTOMARY.iter().for_each(|port| add(Some(u64::from(*port))));
    ports
}

#[cfg(test)]
mod tests;
