//! Inputs as they come: files, directories, `-`, archives in archives, addresses; mixed in one call.
//!
//! ```text
//! argument ─► unpack (gz, zip, tar; bounded) ─► piece ─┬─► text, line by line
//!                                                      └─► protobuf
//! ```
//!
//! A piece is recognised by its content, never by its name. Names inside archives are only shown.
//! Nothing is written. What cannot be read is said, with the input and the line, and costs only
//! itself.

mod bounded;
mod kept;
mod lines;
mod text;

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::Path;

use self::bounded::{Bounded, Budget};
use crate::excerpt::Excerpts;
use crate::goroutine::{self, Dump};
use crate::log::Logs;
use crate::log::stamp::Millis;
use crate::metrics::Metrics;
use crate::own::Ledger;
use crate::pods::Pods;
use crate::report::{InputSummary, Refusal};
use crate::threads::ThreadDump;

/// Archives in archives in archives; more is an attack.
const DEEPEST: usize = 6;
/// Directories in directories.
const DEEPEST_DIRECTORY: usize = 32;
/// What must be in memory at once: a zip inside another archive, a binary profile.
const MOST_IN_MEMORY: u64 = 1 << 30;
/// Enough to recognise anything: a tar has its mark at 257.
const HEAD: usize = 1024;

/// How far reading has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The piece being read.
    pub input: &'a str,
    /// Bytes of it read so far.
    pub read: u64,
    /// Its size, where it is known.
    pub size: Option<u64>,
}

/// Everything that was read, by kind.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) dumps: Vec<Dump>,
    pub(crate) threads: Vec<ThreadDump>,
    pub(crate) logs: Logs,
    pub(crate) metrics: Metrics,
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) excerpts: Excerpts,
    pub(crate) pods: Pods,
    pub(crate) inputs: Vec<InputSummary>,
}

impl Gathered {
    fn take_dump(&mut self, summary: &mut InputSummary, dump: Dump) {
        let taken = dump.taken_for();
        if !summary.taken_for.contains(&taken) {
            summary.taken_for.push(taken);
        }
        summary.read.push(dump.summary());
        self.dumps.push(dump);
    }

    fn take_threads(&mut self, summary: &mut InputSummary, dump: ThreadDump) {
        let taken = dump.taken_for();
        if !summary.taken_for.contains(&taken) {
            summary.taken_for.push(taken);
        }
        summary.read.push(dump.summary());
        self.threads.push(dump);
    }
}

/// Gathers what the inputs hold.
pub(crate) struct Intake<'a> {
    pub(crate) gathered: Gathered,
    budget: Budget,
    progress: &'a mut dyn FnMut(Progress<'_>),
    /// What a time without a year is taken to lie before, where the file does not say.
    now: Option<Millis>,
}

