//! pprof's protobuf, gzipped or not: as much of `profile.proto` as a stack needs.

use std::io::Read;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::dump::{Builder, Draft, Dump, Form, Frame, ProfileKind};

/// A profile of a million distinct stacks is smaller; what unpacks to more is not a profile.
const MAX_UNPACKED: u64 = 512 << 20;

pub(super) fn parse(input: &str, bytes: &[u8]) -> Option<Dump> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        // What could be unpacked before an error is tried: a copy that was cut off still helps.
        let cut = flate2::read::MultiGzDecoder::new(bytes)
            .take(MAX_UNPACKED)
            .read_to_end(&mut unpacked)
            .is_err();
        let mut dump = read(input, &unpacked)?;
        if cut {
            dump.gaps
                .push("the gzip stream is cut off or damaged".to_owned());
        }
        return Some(dump);
    }
    read(input, bytes)
}

fn read(input: &str, bytes: &[u8]) -> Option<Dump> {
    // A profile begins with its sample type or its period type.
    if !matches!(bytes.first(), Some(0x0a | 0x5a)) {
        return None;
    }
    let mut profile = Profile::default();
    let mut fields = Fields(bytes);
    let mut damaged = false;
    while !fields.0.is_empty() {
        match fields.next() {
            Some((field, value)) => profile.take(field, value),
            None => {
                damaged = true;
                break;
            }
        }
    }
    let kind = profile.kind()?;
    let value_index = profile.sample_types.iter().position(|&(name, unit)| {
        matches!(
            profile.string(name),
            b"goroutine" | b"goroutineleak" | b"contentions"
        ) || profile.string(unit) == b"count"
    })?;

    let mut builder = Builder::new(input, Form::Protobuf, kind, 0);
    let functions: FxHashMap<u64, (u32, &[u8])> = profile
        .functions
        .iter()
        .map(|&(id, name, file)| {
            (
                id,
                (builder.function(profile.string(name)), profile.string(file)),
            )
        })
        .collect();
    let mut position = Vec::new();
    let mut frames_of = FxHashMap::default();
    for &(id, lines) in &profile.locations {
        let mut frames = Vec::new();
        // Lines of one location are inlined calls, innermost first, as in a stack.
        for (field, value) in Fields(lines) {
            let (4, Value::Bytes(line)) = (field, value) else {
                continue;
            };
            let (mut function, mut number) = (0, 0);
            for (field, value) in Fields(line) {
                match (field, value) {
                    (1, Value::Int(id)) => function = id,
                    (2, Value::Int(n)) => number = n,
                    _ => {}
                }
            }
            let Some(&(function, file)) = functions.get(&function) else {
                continue;
            };
            position.clear();
            position.extend_from_slice(file);
            position.extend_from_slice(format!(":{number}").as_bytes());
            frames.push(Frame {
                function,
                source: builder.source(&position),
            });
        }
        frames_of.insert(id, frames);
    }

    let mut draft = Draft::default();
    let mut unnamed = 0u64;
    let (mut locations, mut values) = (Vec::new(), Vec::new());
    for sample in &profile.samples {
        draft.clear();
        locations.clear();
        values.clear();
        for (field, value) in Fields(sample) {
            match (field, value) {
                (1, value) => value.integers(&mut locations),
                (2, value) => value.integers(&mut values),
                _ => {}
            }
        }
        draft.count = values.get(value_index).copied().unwrap_or(0);
        for location in &locations {
            match frames_of.get(location) {
                Some(frames) if !frames.is_empty() => draft.frames.extend_from_slice(frames),
                _ => unnamed += 1,
            }
        }
        if draft.count == 0 || draft.frames.is_empty() {
            continue;
        }
        draft.leaked = kind == ProfileKind::GoroutineLeak;
        draft.parked = Some(
            draft
                .frames
                .iter()
                .any(|f| builder.dump().function(f.function) == "runtime.gopark"),
        );
        let known = builder.dump().stacks.len();
        let stack = builder.fold(&draft) as usize;
        if stack == known {
            builder.dump().stacks[stack].labels = profile.labels(sample);
        }
    }

    let mut dump = builder.finish();
    if dump.stacks.is_empty() && !profile.samples.is_empty() {
        dump.gaps.push(
            "the profile has addresses without names: run `go tool pprof -traces BINARY PROFILE`"
                .to_owned(),
        );
    } else if unnamed > 0 {
        dump.gaps.push(format!("{unnamed} frames have no name"));
    }
    if damaged {
        dump.gaps
            .push("the protobuf is cut off or damaged".to_owned());
    }
    dump.taken = (profile.time_nanos != 0)
        .then(|| Timestamp::from_nanosecond(i128::from(profile.time_nanos)).ok())
        .flatten();
    dump.build_id = profile
        .build_id
        .map(|id| String::from_utf8_lossy(profile.string(id)).into());
    Some(dump)
}

