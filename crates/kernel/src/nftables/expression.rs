//! Rules, as the expressions that the kernel runs for a packet, and verdicts.
//!
//! The expressions are those that `nft` itself would make of the same rule, so that `nft list ruleset`
//! reads them back. One trap is kept out by the types: a lookup's key always comes from the packet,
//! never from another lookup, because Debian 12's `nft` aborts on rules that chain lookups.

use crate::conntrack::attributes::{nested, write};

/// One of the kernel's registers, each of four bytes. A value longer than four bytes takes the
/// registers that follow as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(pub u8);

impl Register {
    pub const FIRST: Self = Self(0);

    pub(super) fn number(self) -> [u8; 4] {
        // `NFT_REG32_00` is 8; nft writes the first of each four as one of sixteen bytes.
        match self.0 % 4 {
            0 => (u32::from(self.0 / 4) + 1).to_be_bytes(),
            _ => (u32::from(self.0) + 8).to_be_bytes(),
        }
    }
}

/// Which header a payload's offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// Ethernet's.
    Link,
    Network,
    Transport,
    /// What TCP or UDP carries. A packet that carries nothing ends the rule. Linux 5.16.
    Carried,
}

/// Facts about a packet that are not in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// The mark, in the machine's byte order.
    Mark,
    /// The index of the interface that the packet came in by.
    InputInterface,
    /// 2 for IPv4 and 10 for IPv6: one byte.
    Family,
    /// The protocol above IP: one byte.
    Protocol,
}

/// Facts about a packet's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracked {
    /// A bit mask in the machine's byte order: see [`STATE_INVALID`] and its neighbours.
    State,
    /// One byte: 0 with the first packet's direction, 1 against it. Without a connection the rule ends.
    Direction,
    /// The mark, in the machine's byte order.
    Mark,
    /// How many packets both directions have had, this one included, as eight bytes in the machine's order;
    /// zero of a connection that began before the kernel counted.
    Packets,
}

/// A destination that is this machine's own.
pub const ADDRESS_LOCAL: u32 = 2;

