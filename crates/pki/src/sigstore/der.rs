//! The little of DER that certificates and keys need: values one after another.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

/// One value.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerValue<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// With tag and length.
    pub(super) whole: &'a [u8],
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;

impl<'a> Der<'a> {
    /// The next value; none at the end, or where it is no DER.
    pub(super) fn next(&mut self) -> Option<DerValue<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 || rest.len() < count {
                return None;
            }
            let (digits, rest) = rest.split_at(count);
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        };
        let content = rest.get(..length)?;
        let header = self.0.len() - rest.len();
        let whole = &self.0[..header + length];
        self.0 = &rest[length..];
        Some(DerValue { tag, content, whole })
    }

    /// The next value, if it has this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<DerValue<'a>> {
        self.next().filter(|value| value.tag == tag)
    }
}

impl<'a> DerValue<'a> {
    pub(super) fn inside(&self) -> Der<'a> {
        Der(self.content)
    }
}

/// A value of this tag.
pub(super) fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut value = vec![tag];
    let length = content.len();
    if length < 0x80 {
        value.push(u8::try_from(length).unwrap_or(u8::MAX));
    } else {
        let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
        value.push(0x80 | u8::try_from(digits.len()).unwrap_or(u8::MAX));
        value.extend(digits);
    }
    value.extend_from_slice(content);
    value
}
