//! Names of functions: which are the program's own, which value a method belongs to, and how Rust's
//! names read without hashes and generics.

use std::fmt::Write as _;

use super::dump::Runtime;

/// The type that a function is a method of, also that of a closure in a method.
///
/// Threads in two functions with one owner work on the same kind of value.
pub(super) fn owner(runtime: Runtime, function: &str) -> Option<&str> {
    match runtime {
        Runtime::Java => {
            let class = function.rsplit_once('.').map_or(function, |(class, _)| class);
            if class.contains("$$Lambda") || class.is_empty() {
                return None;
            }
            Some(class)
        }
        Runtime::Python => {
            let function = function.split(".<locals>").next().unwrap_or(function);
            function.rsplit_once('.').map(|(class, _)| class).filter(|class| !class.is_empty())
        }
        Runtime::Native => {
            let function = function.split("::{").next().unwrap_or(function);
            let (path, _) = function.rsplit_once("::")?;
            let last = path.rsplit("::").next().unwrap_or(path);
            last.starts_with(|c: char| c.is_ascii_uppercase()).then_some(path)
        }
    }
}

/// Whether a frame belongs to the program rather than to the language's own libraries.
pub(super) fn is_program(runtime: Runtime, function: &str, place: &str) -> bool {
    match runtime {
        Runtime::Java => {
            const OWN: [&str; 9] = [
                "java.",
                "javax.",
                "jdk.",
                "sun.",
                "com.sun.",
                "kotlinx.coroutines.",
                "kotlin.",
                "scala.",
                "io.netty.util.concurrent.",
            ];
            !OWN.iter().any(|own| function.starts_with(own))
        }
        Runtime::Python => is_python_program(place),
        Runtime::Native => is_native_program(function, place),
    }
}

fn is_python_program(place: &str) -> bool {
    const OWN: [&str; 26] = [
        "threading.py",
        "queue.py",
        "socket.py",
        "ssl.py",
        "selectors.py",
        "subprocess.py",
        "socketserver.py",
        "asyncio",
        "concurrent/futures",
        "thread.py",
        "_base.py",
        "http/client.py",
        "http/server.py",
        "client.py",
        "connection.py",
        "popen_fork.py",
        "pool.py",
        "process.py",
        "runpy.py",
        "logging/__init__.py",
        "contextlib.py",
        "base_events.py",
        "events.py",
        "synchronize.py",
        "<frozen",
        "_pydev",
    ];
    let (file, _) = place.rsplit_once(':').unwrap_or((place, ""));
    if !file.ends_with(".py") {
        // A shared object, C, or no place at all; what is typed at a prompt has brackets.
        return file.starts_with('<') && !file.starts_with("<frozen");
    }
    // Libraries that were installed beside are between the two: their locks are the program's.
    if let Some(at) = file.find("/lib/python") {
        return file[at..].contains("site-packages") || file[at..].contains("dist-packages");
    }
    if file.contains('/') && file.starts_with('/') {
        return true;
    }
    !OWN.iter().any(|own| file == *own || (file.contains('/') && file.starts_with(own)))
}

fn is_native_program(function: &str, place: &str) -> bool {
    const OWN: [&str; 14] = [
        "std::",
        "core::",
        "alloc::",
        "<std::",
        "<core::",
        "<alloc::",
        "tokio::",
        "<tokio::",
        "parking_lot",
        "mio::",
        "<mio::",
        "crossbeam",
        "futures_",
        "hashbrown::",
    ];
    if function.is_empty() || function == "??" || function.starts_with("0x") {
        return false;
    }
    if function.contains("::") {
        return !OWN.iter().any(|own| function.starts_with(own));
    }
    if place.contains("/sysdeps/") || place.contains("/nptl/") || place.contains("/csu/") {
        return false;
    }
    const LIBC: [&str; 40] = [
        "syscall",
        "start_thread",
        "clone",
        "clone3",
        "main",
        "recv",
        "recvfrom",
        "recvmsg",
        "read",
        "write",
        "send",
        "sendto",
        "sendmsg",
        "poll",
        "ppoll",
        "select",
        "epoll_wait",
        "accept",
        "accept4",
        "connect",
        "nanosleep",
        "clock_nanosleep",
        "usleep",
        "sleep",
        "wait4",
        "waitpid",
        "waitid",
        "fsync",
        "fdatasync",
        "open",
        "openat",
        "close",
        "futex_wait",
        "pthread_mutex_lock",
        "pthread_cond_wait",
        "pthread_cond_timedwait",
        "pthread_join",
        "pthread_rwlock_rdlock",
        "pthread_rwlock_wrlock",
        "rust_begin_unwind",
    ];
    !function.starts_with('_') && !LIBC.contains(&function) && !function.contains('@')
}

