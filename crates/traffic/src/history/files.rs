//! `HistoryFiles`: frames on disk, in segments. Blocking.
//!
//! ```text
//! DATA/guard/history/1763395200000.history    named by the milliseconds at which it begins
//!   magic, length, checksum, frame │ magic, length, checksum, frame │ …
//! ```
//!
//! Contract:
//! - A writer begins a segment of its own and appends to no other, so that what a crash left half written is
//!   at a segment's end and stays there. A reader takes a segment's frames up to the first that is not whole.
//! - A segment is full after an hour, or at a sixteenth of the bytes that are kept.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::HistorySettings;
use super::frame::Frame;
use crate::conversations::Moment;

const MAGIC: [u8; 4] = *b"FLH1";
const EXTENSION: &str = "history";
const SEGMENT: Duration = Duration::from_secs(3600);
/// No frame that we write is larger.
const LARGEST: u32 = 64 << 20;
/// Agents tell of what was said some minutes late, and a conversation may be told of in a later frame.
const LATE: Duration = Duration::from_secs(15 * 60);

/// The history of one directory. Clones read the same files.
#[derive(Clone, Debug)]
pub struct HistoryFiles {
    settings: HistorySettings,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// When the oldest segment begins; none if there is none.
    pub from: Option<Moment>,
    pub bytes: u64,
}

/// A place between two frames: what an export goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryPosition {
    segment: u64,
    frame: u64,
}

impl std::fmt::Display for HistoryPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.segment, self.frame)
    }
}

impl FromStr for HistoryPosition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parse = || {
            let (segment, frame) = text.split_once('-')?;
            Some(Self { segment: segment.parse().ok()?, frame: frame.parse().ok()? })
        };
        parse().ok_or("this is no place in the history")
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u64,
    bytes: u64,
}

/// Appends frames. There may be one for each term; each has segments of its own.
#[derive(Debug)]
pub(super) struct HistoryWriter {
    files: HistoryFiles,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    file: File,
    from: Moment,
    bytes: u64,
}

impl HistoryFiles {
    pub fn new(settings: HistorySettings) -> Self {
        Self { settings }
    }

    pub fn settings(&self) -> &HistorySettings {
        &self.settings
    }

    fn path(&self, from: u64) -> PathBuf {
        self.settings.dir.join(format!("{from:013}.{EXTENSION}"))
    }

    /// The oldest first.
    fn segments(&self) -> io::Result<Vec<Segment>> {
        let entries = match fs::read_dir(&self.settings.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut segments = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let from =
                name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.'));
            let Some(from) = from.and_then(|from| from.parse().ok()) else { continue };
            // One that was just removed has no size any more.
            let bytes = entry.metadata().map_or(0, |file| file.len());
            segments.push(Segment { from, bytes });
        }
        segments.sort_by_key(|segment| segment.from);
        Ok(segments)
    }

    pub fn kept(&self) -> io::Result<Kept> {
        let segments = self.segments()?;
        let from = segments.first().map(|first| Moment(first.from));
        Ok(Kept { from, bytes: segments.iter().map(|segment| segment.bytes).sum() })
    }

    /// Reads frames that may tell of what was said from `from` until `until`, the oldest first, after a
    /// place, until `each` has enough. Says where to go on; none at the end.
    pub fn read(
        &self,
        (from, until): (Moment, Moment),
        after: Option<HistoryPosition>,
        mut each: impl FnMut(Frame) -> bool,
    ) -> io::Result<Option<HistoryPosition>> {
        let segments = self.segments()?;
        let late = Moment(until.0.saturating_add(LATE.as_millis() as u64));
        for (number, segment) in segments.iter().enumerate() {
            let end = segments.get(number + 1).map_or(u64::MAX, |next| next.from);
            let is_done = after.is_some_and(|after| segment.from < after.segment);
            // A frame that is written into a segment may reach past the beginning of the next one.
            let ends = end.saturating_add(SEGMENT.as_millis() as u64);
            if is_done || ends < from.0 || segment.from > late.0 {
                continue;
            }
            let skip = after.filter(|after| after.segment == segment.from);
            let skip = skip.map_or(0, |after| after.frame);
            let mut frames = match File::open(self.path(segment.from)) {
                Ok(file) => BufReader::new(file),
                // It was the oldest, and has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut place = 0;
            while let Some(packed) = next(&mut frames)? {
                place += 1;
                if place <= skip {
                    continue;
                }
                let Ok(frame) = Frame::decode(&packed) else { break };
                let fits = frame.until >= from && frame.from <= late;
                if fits && !each(frame) {
                    return Ok(Some(HistoryPosition { segment: segment.from, frame: place }));
                }
            }
        }
        Ok(None)
    }
}

/// The bytes of the next frame; none at the end, and where the rest is not whole.
fn next(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; 12];
    let word = |at: usize, header: &[u8; 12]| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (length, checksum) = (word(4, &header), word(8, &header));
    if header[..4] != MAGIC || length > LARGEST {
        return Ok(None);
    }
    // Read as it comes: a torn length allocates nothing that is not there.
    let mut packed = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut packed)?;
    let whole = packed.len() == length as usize && crc32fast::hash(&packed) == checksum;
    Ok(whole.then_some(packed))
}

impl HistoryWriter {
    pub(super) fn new(files: HistoryFiles) -> Self {
        Self { files, open: None }
    }

    /// Writes frames and syncs them. After an error the next frame begins another segment.
    pub(super) fn append(&mut self, frames: &[Frame]) -> io::Result<()> {
        let Some(first) = frames.first() else { return Ok(()) };
        let each = self.files.settings.bytes / 16;
        let full = |open: &OpenSegment| {
            open.bytes >= each || first.until.since(open.from) >= SEGMENT || first.until < open.from
        };
        let mut open = match self.open.take().filter(|open| !full(open)) {
            Some(open) => open,
            None => self.begin(first.from)?,
        };
        let mut bytes = Vec::new();
        for frame in frames {
            let packed = frame.encode()?;
            let length = u32::try_from(packed.len()).ok().filter(|length| *length <= LARGEST);
            let length = length.ok_or_else(|| io::Error::other("a frame is too large"))?;
            bytes.extend(MAGIC);
            bytes.extend(length.to_le_bytes());
            bytes.extend(crc32fast::hash(&packed).to_le_bytes());
            bytes.extend(packed);
        }
        let written = open.file.write_all(&bytes).and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            // The same growth is written again: it must not be there twice.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.bytes += bytes.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn begin(&self, from: Moment) -> io::Result<OpenSegment> {
        let dir = &self.files.settings.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut name = from.0;
        let file = loop {
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(0o600);
            match options.open(self.files.path(name)) {
                Ok(file) => break file,
                // That of another term, or of a clock that was set back.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name += 1,
                Err(error) => return Err(error),
            }
        };
        // A crash must not remove the file again.
        File::open(dir)?.sync_all()?;
        Ok(OpenSegment { file, from, bytes: 0 })
    }

    /// Removes the oldest segments: as many as there are bytes too many, and one that is past the age, so
    /// that a clock that jumps for a moment does not take all of them. The newest stays.
    pub(super) fn prune(&self, now: Moment) -> io::Result<()> {
        let HistorySettings { age, bytes, .. } = self.files.settings;
        let segments = self.files.segments()?;
        let mut all: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let oldest = now.before(age).0;
        for (number, two) in segments.windows(2).enumerate() {
            let is_old = number == 0 && two[1].from <= oldest;
            if !is_old && all <= bytes {
                break;
            }
            fs::remove_file(self.files.path(two[0].from))?;
            all -= two[0].bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
