//! Address translation: the chains and expressions that it needs beyond those of filtering.

use netlink_packet_core::NLM_F_CREATE;

use super::expression::{Expression, Register, number, string, value};
use super::{Batch, Hook, NEW_CHAIN};
use crate::conntrack::attributes::{nested, write};

/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`: ports are drawn at random, so that processors which choose at the
/// same moment seldom choose the same one, and drop a packet for it.
const FULLY_RANDOM: u32 = 16;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`: ports are those of a range.
const PORTS: u32 = 2;
/// `NFT_NAT_SNAT`.
const SOURCE: u32 = 0;
/// `NFT_META_IIFNAME`, `NFT_META_OIFNAME`.
const INPUT_NAME: u32 = 6;
const OUTPUT_NAME: u32 = 7;
/// `NFT_NG_RANDOM`.
const RANDOM: u32 = 1;
/// `NFT_RT_TCPMSS`.
const ROUTE_SEGMENT: u32 = 3;
/// `NFT_BYTEORDER_HTON`.
const TO_NETWORK: u32 = 1;
/// `NFT_EXTHDR_OP_TCPOPT`, and the option of the largest segment.
const TCP_OPTION: u32 = 1;
const MAXIMUM_SEGMENT: u8 = 2;
/// A name is compared with the zeros behind it.
const INTERFACE_NAME: usize = 16;

impl Expression {
    /// Puts a constant into a register.
    pub fn constant(into: Register, bytes: &[u8]) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &into.number());
        value(&mut attributes, 2, bytes);
        Self::Encoded { name: b"immediate\0", attributes }
    }

    /// Gives the connection the address of the interface that it leaves by, and a port between those in
    /// the two registers, the last one included; without registers, whichever port is free.
    pub fn masquerade(ports: Option<(Register, Register)>) -> Self {
        let mut attributes = Vec::new();
        let ranged = if ports.is_some() { PORTS } else { 0 };
        number(&mut attributes, 1, FULLY_RANDOM | ranged);
        if let Some((first, last)) = ports {
            write(&mut attributes, 2, &first.number());
            write(&mut attributes, 3, &last.number());
        }
        Self::Encoded { name: b"masq\0", attributes }
    }

    /// Gives the connection the source address in a register. Chains behind this one translate it no more,
    /// also where the address is its own.
    pub fn source_address(is_ipv4: bool, from: Register) -> Self {
        let mut attributes = Vec::new();
        number(&mut attributes, 1, SOURCE);
        number(&mut attributes, 2, if is_ipv4 { 2 } else { 10 });
        write(&mut attributes, 3, &from.number());
        Self::Encoded { name: b"nat\0", attributes }
    }

    /// Loads the name of the interface that the packet came in by: compare it with [`interface_name`], or
    /// with the bytes that it begins with.
    ///
    /// [`interface_name`]: Self::interface_name
    pub fn input_interface(into: Register) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &into.number());
        number(&mut attributes, 2, INPUT_NAME);
        Self::Encoded { name: b"meta\0", attributes }
    }

    /// Puts a number below `count` into a register, in the machine's byte order and at random.
    pub fn random(into: Register, count: u32) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &into.number());
        number(&mut attributes, 2, count);
        number(&mut attributes, 3, RANDOM);
        Self::Encoded { name: b"numgen\0", attributes }
    }

    /// Writes four bytes of a register into the link's header, from this offset on.
    pub fn write_link_header(from: Register, offset: u32) -> Self {
        let mut attributes = Vec::new();
        number(&mut attributes, 2, 0);
        number(&mut attributes, 3, offset);
        number(&mut attributes, 4, 4);
        write(&mut attributes, 5, &from.number());
        number(&mut attributes, 6, 0);
        Self::Encoded { name: b"payload\0", attributes }
    }

    /// Loads the largest TCP segment for which the packet's route has room: two bytes in the machine's
    /// byte order. In forward, output and postrouting chains alone.
    pub fn route_segment(into: Register) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &into.number());
        number(&mut attributes, 2, ROUTE_SEGMENT);
        Self::Encoded { name: b"rt\0", attributes }
    }

    /// Turns two bytes in a register into the network's byte order.
    pub fn to_network_order(register: Register) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &register.number());
        write(&mut attributes, 2, &register.number());
        number(&mut attributes, 3, TO_NETWORK);
        number(&mut attributes, 4, 2);
        number(&mut attributes, 5, 2);
        Self::Encoded { name: b"byteorder\0", attributes }
    }

    /// Lowers the largest segment that a TCP packet announces to the two bytes in a register. Packets that
    /// announce none or less stay as they are.
    pub fn clamp_segments(to: Register) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 2, &[MAXIMUM_SEGMENT]);
        number(&mut attributes, 3, 2);
        number(&mut attributes, 4, 2);
        number(&mut attributes, 6, TCP_OPTION);
        write(&mut attributes, 7, &to.number());
        Self::Encoded { name: b"exthdr\0", attributes }
    }

    /// Loads the name of the interface that the packet leaves by: compare it with [`interface_name`].
    ///
    /// [`interface_name`]: Self::interface_name
    pub fn output_interface(into: Register) -> Self {
        let mut attributes = Vec::new();
        write(&mut attributes, 1, &into.number());
        number(&mut attributes, 2, OUTPUT_NAME);
        Self::Encoded { name: b"meta\0", attributes }
    }

    /// The bytes by which an interface's name is compared.
    pub fn interface_name(name: &str) -> Vec<u8> {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(INTERFACE_NAME, 0);
        bytes
    }
}

impl Batch {
    /// Makes a base chain that translates addresses, or leaves the same one that is there. Only the
    /// first packet of a connection comes to it.
    pub fn add_nat_chain(&mut self, name: &str, hook: Hook, priority: i32) {
        self.add(NEW_CHAIN, NLM_F_CREATE, |out, table| {
            string(out, 1, table);
            string(out, 3, name);
            nested(out, 4, |out| {
                number(out, 1, hook as u32);
                write(out, 2, &priority.to_be_bytes());
            });
            string(out, 7, "nat");
        });
    }
}
