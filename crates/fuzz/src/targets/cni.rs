//! What a container runtime gives the CNI plugin, and what the plugin and the agent say to each other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use cni::spec::{Command, Configuration, Invocation, Success, Version};
use cni::wire::{self, Reply, Request};

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
