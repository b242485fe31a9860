//! `Disk`: one file on a disk that a crash takes back to what was synced, with any part of the rest.
//!
//! Contract:
//! - A read sees all writes. After [`Disk::crash`] there is what was synced, and of each sector (512 bytes) that
//!   was written since, the old or the new content: any of them, in any combination.
//! - [`Disk::crash_in`] lets so many more operations be done; the disk then crashes in the middle of the process's
//!   work. What the process does after that fails, as it no longer lives.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::World;

const SECTOR: usize = 512;

/// A handle; clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk {
    world: World,
    /// The process's operations, one after the other.
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    content: Vec<u8>,
    /// What is on disk for sure: of each sector that was written since the last sync.
    before: BTreeMap<usize, Vec<u8>>,
    /// The length at the last sync.
    length: usize,
    operations: u64,
    crash_at: Option<u64>,
    dead: bool,
    /// A planted bug: nothing is synced, and that is not said.
    lies: bool,
}

impl Disk {
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), state: Arc::default() }
    }

    /// A disk that says that it has synced, and has not.
    pub fn lying(world: &World) -> Self {
        let disk = Self::new(world);
        disk.state().lies = true;
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Crashes after so many more operations that change the file.
    pub fn crash_in(&self, operations: u64) {
        let mut state = self.state();
        state.crash_at = Some(state.operations + operations);
    }

    /// Whether the process has died by a crash that was planned.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The power is back: what a crash leaves, for the next process.
    pub fn crash(&self) {
        let mut state = self.state();
        if state.length != state.content.len() && self.world.one_in(2) {
            let length = state.length;
            state.content.resize(length, 0);
        }
        for (sector, mut old) in std::mem::take(&mut state.before) {
            // What was added to the file and is lost reads as zeros.
            old.resize(SECTOR, 0);
            let (at, length) = (sector * SECTOR, state.content.len());
            let end = (at + SECTOR).min(length);
            if at < end && self.world.one_in(2) {
                state.content[at..end].copy_from_slice(&old[..end - at]);
            }
        }
        state.length = state.content.len();
        (state.dead, state.crash_at) = (false, None);
    }
}

impl State {
    /// Counts an operation; fails from the planned crash on.
    fn operate(&mut self) -> io::Result<()> {
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            self.dead = true;
        }
        self.operations += 1;
        self.alive()
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the process was killed")) } else { Ok(()) }
    }

    /// Remembers what sectors were before they are written for the first time since the last sync.
    fn remember(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            let content = &self.content;
            self.before.entry(sector).or_insert_with(|| {
                let at = (sector * SECTOR).min(content.len());
                content[at..(at + SECTOR).min(content.len())].to_vec()
            });
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.alive()?;
        Ok(state.content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.alive()?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let found = state.content.get(at..at + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        let length = usize::try_from(len).map_err(io::Error::other)?;
        let now = state.content.len();
        if length < now {
            state.remember(length, now);
        }
        state.content.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        if !state.lies {
            state.before.clear();
            state.length = state.content.len();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let end = at + data.len();
        if end > state.content.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.remember(at, end);
        state.content[at..end].copy_from_slice(data);
        Ok(())
    }
}