/// One piece on its way from an argument to its reader.
struct Piece<'a> {
    name: String,
    size: Option<u64>,
    written: Option<Millis>,
    depth: usize,
    reader: Box<dyn Read + 'a>,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(now: Option<Millis>, progress: &'a mut dyn FnMut(Progress<'_>)) -> Self {
        Self { gathered: Gathered::default(), budget: Budget::default(), progress, now }
    }

    /// An intake for bytes that a stranger may have sent: less may be unpacked.
    pub(crate) fn of_uploads(progress: &'a mut dyn FnMut(Progress<'_>)) -> Self {
        Self { budget: Budget::of_an_upload(), ..Self::new(None, progress) }
    }

    /// Reads a path, a directory or `-`.
    pub(crate) fn path(&mut self, argument: &str) {
        if argument == "-" {
            let stdin = io::stdin().lock();
            self.piece(Piece::new("-", Box::new(stdin)));
            return;
        }
        self.walk(Path::new(argument), 0);
    }

    /// Reads bytes that are already here; text and profiles without copying them.
    pub(crate) fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let size = bytes.len() as u64;
        let mut summary = InputSummary { name: name.to_owned(), size, ..InputSummary::default() };
        let kind = Kind::of(bytes.get(..HEAD).unwrap_or(bytes));
        if kind == Kind::Protobuf
            && let Some(dump) = goroutine::parse_protobuf(name, bytes)
        {
            self.gathered.take_dump(&mut summary, dump);
            self.gathered.inputs.push(summary);
            return;
        }
        if matches!(kind, Kind::Text | Kind::Protobuf) {
            let progress = &mut self.progress;
            let mut tell = |read| progress(Progress { input: name, read, size: Some(size) });
            text::read_whole(&mut self.gathered, &mut summary, bytes, self.now, &mut tell);
            self.gathered.inputs.push(summary);
            return;
        }
        let piece = Piece { size: Some(bytes.len() as u64), ..Piece::new(name, Box::new(bytes)) };
        self.piece(piece);
    }

    fn walk(&mut self, path: &Path, depth: usize) {
        let name = path.to_string_lossy().into_owned();
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(e) => return self.refuse(&name, e.to_string()),
        };
        if found.is_dir() {
            // A link to a directory may lead back up.
            let linked = depth > 0 && path.symlink_metadata().is_ok_and(|m| m.is_symlink());
            if linked || depth >= DEEPEST_DIRECTORY {
                return;
            }
            let mut entries: Vec<_> = match fs::read_dir(path) {
                Ok(entries) => entries.filter_map(Result::ok).map(|e| e.path()).collect(),
                Err(e) => return self.refuse(&name, e.to_string()),
            };
            entries.sort();
            if entries.is_empty() && depth == 0 {
                self.refuse(&name, "the directory is empty".into());
            }
            for entry in entries {
                self.walk(&entry, depth + 1);
            }
            return;
        }
        if depth > 0 && !found.is_file() {
            return self.refuse(&name, "neither a file nor a directory".into());
        }
        if let Err(e) = self.budget.entry() {
            return self.refuse(&name, e.to_string());
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) => return self.refuse(&name, e.to_string()),
        };
        let written = found.modified().ok().and_then(|t| jiff::Timestamp::try_from(t).ok());
        let size = found.is_file().then_some(found.len());
        let written = written.map(jiff::Timestamp::as_millisecond);
        if found.is_file() && is_zip(&file) {
            return self.zip(&name, BufReader::new(file), 0);
        }
        // A dump is looked at as a whole; a copy made line by line would take more.
        if found.is_file() && found.len() <= MOST_IN_MEMORY && is_dump(&file) {
            return self.dump(&name, file, found.len(), written);
        }
        self.piece(Piece { size, written, ..Piece::new(&name, Box::new(file)) });
    }

    /// Reads a file that begins with a dump into memory, once and in its size.
    fn dump(&mut self, name: &str, file: File, size: u64, written: Option<Millis>) {
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        if let Err(e) = file.take(MOST_IN_MEMORY).read_to_end(&mut bytes) {
            return self.refuse(name, e.to_string());
        }
        let mut summary = InputSummary { name: name.to_owned(), ..InputSummary::default() };
        let progress = &mut self.progress;
        let mut tell = |read| progress(Progress { input: name, read, size: Some(size) });
        let written = written.or(self.now);
        text::read_whole(&mut self.gathered, &mut summary, &bytes, written, &mut tell);
        self.gathered.inputs.push(summary);
    }

    /// Recognises a piece by how it begins.
    fn piece(&mut self, mut piece: Piece<'_>) {
        let mut head = Vec::with_capacity(HEAD);
        if let Err(e) = piece.reader.by_ref().take(HEAD as u64).read_to_end(&mut head) {
            return self.refuse(&piece.name, e.to_string());
        }
        let kind = Kind::of(&head);
        let reader = Box::new(Cursor::new(head).chain(piece.reader));
        let piece = Piece { reader, ..piece };
        if piece.depth >= DEEPEST && matches!(kind, Kind::Gzip | Kind::Zip | Kind::Tar) {
            return self.refuse(&piece.name, format!("packed more than {DEEPEST} times"));
        }
        match kind {
            Kind::Gzip => self.gzip(piece),
            Kind::Tar => self.tar(piece),
            Kind::Zip => match in_memory(piece.reader) {
                Ok(bytes) => self.zip(&piece.name, Cursor::new(bytes), piece.depth),
                Err(e) => self.refuse(&piece.name, e.to_string()),
            },
            Kind::Foreign(what) => {
                self.refuse(&piece.name, format!("{what}: unpack or export it as text first"));
            }
            Kind::Protobuf => self.protobuf(piece),
            Kind::Text => self.text(piece),
        }
    }

    fn gzip(&mut self, piece: Piece<'_>) {
        let packed = bounded::Counted::new(piece.reader);
        let read = packed.count();
        let unpacked = flate2::read::MultiGzDecoder::new(packed);
        let reader = Box::new(Bounded::new(unpacked, read, &self.budget));
        self.piece(Piece { reader, size: None, depth: piece.depth + 1, ..piece });
    }

    fn tar(&mut self, piece: Piece<'_>) {
        let mut archive = tar::Archive::new(piece.reader);
        let entries = match archive.entries() {
            Ok(entries) => entries,
            Err(e) => return self.refuse(&piece.name, e.to_string()),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return self.refuse(&piece.name, format!("the archive is damaged: {e}")),
            };
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let name = format!("{}!{}", piece.name, String::from_utf8_lossy(&entry.path_bytes()));
            if let Err(e) = self.budget.entry() {
                return self.refuse(&name, e.to_string());
            }
            let written = entry.header().mtime().ok().and_then(|t| i64::try_from(t).ok());
            let size = Some(entry.size());
            self.piece(Piece {
                name,
                size,
                written: written.and_then(|t| t.checked_mul(1000)),
                depth: piece.depth + 1,
                reader: Box::new(entry),
            });
        }
    }

    fn zip(&mut self, name: &str, reader: impl Read + Seek, depth: usize) {
        let mut archive = match zip::ZipArchive::new(reader) {
            Ok(archive) => archive,
            Err(e) => return self.refuse(name, e.to_string()),
        };
        for index in 0..archive.len() {
            let entry = match archive.by_index(index) {
                Ok(entry) => entry,
                Err(e) => {
                    self.refuse(name, format!("member {}: {e}", index + 1));
                    continue;
                }
            };
            if !entry.is_file() {
                continue;
            }
            let name = format!("{name}!{}", String::from_utf8_lossy(entry.name_raw()));
            if let Err(e) = self.budget.entry() {
                return self.refuse(&name, e.to_string());
            }
            let packed = entry.compressed_size();
            let size = Some(entry.size());
            let reader = Box::new(Bounded::new(entry, bounded::Count::fixed(packed), &self.budget));
            self.piece(Piece { name, size, written: None, depth: depth + 1, reader });
        }
    }

    fn protobuf(&mut self, piece: Piece<'_>) {
        let bytes = match in_memory(piece.reader) {
            Ok(bytes) => bytes,
            Err(e) => return self.refuse(&piece.name, e.to_string()),
        };
        match goroutine::parse_protobuf(&piece.name, &bytes) {
            Some(dump) => {
                let mut summary = InputSummary {
                    name: piece.name,
                    size: bytes.len() as u64,
                    ..InputSummary::default()
                };
                self.gathered.take_dump(&mut summary, dump);
                self.gathered.inputs.push(summary);
            }
            None => self.text(Piece { reader: Box::new(Cursor::new(bytes)), ..piece }),
        }
    }

    fn text(&mut self, piece: Piece<'_>) {
        let mut summary = InputSummary { name: piece.name.clone(), ..InputSummary::default() };
        let size = piece.size;
        let mut tell = |read| {
            let input = &piece.name;
            (self.progress)(Progress { input, read, size });
        };
        let written = piece.written.or(self.now);
        text::read(&mut self.gathered, &mut summary, piece.reader, written, &mut tell);
        self.gathered.inputs.push(summary);
    }

    pub(crate) fn refuse(&mut self, name: &str, why: String) {
        self.gathered.inputs.push(InputSummary {
            name: name.to_owned(),
            refused: vec![Refusal { line: None, why }],
            ..InputSummary::default()
        });
    }
}

