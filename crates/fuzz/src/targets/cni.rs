//! What a container runtime gives the CNI plugin, and what the plugin and the agent say to each other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use cni::spec::{Command, Configuration, Dns, Interface, Invocation, Ip, Prefix, Success, Version};
use cni::wire::{self, Reply, Request};
use serde_json::{Value, json};

fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && !name.contains('/')
}

/// The network configuration on stdin, for the command that the first byte chooses.
pub(super) fn configuration(bytes: &[u8]) {
    let Some((first, stdin)) = bytes.split_first() else { return };
    let command = Command::ALL[usize::from(*first) % Command::ALL.len()];
    let _ = Version::report(stdin);
    let Ok(read) = Configuration::parse(stdin, command) else { return };
    assert!(is_identifier(&read.name));
    assert!(!read.timeout.is_zero() && read.timeout <= Duration::from_secs(600));
    let addresses = &read.fixed.addresses;
    assert!(addresses.len() <= 2);
    assert!(addresses.len() < 2 || addresses[0].is_ipv4() != addresses[1].is_ipv4());
    assert!(read.fixed.mac.is_none_or(|mac| mac[0] & 1 == 0 && mac != [0; 6]));
    let _ = read.previous_addresses();
    let _ = Success::default().render(read.version, read.previous.as_ref());
}

/// The result of the plugins before this one, and what this one makes after it: all of the former is in what is
/// passed on, in its place, and an address of the latter is on an interface of its own.
pub(super) fn previous(bytes: &[u8]) {
    let Some((first, previous)) = bytes.split_first() else { return };
    let version = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"][usize::from(*first) % 4];
    let Ok(Value::Object(previous)) = serde_json::from_slice(previous) else { return };
    let stdin = json!({ "cniVersion": version, "name": "n", "prevResult": previous });
    let Ok(read) = Configuration::parse(stdin.to_string().as_bytes(), Command::Add) else { return };
    let listed = |result: &Value, key: &str| result[key].as_array().cloned().unwrap_or_default();
    let made = Success {
        interfaces: vec![Interface {
            name: "eth0".to_owned(),
            mac: "02:00:5e:10:00:01".to_owned(),
            mtu: 1500,
            sandbox: None,
        }],
        ips: vec![Ip { address: Prefix::host([10, 0, 0, 1].into()), gateway: None, interface: 0 }],
        routes: Vec::new(),
        dns: Dns::default(),
    };
    let whole = made.render(read.version, read.previous.as_ref());
    let before = Value::Object(read.previous.clone().unwrap_or_default());
    assert_eq!(whole["cniVersion"], version);
    for (key, more) in [("interfaces", 1), ("ips", 1), ("routes", 0)] {
        let (before, whole) = (listed(&before, key), listed(&whole, key));
        assert_eq!(whole.len(), before.len() + more, "{key}");
        assert_eq!(whole[..before.len()], before, "{key}");
    }
    let place = whole["ips"].as_array().and_then(|ips| ips.last()?["interface"].as_u64());
    assert_eq!(place, Some(listed(&before, "interfaces").len() as u64));
    // The next plugin of the chain reads what this one made.
    let next = json!({ "cniVersion": version, "name": "n", "prevResult": whole });
    let next = Configuration::parse(next.to_string().as_bytes(), Command::Add).expect("it is read");
    let mut addresses = read.previous_addresses();
    addresses.push([10, 0, 0, 1].into());
    assert_eq!(next.previous_addresses(), addresses);
}

/// The environment: variables, each ended by a zero, in a fixed order.
pub(super) fn environment(bytes: &[u8]) {
    let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"];
    let values: Vec<&[u8]> = bytes.splitn(names.len(), |byte| *byte == 0).collect();
    let variable = |name: &str| {
        let at = names.iter().position(|it| *it == name)?;
        values.get(at).map(|value| OsString::from_vec(value.to_vec()))
    };
    let Ok(
        Invocation::Add { key, .. } | Invocation::Del { key, .. } | Invocation::Check { key, .. },
    ) = Invocation::parse(variable)
    else {
        return;
    };
    assert!(is_identifier(&key.container));
    assert!((1..=15).contains(&key.ifname.len()) && !key.ifname.contains(['/', ':', ' ']));
    assert!(key.ifname != "." && key.ifname != "..");
}

/// A request and a reply behind their length: what is read and written again is the same.
pub(super) fn wire(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk::<{ wire::HEADER }>() else { return };
    if let Ok(length) = wire::length(*header) {
        assert!(length <= wire::LARGEST);
    }
    if let Ok(request) = wire::parse::<Request>(body) {
        let frame = wire::frame(&request).expect("a request that was read is short enough");
        let again: Request = wire::parse(&frame[wire::HEADER..]).expect("what was written is read");
        assert_eq!(again, request);
    }
    match wire::parse::<Reply>(body) {
        // A number with a fraction may lose its last digit.
        Err(_) | Ok(Reply::Shown(_)) => {}
        Ok(reply) => {
            let frame = wire::frame(&reply).expect("a reply that was read is short enough");
            let again: Reply =
                wire::parse(&frame[wire::HEADER..]).expect("what was written is read");
            assert_eq!(again, reply);
        }
    }
}