/// `<std[e282]::sys::sync::mutex::futex::Mutex>::lock_contended` and `_RNv…` alike as
/// `std::sys::sync::mutex::futex::Mutex::lock_contended`.
pub(super) fn demangled(symbol: &str) -> String {
    let symbol = symbol.trim();
    // Linkers and splitters add their own marks behind a dot.
    let bare = symbol.split(".llvm.").next().unwrap_or(symbol);
    let bare = cut(bare, LONGEST);
    let mut text = Short(String::new());
    match rustc_demangle::try_demangle(bare) {
        // What does not fit is left out: a name of a few bytes can refer back to itself.
        Ok(name) => drop(write!(text, "{name:#}")),
        Err(_) => text.0.push_str(bare),
    }
    let Short(text) = text;
    let text = text
        .replace("$LT$", "<")
        .replace("$GT$", ">")
        .replace("$u7b$", "{")
        .replace("$u7d$", "}")
        .replace("$u20$", " ")
        .replace("::_{", "::{")
        .replace("..", "::");
    without_hash(&plain(&text)).to_owned()
}

/// A name is looked at up to here.
const LONGEST: usize = 4096;

/// A text that takes no more than [`LONGEST`] bytes.
struct Short(String);

impl std::fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The text, cut at a character's boundary.
pub(super) fn cut(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

/// Without generics and the numbers that tell crates of one name apart. Linear: each character is
/// looked at once.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut angle, mut square) = (0usize, 0usize);
    // `<T as Trait>::f` and `<T>::f` are `T::f`.
    let mut skipping = false;
    let leading = text.starts_with('<');
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' if leading && at == 0 => {}
            '<' => angle += 1,
            // `->` closes nothing.
            '>' if previous == '-' => {}
            '>' if angle > 0 => angle -= 1,
            '>' => skipping = false,
            '[' => square += 1,
            ']' => square = square.saturating_sub(1),
            ' ' if leading && angle == 0 && square == 0 && text[at..].starts_with(" as ") => {
                skipping = true;
            }
            c if angle == 0 && square == 0 && !skipping => out.push(c),
            _ => {}
        }
        previous = c;
    }
    // `Mutex::<T>::lock` leaves an empty part.
    while out.contains("::::") {
        out = out.replace("::::", "::");
    }
    out
}

/// Without `::h0123456789abcdef`.
fn without_hash(text: &str) -> &str {
    match text.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => text,
    }
}

/// Whether a name says that its threads wait for work or for a peer: in a form that does not show
/// what a call waits for, a crowd in such a function is what a healthy server looks like.
pub(super) fn is_loop(function: &str) -> bool {
    const WORDS: [&str; 24] = [
        "run", "loop", "read", "recv", "watch", "drain", "work", "serve", "listen", "pump", "poll",
        "consume", "accept", "monitor", "wait", "sleep", "select", "tick", "timer", "main", "idle",
        "stream", "module", "lambda",
    ];
    let last = function.rsplit(['.', ':']).next().unwrap_or(function).to_ascii_lowercase();
    WORDS.iter().any(|word| last.contains(word)) || last.contains("comp>")
}

#[cfg(test)]
mod tests;
