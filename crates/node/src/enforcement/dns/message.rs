//! Reads DNS messages as far as rules by domain name need them: the question, and the addresses that the
//! name resolves to.
//!
//! Contract: total and bounded. Any bytes are a message or none; a name's pointers only go backwards, and are
//! [`MOST_POINTERS`] at most, so that reading ends soon; names have 255 bytes and answers [`MOST_RECORDS`] at
//! most.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most records of an answer that are looked at.
const MOST_RECORDS: usize = 512;
/// How far aliases are followed.
const MOST_ALIASES: usize = 16;
const LONGEST_NAME: usize = 255;
/// Of one name: as many as it can have labels. Pointers to pointers would make each record of an answer as dear
/// to read as the whole message.
const MOST_POINTERS: usize = 127;
const HEADER: usize = 12;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) id: u16,
    /// Lowercase, without a dot at the end.
    pub(super) name: String,
    kind: u16,
    class: u16,
}

/// The answer to a question: what its name resolves to, with seconds to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) question: Question,
    pub(super) addresses: Vec<(IpAddr, u32)>,
}

struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let found = *self.whole.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(found)
    }

    fn short(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    /// Reads a name and stands behind it.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut at = self.at;
        // Where the part of the name that is being read begins: pointers go before it.
        let mut begin = at;
        let mut behind = None;
        let mut pointers = 0;
        loop {
            let length = usize::from(*self.whole.get(at)?);
            match length >> 6 {
                0 if length == 0 => {
                    self.at = behind.unwrap_or(at + 1);
                    return Some(name);
                }
                0 => {
                    let label = self.whole.get(at + 1..at + 1 + length)?;
                    // A dot within a label would make two names one.
                    if !label.is_ascii() || label.contains(&b'.') {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                    if name.len() > LONGEST_NAME {
                        return None;
                    }
                    at += 1 + length;
                }
                3 => {
                    let low = usize::from(*self.whole.get(at + 1)?);
                    let to = (length & 0x3f) << 8 | low;
                    pointers += 1;
                    if to >= begin || pointers > MOST_POINTERS {
                        return None;
                    }
                    behind.get_or_insert(at + 2);
                    (at, begin) = (to, to);
                }
                _ => return None,
            }
        }
    }
}

/// Reads the header and the one question; says as well how many answers there are, and the flags.
fn head<'a>(bytes: &'a [u8]) -> Option<(Question, u16, u16, Reader<'a>)> {
    let mut reader = Reader { whole: bytes, at: 0 };
    let id = reader.short()?;
    let (flags, questions, answers) = (reader.short()?, reader.short()?, reader.short()?);
    reader.at = HEADER;
    if questions != 1 {
        return None;
    }
    let name = reader.name()?;
    let (kind, class) = (reader.short()?, reader.short()?);
    Some((Question { id, name, kind, class }, flags, answers, reader))
}

/// Reads a query.
pub(super) fn question(bytes: &[u8]) -> Option<Question> {
    let (question, flags, ..) = head(bytes)?;
    (flags & 0x8000 == 0).then_some(question)
}

/// Reads an answer. One that says no has no addresses.
pub(super) fn answer(bytes: &[u8]) -> Option<Answer> {
    let (question, flags, count, mut reader) = head(bytes)?;
    if flags & 0x8000 == 0 {
        return None;
    }
    let mut aliases: BTreeMap<String, (String, u32)> = BTreeMap::new();
    let mut found: Vec<(String, IpAddr, u32)> = Vec::new();
    for _ in 0..usize::from(count).min(MOST_RECORDS) {
        let owner = reader.name()?;
        let (kind, class) = (reader.short()?, reader.short()?);
        let lives = u32::from_be_bytes(reader.bytes()?);
        let length = usize::from(reader.short()?);
        let data = reader.at;
        match (class, kind, length) {
            (INTERNET, A, 4) => {
                let address = Ipv4Addr::from(reader.bytes::<4>()?);
                found.push((owner, address.into(), lives));
            }
            (INTERNET, AAAA, 16) => {
                let address = Ipv6Addr::from(reader.bytes::<16>()?);
                found.push((owner, IpAddr::from(address).to_canonical(), lives));
            }
            (INTERNET, CNAME, _) => {
                let alias = reader.name()?;
                aliases.insert(owner, (alias, lives));
            }
            _ => {}
        }
        reader.at = data + length;
        reader.whole.get(..reader.at)?;
    }
    let refused = flags & 0xf != 0;
    let mut addresses = Vec::new();
    let (mut name, mut shortest) = (question.name.clone(), u32::MAX);
    for _ in 0..MOST_ALIASES {
        for (_, address, lives) in found.iter().filter(|(owner, ..)| *owner == name && !refused) {
            addresses.push((*address, shortest.min(*lives)));
        }
        let Some((alias, lives)) = aliases.remove(&name) else { break };
        (name, shortest) = (alias, shortest.min(lives));
    }
    Some(Answer { question, addresses })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
