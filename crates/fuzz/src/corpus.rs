//! A corpus as one file: an input a line, escaped as Rust escapes bytes in a string.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the file of a target's corpus.
pub fn path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.txt"))
}

/// Reads the inputs of a target; none if it has no file.
pub fn read(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let text = match fs::read_to_string(path(target)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let wrong = |line: usize| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{target}.txt:{} is no input", line + 1))
    };
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| unescape(line).ok_or_else(|| wrong(at))).collect()
}

/// The most bytes of a corpus: what is checked in stays small.
const LARGEST: usize = 32 << 10;

/// Writes the inputs of a target, the shortest first, as many as there is room for.
pub fn write(target: &str, mut inputs: Vec<Vec<u8>>) -> io::Result<()> {
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut text = String::new();
    for line in inputs.iter().map(|input| format!("{}\n", input.escape_ascii())) {
        if text.len() + line.len() > LARGEST {
            break;
        }
        text += &line;
    }
    fs::write(path(target), text)
}

fn unescape(line: &str) -> Option<Vec<u8>> {
    let mut bytes = line.bytes();
    let mut found = Vec::new();
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'\\' => match bytes.next()? {
                b't' => b'\t',
                b'r' => b'\r',
                b'n' => b'\n',
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                plain @ (b'\\' | b'\'' | b'"') => plain,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(found)
}

#[cfg(test)]
mod tests;
