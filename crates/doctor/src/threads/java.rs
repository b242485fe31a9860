//! Java: what `jstack`, `jcmd Thread.print` and SIGQUIT print, with or without `-l`, and the plain
//! form of `jcmd Thread.dump_to_file`, which has virtual threads too.

use memchr::memmem;

use super::dump::{Builder, State};

const TITLE: &[u8] = b"Full thread dump ";

/// Where the title of a dump begins in a line that may have a log's words before it.
pub(super) fn title(line: &[u8]) -> Option<usize> {
    let at = memmem::find(line, TITLE)?;
    (at <= 120).then_some(at)
}

pub(super) fn is_title(line: &[u8]) -> bool {
    line.starts_with(TITLE)
}

/// `"main" #1 [3344] prio=5 os_prio=0 cpu=62.99ms elapsed=2.52s tid=0x00007f45f0017970 nid=0xd10 …`
pub(super) fn is_header(line: &[u8]) -> bool {
    let Some(end) = memchr::memrchr(b'"', line) else {
        return false;
    };
    end > 0
        && (memmem::find(&line[end..], b" prio=").is_some()
            || memmem::find(&line[end..], b" tid=0x").is_some())
}

/// `#22 "name" virtual WAITING 2026-…`; before Java 25 without state and time.
pub(super) fn is_file_header(line: &[u8]) -> bool {
    let digits = line[1..].iter().take_while(|b| b.is_ascii_digit()).count();
    digits > 0
        && line[1 + digits..].starts_with(b" \"")
        && memchr::memrchr(b'"', line) > Some(digits + 2)
}

pub(super) fn begin(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let end = text.rfind('"').unwrap_or(0);
    let (name, rest) = (text.get(1..end).unwrap_or(""), &text[end..]);
    // `tid` is the one number that every thread has, the virtual machine's own included.
    let id = field(rest, " tid=0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let fresh = builder.begin(name, id.unwrap_or(u64::from(number)), number);
    if let Some(draft) = &mut builder.draft {
        draft.cpu = field(rest, " cpu=")
            .and_then(|cpu| cpu.strip_suffix("ms"))
            .and_then(|ms| ms.parse::<f64>().ok())
            .filter(|ms| ms.is_finite() && *ms >= 0.0)
            .map(|ms| (ms * 1000.0) as u64);
    }
    fresh
}

pub(super) fn begin_file(builder: &mut Builder, number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let open = text.find('"').unwrap_or(0);
    let end = text.rfind('"').unwrap_or(0);
    let id = text[1..open].trim().parse().unwrap_or(u64::from(number));
    let fresh = builder.begin(text.get(open + 1..end).unwrap_or(""), id, number);
    let mut words = text[end..].split_whitespace().skip(1).filter(|w| *w != "virtual");
    if let Some(draft) = &mut builder.draft {
        draft.state = words.next().map_or(State::Unknown, state);
    }
    fresh
}

/// The state by its name.
pub(super) fn state(word: &str) -> State {
    match word {
        "RUNNABLE" => State::Running,
        "BLOCKED" => State::Blocked,
        "WAITING" => State::Waiting,
        "TIMED_WAITING" => State::TimedWaiting,
        _ => State::Unknown,
    }
}

/// A line within a thread, or of the sections after the threads.
pub(super) fn part(builder: &mut Builder, _number: u32, line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let trimmed = text.trim();
    if trimmed.starts_with("Found ") && trimmed.contains("deadlock") {
        builder.end_thread();
        // What follows is told in the threads already.
        builder.aside = trimmed.ends_with(':');
        return true;
    }
    if builder.aside {
        return true;
    }
    if let Some(state) = trimmed.strip_prefix("java.lang.Thread.State: ") {
        if let Some(draft) = &mut builder.draft {
            draft.state = self::state(state.split(' ').next().unwrap_or(""));
        }
        return true;
    }
    if let Some(remark) = trimmed.strip_prefix("- ") {
        remarked(builder, remark);
        return true;
    }
    if trimmed == "Locked ownable synchronizers:" {
        builder.dump.lists_owners = true;
        return true;
    }
    let call = trimmed.strip_prefix("at ").unwrap_or(trimmed);
    if builder.draft.is_some()
        && line.first().is_some_and(u8::is_ascii_whitespace)
        && call.ends_with(')')
    {
        return frame(builder, call);
    }
    // Sections of the virtual machine around the threads.
    trimmed.is_empty()
        || ["Threads class SMR info", "_java_thread_list", "JNI global ref", "0x0000", "}"]
            .iter()
            .any(|start| trimmed.starts_with(start))
}

/// `java.base/java.lang.Thread.run(Thread.java:840)`, `app.Store.get(java.base@17/Store.java:12)`.
pub(super) fn frame(builder: &mut Builder, call: &str) -> bool {
    let Some((function, place)) = call.strip_suffix(')').and_then(|c| c.split_once('(')) else {
        return false;
    };
    if function.is_empty() || function.contains(' ') {
        return false;
    }
    // A module's or a class loader's name and version stand before a slash; in the name of a
    // lambda's class the slash comes after the dots.
    let function = match function.rsplit_once('/') {
        Some((module, rest)) if !module.contains("$$Lambda") => rest,
        _ => function,
    };
    let place = place.rsplit_once('/').map_or(place, |(_, place)| place);
    builder.frame(function, place);
    true
}

/// `waiting to lock <0x…> (a app.Store)`, `locked <app.Store@3d99355>`, …
fn remarked(builder: &mut Builder, remark: &str) {
    if let Some(class) = remark.strip_prefix("waiting on the Class initialization monitor for ") {
        builder.waits_on(&format!("the initialisation of {class}"), class);
        if let Some(draft) = &mut builder.draft {
            draft.state = State::Initialising;
        }
        return;
    }
    let Some((id, rest)) = remark.split_once('<').and_then(|(_, rest)| rest.split_once('>')) else {
        return;
    };
    let printed = rest.trim().strip_prefix("(a ").and_then(|t| t.strip_suffix(')'));
    let type_name = printed.unwrap_or_else(|| id.split_once('@').map_or("", |(t, _)| t));
    let frames = builder.draft.as_ref().map_or(0, |draft| draft.frames.len());
    if remark.starts_with("locked ") {
        builder.hold(id, type_name, frames.checked_sub(1));
    } else if remark.starts_with('<') {
        // Below «Locked ownable synchronizers».
        builder.hold(id, type_name, None);
    } else if remark.starts_with("waiting to re-lock in wait()") {
        builder.waits_on(id, type_name);
        if let Some(draft) = &mut builder.draft {
            draft.state = State::Blocked;
        }
    } else if remark.starts_with("waiting ") || remark.starts_with("parking to wait for") {
        builder.waits_on(id, type_name);
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = &text[text.find(name)? + name.len()..];
    Some(rest.split([' ', '\t']).next().unwrap_or(rest))
}
