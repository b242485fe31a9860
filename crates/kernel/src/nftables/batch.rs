//! `Batch`: changes to one table that the kernel makes together or not at all.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use super::expression::{Expression, Verdict, number, string, value};
use super::{
    BATCH_BEGIN, BATCH_END, DELETE_CHAIN, DELETE_ELEMENT, DELETE_RULE, DELETE_SET, DELETE_TABLE,
    INET, NETDEV, NEW_CHAIN, NEW_ELEMENT, NEW_RULE, NEW_SET, NEW_TABLE, SUBSYSTEM,
};
use crate::conntrack::attributes::{message, nested, write};

/// An attribute's length has sixteen bits: a list of elements longer than this goes into several
/// messages.
const ELEMENTS: usize = 48 << 10;
/// `NLM_F_APPEND`: a rule goes behind those that are there.
const APPEND: u16 = libc::NLM_F_APPEND as u16;
/// A rule's comment in its user data: kind, length, text with a zero.
const COMMENT: u8 = 0;
/// The longest comment that `nft` takes itself.
const COMMENT_LENGTH: usize = 127;
/// The kind of our own user data: a digest of the rule. nft passes over it.
pub(super) const DIGEST: u8 = 0xf1;
pub(super) const TAG: u8 = 0xf2;

/// The table belongs to the socket that made it: nobody else changes or flushes it.
pub const TABLE_OWNER: u32 = 2;
/// An owned table stays when its owner is gone, and the next may take it. Linux 6.9.
pub const TABLE_PERSIST: u32 = 4;

/// Where in a packet's way a base chain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    /// As `Output`; a packet whose mark is changed there is routed again.
    OutputRoute,
}

impl Hook {
    /// The kernel's number of the hook, and its word for the kind of chain.
    fn of(self) -> (u32, &'static str) {
        match self {
            Self::OutputRoute => (Self::Output as u32, "route"),
            hook => (hook as u32, "filter"),
        }
    }
}

/// A chain. One with a hook is a base chain, whose packets are accepted unless a rule says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub hook: Option<(Hook, i32)>,
    /// Whether a base chain drops what no rule decides.
    pub drops: bool,
}

/// A rule with what is said of it in `nft list ruleset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Rule {
    pub expressions: Vec<Expression>,
    pub comment: String,
    /// Lets a reader of the kernel's rules tell whether this is the rule it would make; none is
    /// written for zero.
    pub digest: u64,
    /// What the rule is to its maker, who finds it in listings; none is written for zero.
    pub tag: u128,
}

/// A part of a set's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    Ipv4,
    Ipv6,
    /// The protocol above IP.
    Protocol,
    Port,
    Mark,
    /// The name of an interface, as [`Expression::interface_name`] has it.
    ///
    /// [`Expression::interface_name`]: super::Expression::interface_name
    Interface,
}

impl Field {
    /// nft's number of the type, and the length of a value.
    fn of(self) -> (u32, u32) {
        match self {
            Self::Ipv4 => (7, 4),
            Self::Ipv6 => (8, 16),
            Self::Protocol => (12, 1),
            Self::Port => (13, 2),
            Self::Mark => (19, 4),
            Self::Interface => (41, 16),
        }
    }
}

/// A set, or with `verdicts` a map from keys to verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    pub name: String,
    pub key: Vec<Field>,
    pub verdicts: bool,
    /// Elements may be ranges: dearer to look up, and much dearer to change.
    pub ranges: bool,
    /// Elements may end by themselves.
    pub timeouts: bool,
    /// Rules put elements into it ([`Expression::Remember`]), and it has no more than these.
    pub filled_by_rules: Option<u32>,
}

impl Set {
    pub fn hash(name: impl Into<String>, key: &[Field]) -> Self {
        let (verdicts, ranges, timeouts, filled_by_rules) = (false, false, false, None);
        Self { name: name.into(), key: key.to_vec(), verdicts, ranges, timeouts, filled_by_rules }
    }

    fn flags(&self) -> u32 {
        let mut flags = 0;
        for (set, bit) in [
            (self.ranges, 4),
            (self.verdicts, 8),
            (self.timeouts, 16),
            (self.filled_by_rules.is_some(), 32),
            // Only of sets with ranges it changes what the kernel makes.
            (self.key.len() > 1, 128),
        ] {
            flags |= if set { bit } else { 0 };
        }
        flags
    }

    /// The type of the key as nft writes it, and the key's length.
    fn key(&self) -> (u32, u32) {
        let fields = self.key.iter().map(|field| field.of());
        if let [field] = self.key[..] {
            return field.of();
        }
        fields.fold((0, 0), |(kind, length), (field, bytes)| {
            (kind << 6 | field, length + bytes.next_multiple_of(4))
        })
    }
}

/// An element. The parts of a key follow each other, each filled up to a multiple of four.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    pub key: Vec<u8>,
    /// The last key of a range, which belongs to it.
    pub last: Option<Vec<u8>>,
    pub verdict: Option<Verdict>,
    /// Milliseconds until it ends by itself.
    pub timeout: Option<u64>,
}

