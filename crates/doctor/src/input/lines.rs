//! Lines from a reader, in memory that does not grow with the input.
//!
//! A line longer than [`LONGEST`] is cut, so that a file without line ends costs no more than one
//! with.

use std::io::{self, Read};

const CHUNK: usize = 1 << 18;
pub(crate) const LONGEST: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of the line last given, counted from one.
    number: u64,
    /// Bytes taken from the reader.
    pub(crate) read: u64,
    ended: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            number: 0,
            read: 0,
            ended: false,
        }
    }

    /// The next line with its number, without its end.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let line = self.start..searched + at;
                self.start = line.end + 1;
                return Ok(Some(self.give(line)));
            }
            if self.end - self.start >= LONGEST {
                let line = self.start..self.end;
                self.start = self.end;
                self.skip_line()?;
                return Ok(Some(self.give(line)));
            }
            if self.ended {
                let line = self.start..self.end;
                self.start = self.end;
                return Ok((!line.is_empty()).then(|| self.give(line)));
            }
            searched = self.end;
            self.fill(&mut searched)?;
        }
    }

    fn give(&mut self, line: std::ops::Range<usize>) -> (u64, &[u8]) {
        self.number += 1;
        let line = &self.buffer[line];
        (self.number, line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn fill(&mut self, searched: &mut usize) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            *searched -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer
                .resize((self.buffer.len() * 2).min(LONGEST + CHUNK), 0);
        }
        let got = read_some(&mut self.reader, &mut self.buffer[self.end..])?;
        self.read += got as u64;
        self.end += got;
        self.ended = got == 0;
        Ok(())
    }

    /// Drops what is left of a line that is too long. The line itself stays where it is.
    fn skip_line(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let got = read_some(&mut self.reader, &mut chunk)?;
            self.read += got as u64;
            if got == 0 {
                self.ended = true;
                return Ok(());
            }
            if let Some(at) = memchr::memchr(b'\n', &chunk[..got]) {
                let rest = &chunk[at + 1..got];
                self.buffer.truncate(self.end);
                self.buffer.extend_from_slice(rest);
                self.start = self.end;
                self.end = self.buffer.len();
                return Ok(());
            }
        }
    }
}

fn read_some(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Lines::new(text);
        let mut out = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            out.push((number, line.to_vec()));
        }
        assert_eq!(lines.read, text.len() as u64);
        out
    }

    #[test]
    fn lines_come_whole_with_either_end_and_without() {
        let expected: Vec<(u64, Vec<u8>)> =
            vec![(1, b"a".to_vec()), (2, b"".to_vec()), (3, b"b".to_vec())];
        assert_eq!(all(b"a\r\n\nb"), expected);
        assert_eq!(all(b"a\n\nb\n"), expected);
        assert_eq!(all(b""), vec![]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_is_whole() {
        let mut text = vec![b'x'; 3 * LONGEST];
        text.extend_from_slice(b"\nnext\nlast");
        let lines = all(&text);
        assert!(lines[0].1.len() >= LONGEST && lines[0].1.len() <= LONGEST + CHUNK);
        assert_eq!(lines[1..], [(2, b"next".to_vec()), (3, b"last".to_vec())]);
    }

    #[test]
    fn lines_across_chunks_are_whole() {
        let line = vec![b'y'; 100_001];
        let text: Vec<u8> = (0..20)
            .flat_map(|_| [line.as_slice(), b"\n"].concat())
            .collect();
        assert!(all(&text).iter().all(|(_, l)| *l == line));
    }
}
