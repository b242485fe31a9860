use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Version;

/// What ADD made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Success {
    pub interfaces: Vec<Interface>,
    pub ips: Vec<Ip>,
    pub routes: Vec<Route>,
    #[serde(default)]
    pub dns: Dns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub mac: String,
    pub mtu: u32,
    /// The path of the container's namespace; `None` at the node's side.
    pub sandbox: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    pub address: Prefix,
    pub gateway: Option<IpAddr>,
    /// Which of `interfaces`.
    pub interface: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub destination: Prefix,
    pub gateway: Option<IpAddr>,
}

/// An address with the length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    /// One address and nothing else.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Passed on from the network configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Success {
    /// As `version` wants it, after what the plugins before made: their interfaces keep their places
    /// in the list, so their addresses keep pointing at them.
    pub fn render(&self, version: Version, previous: Option<&Map<String, Value>>) -> Value {
        let mut result = previous.cloned().unwrap_or_default();
        result.insert("cniVersion".to_owned(), version.name().into());
        let before = result.get("interfaces").and_then(Value::as_array).map_or(0, Vec::len);
        append(&mut result, "interfaces", self.interfaces.iter().map(|i| i.render(version)));
        append(&mut result, "ips", self.ips.iter().map(|ip| ip.render(version, before)));
        append(&mut result, "routes", self.routes.iter().map(Route::render));
        if self.dns != Dns::default() {
            result.insert("dns".to_owned(), json!(self.dns));
        }
        Value::Object(result)
    }
}

impl Interface {
    fn render(&self, version: Version) -> Value {
        let mut interface = json!({ "name": self.name, "mac": self.mac });
        if version >= Version::V1_1_0 {
            interface["mtu"] = self.mtu.into();
        }
        if let Some(sandbox) = &self.sandbox {
            interface["sandbox"] = sandbox.as_str().into();
        }
        interface
    }
}

impl Ip {
    fn render(&self, version: Version, interfaces_before: usize) -> Value {
        let mut ip = json!({
            "address": self.address.to_string(),
            "interface": interfaces_before + self.interface,
        });
        if version < Version::V1_0_0 {
            ip["version"] = if self.address.address.is_ipv4() { "4" } else { "6" }.into();
        }
        if let Some(gateway) = self.gateway {
            ip["gateway"] = gateway.to_string().into();
        }
        ip
    }
}

impl Route {
    fn render(&self) -> Value {
        let mut route = json!({ "dst": self.destination.to_string() });
        if let Some(gateway) = self.gateway {
            route["gw"] = gateway.to_string().into();
        }
        route
    }
}

fn append(result: &mut Map<String, Value>, key: &str, more: impl Iterator<Item = Value>) {
    let list = result.entry(key).or_insert(Value::Null);
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    if let Value::Array(list) = list {
        list.extend(more);
    }
}

/// The addresses in a rendered result, of any version.
pub(super) fn addresses(result: &Map<String, Value>) -> Vec<IpAddr> {
    let ips = result.get("ips").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let address = |ip: &Value| ip.get("address")?.as_str()?.split('/').next()?.parse().ok();
    ips.iter().filter_map(address).collect()
}