impl Element {
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), last: None, verdict: None, timeout: None }
    }

    pub fn with(key: impl Into<Vec<u8>>, verdict: Verdict) -> Self {
        Self { verdict: Some(verdict), ..Self::new(key) }
    }

    pub fn range(first: impl Into<Vec<u8>>, last: impl Into<Vec<u8>>) -> Self {
        Self { last: Some(last.into()), ..Self::new(first) }
    }

    fn encode(&self, out: &mut Vec<u8>, single_field: bool) {
        match &self.last {
            // A range of one field is its first key, and the first behind it with a flag.
            Some(last) if single_field => {
                self.encode_key(out, |_| {});
                if let Some(behind) = following(last) {
                    nested(out, 1, |out| {
                        value(out, 1, &behind);
                        number(out, 3, 1);
                    });
                }
            }
            Some(last) => self.encode_key(out, |out| value(out, 10, last)),
            None => self.encode_key(out, |_| {}),
        }
    }

    fn encode_key(&self, out: &mut Vec<u8>, last: impl FnOnce(&mut Vec<u8>)) {
        nested(out, 1, |out| {
            value(out, 1, &self.key);
            last(out);
            if let Some(verdict) = &self.verdict {
                nested(out, 2, |out| verdict.encode(out));
            }
            if let Some(timeout) = self.timeout {
                write(out, 4, &timeout.to_be_bytes());
            }
        });
    }
}

/// Returns the key behind this one, unless it is the last there is.
pub(super) fn following(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        let (more, carried) = byte.overflowing_add(1);
        *byte = more;
        if !carried {
            return Some(next);
        }
    }
    None
}

/// Changes to one table of both IP families, in the order in which they are made.
#[derive(Clone, Debug)]
pub struct Batch {
    table: String,
    family: [u8; 4],
    pub(super) bytes: Vec<u8>,
    /// How many messages there are; the last one's sequence number is the first's plus this less one.
    pub(super) count: u32,
    /// Where the last message begins.
    last: usize,
}