#[derive(Debug, Default)]
struct Profile<'a> {
    sample_types: Vec<(u64, u64)>,
    samples: Vec<&'a [u8]>,
    locations: Vec<(u64, &'a [u8])>,
    functions: Vec<(u64, u64, u64)>,
    strings: Vec<&'a [u8]>,
    time_nanos: u64,
    build_id: Option<u64>,
}

impl<'a> Profile<'a> {
    fn take(&mut self, field: u64, value: Value<'a>) {
        match (field, value) {
            (1, Value::Bytes(message)) => {
                let of = |n| integer(message, n);
                self.sample_types.push((of(1), of(2)));
            }
            (2, Value::Bytes(message)) => self.samples.push(message),
            (3, Value::Bytes(message)) if self.build_id.is_none() => {
                self.build_id = Some(integer(message, 6)).filter(|&id| id != 0);
            }
            (4, Value::Bytes(message)) => self.locations.push((integer(message, 1), message)),
            (5, Value::Bytes(message)) => {
                let of = |n| integer(message, n);
                self.functions.push((of(1), of(2), of(4)));
            }
            (6, Value::Bytes(text)) => self.strings.push(text),
            (9, Value::Int(nanos)) => self.time_nanos = nanos,
            _ => {}
        }
    }

    fn string(&self, index: u64) -> &'a [u8] {
        usize::try_from(index)
            .ok()
            .and_then(|i| self.strings.get(i))
            .copied()
            .unwrap_or(b"")
    }

    fn kind(&self) -> Option<ProfileKind> {
        let names = || self.sample_types.iter().map(|&(name, _)| self.string(name));
        if names().any(|n| n == b"goroutine") {
            Some(ProfileKind::Goroutine)
        } else if names().any(|n| n == b"goroutineleak") {
            Some(ProfileKind::GoroutineLeak)
        } else if names().any(|n| n == b"contentions") {
            // Both have the same types; only a mutex profile is taken where locks are released.
            let unlocks = self.strings.iter().any(|s| {
                s.ends_with(b").Unlock") || s.ends_with(b").RUnlock") || *s == b"runtime.unlock"
            });
            Some(if unlocks {
                ProfileKind::Mutex
            } else {
                ProfileKind::Block
            })
        } else {
            None
        }
    }

    fn labels(&self, sample: &[u8]) -> Option<String> {
        let text = |message, field| String::from_utf8_lossy(self.string(integer(message, field)));
        let labels: Vec<String> = Fields(sample)
            .filter_map(|(field, value)| match value {
                Value::Bytes(label) if field == 3 => {
                    Some(format!("{}={}", text(label, 1), text(label, 2)))
                }
                _ => None,
            })
            .collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }
}

/// The last value of an integer field; zero where there is none, as protobuf has it.
fn integer(message: &[u8], wanted: u64) -> u64 {
    Fields(message)
        .filter_map(|(field, value)| match value {
            Value::Int(n) if field == wanted => Some(n),
            _ => None,
        })
        .last()
        .unwrap_or(0)
}

/// The fields of a message. Ends at the first that is not well-formed.
#[derive(Debug, Clone)]
struct Fields<'a>(&'a [u8]);

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// A repeated integer, packed or not.
    fn integers(self, into: &mut Vec<u64>) {
        match self {
            Self::Int(n) => into.push(n),
            Self::Bytes(packed) => {
                let mut fields = Fields(packed);
                while let Some(n) = fields.varint() {
                    into.push(n);
                }
            }
        }
    }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Int(self.varint()?),
            1 => self.bytes(8).map(Value::Bytes)?,
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.bytes(len)?)
            }
            5 => self.bytes(4).map(Value::Bytes)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}
