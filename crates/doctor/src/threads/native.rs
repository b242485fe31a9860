//! Native threads: `gdb -batch -ex 'thread apply all bt'`, `eu-stack`, and Fairlead's own
//! `/debug/stacks`. Names of Rust's functions are demangled and lose hashes and generics.

use memchr::memmem;

use super::dump::{Builder, State};
use super::name;

/// `Thread 22 (Thread 0x7f7cd75fa6c0 (LWP 22364) "worker"):`
pub(super) fn is_gdb_header(line: &[u8]) -> bool {
    line.starts_with(b"Thread ")
        && line.trim_ascii_end().ends_with(b":")
        && memmem::find(line, b"(LWP ").is_some()
}

/// `TID 22289:`
pub(super) fn is_eu_header(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"TID ") else {
        return false;
    };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && rest[digits..].trim_ascii_end() == b":"
}

/// `thread 12 "worker" state S wchan futex_wait`
pub(super) fn is_own_header(line: &[u8]) -> bool {
    line.starts_with(b"thread ")
        && memmem::find(line, b" state ").is_some()
        && memmem::find(line, b" wchan ").is_some()
}

pub(super) fn begin_gdb(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let lwp = text.split_once("(LWP ").map_or("", |(_, rest)| rest);
    let digits: String = lwp.chars().take_while(char::is_ascii_digit).collect();
    let name = lwp.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let id = digits.parse().unwrap_or(u64::from(number));
    builder.begin(name.map_or(digits.as_str(), |(name, _)| name), id, number)
}

pub(super) fn begin_eu(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let digits = text.trim_start_matches("TID ").trim().trim_end_matches(':');
    builder.begin(digits, digits.parse().unwrap_or(u64::from(number)), number)
}

pub(super) fn begin_own(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let rest = text.strip_prefix("thread ").unwrap_or("");
    let id = rest.split(' ').next().and_then(|id| id.parse().ok());
    let named = rest.split_once('"').and_then(|(_, rest)| rest.rsplit_once("\" state "));
    let (name, state) = named.unwrap_or(("", ""));
    let fresh = builder.begin(name, id.unwrap_or(u64::from(number)), number);
    if let Some(draft) = &mut builder.draft {
        draft.state = match state.chars().next() {
            Some('R') => State::Running,
            Some('S' | 'D') => State::Waiting,
            _ => State::Unknown,
        };
    }
    fresh
}

/// `#2  0x… in daemon::Store::get (self=0x559ff6716d60) at daemon.rs:47`, of gdb, or
/// `#2  0x0000561bdbd43074 daemon::Store::get::h5841768b99e1c524`, of eu-stack.
pub(super) fn frame_part(builder: &mut Builder, _number: u32, line: &[u8]) -> bool {
    if line.trim_ascii().is_empty() {
        return builder.draft.is_some();
    }
    let text = String::from_utf8_lossy(line);
    let Some(rest) = text.strip_prefix('#') else {
        // eu-stack breaks a frame with sources over two lines; the second is the place.
        return builder.draft.is_some() && text.starts_with("    ");
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 || builder.draft.is_none() {
        return false;
    }
    let mut call = rest[digits..].trim_start();
    if let Some(hex) = call.strip_prefix("0x") {
        let end = hex.len() - hex.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        call = hex[end..].trim_start();
        call = call.strip_prefix("in ").unwrap_or(call);
    }
    // eu-stack marks an unwound return address so.
    call = call.strip_prefix("- 1").map_or(call, str::trim_start);
    let (call, place) = match call.rsplit_once(" at ") {
        Some((call, place)) if !place.contains(' ') => (call, place),
        _ => (call, ""),
    };
    let (function, arguments) = match call.find(" (") {
        Some(at) => (&call[..at], &call[at + 2..]),
        None => (call, ""),
    };
    builder.frame(&name::demangled(function), place);
    let receiver = ["self=0x", "this=0x", "mutex=0x", "rwlock=0x"]
        .iter()
        .find_map(|word| arguments.split_once(word))
        .map(|(_, rest)| rest);
    if let Some(rest) = receiver {
        let end = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        if let Ok(value) = u64::from_str_radix(&rest[..end], 16) {
            builder.value(value);
        }
    }
    true
}

/// `    daemon::Store::get`, with the place after ` at ` where it is known.
pub(super) fn own_part(builder: &mut Builder, _number: u32, line: &[u8]) -> bool {
    if line.trim_ascii().is_empty() {
        return builder.draft.is_some();
    }
    if builder.draft.is_none() || !line.starts_with(b"    ") {
        return false;
    }
    let text = String::from_utf8_lossy(line);
    let (function, place) = text.trim().rsplit_once(" at ").unwrap_or((text.trim(), ""));
    if function != "did not answer" {
        builder.frame(&name::demangled(function), place);
    }
    true
}
