//! Converts the facts that an agent joins with to a message and back.

use std::net::IpAddr;

use traffic::agents::JoinFacts;

use crate::{Malformed, proto};

/// The bytes of an agent's version, and of its kernel's.
const LONGEST: usize = 253;
/// The most addresses of a node.
const ADDRESSES: usize = 64;
/// The most addresses of all of a node's interfaces.
const LOCAL_ADDRESSES: usize = 1024;

impl From<JoinFacts> for proto::JoinRequest {
    fn from(facts: JoinFacts) -> Self {
        let octets = |addresses: Vec<IpAddr>| addresses.into_iter().map(octets).collect();
        Self {
            node: facts.node,
            incarnation: facts.incarnation,
            version: facts.version,
            kernel: facts.kernel,
            cores: facts.cores,
            memory: facts.memory,
            addresses: octets(facts.addresses),
            local_addresses: octets(facts.local_addresses),
        }
    }
}

impl TryFrom<proto::JoinRequest> for JoinFacts {
    type Error = Malformed;

    fn try_from(request: proto::JoinRequest) -> Result<Self, Malformed> {
        if request.version.len().max(request.kernel.len()) > LONGEST {
            return Err(Malformed("a version has 253 bytes at most"));
        }
        let addresses = |all: &[Vec<u8>], most| {
            let all = all.iter().map(|bytes| address(bytes)).collect::<Option<Vec<_>>>();
            all.filter(|all| all.len() <= most)
        };
        Ok(Self {
            addresses: addresses(&request.addresses, ADDRESSES)
                .ok_or(Malformed("a node has up to 64 addresses of 4 or 16 bytes"))?,
            local_addresses: addresses(&request.local_addresses, LOCAL_ADDRESSES)
                .ok_or(Malformed("a node has up to 1024 local addresses of 4 or 16 bytes"))?,
            node: request.node,
            incarnation: request.incarnation,
            version: request.version,
            kernel: request.kernel,
            cores: request.cores,
            memory: request.memory,
        })
    }
}

/// Reads 4 or 16 bytes.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
