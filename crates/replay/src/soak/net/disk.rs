//! `Disk`: a small file system that can be full, seen by nobody who is not given its path, and gone with
//! this process however that ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::incident::{Cannot, Ran};

/// The journal of a few pods has some KiB, and is written anew beside itself.
const SIZE: &str = "size=8m,mode=700";
const FILLER: &str = "filler";

/// It is mounted in a mount namespace of its own, which a process holds that ends with our pipe to it.
#[derive(Debug)]
pub(super) struct Disk {
    holder: Child,
    path: PathBuf,
}

impl Disk {
    pub(super) fn new(dir: &Path) -> Result<Self, Cannot> {
        let at = dir.join("disk");
        fs::create_dir(&at)?;
        let script = "mount -t tmpfs -o \"$1\" fairlead-soak \"$2\" && echo mounted && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", SIZE])
            .arg(&at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        // `unshare` becomes the shell, and the shell what holds it: one process.
        let path = PathBuf::from(format!("/proc/{}/root", holder.id()));
        let path = path.join(at.strip_prefix("/")?);
        let disk = Self { holder, path };
        if line.trim() != "mounted" {
            return Err("a small disk for the journal cannot be mounted".into());
        }
        Ok(disk)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// To the last byte.
    pub(super) fn fill(&self) -> Ran {
        let mut file = File::create(self.path.join(FILLER))?;
        let mut piece = vec![0; 64 << 10];
        while !piece.is_empty() {
            match file.write(&piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn free(&self) -> Ran {
        Ok(fs::remove_file(self.path.join(FILLER))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
