//! Goroutine profiles in every form people have, read into one [`Dump`].
//!
//! [`parse`] takes an input as it is: a protobuf, a text of one form, or prose, logs and several
//! excerpts in one file. It is total: what it does not understand it skips, and a dump says itself
//! whether it can be the whole truth ([`Dump::gaps`]).

mod counted;
mod dump;
mod lines;
mod name;
mod protobuf;
mod stacks;
mod tables;

pub use dump::{Dump, Form, Frame, Goroutine, ProfileKind, Receiver, Row, RuntimeCall, Stack};
pub use name::Name;

/// Everything in `bytes` that is a goroutine, mutex or block profile, in order of appearance.
///
/// `input` is the name that evidence will carry.
pub fn parse(input: &str, bytes: &[u8]) -> Vec<Dump> {
    if let Some(dump) = parse_protobuf(input, bytes) {
        return vec![dump];
    }
    let mut dumps = Vec::new();
    dumps.extend(parse_stacks(input, bytes));
    dumps.extend(parse_counted(input, bytes));
    dumps.extend(parse_tables(input, bytes));
    dumps.sort_by_key(|d| d.first_line);
    dumps
}

/// Whether a line of text, after whatever prefix its log gives it, can begin a profile. For those
/// who stream a log and cut profiles out of it.
pub fn begins(line: &[u8]) -> bool {
    stacks::header(line).is_some()
        || counted::is_header(line)
        || tables::is_table_header(line)
        || tables::is_rule(line)
}

/// pprof protobuf, gzipped or not. `None`: it is something else.
pub fn parse_protobuf(input: &str, bytes: &[u8]) -> Option<Dump> {
    protobuf::parse(input, bytes)
}

/// `debug=2` text: also from a log with prefixes, and in reversed line order.
pub fn parse_stacks(input: &str, bytes: &[u8]) -> Vec<Dump> {
    stacks::parse(input, bytes)
}

/// `debug=1` text of goroutine, goroutineleak, mutex and block profiles.
pub fn parse_counted(input: &str, bytes: &[u8]) -> Vec<Dump> {
    counted::parse(input, bytes)
}

/// What `go tool pprof` prints: `-traces`, and `-text` or `-top`; also from a transcript.
pub fn parse_tables(input: &str, bytes: &[u8]) -> Vec<Dump> {
    tables::parse(input, bytes)
}

#[cfg(test)]
mod tests;
