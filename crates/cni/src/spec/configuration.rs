use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::success::{self, Dns};
use super::{Code, Command, Error, Version, is_identifier};
use crate::wire::{AttachmentKey, Fixed};

/// Where the agent listens unless the network configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/fairlead/cni.sock";
/// How long a runtime waits by default for an answer: half of what a kubelet gives its runtime.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The capability by which runtimes pass a pod's annotations on.
pub const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// The annotations by which a pod chooses its addresses, and its hardware address.
pub const FIXED_ADDRESSES: &str = "fairlead.dev/ips";
pub const FIXED_MAC: &str = "fairlead.dev/mac";
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The network configuration on stdin, as far as this plugin reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    pub version: Version,
    pub name: String,
    /// A field of this plugin: the pool to take addresses from, whatever the namespace says.
    pub pool: Option<String>,
    /// Fields of this plugin: where the agent listens, and how long its reply may take.
    pub socket: PathBuf,
    pub timeout: Duration,
    pub dns: Dns,
    /// Addresses that the runtime (capabilities `ips`, `mac`) or the pod's annotations choose.
    pub fixed: Fixed,
    /// What the plugins before this one made (ADD), or the whole chain (CHECK).
    pub previous: Option<Map<String, Value>>,
    /// GC: the attachments that are still in use.
    pub valid: Vec<AttachmentKey>,
}

impl Configuration {
    /// Parses stdin and checks that it has what `command` needs. Commands that remove things put up with
    /// fields that ADD refuses.
    pub fn parse(stdin: &[u8], command: Command) -> Result<Self, Error> {
        let config: Map<String, Value> = serde_json::from_slice(stdin).map_err(|error| {
            Error::new(
                Code::Decoding,
                format!("the network configuration on stdin is not JSON: {error}"),
            )
            .details("stdin must be one JSON object with cniVersion, name and type")
        })?;
        let version = version(&config)?;
        allowed(command, version)?;
        let name = take::<String>(&config, "name")?.unwrap_or_default();
        if !is_identifier(&name) {
            return Err(wrong(format!("name is {name:?}")).details(
                "a network's name is of a-z, A-Z, 0-9, _, . and -, and begins with one of a-z, A-Z, 0-9",
            ));
        }
        if command == Command::Add {
            refuse_unsupported(&config)?;
        }
        let socket =
            take::<String>(&config, "socket")?.unwrap_or_else(|| DEFAULT_SOCKET.to_owned());
        let previous = previous(&config)?;
        if command == Command::Check && previous.is_none() {
            return Err(wrong("prevResult is missing".to_owned())
                .details("CHECK compares with the result of ADD: the runtime must pass it on"));
        }
        Ok(Self {
            version,
            name,
            pool: take::<String>(&config, "pool")?.filter(|pool| !pool.is_empty()),
            socket: PathBuf::from(socket),
            timeout: timeout(&config)?,
            dns: take(&config, "dns")?.unwrap_or_default(),
            fixed: if command == Command::Add { fixed(&config)? } else { Fixed::default() },
            previous,
            valid: if command == Command::Gc { valid(&config)? } else { Vec::new() },
        })
    }

    /// The addresses that the previous result names.
    pub fn previous_addresses(&self) -> Vec<IpAddr> {
        self.previous.as_ref().map(success::addresses).unwrap_or_default()
    }
}

fn version(config: &Map<String, Value>) -> Result<Version, Error> {
    match config.get("cniVersion") {
        Some(Value::String(version)) => Version::parse(version),
        // The specification's own meaning of its absence.
        None => Version::parse("0.1.0"),
        Some(_) => Err(wrong("cniVersion must be a string".to_owned())),
    }
}

/// Checks that the version has the command: some came with later versions.
fn allowed(command: Command, version: Version) -> Result<(), Error> {
    let since = match command {
        Command::Check => Version::V0_4_0,
        Command::Gc | Command::Status => Version::V1_1_0,
        Command::Add | Command::Del | Command::Version => Version::V0_3_1,
    };
    if version >= since {
        return Ok(());
    }
    let msg = format!("cniVersion {version} has no {command}");
    Err(Error::new(Code::IncompatibleVersion, msg)
        .details(format!("set cniVersion in the network configuration to {since} or later")))
}

/// Refuses fields that this plugin does not act on: to accept them would be a lie that shows much
/// later.
fn refuse_unsupported(config: &Map<String, Value>) -> Result<(), Error> {
    let fields = [
        ("ipam", config.get("ipam"), "addresses come from an AddressPool: take ipam out"),
        (
            "ipMasq",
            config.get("ipMasq"),
            "masquerading is not done by this plugin: take ipMasq out",
        ),
    ];
    for (key, value, remedy) in fields {
        if let Some(value) = value.filter(|value| asks_for_something(value)) {
            let msg = format!("{key} is not supported (its value is {value})");
            return Err(Error::new(Code::UnsupportedField, msg).details(remedy));
        }
    }
    Ok(())
}

fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// Reads which addresses are chosen: by the runtime, else by the pod's annotations, where the runtime passes
/// those on.
fn fixed(config: &Map<String, Value>) -> Result<Fixed, Error> {
    let runtime = |key: &str| {
        let value = config.get("runtimeConfig").and_then(|runtime| runtime.get(key));
        value.filter(|value| asks_for_something(value))
    };
    let annotation = |key: &str| runtime(ANNOTATIONS).and_then(|all| all.get(key)?.as_str());
    let mut fixed = Fixed::default();
    let (said, from) = match runtime("ips") {
        Some(ips) => {
            let ips = ips.as_array().into_iter().flatten();
            (
                ips.map(|ip| ip.as_str().unwrap_or_default().to_owned()).collect(),
                "runtimeConfig.ips",
            )
        }
        None => {
            let listed = annotation(FIXED_ADDRESSES).unwrap_or_default().split(',');
            let listed = listed.map(str::trim).filter(|ip| !ip.is_empty());
            (listed.map(str::to_owned).collect::<Vec<_>>(), FIXED_ADDRESSES)
        }
    };
    for one in said {
        // With or without the length of a prefix: a pod has its address alone.
        let address = one.split('/').next().unwrap_or_default().parse::<IpAddr>();
        let address = address.map_err(|_| {
            wrong(format!("{from}: {one:?} is no address")).details("write 10.64.0.5, or fd64::5")
        })?;
        if fixed.addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
            return Err(wrong(format!("{from}: has two addresses of one family"))
                .details("a pod has one address of each family"));
        }
        fixed.addresses.push(address);
    }
    let (mac, from) = match runtime("mac").and_then(Value::as_str) {
        Some(mac) => (Some(mac), "runtimeConfig.mac"),
        None => (annotation(FIXED_MAC), FIXED_MAC),
    };
    fixed.mac = mac.map(|mac| hardware_address(mac, from)).transpose()?;
    Ok(fixed)
}

fn hardware_address(said: &str, from: &str) -> Result<[u8; 6], Error> {
    let bytes: Option<Vec<u8>> =
        said.split([':', '-']).map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    // Neither a group's nor nobody's.
    mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]).ok_or_else(|| {
        wrong(format!("{from}: {said:?} is no hardware address of an interface"))
            .details("write 02:00:5e:10:00:01; the first byte is even")
    })
}

fn timeout(config: &Map<String, Value>) -> Result<Duration, Error> {
    let Some(value) = config.get("timeout").filter(|value| !value.is_null()) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let seconds = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|wait| !wait.is_zero() && *wait <= LONGEST_TIMEOUT).ok_or_else(|| {
        wrong(format!("timeout is {value}"))
            .details(format!("it is a number of seconds, at most {}", LONGEST_TIMEOUT.as_secs()))
    })
}

fn previous(config: &Map<String, Value>) -> Result<Option<Map<String, Value>>, Error> {
    let previous: Option<Map<String, Value>> = take(config, "prevResult")?;
    if let Some(previous) = &previous {
        for key in ["interfaces", "ips", "routes"] {
            if !matches!(previous.get(key), None | Some(Value::Null | Value::Array(_))) {
                return Err(wrong(format!("prevResult.{key} must be a list")));
            }
        }
    }
    Ok(previous)
}

fn valid(config: &Map<String, Value>) -> Result<Vec<AttachmentKey>, Error> {
    #[derive(Deserialize)]
    struct Attachment {
        #[serde(rename = "containerID")]
        container: String,
        ifname: String,
    }
    // The first is the specification's; the second was in its first edition and runtimes send both.
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        if config.contains_key(key) {
            let valid: Option<Vec<Attachment>> = take(config, key)?;
            let key = |Attachment { container, ifname }| AttachmentKey { container, ifname };
            return Ok(valid.unwrap_or_default().into_iter().map(key).collect());
        }
    }
    // Without a list "nothing is valid" and "nobody said" look the same, and one of them is a disaster.
    Err(wrong("cni.dev/valid-attachments is missing".to_owned()).details(
        "GC removes what is not in that list: the runtime must send it, also when it is empty",
    ))
}

/// Reads a field; `null` is the same as absent.
fn take<T: serde::de::DeserializeOwned>(
    config: &Map<String, Value>,
    key: &str,
) -> Result<Option<T>, Error> {
    let Some(value) = config.get(key) else { return Ok(None) };
    Option::<T>::deserialize(value).map_err(|error| wrong(format!("{key}: {error}")))
}

fn wrong(msg: String) -> Error {
    Error::new(Code::InvalidConfiguration, msg)
}
