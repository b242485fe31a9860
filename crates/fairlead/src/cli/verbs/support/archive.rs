//! The archive that is being written: a gzipped tar, in which every file was masked and is bounded.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::mask::Masks;
use crate::output::Failure;

/// The size of one file; of a longer one the end is kept.
pub(super) const LARGEST_FILE: usize = 16 << 20;
/// The size of all files together, before they are packed.
const LARGEST: usize = 512 << 20;
/// The directory in the archive that everything is in.
const TOP: &str = "fairlead-support";

pub(super) struct Archive {
    tar: tar::Builder<GzEncoder<Box<dyn Write>>>,
    masks: Masks,
    written: usize,
    files: usize,
    /// The files that are missing, and why.
    missing: Vec<(String, String)>,
    time: u64,
}

/// The size of an archive, and what is missing from it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) files: usize,
    pub(super) bytes: usize,
    pub(super) missing: Vec<(String, String)>,
}

impl Archive {
    /// `-` is standard output. A file must be new, and is readable by its owner alone.
    pub(super) fn create(path: &Path, masks: Masks) -> Result<Self, Failure> {
        let out: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout().lock())
        } else {
            Box::new(new_file(path)?)
        };
        let tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        let time = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        Ok(Self { tar, masks, written: 0, files: 0, missing: Vec::new(), time })
    }

    /// Adds a file, masked. One that is too long loses its beginning, and says so at its place.
    pub(super) fn add(&mut self, name: &str, content: Vec<u8>) -> Result<(), Failure> {
        let content = self.masks.apply(shortened(content));
        self.put(name, &content)
    }

    /// Adds a file that was masked where it was made.
    pub(super) fn add_masked(&mut self, name: &str, content: &[u8]) -> Result<(), Failure> {
        self.put(name, content)
    }

    /// Adds a file that a source gave, or notes why it did not.
    pub(super) fn take(
        &mut self,
        name: &str,
        source: Result<Vec<u8>, String>,
    ) -> Result<(), Failure> {
        match source {
            Ok(content) => self.add(name, content),
            Err(why) => {
                self.missing(name, why);
                Ok(())
            }
        }
    }

    pub(super) fn missing(&mut self, name: &str, why: impl Into<String>) {
        self.missing.push((name.to_owned(), why.into()));
    }

    fn put(&mut self, name: &str, content: &[u8]) -> Result<(), Failure> {
        if self.written + content.len() > LARGEST {
            let why = format!("the archive already holds {} MiB", self.written >> 20);
            self.missing(name, why);
            return Ok(());
        }
        self.written += content.len();
        self.files += 1;
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, format!("{TOP}/{name}"), content).map_err(unwritten)
    }

    /// Adds the list of what is missing, and ends the archive.
    pub(super) fn finish(mut self) -> Result<Written, Failure> {
        let missing = std::mem::take(&mut self.missing);
        let mut page = "# fairlead support: what could not be had\n\n".to_owned();
        if missing.is_empty() {
            page.push_str("nothing is missing\n");
        }
        for (name, why) in &missing {
            let _ = writeln!(page, "{name}: {why}");
        }
        self.add("missing.txt", page.into_bytes())?;
        let Self { tar, files, written, .. } = self;
        let mut out = tar.into_inner().and_then(GzEncoder::finish).map_err(unwritten)?;
        out.flush().map_err(unwritten)?;
        Ok(Written { files, bytes: written, missing })
    }
}

fn new_file(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| {
        let shown = path.display();
        Failure(match e.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{shown} is there already; name another file with -f")
            }
            _ => format!("{shown} cannot be written: {e}; name another file with -f"),
        })
    })
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err passes")]
fn unwritten(error: io::Error) -> Failure {
    Failure(format!("the archive cannot be written: {error}"))
}

/// The end of a file that is too long: what happened last is what is looked for.
fn shortened(mut content: Vec<u8>) -> Vec<u8> {
    if content.len() <= LARGEST_FILE {
        return content;
    }
    let cut = content.len() - LARGEST_FILE;
    let line = content[cut..].iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    content.drain(..cut + line);
    content
}