impl Batch {
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into(), family: INET, bytes: Vec::new(), count: 0, last: 0 }
    }

    /// Changes the table of that name among those of single links: [`Batch::add_link_chain`]. They are made
    /// together with those of both IP families before them.
    pub fn of_links(&mut self) {
        self.family = NETDEV;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes the kernel is sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn add(&mut self, kind: u16, flags: u16, inside: impl FnOnce(&mut Vec<u8>, &str)) {
        self.last = self.bytes.len();
        self.count += 1;
        let (table, flags) = (&self.table, NLM_F_REQUEST | flags);
        message(&mut self.bytes, kind, flags, self.count, self.family, |out| inside(out, table));
    }

    /// Makes the table, or leaves the one that is there.
    pub fn add_table(&mut self, flags: u32) {
        self.add(NEW_TABLE, NLM_F_CREATE, |out, table| {
            string(out, 1, table);
            number(out, 2, flags);
        });
    }

    pub fn delete_table(&mut self) {
        self.add(DELETE_TABLE, 0, |out, table| string(out, 1, table));
    }

    /// Makes a chain, or leaves the one that is there; a base chain of that name has to be the same.
    pub fn add_chain(&mut self, chain: &Chain) {
        self.add(NEW_CHAIN, NLM_F_CREATE, |out, table| {
            string(out, 1, table);
            string(out, 3, &chain.name);
            if let Some((hook, priority)) = chain.hook {
                let (hook, kind) = hook.of();
                nested(out, 4, |out| {
                    number(out, 1, hook);
                    write(out, 2, &priority.to_be_bytes());
                });
                number(out, 5, u32::from(!chain.drops));
                string(out, 7, kind);
            }
        });
    }

    /// Makes a base chain of the packets that a link sends, in a table of links.
    pub fn add_link_chain(&mut self, name: &str, link: &str) {
        self.add(NEW_CHAIN, NLM_F_CREATE, |out, table| {
            string(out, 1, table);
            string(out, 3, name);
            nested(out, 4, |out| {
                // `NF_NETDEV_EGRESS`.
                number(out, 1, 1);
                number(out, 2, 0);
                string(out, 3, link);
            });
            string(out, 7, "filter");
        });
    }

    /// Removes a chain without rules that nothing refers to.
    pub fn delete_chain(&mut self, name: &str) {
        self.add(DELETE_CHAIN, 0, |out, table| {
            string(out, 1, table);
            string(out, 3, name);
        });
    }

    /// Adds a rule behind those of its chain.
    pub fn add_rule(&mut self, chain: &str, rule: &Rule) {
        self.add(NEW_RULE, NLM_F_CREATE | APPEND, |out, table| {
            string(out, 1, table);
            string(out, 2, chain);
            nested(out, 4, |out| {
                for expression in &rule.expressions {
                    expression.encode(out);
                }
            });
            let notes = notes(rule);
            if !notes.is_empty() {
                write(out, 7, &notes);
            }
        });
    }

    /// Removes all rules of a chain.
    pub fn delete_rules(&mut self, chain: &str) {
        self.add(DELETE_RULE, 0, |out, table| {
            string(out, 1, table);
            string(out, 2, chain);
        });
    }

    /// Makes a set; one of that name has to be the same.
    pub fn add_set(&mut self, set: &Set) {
        let id = self.count + 1;
        self.add(NEW_SET, NLM_F_CREATE, |out, table| {
            let (kind, length) = set.key();
            string(out, 1, table);
            string(out, 2, &set.name);
            number(out, 3, set.flags());
            number(out, 4, kind);
            number(out, 5, length);
            if set.verdicts {
                number(out, 6, 0xffff_ff00);
                number(out, 7, 0);
            }
            number(out, 10, id);
            if set.key.len() > 1 || set.filled_by_rules.is_some() {
                nested(out, 9, |out| {
                    if let Some(most) = set.filled_by_rules {
                        number(out, 1, most);
                    }
                    if set.key.len() > 1 {
                        nested(out, 2, |out| {
                            for field in &set.key {
                                nested(out, 1, |out| number(out, 1, field.of().1));
                            }
                        });
                    }
                });
            }
        });
    }

    /// Removes a set that no rule refers to.
    pub fn delete_set(&mut self, name: &str) {
        self.add(DELETE_SET, 0, |out, table| {
            string(out, 1, table);
            string(out, 2, name);
        });
    }

    /// Adds elements; one that is there is left, and with another verdict is refused.
    pub fn add_elements<'a>(&mut self, set: &Set, elements: impl IntoIterator<Item = &'a Element>) {
        self.elements(NEW_ELEMENT, NLM_F_CREATE, set, elements);
    }

    /// Adds elements and fails if one is there.
    pub fn add_new_elements<'a>(
        &mut self,
        set: &Set,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.elements(NEW_ELEMENT, NLM_F_CREATE | NLM_F_EXCL, set, elements);
    }

    /// Removes elements, all of which have to be there.
    pub fn delete_elements<'a>(
        &mut self,
        set: &Set,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.elements(DELETE_ELEMENT, 0, set, elements);
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, name: &str) {
        self.add(DELETE_ELEMENT, 0, |out, table| {
            string(out, 1, table);
            string(out, 2, name);
        });
    }

    fn elements<'a>(
        &mut self,
        kind: u16,
        flags: u16,
        set: &Set,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        let mut elements = elements.into_iter().peekable();
        while elements.peek().is_some() {
            self.add(kind, flags, |out, table| {
                string(out, 1, table);
                string(out, 2, &set.name);
                nested(out, 3, |out| {
                    let start = out.len();
                    while out.len() - start < ELEMENTS {
                        let Some(element) = elements.next() else { break };
                        element.encode(out, set.key.len() == 1);
                    }
                });
            });
        }
    }

    /// Everything that is sent: the changes between a beginning and an end. The beginning's sequence
    /// number is `first`. The kernel refuses all of it unless its generation is `generation`.
    pub(super) fn finish(&self, first: u32, generation: Option<u32>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 64);
        let whose = [0, 0, 0, SUBSYSTEM];
        message(&mut out, BATCH_BEGIN, NLM_F_REQUEST, first, whose, |out| {
            if let Some(generation) = generation {
                number(out, 1, generation);
            }
        });
        let start = out.len();
        out.extend(&self.bytes);
        // The last change asks for an acknowledgement; the others are heard of if they are refused.
        let flags = start + self.last + 6;
        let acknowledged = u16::from_ne_bytes([out[flags], out[flags + 1]]) | NLM_F_ACK;
        out[flags..flags + 2].copy_from_slice(&acknowledged.to_ne_bytes());
        let mut at = start;
        for offset in 1..=self.count {
            let length = out[at..].first_chunk().map_or(0, |length| u32::from_ne_bytes(*length));
            out[at + 8..at + 12].copy_from_slice(&first.wrapping_add(offset).to_ne_bytes());
            at += length as usize;
        }
        message(
            &mut out,
            BATCH_END,
            NLM_F_REQUEST,
            first.wrapping_add(self.count + 1),
            whose,
            |_| {},
        );
        out
    }
}

/// A rule's user data.
fn notes(rule: &Rule) -> Vec<u8> {
    let mut notes = Vec::new();
    if !rule.comment.is_empty() {
        let mut length = rule.comment.len().min(COMMENT_LENGTH);
        while !rule.comment.is_char_boundary(length) {
            length -= 1;
        }
        notes.extend([COMMENT, length as u8 + 1]);
        notes.extend(&rule.comment.as_bytes()[..length]);
        notes.push(0);
    }
    if rule.digest != 0 {
        notes.extend([DIGEST, 8]);
        notes.extend(rule.digest.to_be_bytes());
    }
    if rule.tag != 0 {
        notes.extend([TAG, 16]);
        notes.extend(rule.tag.to_be_bytes());
    }
    notes
}
