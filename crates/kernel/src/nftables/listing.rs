//! Decodes what the kernel lists. Decoding is total: bytes that are no answer give none.

use super::batch::{DIGEST, TAG, following};
use super::expression::Verdict;
use super::{
    DELETE_CHAIN, DELETE_ELEMENT, DELETE_RULE, DELETE_SET, DELETE_TABLE, Element, NEW_CHAIN,
    NEW_ELEMENT, NEW_RULE, NEW_SET, NEW_TABLE, Set,
};
use crate::conntrack::attributes::{number, read};

/// `struct nfgenmsg`.
const NETFILTER_HEADER: usize = 4;
/// The flag of the element that ends a range, and does not belong to it.
const RANGE_END: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedTable {
    pub name: String,
    pub flags: u32,
    /// The socket that owns it, if it is open.
    pub owner: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedChain {
    pub table: String,
    pub name: String,
    /// Whether packets come to it by themselves: a base chain.
    pub hooked: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRule {
    pub table: String,
    pub chain: String,
    pub handle: u64,
    pub comment: String,
    /// What its maker gave it; zero without.
    pub digest: u64,
    /// What its maker gave it; zero without.
    pub tag: u128,
    /// The first counter of the rule.
    pub counted: Option<Counted>,
}

/// How much a counter has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedSet {
    pub table: String,
    pub name: String,
    pub flags: u32,
    pub key_length: u32,
}

/// One entry of the kernel's list of elements: a range of one field has two.
#[derive(Debug)]
pub(super) struct Part {
    element: Element,
    ends_range: bool,
}

fn attributes(payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    read(payload.get(NETFILTER_HEADER..).unwrap_or_default())
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn short(value: &[u8]) -> Option<u32> {
    number(value).map(u32::from_be_bytes)
}

fn long(value: &[u8]) -> Option<u64> {
    number(value).map(u64::from_be_bytes)
}

/// The plain value in an attribute that holds one.
fn plain(value: &[u8]) -> Option<Vec<u8>> {
    read(value).find(|(kind, _)| *kind == 1).map(|(_, value)| value.to_vec())
}

pub(super) fn generation(payload: &[u8]) -> Option<u32> {
    attributes(payload).find(|(kind, _)| *kind == 1).and_then(|(_, value)| short(value))
}

/// The table that an event is about.
pub(super) fn table_of(payload: &[u8]) -> Option<String> {
    attributes(payload).find(|(kind, _)| *kind == 1).map(|(_, value)| text(value))
}

pub(super) fn table(payload: &[u8]) -> Option<ListedTable> {
    let mut table = ListedTable::default();
    for (kind, value) in attributes(payload) {
        match kind {
            1 => table.name = text(value),
            2 => table.flags = short(value)?,
            7 => table.owner = Some(short(value)?),
            _ => {}
        }
    }
    // Of both IP families: the kernel lists those of all.
    (payload.first() == Some(&1)).then_some(table)
}

pub(super) fn chain(payload: &[u8]) -> Option<ListedChain> {
    let mut chain = ListedChain::default();
    for (kind, value) in attributes(payload) {
        match kind {
            1 => chain.table = text(value),
            3 => chain.name = text(value),
            4 => chain.hooked = true,
            _ => {}
        }
    }
    (!chain.name.is_empty()).then_some(chain)
}

pub(super) fn rule(payload: &[u8]) -> Option<ListedRule> {
    let mut rule = ListedRule::default();
    for (kind, value) in attributes(payload) {
        match kind {
            1 => rule.table = text(value),
            2 => rule.chain = text(value),
            3 => rule.handle = long(value)?,
            4 => rule.counted = read(value).find_map(|(_, expression)| counter(expression)),
            7 => notes(value, &mut rule),
            _ => {}
        }
    }
    (!rule.chain.is_empty()).then_some(rule)
}

fn counter(expression: &[u8]) -> Option<Counted> {
    let name = read(expression).find(|(kind, _)| *kind == 1)?.1;
    if text(name) != "counter" {
        return None;
    }
    let mut counted = Counted::default();
    for (kind, value) in read(read(expression).find(|(kind, _)| *kind == 2)?.1) {
        match kind {
            1 => counted.bytes = long(value)?,
            2 => counted.packets = long(value)?,
            _ => {}
        }
    }
    Some(counted)
}

/// Reads a rule's user data: kinds and lengths of one byte each.
fn notes(bytes: &[u8], rule: &mut ListedRule) {
    let mut rest = bytes;
    while let [kind, length, behind @ ..] = rest {
        let Some((value, next)) = behind.split_at_checked(usize::from(*length)) else { return };
        match *kind {
            0 => rule.comment = text(value),
            DIGEST => rule.digest = long(value).unwrap_or_default(),
            TAG => rule.tag = number(value).map_or(0, u128::from_be_bytes),
            _ => {}
        }
        rest = next;
    }
}

pub(super) fn set(payload: &[u8]) -> Option<ListedSet> {
    let mut set = ListedSet::default();
    for (kind, value) in attributes(payload) {
        match kind {
            1 => set.table = text(value),
            2 => set.name = text(value),
            3 => set.flags = short(value)?,
            5 => set.key_length = short(value)?,
            _ => {}
        }
    }
    (!set.name.is_empty()).then_some(set)
}

pub(super) fn elements(payload: &[u8]) -> Vec<Part> {
    let list = attributes(payload).find(|(kind, _)| *kind == 3).map(|(_, value)| value);
    read(list.unwrap_or_default()).filter_map(|(_, value)| part(value)).collect()
}

fn part(bytes: &[u8]) -> Option<Part> {
    let mut key = None;
    let mut element = Element::new(Vec::new());
    let mut flags = 0;
    for (kind, value) in read(bytes) {
        match kind {
            1 => key = plain(value),
            2 => element.verdict = read(value).find(|(kind, _)| *kind == 2).and_then(verdict),
            3 => flags = short(value)?,
            4 => element.timeout = long(value),
            10 => element.last = plain(value),
            _ => {}
        }
    }
    element.key = key?;
    Some(Part { element, ends_range: flags & RANGE_END != 0 })
}

fn verdict((_, bytes): (u16, &[u8])) -> Option<Verdict> {
    let (mut code, mut chain) = (None, None);
    for (kind, value) in read(bytes) {
        match kind {
            1 => code = number(value).map(i32::from_be_bytes),
            2 => chain = Some(text(value)),
            _ => {}
        }
    }
    Some(match code? {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -3 => Verdict::Jump(chain?),
        -4 => Verdict::Goto(chain?),
        -5 => Verdict::Return,
        _ => return None,
    })
}

/// Puts the two parts of each range of one field together, and all in order.
pub(super) fn joined(parts: Vec<Part>, set: &Set) -> Vec<Element> {
    if !set.ranges || set.key.len() > 1 {
        let mut elements: Vec<_> = parts.into_iter().map(|part| part.element).collect();
        elements.sort_unstable();
        elements.dedup();
        return elements;
    }
    let mut parts = parts;
    // Where one range ends another may begin.
    parts.sort_unstable_by(|a, b| {
        (&a.element.key, !a.ends_range).cmp(&(&b.element.key, !b.ends_range))
    });
    let mut joined: Vec<Element> = Vec::new();
    for Part { element, ends_range } in parts {
        match joined.last_mut().filter(|range| range.last.is_none()) {
            Some(range) if ends_range => range.last = preceding(&element.key),
            _ if ends_range => {}
            _ => joined.push(element),
        }
    }
    for range in joined.iter_mut().filter(|range| range.last.is_none()) {
        range.last = Some(vec![0xff; range.key.len()]);
    }
    joined
}

fn preceding(key: &[u8]) -> Option<Vec<u8>> {
    let inverted = |key: &[u8]| key.iter().map(|byte| !byte).collect::<Vec<u8>>();
    following(&inverted(key)).map(|key| inverted(&key))
}

/// A change in words that follow "refused to".
pub(super) fn describe(kind: u16, payload: &[u8]) -> String {
    let named = |at: u16| {
        let found = attributes(payload).find(|(kind, _)| *kind == at);
        found.map(|(_, value)| text(value)).unwrap_or_default()
    };
    let (verb, noun, at) = match kind {
        NEW_TABLE => ("add", "table", 1),
        DELETE_TABLE => ("delete", "table", 1),
        NEW_CHAIN => ("add", "chain", 3),
        DELETE_CHAIN => ("delete", "chain", 3),
        NEW_RULE => ("add", "a rule of chain", 2),
        DELETE_RULE => ("delete", "rules of chain", 2),
        NEW_SET => ("add", "set", 2),
        DELETE_SET => ("delete", "set", 2),
        NEW_ELEMENT => ("add", "elements of set", 2),
        DELETE_ELEMENT => ("delete", "elements of set", 2),
        _ => return format!("take message {kind:#x}"),
    };
    format!("{verb} {noun} {}", named(at))
}
