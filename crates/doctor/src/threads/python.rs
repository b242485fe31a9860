//! Python: what `py-spy dump` prints (also with `--locals` and `--native`) and what faulthandler
//! writes.

use super::dump::{Builder, State};

/// `Thread 9178 (idle): "MainThread"`, `Thread 0x7F35DC (active+gil)`, `Thread 9178/0x7F (idle): …`
pub(super) fn is_spy_header(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"Thread ") else {
        return false;
    };
    let id =
        rest.iter().take_while(|b| b.is_ascii_hexdigit() || **b == b'x' || **b == b'/').count();
    let rest = &rest[id..];
    id > 0 && [&b" (idle)"[..], b" (active"].iter().any(|state| rest.starts_with(state))
}

/// `Thread 0x00007f3598ff96c0 (most recent call first):`, `Current thread 0x… [name] (most …`
pub(super) fn is_fault_header(line: &[u8]) -> bool {
    (line.starts_with(b"Thread 0x") || line.starts_with(b"Current thread 0x"))
        && line.trim_ascii_end().ends_with(b"(most recent call first):")
}

pub(super) fn begin_spy(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let rest = text.strip_prefix("Thread ").unwrap_or("");
    let id = rest.split([' ', '/']).next().unwrap_or("");
    let id = match id.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => id.parse().ok(),
    };
    let name = rest.split_once(": \"").map_or("", |(_, name)| name.trim_end_matches('"'));
    let name = if name.is_empty() { rest.split(' ').next().unwrap_or("") } else { name };
    let fresh = builder.begin(name, id.unwrap_or(u64::from(number)), number);
    if let Some(draft) = &mut builder.draft {
        // Only the holder of the interpreter's lock surely runs: `active` alone may be a guess.
        draft.state = match () {
            () if rest.contains(" (active+gil)") => State::Running,
            () if rest.contains(" (active") => State::Unknown,
            () => State::Waiting,
        };
    }
    fresh
}

/// `    Store.get (daemon.py:45)`, and with `--locals` what the frame was called with.
pub(super) fn spy_part(builder: &mut Builder, _number: u32, line: &[u8]) -> bool {
    if builder.draft.is_none() {
        return false;
    }
    let text = String::from_utf8_lossy(line);
    let indent = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return true;
    }
    if indent >= 8 {
        // `self: <Store at 0x7f35dbf67910>`; threads are not what a lock guards.
        if let Some(value) = trimmed.strip_prefix("self: <")
            && let Some((type_name, address)) = value.trim_end_matches('>').split_once(" at 0x")
            && type_name != "Thread"
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            builder.value(address);
        }
        return true;
    }
    let Some((function, place)) = trimmed.strip_suffix(')').and_then(|t| t.rsplit_once(" ("))
    else {
        return false;
    };
    if indent != 4 {
        return false;
    }
    builder.dump.shows_native |= place.contains(".so") || place.contains(".c:");
    builder.frame(function, place);
    true
}

pub(super) fn begin_fault(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let rest = text.split_once("0x").map_or("", |(_, rest)| rest);
    let digits = rest.split(' ').next().unwrap_or("");
    let named = rest.split_once('[').and_then(|(_, name)| name.rsplit_once(']'));
    let name = named.map_or_else(|| format!("0x{digits}"), |(name, _)| name.to_owned());
    let id = u64::from_str_radix(digits, 16).unwrap_or(u64::from(number));
    builder.begin(&name, id, number)
}

/// `  File "/app/store.py", line 45 in get`
pub(super) fn fault_part(builder: &mut Builder, _number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed == "..." || trimmed == "<no Python frame>" {
        return builder.draft.is_some();
    }
    let parts = trimmed.strip_prefix("File \"").and_then(|rest| rest.rsplit_once("\", line "));
    let Some((file, (line, function))) =
        parts.and_then(|(file, rest)| Some((file, rest.split_once(" in ")?)))
    else {
        return false;
    };
    if builder.draft.is_none() {
        return false;
    }
    builder.frame(function, &format!("{file}:{line}"));
    true
}
