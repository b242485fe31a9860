//! The lines of a text that may be a profile: copied as they stream by, or borrowed where the whole
//! text is in memory already.

use std::ops::Range;

#[derive(Debug)]
pub(super) enum Kept<'a> {
    Copied(Vec<u8>),
    Borrowed { whole: &'a [u8], range: Range<usize> },
}

impl Kept<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Borrowed { whole, range } => &whole[range.clone()],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Adds the next line, which ends before `end` in the whole text.
    pub(super) fn push(&mut self, line: &[u8], end: usize) {
        match self {
            Self::Copied(bytes) => {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
            Self::Borrowed { range, .. } => range.end = end,
        }
    }

    pub(super) fn drop_front(&mut self, len: usize) {
        match self {
            Self::Copied(bytes) => drop(bytes.drain(..len)),
            Self::Borrowed { range, .. } => range.start += len,
        }
    }

    /// What was kept; nothing is kept of what came up to `at` in the whole text.
    pub(super) fn take(&mut self, at: usize) -> Self {
        let fresh = match *self {
            Self::Copied(_) => Self::Copied(Vec::new()),
            Self::Borrowed { whole, .. } => Self::Borrowed { whole, range: at..at },
        };
        std::mem::replace(self, fresh)
    }
}
