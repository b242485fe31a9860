//! `LineLog`: lines in files that rotate: append, sync, read from either end. Blocking.
//!
//! Contract:
//! - [`LineLog::append`] writes everything to disk (`sync_data`) or returns an error. After an error the
//!   next append begins a new line, so that half a line spoils no other, and opens the file again, so that
//!   it works once the disk has room again or the directory is back.
//! - Files are `NAME.jsonl`, `NAME.1.jsonl` and so on, the newest first, readable by their owner only; lines
//!   are never changed. At [`LogSize::each`] bytes a file is full; [`LogSize::files`] are kept.
//! - A reader needs no lock: a rotation that is under way moves files and changes none. Half a line, after a
//!   crash, is a line for the reader, who knows what a line is.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::num::ParseIntError;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest line. A longer one is not ours, and is passed over.
pub const LONGEST: usize = 128 * 1024;
const PIECE: usize = 64 * 1024;

/// How much of a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// The size of a file in bytes.
    pub each: u64,
    /// The number of files, with the one that is being written.
    pub files: usize,
}

impl Default for LogSize {
    /// 256 MiB: about a quarter of a million lines.
    fn default() -> Self {
        Self { each: 32 << 20, files: 8 }
    }
}

/// The writer of a log. There is one for each name in a directory.
#[derive(Debug)]
pub struct LineLog {
    dir: PathBuf,
    name: &'static str,
    size: LogSize,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

/// The path of the `n`th file; the newest is 0.
pub fn path(dir: &Path, name: &str, n: usize) -> PathBuf {
    if n == 0 { dir.join(format!("{name}.jsonl")) } else { dir.join(format!("{name}.{n}.jsonl")) }
}

impl LineLog {
    /// Names a log. Its files are made with the first line.
    pub fn new(dir: &Path, name: &'static str, size: LogSize) -> Self {
        Self { dir: dir.into(), name, size, open: None }
    }

    /// Appends whole lines.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if open.bytes > 0 && open.bytes + lines.len() as u64 > self.size.each {
            drop(open);
            self.rotate()?;
            open = self.open()?;
        }
        open.file.write_all(lines)?;
        open.file.sync_data()?;
        open.bytes += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn open(&self) -> io::Result<Open> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let path = path(&self.dir, self.name, 0);
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        let mut file = match options.clone().create_new(true).open(&path) {
            Ok(file) => {
                // A crash must not remove the file again.
                File::open(&self.dir)?.sync_all()?;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(&path)?,
            Err(error) => return Err(error),
        };
        let mut bytes = file.metadata()?.len();
        if bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(Open { file, bytes })
    }

    /// Renames the oldest first, so that a crash in between leaves a gap and overwrites nothing.
    fn rotate(&self) -> io::Result<()> {
        let kept = self.size.files.max(1);
        for n in (0..kept).rev() {
            let from = path(&self.dir, self.name, n);
            let done = if n + 1 == kept {
                std::fs::remove_file(&from)
            } else {
                std::fs::rename(&from, path(&self.dir, self.name, n + 1))
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.dir)?.sync_all()
    }
}

/// The files of a log, the newest first, each once, however they are renamed meanwhile.
fn files(dir: &Path, name: &str) -> io::Result<Vec<(u64, File)>> {
    let mut found: Vec<(u64, File)> = Vec::new();
    for n in 0.. {
        match File::open(path(dir, name, n)) {
            Ok(file) => {
                let inode = file.metadata()?.ino();
                if found.iter().all(|(known, _)| *known != inode) {
                    found.push((inode, file));
                }
            }
            // A rotation that is under way or was interrupted leaves a gap of one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !path(dir, name, n + 1).exists() {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Calls `take` with the lines of a log, the newest first, until it has enough; says whether it was given
/// all. Files are read from their ends in pieces, so that this costs no more than what is taken.
pub fn newest_first(
    dir: &Path,
    name: &str,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    for (_, file) in files(dir, name)? {
        if !backwards(file, &mut take)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn backwards(mut file: File, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut at = file.metadata()?.len();
    // The end of a line that begins in the piece before.
    let mut rest: Vec<u8> = Vec::new();
    while at > 0 {
        let piece = at.min(PIECE as u64);
        at -= piece;
        file.seek(SeekFrom::Start(at))?;
        let mut buffer = vec![0; usize::try_from(piece).unwrap_or(PIECE)];
        file.read_exact(&mut buffer)?;
        buffer.extend_from_slice(&rest);
        let mut end = buffer.len();
        while let Some(newline) = buffer[..end].iter().rposition(|byte| *byte == b'\n') {
            let line = &buffer[newline + 1..end];
            if !line.is_empty() && !take(line) {
                return Ok(false);
            }
            end = newline;
        }
        buffer.truncate(end);
        rest = if buffer.len() > LONGEST { Vec::new() } else { buffer };
    }
    Ok(rest.is_empty() || take(&rest))
}

/// A place in a log, from which [`oldest_first`] goes on. It outlives rotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The hash of the file's first line: its name changes, and its inode's number is used again.
    file: u64,
    offset: u64,
}

/// The hash of a file's first line, or of the beginning of a long one.
fn first_line(file: &mut File) -> io::Result<u64> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    BufReader::with_capacity(4096, file).take(4096).read_until(b'\n', &mut line)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&line);
    Ok(hasher.finish())
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.file, self.offset)
    }
}

impl FromStr for LogPosition {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (file, offset) = text.split_once('-').unwrap_or((text, ""));
        Ok(Self { file: file.parse()?, offset: offset.parse()? })
    }
}

/// Calls `take` with the lines of a log after `after`, the oldest first, until it has enough. Returns where
/// to go on, and none at the end. Of a file that was deleted meanwhile, what is left of the log follows.
pub fn oldest_first(
    dir: &Path,
    name: &str,
    after: Option<LogPosition>,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<Option<LogPosition>> {
    let mut files = files(dir, name)?;
    files.reverse();
    let mut known = None;
    if let Some(after) = after {
        for (n, (_, file)) in files.iter_mut().enumerate() {
            if first_line(file)? == after.file {
                known = Some(n);
            }
        }
    }
    let mut offset = after.filter(|_| known.is_some()).map_or(0, |after| after.offset);
    for (_, mut file) in files.into_iter().skip(known.unwrap_or(0)) {
        let first = first_line(&mut file)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::with_capacity(PIECE, file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(LONGEST as u64).read_until(b'\n', &mut line)?;
            offset += read as u64;
            let Some((&last, text)) = line.split_last() else { break };
            if last != b'\n' {
                if read < LONGEST {
                    // It is being written.
                    break;
                }
                continue;
            }
            if !text.is_empty() && !take(text) {
                return Ok(Some(LogPosition { file: first, offset }));
            }
        }
        offset = 0;
    }
    Ok(None)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