impl<'a> Piece<'a> {
    fn new(name: &str, reader: Box<dyn Read + 'a>) -> Self {
        Self { name: name.to_owned(), size: None, written: None, depth: 0, reader }
    }
}

#[derive(Debug, PartialEq)]
enum Kind {
    Gzip,
    Zip,
    Tar,
    Text,
    Protobuf,
    /// Known, and not read.
    Foreign(&'static str),
}

impl Kind {
    fn of(head: &[u8]) -> Self {
        const FOREIGN: &[(&[u8], &str)] = &[
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"\xfd7zXZ", "xz"),
            (b"BZh", "bzip2"),
            (b"7z\xbc\xaf", "7z"),
            (b"\x89PNG", "a picture"),
            (b"\xff\xd8\xff", "a picture"),
            (b"GIF8", "a picture"),
            (b"%PDF", "PDF"),
            (b"\x7fELF", "a program"),
            (b"\xff\xfe", "UTF-16 text"),
            (b"\xfe\xff", "UTF-16 text"),
        ];
        if head.starts_with(b"\x1f\x8b") {
            Self::Gzip
        } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            Self::Zip
        } else if head.get(257..262) == Some(b"ustar") {
            Self::Tar
        } else if let Some((_, what)) = FOREIGN.iter().find(|(mark, _)| head.starts_with(mark)) {
            Self::Foreign(what)
        } else if is_protobuf(head) {
            Self::Protobuf
        } else {
            Self::Text
        }
    }
}

/// A profile begins with the tag of its sample type or period type; lengths and numbers follow that
/// no text has.
fn is_protobuf(head: &[u8]) -> bool {
    let control = |b: &u8| *b < 0x09 || (0x0e..0x1b).contains(b);
    matches!(head.first(), Some(0x0a | 0x5a)) && head.iter().take(64).any(control)
}

fn is_zip(file: &File) -> bool {
    Kind::of(&head(file, 4)) == Kind::Zip
}

/// Whether a file begins with a goroutine's header.
fn is_dump(file: &File) -> bool {
    head(file, 10) == b"goroutine "
}

/// The first bytes of a file, which stays where it is.
fn head(mut file: &File, len: u64) -> Vec<u8> {
    let mut head = Vec::new();
    let read = file.take(len).read_to_end(&mut head);
    if file.rewind().is_err() || read.is_err() {
        head.clear();
    }
    head
}

fn in_memory(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(MOST_IN_MEMORY + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST_IN_MEMORY {
        let why = format!("more than {} MiB: unpack it first", MOST_IN_MEMORY >> 20);
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