pub const STATE_INVALID: u32 = 1;
pub const STATE_ESTABLISHED: u32 = 2;
pub const STATE_RELATED: u32 = 4;
pub const STATE_NEW: u32 = 8;
pub const STATE_UNTRACKED: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    Equal,
    NotEqual,
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// How a refused packet's sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// A TCP reset; for TCP only.
    TcpReset,
    /// ICMP or ICMPv6 "administratively prohibited".
    Prohibited,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expression {
    Payload {
        header: Header,
        offset: u32,
        length: u32,
        into: Register,
    },
    Meta {
        fact: Meta,
        into: Register,
    },
    Tracked {
        fact: Tracked,
        into: Register,
    },
    /// The rule goes on if the comparison holds.
    Compare {
        register: Register,
        is: Comparison,
        value: Vec<u8>,
    },
    /// `register & mask ^ xor`, of the mask's length.
    Bits {
        register: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Brings a number of `length` bytes from the machine's order into that in which numbers compare.
    Comparable {
        register: Register,
        length: u32,
    },
    /// The rule goes on if the set has the key, or with `absent` if it does not.
    Lookup {
        set: String,
        key: Register,
        absent: bool,
    },
    /// Puts the key into a set, for so many milliseconds. A set that is full ends the rule.
    Remember {
        set: String,
        key: Register,
        timeout: u64,
    },
    /// Takes the verdict that the map has for the key; the rule goes on if it has none.
    VerdictFrom {
        map: String,
        key: Register,
    },
    Verdict(Verdict),
    /// Puts a value into a register.
    Immediate {
        into: Register,
        value: Vec<u8>,
    },
    /// Says what the packet's destination is to this machine, as a number of the machine's byte order:
    /// see [`ADDRESS_LOCAL`].
    DestinationKind {
        into: Register,
    },
    /// Sets the packet's mark.
    SetMark {
        from: Register,
    },
    /// Sets the mark of the packet's connection.
    SetTrackedMark {
        from: Register,
    },
    /// Gives the packet to the transparent socket that its connection has, else to the one that listens at
    /// the address and port in these registers. Where there is none, the rule ends.
    TransparentProxy {
        ipv6: bool,
        address: Register,
        port: Register,
    },
    Counter {
        packets: u64,
        bytes: u64,
    },
    /// Sends the first `length` bytes of the packet to whoever reads this group.
    Log {
        group: u16,
        prefix: String,
        length: u32,
    },
    /// The rule goes on as long as the rate is not exceeded.
    Limit {
        per_second: u64,
        burst: u32,
    },
    Reject(Rejection),
    /// An expression that has a function of its own to make it, with its attributes as the kernel
    /// takes them.
    Encoded {
        name: &'static [u8],
        attributes: Vec<u8>,
    },
}

impl Expression {
    fn name(&self) -> &'static [u8] {
        match self {
            Self::Payload { .. } => b"payload\0",
            Self::Meta { .. } => b"meta\0",
            Self::Tracked { .. } => b"ct\0",
            Self::Compare { .. } => b"cmp\0",
            Self::Bits { .. } => b"bitwise\0",
            Self::Comparable { .. } => b"byteorder\0",
            Self::Remember { .. } => b"dynset\0",
            Self::Lookup { .. } | Self::VerdictFrom { .. } => b"lookup\0",
            Self::Verdict(_) | Self::Immediate { .. } => b"immediate\0",
            Self::DestinationKind { .. } => b"fib\0",
            Self::SetMark { .. } => b"meta\0",
            Self::SetTrackedMark { .. } => b"ct\0",
            Self::TransparentProxy { .. } => b"tproxy\0",
            Self::Counter { .. } => b"counter\0",
            Self::Log { .. } => b"log\0",
            Self::Limit { .. } => b"limit\0",
            Self::Reject(_) => b"reject\0",
            Self::Encoded { name, .. } => name,
        }
    }

    /// Writes an element of a rule's list of expressions.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        nested(out, 1, |out| {
            write(out, 1, self.name());
            nested(out, 2, |out| self.attributes(out));
        });
    }

    fn attributes(&self, out: &mut Vec<u8>) {
        match self {
            Self::Payload { header, offset, length, into } => {
                let base = match header {
                    Header::Link => 0,
                    Header::Network => 1,
                    Header::Transport => 2,
                    Header::Carried => 3,
                };
                write(out, 1, &into.number());
                number(out, 2, base);
                number(out, 3, *offset);
                number(out, 4, *length);
            }
            Self::Meta { fact, into } => {
                let key = match fact {
                    Meta::Mark => 3,
                    Meta::InputInterface => 4,
                    Meta::Family => 15,
                    Meta::Protocol => 16,
                };
                write(out, 1, &into.number());
                number(out, 2, key);
            }
            Self::Tracked { fact, into } => {
                let key = match fact {
                    Tracked::State => 0,
                    Tracked::Direction => 1,
                    Tracked::Mark => 3,
                    Tracked::Packets => 14,
                };
                write(out, 1, &into.number());
                number(out, 2, key);
            }
            Self::Compare { register, is, value: data } => {
                write(out, 1, &register.number());
                number(out, 2, *is as u32);
                value(out, 3, data);
            }
            Self::Bits { register, mask, xor } => {
                write(out, 1, &register.number());
                write(out, 2, &register.number());
                number(out, 3, mask.len() as u32);
                value(out, 4, mask);
                value(out, 5, xor);
            }
            Self::Comparable { register, length } => {
                write(out, 1, &register.number());
                write(out, 2, &register.number());
                // To network order, as one number.
                number(out, 3, 1);
                number(out, 4, *length);
                number(out, 5, *length);
            }
            Self::Remember { set, key, timeout } => {
                string(out, 1, set);
                // Adds, and leaves one that is there as it is.
                number(out, 3, 0);
                write(out, 4, &key.number());
                write(out, 6, &timeout.to_be_bytes());
            }
            Self::Lookup { set, key, absent } => {
                string(out, 1, set);
                write(out, 2, &key.number());
                if *absent {
                    number(out, 5, 1);
                }
            }
            Self::VerdictFrom { map, key } => {
                string(out, 1, map);
                write(out, 2, &key.number());
                number(out, 3, 0);
            }
            Self::Verdict(verdict) => {
                number(out, 1, 0);
                nested(out, 2, |out| verdict.encode(out));
            }
            Self::Immediate { into, value: data } => {
                write(out, 1, &into.number());
                value(out, 2, data);
            }
            Self::DestinationKind { into } => {
                write(out, 1, &into.number());
                // The kind of an address, the destination's.
                number(out, 2, 3);
                number(out, 3, 2);
            }
            Self::SetMark { from } => {
                number(out, 2, 3);
                write(out, 3, &from.number());
            }
            Self::SetTrackedMark { from } => {
                number(out, 2, 3);
                write(out, 4, &from.number());
            }
            Self::TransparentProxy { ipv6, address, port } => {
                number(out, 1, if *ipv6 { 10 } else { 2 });
                write(out, 2, &address.number());
                write(out, 3, &port.number());
            }
            Self::Counter { packets, bytes } => {
                write(out, 1, &bytes.to_be_bytes());
                write(out, 2, &packets.to_be_bytes());
            }
            Self::Log { group, prefix, length } => {
                write(out, 1, &group.to_be_bytes());
                string(out, 2, prefix);
                number(out, 3, *length);
            }
            Self::Limit { per_second, burst } => {
                write(out, 1, &per_second.to_be_bytes());
                write(out, 2, &1u64.to_be_bytes());
                number(out, 3, *burst);
                number(out, 4, 0);
                number(out, 5, 0);
            }
            Self::Reject(Rejection::TcpReset) => {
                number(out, 1, 1);
                // Means nothing here, and is asked for.
                write(out, 2, &[0]);
            }
            Self::Reject(Rejection::Prohibited) => {
                number(out, 1, 2);
                write(out, 2, &[3]);
            }
            Self::Encoded { attributes, .. } => out.extend(attributes),
        }
    }
}

impl Verdict {
    /// Writes the attribute that an immediate value's or an element's data consists of.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (code, chain) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        nested(out, 2, |out| {
            write(out, 1, &i32::to_be_bytes(code));
            if let Some(chain) = chain {
                string(out, 2, chain);
            }
        });
    }
}

/// Writes a 32-bit number in network order.
pub(super) fn number(out: &mut Vec<u8>, kind: u16, number: u32) {
    write(out, kind, &number.to_be_bytes());
}

/// Writes a name with the zero that ends it.
pub(super) fn string(out: &mut Vec<u8>, kind: u16, string: &str) {
    let mut bytes = Vec::with_capacity(string.len() + 1);
    bytes.extend(string.as_bytes());
    bytes.push(0);
    write(out, kind, &bytes);
}

/// Writes the nested attribute that holds a plain value.
pub(super) fn value(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nested(out, kind, |out| write(out, 1, value));
}
