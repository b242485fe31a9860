//! The bytes of a checkpoint: numbers of seven bits a byte, texts with their length before them.
//!
//! Reading never panics and never allocates more than the bytes at hand can fill.

use std::net::IpAddr;

use super::Totals;

/// The bytes end early, or are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its bytes make no sense")]
pub struct Torn;

#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// Eight bytes, for what is as likely great as small.
    pub fn fixed(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    pub fn totals(&mut self, totals: Totals) {
        self.number(totals.bytes);
        self.number(totals.packets);
        self.number(totals.sessions);
    }

    pub fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => {
                self.byte(4);
                self.0.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                self.byte(6);
                self.0.extend(v6.octets());
            }
        }
    }
}

#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Torn> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Torn)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Torn> {
        self.take(N)?.try_into().map_err(|_| Torn)
    }

    pub fn byte(&mut self) -> Result<u8, Torn> {
        Ok(self.array::<1>()?[0])
    }

    pub fn number(&mut self) -> Result<u64, Torn> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Torn);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Torn)
    }

    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Torn> {
        T::try_from(self.number()?).map_err(|_| Torn)
    }

    /// Of things that take at least a byte each.
    pub fn count(&mut self) -> Result<usize, Torn> {
        let count = self.small()?;
        if count > self.0.len() { Err(Torn) } else { Ok(count) }
    }

    pub fn fixed(&mut self) -> Result<u64, Torn> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Result<&'a str, Torn> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Torn)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Torn> {
        let count = self.count()?;
        self.take(count)
    }

    pub fn totals(&mut self) -> Result<Totals, Torn> {
        let (bytes, packets, sessions) = (self.number()?, self.number()?, self.number()?);
        Ok(Totals { bytes, packets, sessions })
    }

    pub fn address(&mut self) -> Result<IpAddr, Torn> {
        match self.byte()? {
            4 => Ok(IpAddr::from(self.array::<4>()?)),
            6 => Ok(IpAddr::from(self.array::<16>()?)),
            _ => Err(Torn),
        }
    }
}
