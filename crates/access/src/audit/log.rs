//! The files of the audit: append, sync, rotate. Blocking.
//!
//! Contract: `append` writes everything to disk or returns an error. After an error the next append
//! begins a new line, so that half a line spoils no other, and opens the file again, so that it works
//! once the disk has room again or the directory is back.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Size;

#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    size: Size,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

/// The path of the `n`th file; the newest is 0.
pub(super) fn path(dir: &Path, n: usize) -> PathBuf {
    if n == 0 { dir.join("audit.jsonl") } else { dir.join(format!("audit.{n}.jsonl")) }
}

impl Log {
    pub(super) fn new(dir: &Path, size: Size) -> Self {
        Self { dir: dir.into(), size, open: None }
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
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
        let path = path(&self.dir, 0);
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
            let from = path(&self.dir, n);
            let done = if n + 1 == kept {
                std::fs::remove_file(&from)
            } else {
                std::fs::rename(&from, path(&self.dir, n + 1))
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests;
