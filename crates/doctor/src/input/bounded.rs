//! What an archive may cost: so many entries, so many bytes, so much more out than in.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

const MOST_ENTRIES: u64 = 200_000;
const MOST_BYTES: u64 = 64 << 30;
/// What an upload may cost: a support archive has some dozens of files, and the largest dump that is
/// known has a quarter of this.
const UPLOAD_ENTRIES: u64 = 10_000;
const UPLOAD_BYTES: u64 = 1 << 30;
/// A log of one line over and over packs to a few hundredths; beyond this it is made to.
const MOST_RATIO: u64 = 500;
/// Below this a ratio does no harm.
const HARMLESS: u64 = 256 << 20;

/// What all archives of one call may still cost.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    most: (u64, u64),
    bytes: Rc<Cell<u64>>,
    entries: Rc<Cell<u64>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MOST_BYTES, MOST_ENTRIES)
    }
}

impl Budget {
    fn of(bytes: u64, entries: u64) -> Self {
        let (most, bytes) = ((bytes, entries), Rc::new(Cell::new(bytes)));
        Self { most, bytes, entries: Rc::new(Cell::new(entries)) }
    }

    /// The budget of bytes that a stranger has sent.
    pub(super) fn of_an_upload() -> Self {
        Self::of(UPLOAD_BYTES, UPLOAD_ENTRIES)
    }

    pub(super) fn entry(&self) -> io::Result<()> {
        let left = self.entries.get();
        self.entries.set(left.saturating_sub(1));
        if left == 0 {
            return Err(io::Error::other(format!("more than {} files: give fewer", self.most.1)));
        }
        Ok(())
    }
}

/// Bytes counted where they are read.
#[derive(Debug, Clone)]
pub(super) struct Count(Rc<Cell<u64>>);

impl Count {
    pub(super) fn fixed(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }
}

#[derive(Debug)]
pub(super) struct Counted<R> {
    reader: R,
    count: Count,
}

impl<R: Read> Counted<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, count: Count::fixed(0) }
    }

    pub(super) fn count(&self) -> Count {
        self.count.clone()
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(into)?;
        self.count.0.set(self.count.0.get() + got as u64);
        Ok(got)
    }
}

/// Unpacked bytes, up to what is allowed.
#[derive(Debug)]
pub(super) struct Bounded<R> {
    reader: R,
    packed: Count,
    unpacked: u64,
    budget: Budget,
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(reader: R, packed: Count, budget: &Budget) -> Self {
        Self { reader, packed, unpacked: 0, budget: budget.clone() }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(into)?;
        self.unpacked += got as u64;
        let left = self.budget.bytes.get();
        self.budget.bytes.set(left.saturating_sub(got as u64));
        if left < got as u64 {
            let why = format!("archives hold more than {} GiB", self.budget.most.0 >> 30);
            return Err(io::Error::other(why));
        }
        if self.unpacked > HARMLESS && self.unpacked / MOST_RATIO > self.packed.0.get() {
            let why =
                format!("it unpacks to more than {MOST_RATIO} times its size: refused as a bomb");
            return Err(io::Error::other(why));
        }
        Ok(got)
    }
}
